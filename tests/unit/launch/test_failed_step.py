"""A step of the set-up that failed, in words: what it was about, on one line, and no longer than a person reads."""

from __future__ import annotations

import errno
from typing import Any

import pytest
from capabilities import requires

from sbx.launch.exhausted import words_of


def test_a_path_is_told_once_and_as_a_path() -> None:
    said = words_of("make mounts private", "[Errno 1] mount: Operation not permitted: b'/'", b"/")
    assert said == "could not make mounts private /: [Errno 1] mount: Operation not permitted"
    said = words_of("mount", "[Errno 1] mount: Operation not permitted: b'/x'", b"")
    assert said == "could not mount: [Errno 1] mount: Operation not permitted: /x"


def test_whatever_it_is_about_stays_one_short_line() -> None:
    said = words_of("mount", "no", b"/a\n\xff\x00" + b"b" * 5000)
    assert said.startswith("could not mount /a\\x0a\\xff\\x00bbb")
    assert said.isprintable() and len(said) < 300


@requires("userns")
@pytest.mark.parametrize(("argument", "subject"), [(b"/w", b"/w"), (b"\x20\0\0\0" * 9, b""), (3, b"")])
def test_only_paths_are_subjects(argument: Any, subject: bytes) -> None:
    from sbx.launch.root import SetupStep
    from sbx.launch.setup import step

    def refuse(_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    with pytest.raises(SetupStep) as caught:
        step("install the system call filter", refuse, argument)
    assert caught.value.args[3] == subject
