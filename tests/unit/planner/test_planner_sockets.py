"""Sockets of the host in a plan: masked where the rules let them be read but not modified."""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from capabilities import requires

from sbx.model.plan import Op, Operation
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source
from sbx.planner.sockets import host_sockets, masked_sockets


@pytest.fixture
def bound() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp()).resolve()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        yield folder / "s"
    shutil.rmtree(folder)


def profile(modifiable: Path | None) -> EffectiveProfile:
    names = () if modifiable is None else tuple(modifiable.parts[1:])
    rule = Rule("it", False, Access.MODIFY, Origin.PROFILE, Source("test"), ((names),))
    everything = Rule("all", False, Access.READ, Origin.PROFILE, Source("test"), ((0,),))
    return EffectiveProfile("p", "/", (everything,), (rule,) if modifiable else ())


@requires("userns")
def test_the_host_lists_them(bound: Path) -> None:
    assert str(bound) in host_sockets()
    assert all(name.startswith("/") for name in host_sockets())


@pytest.mark.parametrize(
    ("operations", "masked"),
    [
        ([Operation(Op.BIND_RO, "/")], True),
        ([Operation(Op.SKELETON, "/")], False),
        ([Operation(Op.BIND_RO, "/"), Operation(Op.TMPFS, "{parent}")], False),
        ([Operation(Op.BIND_RO, "/"), Operation(Op.MASK, "{parent}")], False),
        ([Operation(Op.SKELETON, "/"), Operation(Op.BIND_RW, "{parent}"), Operation(Op.PIN, "{path}")], True),
        ([], False),
    ],
)
def test_only_what_is_shown_is_masked(bound: Path, operations: list[Operation], masked: bool) -> None:
    placed = [Operation(each.op, each.path.format(parent=bound.parent, path=bound)) for each in operations]
    found = masked_sockets([str(bound)], placed, profile(None).judge)
    assert [(each.op, each.path, each.optional) for each in found] == ([(Op.MASK, str(bound), True)] if masked else [])


def test_what_may_be_modified_stays(bound: Path) -> None:
    assert masked_sockets([str(bound)], [Operation(Op.BIND_RO, "/")], profile(bound).judge) == []


def test_files_and_names_that_are_gone_are_no_sockets(bound: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    names = [str(tmp_path / "file"), str(tmp_path / "gone")]
    assert masked_sockets(names, [Operation(Op.BIND_RO, "/")], profile(None).judge) == []
