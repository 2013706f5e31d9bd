"""The operations against decide(): thousands of random trees and rules, in a model of mounts."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from unit.planner.mount_model import Sandbox
from unit.planner.profiles import profile
from unit.planner.trees import FULL, LISTS, TREES, everything_below, grow

from sbx.model.glob import split_path
from sbx.model.plan import Op
from sbx.model.profile import EffectiveProfile
from sbx.model.verdict import may_exec, may_modify, may_read
from sbx.planner.linux import plan
from sbx.planner.walk import DirectoryReader


def disagreements(rules: EffectiveProfile, sandbox: Sandbox, root: str) -> Iterator[str]:
    for path in everything_below(root):
        names = split_path(path)
        read, modify = may_read(rules.judge, names), may_modify(rules.judge, names)
        if os.path.islink(path):
            if sandbox.removable(path) and not modify:
                yield f"the link {path!r} could be replaced"
            continue
        if sandbox.readable(path) != read:
            yield f"read {path!r}: the rules say {read}"
        if os.path.isdir(path):
            yield from _directory(rules, sandbox, path)
        elif sandbox.writable(path) != modify:
            yield f"write {path!r}: the rules say {modify}"
        elif read and sandbox.executable(path) != may_exec(rules.judge, names):
            yield f"exec {path!r}: the rules say {not sandbox.executable(path)}"
        if sandbox.removable(path) and not modify:
            yield f"{path!r} could be removed or replaced"


def _directory(rules: EffectiveProfile, sandbox: Sandbox, path: str) -> Iterator[str]:
    """New names: never more than the rules allow for a name nobody wrote down; as much, if that holds below too."""
    names = split_path(path)
    fresh = [(*names, *("fresh-name-of-nobody",) * depth) for depth in range(6)]
    allowed = all(may_modify(rules.judge, each) for each in fresh)
    if sandbox.writable(path) != allowed:
        yield f"make names in {path!r}: the rules say {allowed}"


@given(
    st.one_of(st.just(FULL), TREES),
    LISTS,
    LISTS,
    st.one_of(st.none(), LISTS),
    st.booleans(),
)
def test_operations_agree_with_the_rules(
    tree: object, read: list[str], modify: list[str], execute: list[str] | None, shown: bool
) -> None:
    top = os.path.realpath(tempfile.mkdtemp())
    try:
        root = os.path.join(top, "ws")
        grow(root, tree)
        rules = profile(root, ["./**", *read] if shown else read, ["./**", *modify] if shown else modify, execute)
        found = plan(rules, "/", specials=(), reader=DirectoryReader())
        for made in (each for each in found.operations if each.op is Op.MAKE_DIR):
            os.mkdir(made.path)
        sandbox = Sandbox(found.operations)
        assert list(disagreements(rules, sandbox, root)) == []
        assert sandbox.movable() == []
    finally:
        shutil.rmtree(top)
