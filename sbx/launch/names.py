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
from sbx.launch.places import Place, find_place, group_leader, open_base, signed
from sbx.model.verdict import residue, residue_allows, uniform_below

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sbx.launch.hand import Folder, Reach, Seen
    from sbx.model.verdict import Judge, Residue

AT_FDCWD = -100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000
O_PATH = 0o10000000
O_TMPFILE_ITSELF = 0o20000000  # the bit of O_TMPFILE that is its own
O_MAKES = os.O_CREAT | O_TMPFILE_ITSELF
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH = 0x04, 0x08
EPERM, ENOENT, EACCES, EBUSY, EEXIST, EXDEV, EISDIR, EINVAL, EMFILE = 1, 2, 13, 16, 17, 18, 21, 22, 24
ELOOP, EADDRINUSE = 40, 98
MAX_LINKS = 40
MAX_REMEMBERED = 4096
# How the kernel refuses here what the rules may allow: a read-only mount, Landlock, a mount point, two mounts.
REFUSED_HERE = (EPERM, EACCES, EBUSY, EXDEV, 30)  # EROFS
ENOTSOCK = 88
S_IFMT, S_IFDIR, S_IFIFO, S_IFCHR, S_IFSOCK = 0o170000, 0o040000, 0o010000, 0o020000, 0o140000
S_IFREG, S_IFLNK = 0o100000, 0o120000


class WouldBlock(Exception):
    """The call may wait for somebody else; it needs a process of its own: (directory, name, flags) to open there."""

    def __init__(self, place: Place, flags: int) -> None:
        super().__init__()
        self.fd = os.dup(place.fd)
        self.name = place.name
        self.flags = flags & ~os.O_CREAT & ~os.O_TRUNC  # it exists, and has no length


def may_block(status: os.stat_result | None) -> bool:
    """Does opening it wait for somebody? A FIFO, a terminal; not /dev/null and its like (major number 1)."""
    if status is None:
        return False
    kind = status.st_mode & S_IFMT
    return kind == S_IFIFO or (kind == S_IFCHR and os.major(status.st_rdev) != 1)


def seen_at(place: Place) -> Seen:
    """What stands there as it is seen from here: the hand outside is to find the same."""
    status = place.status()
    return None if status is None else (status.st_dev, status.st_ino)


class Names:
    """The rules, and what it takes to ask them about a name quickly."""

    def __init__(self, judge: Judge, reach: Reach | None = None) -> None:
        self.read_rules, self.modify_rules = judge[0], judge[1]
        self.reach = reach  # of the hand outside, for single names in folders that are read-only here
        self.remembered: dict[str, tuple[Residue, Residue]] = {}
        self.umask = os.umask(0o077)
        os.umask(self.umask)
        self.uid = os.geteuid()  # the command's too
        self.open_flags = 0  # of the last open

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
        return self._walk_allowed(top, old, new, os.fstat(place.fd).st_dev)

    def _uniform(self, folder: tuple[str, ...]) -> bool:
        return uniform_below(self.modify_rules, folder) is True and uniform_below(self.read_rules, folder) is True

    def _walk_allowed(self, fd: int, old: tuple[str, ...], new: tuple[str, ...], device: int) -> bool:
        lists = (self.modify_rules, self.read_rules)
        here = [(residue(rules, old), residue(rules, new)) for rules in lists]
        try:
            if os.fstat(fd).st_dev != device:
                return False  # a cover: what is below it cannot be seen from here
            with os.scandir(fd) as entries:
                found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            for name, is_dir in found:
                if not all(residue_allows(left, name) for pair in here for left in pair):
                    return False
                inner_old, inner_new = (*old, name), (*new, name)
                if is_dir and not (self._uniform(inner_old) and self._uniform(inner_new)):
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
                    if not self._walk_allowed(below, inner_old, inner_new, device):
                        return False
        finally:
            os.close(fd)
        return True

    # Outside, by hand: only what was found to be allowed, and refused here

    def reached(self, place: Place, error: OSError) -> Folder:
        """The place for the hand, which is the last resort; where it does not reach, the error stays as it is."""
        folder = None
        if self.reach is not None and error.errno in REFUSED_HERE and place.plain not in ("", ".", ".."):
            folder = self.reach.folder(place.folder, place.fd)
        if folder is None:
            raise error
        return folder

    def by_hand(self, name: str, *arguments: Any, given: int = -1) -> int | None:
        assert self.reach is not None
        return self.reach.ask(name, self.umask, arguments, given)

    # Performing: each returns a descriptor to hand over, or None for plain success

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

    def open(self, pid: int, dir_fd: int, path: bytes, flags: int, mode: int, resolve: int = 0) -> int:
        flags = signed(flags)
        if flags & O_PATH:
            flags &= ~os.O_CREAT  # as the kernel does
        self.open_flags = flags
        flags |= os.O_NOCTTY  # a terminal would become this process's own
        base = -1
        try:
            for _ in range(MAX_LINKS):
                place = find_place(pid, dir_fd, path, base=base, resolve=resolve)
                if base >= 0:
                    os.close(base)
                base = place.fd
                text, there = self._followed(pid, place, flags)
                if text == b"":
                    return self._open_at(pid, place, flags, mode, there)
                if text is None:
                    return self._open_magic(pid, place, flags, mode)
                if place.name.endswith(b"/"):
                    text += b"/"
                if not resolve:
                    path = text
                    continue
                # Under a restriction the whole path has to start again where the restriction counts from.
                os.close(base)
                base = -1
                if resolve & RESOLVE_NO_SYMLINKS or (text.startswith(b"/") and resolve & RESOLVE_BENEATH):
                    raise OSError(ELOOP if resolve & RESOLVE_NO_SYMLINKS else EXDEV, "a link")
                head = path.rstrip(b"/").rpartition(b"/")[0]
                path = text if text.startswith(b"/") or not head else head + b"/" + text
            raise OSError(ELOOP, "too many links")
        finally:
            if base >= 0:
                os.close(base)

    def _followed(self, pid: int, place: Place, flags: int) -> tuple[bytes | None, os.stat_result | None]:
        """The text of the link to follow from here, empty for none, None for a link that only the kernel can follow;
        and what stands here, as far as it was looked at."""
        creates = flags & os.O_CREAT
        if place.name == b".":
            return b"", None
        if place.name.endswith(b"/") and creates:
            raise OSError(EISDIR, "a new file cannot be a folder")
        if creates and flags & os.O_EXCL:
            return b"", None
        there = place.status()
        if there is None or there.st_mode & S_IFMT != S_IFLNK:
            return b"", there
        if flags & os.O_NOFOLLOW and not place.name.endswith(b"/"):
            return b"", there
        return place.link_text(pid), there

    def _open_magic(self, pid: int, place: Place, flags: int, mode: int) -> int:
        """/proc/<pid>/fd/1 and its like: nothing is made, and what they stand for has no other name."""
        if may_block(place.status(follow=True)) and not flags & (os.O_NONBLOCK | O_PATH):
            raise WouldBlock(place, flags)
        if flags & O_MAKES:
            self.take_umask(pid)
        return os.open(place.name, flags, mode, dir_fd=place.fd)

    def _open_at(self, pid: int, place: Place, flags: int, mode: int, there: os.stat_result | None) -> int:
        """What is there is no link, or shall not be followed."""
        careful = flags | os.O_NOFOLLOW
        if place.folder == "/proc" or place.folder.startswith("/proc/"):
            flags &= ~os.O_CREAT  # nothing can be made there, and it has its own words for that
            careful &= ~os.O_CREAT
        if not flags & os.O_CREAT or place.name == b".":
            if not flags & (O_PATH | os.O_NONBLOCK) and may_block(there):
                raise WouldBlock(place, careful)
            if flags & O_TMPFILE_ITSELF:
                self.take_umask(pid)
            try:
                return os.open(place.name, careful, mode, dir_fd=place.fd)
            except OSError as error:
                if not flags & O_TMPFILE_ITSELF:
                    raise
                return self._nameless_by_hand(place, flags, mode, error)
        if may_block(there) and not flags & os.O_NONBLOCK:
            raise WouldBlock(place, careful)
        allowed = self.allowed(place)
        # Where O_CREAT has nothing to do, the umask has not either, and to ask for it is the dearest part of a call. Of
        # other users' files O_CREAT may be refused (fs.protected_regular).
        if there is not None and there.st_mode & S_IFMT == S_IFREG and there.st_uid == self.uid and allowed:
            try:
                return os.open(place.name, careful & ~os.O_CREAT, mode, dir_fd=place.fd)
            except OSError:
                pass  # gone meanwhile, or for the hand: the whole call has the right answer
        if allowed:
            self.take_umask(pid)
            try:
                return os.open(place.name, careful, mode, dir_fd=place.fd)
            except OSError as error:
                return self.open_by_hand(place, flags, mode, error)
        if flags & os.O_EXCL:
            there = place.status()
            if there is not None:
                raise OSError(EEXIST, "exists")
        if there is None:
            raise OSError(EACCES, "denied")
        return os.open(place.name, careful & ~os.O_CREAT, mode, dir_fd=place.fd)

    def open_by_hand(self, place: Place, flags: int, mode: int, error: OSError) -> int:
        folder = self.reached(place, error)
        made = self.by_hand("open", folder, place.name, flags, mode, seen_at(place))
        if made is not None:
            return made
        # For reading, what is here is opened: a descriptor from outside would be under none of our mounts.
        return os.open(place.name, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC) | os.O_NOFOLLOW, dir_fd=place.fd)

    def _nameless_by_hand(self, place: Place, flags: int, mode: int, error: OSError) -> int:
        """O_TMPFILE in a folder that may be modified itself, but not as a whole."""
        fd = os.open(place.name, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.fd)
        try:
            where = os.fsdecode(os.readlink(b"/proc/self/fd/%d" % fd))
            folder = None
            if self.reach is not None and error.errno in REFUSED_HERE and self.may_modify(where):
                folder = self.reach.folder(where, fd)
            if folder is None:
                raise error
            made = self.by_hand("nameless", folder, flags, mode)
        finally:
            os.close(fd)
        if made is None:  # it came without its descriptor: there was no number left for it
            raise OSError(EMFILE, "nameless")
        return made

    def make(self, place: Place, kind: str, *arguments: Any) -> None:
        """mkdir, symlink, mknod: a new name that must not be there yet."""
        if not self.allowed(place):
            raise OSError(EEXIST if place.mode() else EACCES, "denied")
        try:
            if kind == "symlink":
                os.symlink(arguments[0], place.name, dir_fd=place.fd)
            else:
                (os.mkdir if kind == "mkdir" else os.mknod)(place.name, *arguments, dir_fd=place.fd)
        except OSError as error:
            folder = self.reached(place, error)
            self.by_hand(kind, folder, place.name, *arguments)

    def mkdir(self, pid: int, dir_fd: int, path: bytes, mode: int) -> None:
        place = find_place(pid, dir_fd, path)
        try:
            self.take_umask(pid)
            self.make(place, "mkdir", mode & 0o7777)
        finally:
            place.close()

    def mknod(self, pid: int, dir_fd: int, path: bytes, mode: int, device: int) -> None:
        place = find_place(pid, dir_fd, path)
        try:
            self.take_umask(pid)
            self.make(place, "mknod", mode & 0xFFFF, device & 0xFFFFFFFF)
        finally:
            place.close()

    def symlink(self, pid: int, text: bytes, dir_fd: int, path: bytes) -> None:
        if not text:
            raise OSError(ENOENT, "empty link text")
        place = find_place(pid, dir_fd, path)
        try:
            self.make(place, "symlink", text)
        finally:
            place.close()

    def link(self, pid: int, old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        flags = signed(flags)
        if flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH):
            raise OSError(EINVAL, "flags")
        source = self._link_source(pid, old_fd, old, flags)
        try:
            place = find_place(pid, new_fd, new)
            try:
                where = os.fsdecode(os.readlink(b"/proc/self/fd/%d" % source))
                unnamed = os.fstat(source).st_nlink == 0  # O_TMPFILE: it gets its first name, which is judged below
                if not unnamed and not self.may_modify(where):
                    raise OSError(EPERM, "denied")
                if not self.allowed(place):
                    raise OSError(EEXIST if place.mode() else EACCES, "denied")
                link = b"/proc/self/fd/%d" % source
                number = 37 if NUMBERS["openat"] == 56 else 265  # linkat on aarch64, x86-64
                try:
                    syscall("linkat", number, "lzlzl", AT_FDCWD, link, place.fd, place.name, AT_SYMLINK_FOLLOW)
                except OSError as error:
                    self._link_by_hand(place, source, unnamed, where, error)
            finally:
                place.close()
        finally:
            os.close(source)

    def _link_by_hand(self, place: Place, source: int, unnamed: bool, where: str, error: OSError) -> None:
        folder = self.reached(place, error)
        if unnamed:
            self.by_hand("link", folder, place.name, given=source)
            return
        old, name, identity = self.named(source, where, error)
        self.by_hand("link", folder, place.name, old, name, identity)

    def named(self, fd: int, where: str, error: OSError) -> tuple[Folder, bytes, tuple[int, int]]:
        """Something that is there, in the hand's terms: the folder and the name it is under, and its inode."""
        head, _, name = where.rpartition("/")
        above = os.open(os.fsencode(head or "/"), O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            folder = None if self.reach is None or not name else self.reach.folder(head or "/", above)
        finally:
            os.close(above)
        if folder is None:
            raise error
        seen = os.fstat(fd)
        return folder, os.fsencode(name), (seen.st_dev, seen.st_ino)

    def _link_source(self, pid: int, dir_fd: int, path: bytes, flags: int) -> int:
        """The file itself, as an O_PATH descriptor: a link made from it cannot be about another file."""
        if not path and flags & AT_EMPTY_PATH:
            return open_base(pid, dir_fd)
        follow = 0 if flags & AT_SYMLINK_FOLLOW else os.O_NOFOLLOW
        return self.open(pid, dir_fd, path, O_PATH | os.O_CLOEXEC | follow, 0)

    def may_modify(self, location: str) -> bool:
        names = tuple(part for part in location.split("/") if part)
        folder = names[:-1]
        name = names[-1] if names else ""
        lists = (self.modify_rules, self.read_rules)
        return all(residue_allows(residue(rules, folder), name) for rules in lists)

    def rename(self, pid: int, old_fd: int, old: bytes, new_fd: int, new: bytes, flags: int) -> None:
        flags = signed(flags)
        if flags & ~7 or (flags & RENAME_EXCHANGE and flags & ~RENAME_EXCHANGE):
            raise OSError(EINVAL, "flags")
        source = find_place(pid, old_fd, old)
        try:
            target = find_place(pid, new_fd, new)
            try:
                if b"." in (source.name, target.name):
                    raise OSError(EEXIST if flags & RENAME_NOREPLACE and source.name != b"." else EBUSY, "no name")
                self._check_move(source, target)
                if flags & RENAME_EXCHANGE:
                    self._check_move(target, source)
                number = 276 if NUMBERS["openat"] == 56 else 316  # renameat2
                try:
                    syscall("renameat2", number, "lzlzl", source.fd, source.name, target.fd, target.name, flags)
                except OSError as error:
                    folders = self.reached(source, error), self.reached(target, error)
                    seen = (seen_at(source), seen_at(target))
                    self.by_hand("rename", folders[0], source.name, folders[1], target.name, flags, seen)
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

    def bind(self, pid: int, socket_fd: int, read_address: Callable[[], bytes]) -> None:
        """bind(2), always performed here: the family is in memory too, so it cannot be let through unseen."""
        pidfd = syscall("pidfd_open", NUMBERS["pidfd_open"], "ll", group_leader(pid), 0)
        try:
            own = syscall("pidfd_getfd", 438, "lll", pidfd, signed(socket_fd), 0)
        finally:
            os.close(pidfd)
        try:
            if os.fstat(own).st_mode & S_IFMT != S_IFSOCK:
                raise OSError(ENOTSOCK, "bind")
            address = read_address()
            path = address[2:].split(b"\0", 1)[0] if address[:2] == b"\x01\x00" else b""
            if path:
                self._bind_path(pid, own, address, path)
            else:
                _bind(own, address)
        finally:
            os.close(own)

    def _bind_path(self, pid: int, socket_fd: int, address: bytes, path: bytes) -> None:
        place = find_place(pid, AT_FDCWD, path)
        start = -1
        try:
            if not self.allowed(place):
                raise OSError(EADDRINUSE if place.mode() else EACCES, "denied")
            self.take_umask(pid)
            if place.direct:
                start = open_base(pid, AT_FDCWD)
                os.fchdir(start)  # so that the socket's own idea of its address is what the caller wrote
            else:
                os.fchdir(place.fd)
                address = address[:2] + place.name + b"\0"
            try:
                _bind(socket_fd, address)
            except OSError as error:
                self.by_hand("bind", self.reached(place, error), place.name, given=socket_fd)
        finally:
            os.chdir(b"/")
            place.close()
            if start >= 0:
                os.close(start)


def _bind(socket_fd: int, address: bytes) -> None:
    number = 200 if NUMBERS["openat"] == 56 else 49
    syscall("bind", number, "lzl", socket_fd, address, len(address))
