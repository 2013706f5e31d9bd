"""Error lines of real programs, and the path that each is about."""

from __future__ import annotations

import pytest

from sbx.report.said import candidates, is_worth_reading, program_of


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("cat: .env: Permission denied", ".env"),
        ("ls: cannot access '/srv/.ssh': No such file or directory", "/srv/.ssh"),
        ("mkdir: cannot create directory ‘src/z’: Permission denied", "src/z"),
        ("sh: 1: cannot create a.txt: Read-only file system", "a.txt"),
        ("bash: line 1: a b.txt: Read-only file system", "a b.txt"),
        ("PermissionError: [Errno 13] Permission denied: '/x/y'", "/x/y"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'x.json'", "x.json"),
        ("x.c:1:10: fatal error: foo.h: No such file or directory", "foo.h"),
        ("error: could not lock config file .git/config: Read-only file system", ".git/config"),
        ("Error: EACCES: permission denied, open 'x'\nopen /y: Permission denied", "/y"),
        ("rm: cannot remove 'it is': Operation not permitted", "it is"),
    ],
)
def test_the_path_is_among_the_candidates(line: str, path: str) -> None:
    assert path in [each for part in line.splitlines() if is_worth_reading(part.encode()) for each in candidates(part)]


def test_other_lines_are_not_read() -> None:
    assert not is_worth_reading(b"everything is fine\n")


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("cat: .env: Permission denied", "cat"),
        ("sh: 1: cannot create a.txt: Read-only file system", "sh"),
        ("error: could not lock config file .git/config: Read-only file system", ""),
        ("fatal: could not open '.git/config': Permission denied", ""),
        ("Warning: x: Permission denied", ""),
        ("PermissionError: [Errno 13] Permission denied: 'x'", ""),
        ("x.c:1:10: fatal error: foo.h: No such file or directory", ""),
        ("/bin/x: y: Permission denied", ""),
    ],
)
def test_who_speaks(line: str, program: str) -> None:
    assert program_of(line) == program
