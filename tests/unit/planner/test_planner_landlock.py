"""Landlock without namespaces: what is excluded is never granted, and what is lost is only what the table names."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from unit.planner.profiles import profile
from unit.planner.trees import FULL, LISTS, TREES, everything_below, grow

from sbx.model.glob import split_path
from sbx.model.guarantee import Exactness
from sbx.model.plan import Op, PathGrant
from sbx.model.profile import EffectiveProfile
from sbx.model.verdict import may_exec, may_modify, may_read
from sbx.planner.linux import plan


class Domain:
    """Rights by path, the way Landlock collects them: from the inode itself and every directory above."""

    def __init__(self, grants: tuple[PathGrant, ...]) -> None:
        self._rights = {_inode(grant.path): set(grant.rights) for grant in grants if os.path.exists(grant.path)}

    def rights(self, path: str) -> set[str]:
        found: set[str] = set()
        while True:
            found |= self._rights.get(_inode(path), set())
            if path == "/":
                return found
            path = os.path.dirname(path)


def _inode(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino


def fresh(path: str) -> list[tuple[str, ...]]:
    return [(*split_path(path), *("fresh-name-of-nobody",) * depth) for depth in range(1, 6)]


def disagreements(rules: EffectiveProfile, domain: Domain, root: str) -> Iterator[str]:
    for path in everything_below(root):
        names = split_path(path)
        read, modify = may_read(rules.judge, names), may_modify(rules.judge, names)
        rights = domain.rights(path)
        if "REMOVE_FILE" in domain.rights(os.path.dirname(path)) and not modify:
            yield f"{path!r} could be replaced"
        if os.path.islink(path):
            continue
        if os.path.isdir(path):
            yield from _directory(rules, path, rights)
        elif os.lstat(path).st_nlink == 1:
            if ("READ_FILE" in rights) != read:
                yield f"read {path!r}: the rules say {read}"
            if ("WRITE_FILE" in rights) != modify:
                yield f"write {path!r}: the rules say {modify}"
            if ("EXECUTE" in rights) != may_exec(rules.judge, names):
                yield f"exec {path!r}"
        elif ("READ_FILE" in rights and not read) or ("WRITE_FILE" in rights and not modify):
            yield f"{path!r} is reached by another name"


def _directory(rules: EffectiveProfile, path: str, rights: set[str]) -> Iterator[str]:
    """A right on a directory is one on everything below it, names to come included: all of that has to deserve it."""
    below = list(everything_below(path))
    folders = [each for each in below if os.path.isdir(each) and not os.path.islink(each)]
    to_come = [names for folder in folders for names in fresh(folder)]
    listable = [*map(split_path, folders), *to_come]
    if ("READ_DIR" in rights) != all(may_read(rules.judge, each) for each in listable):
        yield f"list {path!r}"
    modifiable = [*map(split_path, below), *to_come]
    if ("MAKE_REG" in rights) != all(may_modify(rules.judge, each) for each in modifiable):
        yield f"make names in {path!r}"


@given(
    st.one_of(st.just(FULL), TREES),
    LISTS,
    LISTS,
    st.one_of(st.none(), LISTS),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=2),
)
def test_grants_agree_with_the_rules(
    tree: object,
    read: list[str],
    modify: list[str],
    execute: list[str] | None,
    shown: bool,
    hard_links: list[tuple[int, int]],
) -> None:
    top = os.path.realpath(tempfile.mkdtemp())
    try:
        root = os.path.join(top, "ws")
        grow(root, tree)
        for source, target in hard_links:
            link(root, source, target)
        rules = profile(root, ["./**", *read] if shown else read, ["./**", *modify] if shown else modify, execute)
        found = plan(rules, "/", backend="landlock", specials=())
        for made in (each for each in found.operations if each.op is Op.MAKE_DIR):
            os.mkdir(made.path)
        assert list(disagreements(rules, Domain(found.grants), root)) == []
    finally:
        shutil.rmtree(top)


def link(root: str, source: int, target: int) -> None:
    """Give one of the files a second name in one of the directories."""
    paths = list(everything_below(root))
    files = [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    folders = [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    if files:
        place = os.path.join(folders[target % len(folders)], "b" if source % 2 else "y.env")
        if not os.path.lexists(place):
            os.link(files[source % len(files)], place)


def test_no_rule_is_called_more_exact_than_it_is(tmp_path: Path) -> None:
    """Denies do not hold for metadata, and a file with a name out of sight is not granted by itself."""
    root = os.path.realpath(tmp_path / "ws")
    os.makedirs(os.path.join(root, "folder"))
    for name in ("alone", "twice", "folder/secret"):
        Path(root, name).touch()
    os.link(os.path.join(root, "twice"), os.path.join(os.path.dirname(root), "elsewhere"))
    rules = profile(root, ["./alone", "./twice", "./folder/**", "!./folder/secret"])
    found = plan(rules, "/", backend="landlock", specials=())
    held = {each.rule: (each.exactness, each.exceptions) for each in found.guarantees}
    assert held["./alone"] == (Exactness.EXACT, ())
    assert held["./twice"] == (Exactness.STRICTER, ("landlock-hard-link",))
    exactness, exceptions = held["!./folder/secret"]
    assert exactness is not Exactness.EXACT
    assert "landlock-metadata" in exceptions
