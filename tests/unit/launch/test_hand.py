"""The hand outside takes one name in a folder that it can be sure of, and hands over regular files only."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

if sys.platform != "linux":
    pytest.skip("Linux only", allow_module_level=True)

from sbx.launch.hand import Hand, Reach


@pytest.fixture
def hand(tmp_path: Path) -> Iterator[Hand]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    root = os.open(tmp_path, os.O_PATH)
    with ours, theirs:
        yield Hand(theirs, [root], (os.fsencode(tmp_path),), frozenset({os.fsencode(tmp_path / "granted")}))
    os.close(root)


def folder(path: Path, below: bytes = b"") -> tuple[int, bytes, int, int]:
    found = path.stat()
    return (0, below, found.st_dev, found.st_ino)


def seen(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def code(error: pytest.ExceptionInfo[OSError]) -> str:
    return errno.errorcode[error.value.errno or 0]


@pytest.mark.parametrize("name", [b"", b".", b"..", b"../x", b"sub/x", b"/x", b"./", b"../"])
def test_nothing_but_one_name(hand: Hand, tmp_path: Path, name: bytes) -> None:
    here = folder(tmp_path)
    for work in (
        lambda: hand.open(here, name, os.O_CREAT | os.O_WRONLY, 0o600, None),
        lambda: hand.mkdir(here, name, 0o700),
        lambda: hand.symlink(here, name, b"x"),
        lambda: hand.unlink(here, name, False, None),
        lambda: hand.rename(here, b"sub", here, name, 0, (None, None)),
        lambda: hand.chmod(here, name, (0, 0), 0o700),
    ):
        with pytest.raises(OSError, match="not one name"):
            work()
    assert sorted(os.listdir(tmp_path)) == ["link", "sub"]


@pytest.mark.parametrize(
    ("below", "expected"), [(b"link", "ELOOP"), (b"..", "EXDEV"), (b"/", "EXDEV"), (b"sub/../..", "EXDEV")]
)
def test_no_way_out_of_its_folder(hand: Hand, tmp_path: Path, below: bytes, expected: str) -> None:
    with pytest.raises(OSError) as error:
        hand.mkdir(folder(tmp_path / "sub", below), b"x", 0o700)
    assert code(error) == expected


def test_another_inode_is_another_folder(hand: Hand, tmp_path: Path) -> None:
    meant = folder(tmp_path / "sub", b"sub")
    (tmp_path / "sub").rename(tmp_path / "old")
    (tmp_path / "sub").mkdir()
    with pytest.raises(OSError) as error:
        hand.mkdir(meant, b"x", 0o700)
    assert code(error) == "ESTALE"


def test_another_inode_is_another_file(hand: Hand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OSError) as error:
        hand.truncate(folder(tmp_path), b"file", (0, 0), 0)
    assert code(error) == "ESTALE"
    assert (tmp_path / "file").read_text() == "x"


def test_only_regular_files_are_handed_over(hand: Hand, tmp_path: Path) -> None:
    here = folder(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    for name in ("fifo", "link", "sub"):
        with pytest.raises(OSError) as error:
            hand.open(here, name.encode(), os.O_WRONLY, 0, seen(tmp_path / name))
        assert code(error) != "ESTALE"
    for flags in (os.O_RDONLY | os.O_DIRECTORY, os.O_PATH | os.O_TMPFILE):
        with pytest.raises(OSError):
            hand.nameless(here, flags, 0o600)
    made = hand.open(here, b"new", os.O_CREAT | os.O_RDONLY, 0o600, None)
    assert made is None  # but opened by whoever sees it
    written = hand.open(here, b"new", os.O_WRONLY, 0, seen(tmp_path / "new"))
    assert written is not None
    assert os.get_blocking(written)
    os.write(written, b"text")
    os.close(written)
    assert (tmp_path / "new").read_text() == "text"


def test_what_pid_1_does_not_see_is_left_alone(hand: Hand, tmp_path: Path) -> None:
    """Something else may stand there outside, under a cover."""
    here = folder(tmp_path)
    (tmp_path / "file").write_text("x")
    there = seen(tmp_path / "sub")
    for work in (
        lambda: hand.unlink(here, b"file", False, there),
        lambda: hand.unlink(here, b"file", False, None),
        lambda: hand.open(here, b"file", os.O_WRONLY | os.O_TRUNC, 0, None),
        lambda: hand.rename(here, b"file", here, b"new", 0, (there, None)),
        lambda: hand.rename(here, b"file", here, b"sub", 2, (seen(tmp_path / "file"), None)),
    ):
        with pytest.raises(OSError) as error:
            work()
        assert code(error) == "ESTALE"
    assert (tmp_path / "file").read_text() == "x"


def test_no_symlink_where_a_rule_leads(hand: Hand, tmp_path: Path) -> None:
    """The next run would follow it, and take what it leads to for what was granted."""
    here = folder(tmp_path)
    link = seen(tmp_path / "link")
    (tmp_path / "granted").touch()
    exchanged = (seen(tmp_path / "granted"), link)
    for work in (
        lambda: hand.rename(here, b"granted", here, b"link", 2, exchanged),
        lambda: hand.rename(here, b"link", here, b"granted", 0, (link, exchanged[0])),
        lambda: hand.link(here, b"granted", here, b"link", link),
        lambda: hand.symlink(here, b"granted", b"sub"),
    ):
        with pytest.raises(OSError) as error:
            work()
        assert code(error) == "EACCES"
    hand.symlink(here, b"other", b"sub")
    hand.rename(here, b"other", here, b"elsewhere", 0, (seen(tmp_path / "other"), None))
    assert (tmp_path / "elsewhere").is_symlink() and not (tmp_path / "granted").is_symlink()


def test_without_a_hand_there_are_errors() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    reach = Reach(ours.detach(), (b"/w",))
    theirs.close()
    with pytest.raises(OSError) as error:
        reach.ask("mkdir", 0o022, ((0, b"", 0, 0), b"x", 0o755))
    reach.asked.close()
    assert code(error) == "EIO"


def test_it_reaches_its_folders_only(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    fd = os.open(tmp_path, os.O_PATH)
    reach = Reach(ours.detach(), (b"/w/a", b"/x"))
    inode = seen(tmp_path)
    with theirs:
        assert reach.folder("/w/a", fd) == (0, b"", *inode)
        assert reach.folder("/x/b/c", fd) == (1, b"b/c", *inode)
        assert [reach.folder(each, fd) for each in ("/w", "/w/ab", "/", "/xy")] == [None] * 4
    reach.asked.close()
    os.close(fd)
