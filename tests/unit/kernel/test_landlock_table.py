"""Landlock's ABI table and downgrade: pure, so that every ABI is tested on any kernel."""

from __future__ import annotations

import pytest

from sbx.kernel import landlock


def test_structures_have_the_kernels_sizes() -> None:
    assert len(landlock.path_beneath_attr(1, 3)) == 12  # packed; a compiler's own layout would be 16
    assert len(landlock.net_port_attr(1, 443)) == 16
    assert landlock.path_beneath_attr(0x0102, 0x03)[:10] == bytes((2, 1, 0, 0, 0, 0, 0, 0, 3, 0))


def test_the_ruleset_is_as_short_as_its_content() -> None:
    assert len(landlock.ruleset_attr(1)) == 8
    assert len(landlock.ruleset_attr(1, net=1)) == 16
    assert len(landlock.ruleset_attr(1, scoped=1)) == 24


@pytest.mark.parametrize(
    ("abi", "fs", "net", "scoped"),
    [
        (0, 0, 0, 0),
        (1, 0x1FFF, 0, 0),
        (2, 0x3FFF, 0, 0),
        (3, 0x7FFF, 0, 0),
        (4, 0x7FFF, 0x3, 0),
        (5, 0xFFFF, 0x3, 0),
        (6, 0xFFFF, 0x3, 0x3),
        (7, 0xFFFF, 0x3, 0x3),
        (8, 0xFFFF, 0x3, 0x3),
        (9, 0x1FFFF, 0x3, 0x3),
        (10, 0x1FFFF, 0xF, 0x3),
        (99, 0x1FFFF, 0xF, 0x3),
    ],
)
def test_what_each_abi_handles(abi: int, fs: int, net: int, scoped: int) -> None:
    assert landlock.handled(abi) == (fs, net, scoped)


def test_missing_names_what_falls_away() -> None:
    assert landlock.missing(landlock.NEWEST_ABI) == ()
    assert landlock.missing(5) == (
        "RESOLVE_UNIX",
        "BIND_UDP",
        "CONNECT_SEND_UDP",
        "ABSTRACT_UNIX_SOCKET",
        "SIGNAL",
    )
    assert "REFER" in landlock.missing(1)


def test_rights_are_downgraded_and_unknown_names_are_not_ignored() -> None:
    names = ("READ_FILE", "REFER", "TRUNCATE")
    assert landlock.rights_mask(names, 1) == 1 << 2
    assert landlock.rights_mask(names, 2) == 1 << 2 | 1 << 13
    assert landlock.rights_mask(names, 3) == 1 << 2 | 1 << 13 | 1 << 14
    with pytest.raises(KeyError):
        landlock.rights_mask(["READ_FIEL"], 3)


def test_flags_are_downgraded() -> None:
    flags = landlock.LOG_NEW_EXEC_ON | landlock.TSYNC
    assert landlock.restrict_flags(flags, 6) == 0
    assert landlock.restrict_flags(flags, 7) == landlock.LOG_NEW_EXEC_ON
    assert landlock.restrict_flags(flags, 8) == flags


def test_files_take_no_directory_rights() -> None:
    directory_only = landlock.rights_mask(["READ_DIR", "MAKE_REG", "REMOVE_FILE", "REFER", "MAKE_SYM"], 99)
    assert landlock.FILE_RIGHTS & directory_only == 0
