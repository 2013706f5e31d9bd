"""Judge and perform the calls that make or move names, on behalf of the command.

A mount can only cover what is there; a deny has to hold for names that appear during the run as well. So these calls
stop in the system call filter, and pid 1 inside makes them itself: it reads the arguments once, opens the parent
directory as the caller sees it, asks the rules about the real parent plus the name, and then either answers the error
or performs the call and hands the result over. Nothing that was judged is ever let through to be read again.

Two things make this safe. This process has the command's own rights: same user, mounts and Landlock domain. And it
answers one call at a time: since every call that could make or move a name comes here, no other thread of the command
can change what a path means between the judgement and the deed.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, syscall
from sbx.kernel.mounts import openat2
from sbx.model.verdict import residue, residue_allows, uniform_below

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.kernel.notify import Listener
    from sbx.model.verdict import Judge, Residue

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
O_PATH = 0o10000000
O_TMPFILE = 0o20200000
RENAME_EXCHANGE = 2
ENOENT, EBADF, EACCES, EEXIST, EINVAL, ELOOP, EPERM = 2, 9, 13, 17, 22, 40, 1
MAX_LINKS = 40
MAX_REMEMBERED = 4096
SET_ID_BITS = 0o6000
S_IFMT, S_IFDIR, S_IFREG, S_IFIFO, S_IFCHR, S_IFLNK = 0o170000, 0o040000, 0o100000, 0o010000, 0o020000, 0o120000


class WouldBlock(Exception):
    """The call may wait for somebody else; it needs a process of its own."""


def _signed(value: int) -> int:
    """An int argument as C sees it: the low 32 bits."""
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


class Place:
    """A name in a directory that is held open: where a call will make, find or move something."""

    __slots__ = ("fd", "folder", "name")

    def __init__(self, fd: int, name: bytes) -> None:
        self.fd = fd
        self.name = name  # with its trailing slash, if the caller wrote one
        self.folder = os.fsdecode(os.readlink(b"/proc/self/fd/%d" % fd))

    @property
    def plain(self) -> str:
        return os.fsdecode(self.name.rstrip(b"/"))

    def names(self) -> tuple[str, ...]:
        return (*(part for part in self.folder.split("/") if part), self.plain)

    def mode(self) -> int:
        """The mode of what is there, or 0."""
        try:
            return os.lstat(b"/proc/self/fd/%d/%s" % (self.fd, self.name.rstrip(b"/"))).st_mode
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        os.close(self.fd)


class Names:
    """The rules, and what it takes to ask them about a name quickly."""

    def __init__(self, judge: Judge, listener: Listener) -> None:
        self.read_rules, self.modify_rules = judge[0], judge[1]
        self.listener = listener
        self.remembered: dict[str, tuple[Residue, Residue]] = {}
        self.umask = os.umask(0o077)
        os.umask(self.umask)

    # Asking

    def allowed(self, place: Place) -> bool:
        """May this name be made, replaced or moved here?"""
        name = place.plain
        if name in ("", ".", ".."):
            return True  # nothing can be made under such a name; the kernel finds the right error
        left = self.remembered.get(place.folder)
        if left is None:
            if len(self.remembered) >= MAX_REMEMBERED:
                self.remembered.clear()
            folder = tuple(part for part in place.folder.split("/") if part)
            left = (residue(self.modify_rules, folder), residue(self.read_rules, folder))
            self.remembered[place.folder] = left
        return residue_allows(left[0], name) and residue_allows(left[1], name)

    def tree_allowed(self, place: Place, target: Place) -> bool:
        """May everything below `place` leave it, and be at `target`?"""
        old, new = place.names(), target.names()
        if self._uniform(old) and self._uniform(new):
            return True
        top = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd)
        return self._walk_allowed(top, old, new)

    def _uniform(self, folder: tuple[str, ...]) -> bool:
        return uniform_below(self.modify_rules, folder) is True and uniform_below(self.read_rules, folder) is True

    def _walk_allowed(self, fd: int, old: tuple[str, ...], new: tuple[str, ...]) -> bool:
        lists = (self.modify_rules, self.read_rules)
        here = [(residue(rules, old), residue(rules, new)) for rules in lists]
        try:
            with os.scandir(fd) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for name, is_dir in found:
                if not all(residue_allows(left, name) for pair in here for left in pair):
                    return False
                inner_old, inner_new = (*old, name), (*new, name)
                if is_dir and not (self._uniform(inner_old) and self._uniform(inner_new)):
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                    if not self._walk_allowed(below, inner_old, inner_new):
                        return False
        finally:
            os.close(fd)
        return True

    # Seeing what the caller sees

    def base(self, pid: int, dir_fd: int) -> int:
        """The caller's directory that relative paths start from."""
        dir_fd = _signed(dir_fd)
        link = b"/proc/%d/cwd" % pid if dir_fd == AT_FDCWD else b"/proc/%d/fd/%d" % (pid, dir_fd)
        try:
            return os.open(link, O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            raise OSError(EBADF, "no such descriptor") from None

    def place(self, pid: int, dir_fd: int, path: bytes, *, base: int = -1, resolve: int = 0) -> Place:
        """Where `path` leads to for the caller, but for its last name."""
        if not path:
            raise OSError(ENOENT, "empty path")
        stripped = path.rstrip(b"/")
        head, _, name = stripped.rpartition(b"/")
        if not stripped:
            head, name = b"", b"."
        elif len(stripped) < len(path):
            name += b"/"
        parent = head or (b"/" if path.startswith(b"/") else b".")
        start = base
        if not path.startswith(b"/") and base < 0:
            start = self.base(pid, dir_fd)
        try:
            fd = self._open_parent(pid, start, parent, resolve)
        finally:
            if start >= 0 and start != base:
                os.close(start)
        return Place(fd, name)

    def _open_parent(self, pid: int, start: int, parent: bytes, resolve: int) -> int:
        flags = O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        if resolve:
            return openat2(start if start >= 0 else AT_FDCWD, parent, flags, resolve)
        fd = os.open(parent, flags, dir_fd=start if start >= 0 else None)
        if b"proc" not in parent and b"dev" not in parent:
            return fd
        # /proc/self is this process when this process asks: lead to the caller's.
        there = os.readlink(b"/proc/self/fd/%d" % fd)
        own = b"/proc/%d" % os.getpid()
        if there == own or there.startswith(own + b"/"):
            os.close(fd)
            fd = os.open(b"/proc/%d" % pid + there[len(own) :], flags)
        return fd

    def take_umask(self, pid: int) -> None:
        """Make the caller's umask ours, so that the kernel applies it as it would there (default ACLs included)."""
        fd = os.open(b"/proc/%d/status" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            text = os.read(fd, 128)
        finally:
            os.close(fd)
        start = text.find(b"\nUmask:\t")
        umask = int(text[start + 8 : start + 12], 8) if start >= 0 else 0o022
        if umask != self.umask:
            os.umask(umask)
            self.umask = umask

    # Performing: each returns a descriptor to hand over, or None for plain success

    def open(self, pid: int, dir_fd: int, path: bytes, flags: int, mode: int, resolve: int = 0) -> int | None:
        flags = _signed(flags)
        if flags & O_PATH:
            flags &= ~os.O_CREAT  # as the kernel does
        base = -1
        self.take_umask(pid)
        try:
            for _ in range(MAX_LINKS):
                place = self.place(pid, dir_fd, path, base=base, resolve=resolve)
                if base >= 0:
                    os.close(base)
                base = place.fd
                try:
                    return self._open_at(place, flags, mode, resolve)
                except OSError as error:
                    if error.errno != ELOOP or flags & os.O_NOFOLLOW or resolve & 4:
                        raise
                try:
                    path = os.readlink(place.name.rstrip(b"/"), dir_fd=place.fd)
                except OSError as error:
                    if error.errno != EINVAL:  # no link any more: try once more
                        raise
                    path = place.name
                if place.name.endswith(b"/"):
                    path += b"/"
            raise OSError(ELOOP, "too many links")
        finally:
            if base >= 0:
                os.close(base)

    def _open_at(self, place: Place, flags: int, mode: int, resolve: int) -> int:
        creates = flags & os.O_CREAT
        if place.folder == "/proc" or place.folder.startswith("/proc/") or not creates or place.plain in (".", ".."):
            # Nothing can be made there, but links like /proc/<pid>/fd/1 must be followed to what they stand for.
            return os.open(place.name, flags, mode, dir_fd=place.fd)
        there = place.mode()
        if there & S_IFMT in (S_IFIFO, S_IFCHR) and not flags & os.O_NONBLOCK:
            raise WouldBlock
        careful = flags | os.O_NOFOLLOW
        if self.allowed(place):
            return os.open(place.name, careful, mode, dir_fd=place.fd)
        if not there:
            raise OSError(EACCES, "denied")
        if flags & os.O_EXCL:
            raise OSError(EEXIST, "exists")
        return os.open(place.name, careful & ~os.O_CREAT, mode, dir_fd=place.fd)

    def make(self, place: Place, deed: object, *arguments: object) -> None:
        """mkdir, symlink, mknod and their like: a new name that must not be there yet."""
        if not self.allowed(place):
            raise OSError(EEXIST if place.mode() else EACCES, "denied")
        deed(*arguments, dir_fd=place.fd)  # type: ignore[operator]

    def mkdir(self, pid: int, dir_fd: int, path: bytes, mode: int) -> None:
        place = self.place(pid, dir_fd, path)
        try:
            self.take_umask(pid)
            self.make(place, os.mkdir, place.name, mode & 0o7777)
        finally:
            place.close()

    def mknod(self, pid: int, dir_fd: int, path: bytes, mode: int, device: int) -> None:
        place = self.place(pid, dir_fd, path)
        try:
            self.take_umask(pid)
            self.make(place, os.mknod, place.name, mode & 0xFFFF, device & 0xFFFFFFFF)
        finally:
            place.close()

    def symlink(self, pid: int, text: bytes, dir_fd: int, path: bytes) -> None:
        if not text:
            raise OSError(ENOENT, "empty link text")
        place = self.place(pid, dir_fd, path)
        try:
            self.make(place, os.symlink, text, place.name)
        finally:
            place.close()

    def link(self, pid: int, old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        flags = _signed(flags)
        source = self._link_source(pid, old_fd, old, flags)
        try:
            place = self.place(pid, new_fd, new)
            try:
                where = os.fsdecode(os.readlink(b"/proc/self/fd/%d" % source))
                unnamed = os.fstat(source).st_nlink == 0  # O_TMPFILE: it gets its first name, which is judged below
                if not unnamed and not self._may_modify(where):
                    raise OSError(EPERM, "denied")
                if not self.allowed(place):
                    raise OSError(EEXIST if place.mode() else EACCES, "denied")
                link = b"/proc/self/fd/%d" % source
                number = 37 if NUMBERS["openat"] == 56 else 265  # linkat on aarch64, x86-64
                syscall("linkat", number, "lzlzl", AT_FDCWD, link, place.fd, place.name, AT_SYMLINK_FOLLOW)
            finally:
                place.close()
        finally:
            os.close(source)

    def _link_source(self, pid: int, dir_fd: int, path: bytes, flags: int) -> int:
        """The file itself, as an O_PATH descriptor: a link made from it cannot be about another file."""
        if not path and flags & AT_EMPTY_PATH:
            return self.base(pid, dir_fd)
        place = self.place(pid, dir_fd, path)
        try:
            follow = flags & AT_SYMLINK_FOLLOW
            return os.open(place.name, O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW), dir_fd=place.fd)
        finally:
            place.close()

    def _may_modify(self, location: str) -> bool:
        names = tuple(part for part in location.split("/") if part)
        folder = names[:-1]
        name = names[-1] if names else ""
        lists = (self.modify_rules, self.read_rules)
        return all(residue_allows(residue(rules, folder), name) for rules in lists)

    def rename(self, pid: int, old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        flags = _signed(flags)
        source = self.place(pid, old_fd, old)
        try:
            target = self.place(pid, new_fd, new)
            try:
                self._check_move(source, target)
                if flags & RENAME_EXCHANGE:
                    self._check_move(target, source)
                number = 276 if NUMBERS["openat"] == 56 else 316  # renameat2
                syscall("renameat2", number, "lzlzl", source.fd, source.name, target.fd, target.name, flags)
            finally:
                target.close()
        finally:
            source.close()

    def _check_move(self, source: Place, target: Place) -> None:
        mode = source.mode()
        if not mode:
            raise OSError(ENOENT, "nothing there")
        if not self.allowed(source) or not self.allowed(target):
            raise OSError(EACCES, "denied")
        if mode & S_IFMT == S_IFDIR and not self.tree_allowed(source, target):
            raise OSError(EACCES, "denied below")

    def bind(self, pid: int, process_id: int, socket_fd: int, address: bytes) -> None:
        """bind(2), always performed here: the family is in memory too, so it cannot be let through unseen."""
        pidfd = syscall("pidfd_open", NUMBERS["pidfd_open"], "ll", process_id, 0)
        try:
            own = syscall("pidfd_getfd", 438, "lll", pidfd, _signed(socket_fd), 0)
        finally:
            os.close(pidfd)
        try:
            path = address[2:].split(b"\0", 1)[0] if address[:2] == b"\x01\x00" else b""
            if path:
                self._bind_path(pid, own, address, path)
            else:
                _bind(own, address)
        finally:
            os.close(own)

    def _bind_path(self, pid: int, socket_fd: int, address: bytes, path: bytes) -> None:
        place = self.place(pid, AT_FDCWD, path)
        try:
            if not self.allowed(place):
                raise OSError(98 if place.mode() else EACCES, "denied")  # EADDRINUSE
        finally:
            place.close()
        self.take_umask(pid)
        start = self.base(pid, AT_FDCWD)
        try:
            os.fchdir(start)  # so that the socket's own idea of its address is what the caller wrote
            _bind(socket_fd, address)
        finally:
            os.chdir(b"/")
            os.close(start)


def _bind(socket_fd: int, address: bytes) -> None:
    number = 200 if NUMBERS["openat"] == 56 else 49
    syscall("bind", number, "lzl", socket_fd, address, len(address))
