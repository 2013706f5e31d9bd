"""Where a path of another process leads to: the listener's eyes.

The parent directory is opened as the caller would find it, and everything is then done to a name below that
descriptor. Two kinds of links would mean something else to us than to the caller: /proc/self, and the links below a
process's folder in /proc that lead to open files. A path that meets one of them is walked name by name, with the
caller's folder in place of ours; this process's own folder is nobody's business.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.mounts import RESOLVE_NO_MAGICLINKS, openat2

assert sys.platform == "linux"  # for type checkers on other platforms

AT_FDCWD = -100
O_PATH = 0o10000000
ENOENT, EBADF, EACCES, ENAMETOOLONG, ELOOP = 2, 9, 13, 36, 40
MAX_LINKS = 40
S_IFMT, S_IFLNK = 0o170000, 0o120000
RESOLVE_IN_ROOT = 0x10
_FOLDER = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def signed(value: int) -> int:
    """An int argument as C sees it: the low 32 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def is_own(folder: bytes) -> bool:
    """Is it this process's folder in /proc, or below it? Each of its threads has one of those names, too."""
    if not folder.startswith(b"/proc/"):
        return False
    name = folder.split(b"/")[2]
    if not name.isdigit():
        return False
    try:
        return group_leader(int(name)) == os.getpid()
    except OSError:
        return True  # gone meanwhile: nobody's


def folder_of(fd: int) -> bytes:
    """Where an open directory is. One whose path is longer than a page is found from its ancestors."""
    try:
        return os.readlink(b"/proc/self/fd/%d" % fd)
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            raise
    above = os.open(b"..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    try:
        own = os.fstat(fd)
        with os.scandir(above) as entries:
            name = next((each.name for each in entries if each.inode() == own.st_ino), None)
        if name is None:
            raise OSError(ENAMETOOLONG, "a folder that cannot be found")
        return folder_of(above) + b"/" + os.fsencode(name)
    finally:
        os.close(above)


class Place:
    """A name in a directory that is held open: where a call will make, find or move something."""

    __slots__ = ("direct", "fd", "folder", "name")

    def __init__(self, fd: int, name: bytes, direct: bool, folder: bytes = b"") -> None:
        self.fd = fd
        self.name = name  # with its trailing slash, if the caller wrote one
        self.direct = direct  # the same text would lead this process there too
        folder = folder or folder_of(fd)
        if is_own(folder):
            os.close(fd)
            raise OSError(EACCES, "not the caller's")
        self.folder = os.fsdecode(folder)

    @property
    def plain(self) -> str:
        return os.fsdecode(self.name.rstrip(b"/"))

    def names(self) -> tuple[str, ...]:
        return (*(part for part in self.folder.split("/") if part), self.plain)

    def status(self, *, follow: bool = False) -> os.stat_result | None:
        """Of what is there, if anything is."""
        try:
            return os.stat(self.name.rstrip(b"/"), dir_fd=self.fd, follow_symlinks=follow)
        except FileNotFoundError:
            return None

    def mode(self) -> int:
        """The mode of what is there, or 0."""
        found = self.status()
        return 0 if found is None else found.st_mode

    def link_text(self, pid: int) -> bytes | None:
        """What the link here says to the caller; None for one that leads to an open file itself."""
        return _link_text(pid, self.fd, self.name.rstrip(b"/"))

    def close(self) -> None:
        os.close(self.fd)


def open_base(pid: int, dir_fd: int) -> int:
    """The caller's directory that relative paths start from."""
    dir_fd = signed(dir_fd)
    link = b"/proc/%d/cwd" % pid if dir_fd == AT_FDCWD else b"/proc/%d/fd/%d" % (pid, dir_fd)
    try:
        return os.open(link, O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        raise OSError(EBADF, "no such descriptor") from None


def find_place(pid: int, dir_fd: int, path: bytes, *, base: int = -1, resolve: int = 0) -> Place:
    """Where `path` leads to for the caller, but for its last name. Starts at `base` instead of `dir_fd` if given."""
    if not path:
        raise OSError(ENOENT, "empty path")
    stripped = path.rstrip(b"/")
    head, _, name = stripped.rpartition(b"/")
    if name in (b"", b".", b".."):
        # The last name is no name: everything is on the way, and nothing can be made there.
        parent, name = stripped or b"/", b"."
    else:
        parent = head or (b"/" if path.startswith(b"/") else b".")
        if len(stripped) < len(path):
            name += b"/"
    start = -1
    if not path.startswith(b"/") or resolve & RESOLVE_IN_ROOT:
        start = os.dup(base) if base >= 0 else open_base(pid, dir_fd)
        if parent == b".":
            return Place(start, name, True)
    try:
        fd, folder = _open_parent(pid, start, parent, resolve)
    finally:
        if start >= 0:
            os.close(start)
    return Place(fd, name, bool(folder), folder)


def _open_parent(pid: int, start: int, parent: bytes, resolve: int) -> tuple[int, bytes]:
    """The folder, and where it is; empty where the same text would not lead this process there."""
    try:
        fd = openat2(start if start >= 0 else AT_FDCWD, parent, _FOLDER, resolve | RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno != ELOOP or resolve:
            raise
    else:
        folder = folder_of(fd)
        if resolve or not is_own(folder):
            return fd, folder
        os.close(fd)
    return _walk(pid, start, parent), b""


def _walk(pid: int, start: int, parent: bytes) -> int:
    """Name by name, with the caller's /proc/self."""
    current = os.open(b"/" if parent.startswith(b"/") else b".", _FOLDER, dir_fd=start if start >= 0 else None)
    rest = parent.split(b"/")[::-1]
    budget = MAX_LINKS
    try:
        while rest:
            name = rest.pop()
            if not name:
                continue
            text = _link_text(pid, current, name)
            if text == b"":  # no link
                following = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            else:
                budget -= 1
                if budget < 0:
                    raise OSError(ELOOP, "too many links")
                if text is None:
                    following = os.open(name, O_PATH | os.O_CLOEXEC, dir_fd=current)
                else:
                    rest.extend(reversed(text.split(b"/")))
                    if not text.startswith(b"/"):
                        continue
                    following = os.open(b"/", _FOLDER)
            os.close(current)
            current = following
        return os.open(b".", _FOLDER, dir_fd=current)  # ENOTDIR where it is none
    finally:
        os.close(current)


def _link_text(pid: int, folder_fd: int, name: bytes) -> bytes | None:
    """The text of a link as the caller would read it, empty where there is none; None for one that is no text."""
    try:
        text = os.readlink(name, dir_fd=folder_fd)
    except OSError:
        return b""
    folder = folder_of(folder_fd)
    if folder == b"/proc":
        if name == b"self":
            return b"%d" % group_leader(pid)
        return b"%d/task/%d" % (group_leader(pid), pid) if name == b"thread-self" else text
    if is_own(folder):
        raise OSError(EACCES, "not the caller's")
    return None if folder.startswith(b"/proc/") and folder[6:7].isdigit() else text


def group_leader(thread: int) -> int:
    """The process a thread belongs to."""
    fd = os.open(b"/proc/%d/status" % thread, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 512)
    finally:
        os.close(fd)
    start = text.find(b"\nTgid:\t") + 7
    return int(text[start : text.index(b"\n", start)])
