"""Calls that change or remove what is there, in runs with a hand outside (see `hand`): who is to make them?

These calls make no name, so the mounts and Landlock judge them, as in every other run: a call goes on as if nobody had
looked, unless it is about something that is read-only here although the rules allow to modify it. Letting it go on
gives nothing away, whatever another thread makes of its arguments: what the kernel allows here, the rules allow.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.names import seen_at
from sbx.launch.places import find_place, signed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sbx.launch.hand import Folder
    from sbx.launch.names import Names

assert sys.platform == "linux"  # for type checkers on other platforms

O_PATH = 0o10000000
AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR = 0x100, 0x200
READ_ONLY = 1  # ST_RDONLY
MAX_LINKS = 40
_REFUSED = OSError(30, "read-only here")  # EROFS


class LetThrough(Exception):
    """The kernel is to judge it as if nobody had looked."""


class Changes:
    def __init__(self, names: Names) -> None:
        self.names = names

    def open(self, pid: int, dir_fd: int, path: bytes, flags: int) -> int:
        """Open for writing what is there: the flags that would make something are not set."""
        flags = signed(flags)
        names = self.names
        base = -1
        try:
            for _ in range(MAX_LINKS):
                place = find_place(pid, dir_fd, path, base=base)
                if base >= 0:
                    os.close(base)
                base = place.fd
                text = b"" if flags & os.O_NOFOLLOW else place.link_text(pid)
                if text is None or place.name == b".":
                    raise LetThrough
                if text:
                    path = text + (b"/" if place.name.endswith(b"/") else b"")
                    continue
                if not names.allowed(place) or not _read_only_at(place.fd, place.name):
                    raise LetThrough
                names.open_flags = flags
                try:
                    return names.open_by_hand(place, flags, 0, _REFUSED)
                except OSError as error:
                    if error is _REFUSED:
                        raise LetThrough from None
                    raise
            raise LetThrough
        finally:
            if base >= 0:
                os.close(base)

    def unlink(self, pid: int, dir_fd: int, path: bytes, flags: int) -> None:
        place = find_place(pid, dir_fd, path)
        try:
            if signed(flags) & ~AT_REMOVEDIR or place.name == b"." or not os.fstatvfs(place.fd).f_flag & READ_ONLY:
                raise LetThrough
            reach = self.names.reach
            folder = None if reach is None else reach.folder(place.folder, place.fd)
            if folder is None or not self.names.allowed(place):
                raise LetThrough
            self.names.by_hand("unlink", folder, place.name, bool(flags & AT_REMOVEDIR), seen_at(place))
        finally:
            place.close()

    def chmod(self, pid: int, dir_fd: int, path: bytes, mode: int, flags: int = 0) -> None:
        self.names.by_hand("chmod", *self._target(pid, dir_fd, path, flags), mode & 0o1777)

    def truncate(self, pid: int, path: bytes, size: int) -> None:
        if size >= 1 << 63:
            raise LetThrough  # negative
        self.names.by_hand("truncate", *self._target(pid, -100, path, 0), size)

    def utime(self, pid: int, dir_fd: int, path: bytes, read_times: Callable[[], bytes | None], flags: int) -> None:
        target = self._target(pid, dir_fd, path, flags)
        self.names.by_hand("utime", *target, read_times())

    def _target(self, pid: int, dir_fd: int, path: bytes, flags: int) -> tuple[Folder, bytes, tuple[int, int]]:
        """What is there under this path, if it is for the hand to change."""
        flags = signed(flags)
        if not path or flags & ~AT_SYMLINK_NOFOLLOW:
            raise LetThrough
        names = self.names
        follow = os.O_NOFOLLOW if flags & AT_SYMLINK_NOFOLLOW else 0
        fd = names.open(pid, dir_fd, path, O_PATH | os.O_CLOEXEC | follow, 0)
        try:
            where = os.fsdecode(os.readlink(b"/proc/self/fd/%d" % fd))
            if not os.fstatvfs(fd).f_flag & READ_ONLY or not names.may_modify(where):
                raise LetThrough
            return names.named(fd, where, _REFUSED)
        except OSError:
            raise LetThrough from None
        finally:
            os.close(fd)


def _read_only_at(folder: int, name: bytes) -> bool:
    """Is what stands there on a read-only mount?"""
    try:
        fd = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return False
    try:
        return bool(os.fstatvfs(fd).f_flag & READ_ONLY)
    finally:
        os.close(fd)
