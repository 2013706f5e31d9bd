"""The lock under which sandboxes take turns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from children import in_child

from sbx.launch import turns


@pytest.fixture(autouse=True)
def no_lock() -> Iterator[None]:
    yield
    if turns.lock >= 0:
        os.close(turns.lock)
    turns.lock = -1


def test_without_a_place_there_are_no_turns_to_take(tmp_path: Path) -> None:
    turns.open_lock(os.fsencode(tmp_path / "missing" / "turns"))
    assert turns.lock == -1
    turns.begin(alone=True)
    turns.end()


def test_a_symlink_is_no_place(tmp_path: Path) -> None:
    (tmp_path / "turns").symlink_to(tmp_path / "elsewhere")
    turns.open_lock(os.fsencode(tmp_path / "turns"))
    assert turns.lock == -1
    assert not (tmp_path / "elsewhere").exists()


def test_one_alone_or_many_together(tmp_path: Path) -> None:
    """An inherited descriptor is another process's turn all the same."""
    turns.open_lock(os.fsencode(tmp_path / "turns"))

    def may(kind: bytes) -> bool:
        try:
            turns._fcntl(turns.F_SETLK, kind)
        except OSError:
            return False
        return True

    for alone, together in ((True, False), (False, True)):
        turns.begin(alone)
        assert in_child(lambda: int(may(turns._SHARED))) == int(together)
        assert in_child(lambda: int(may(turns._ALONE))) == 0
        turns.end()
        assert in_child(lambda: int(may(turns._ALONE))) == 1
