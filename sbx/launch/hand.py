"""A hand outside: makes, changes and removes single names that are granted in folders which are shown read-only.

A mount is writable or not as a whole, and so is a Landlock hierarchy. Where the rules grant just some names of a
folder (`./report.xml`, `./*.log`), the folder is mounted read-only inside, and what pid 1 has judged to be allowed is
done by this process: it stays outside, in the user's own mount namespace, where none of our mounts is in the way.

It trusts nobody but pid 1, which is out of the command's reach, and can do little: a Landlock domain lets it write
below the folders of the plan and nowhere else, read no folder, execute nothing. A request names a folder by its place
below one of those and by its inode, found without following a single link; and one name in it, with the inode that
pid 1 sees there: under a cover is something else. Descriptors that are handed over are of regular files, opened for
writing: nothing else can be reached from them. No symlink is put where a rule's own path leads: the next run would
follow it, and take what it leads to for what was granted.
"""

from __future__ import annotations

import _socket
import fcntl
import marshal
import sys

from sbx.kernel import landlock, mounts, process
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import MACHINE, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeAlias

    # (root, folder below it, device, inode): a folder as pid 1 sees it
    Folder: TypeAlias = tuple[int, bytes, int, int]
    # (device, inode) of what pid 1 sees under a name, None for nothing
    Seen: TypeAlias = tuple[int, int] | None
    # (handled rights, rights below the folders, the folders, places that no symlink may take)
    HandPlan: TypeAlias = tuple[int, int, tuple[bytes, ...], frozenset[bytes]]

assert sys.platform == "linux"  # for type checkers on other platforms

EIO, EACCES, ESTALE = 5, 13, 116
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_SYMLINK_FOLLOW = -100, 0x100, 0x400
O_PATH = 0o10000000
S_IFMT, S_IFREG, S_IFLNK = 0o170000, 0o100000, 0o120000
RENAME_EXCHANGE = 2
MESSAGE_MAX = 65536
_RENAMEAT2, _LINKAT, _UTIMENSAT, _BIND = (276, 37, 88, 200) if MACHINE == "aarch64" else (316, 265, 280, 49)
_INSIDE = mounts.RESOLVE_BENEATH | mounts.RESOLVE_NO_SYMLINKS | mounts.RESOLVE_NO_MAGICLINKS


def fork_hand(plan: HandPlan, *, waited_for: bool) -> tuple[int, int]:
    """Start one for a plan. Returns the socket to ask it, and its pid for a caller that will wait for it; else 0."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        try:
            # Where nobody waits for it, the process in between ends at once, and this one when pid 1 inside has.
            if waited_for or os.fork() == 0:
                ours.close()
                _live(theirs, *plan)
        finally:
            os._exit(0)
    theirs.close()
    if not waited_for:
        os.waitpid(child, 0)
    found = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, 10)  # not one of the command's own three
    ours.close()
    return found, child if waited_for else 0


def _live(
    requests: _socket.socket, handled: int, access: int, folders: tuple[bytes, ...], no_links: frozenset[bytes]
) -> NoReturn:
    try:
        os.setsid()  # a Ctrl-C is the command's to answer
        process.close_from(0, (requests.fileno(),))
        process.hide_arguments()
        process.prctl(process.PR_SET_DUMPABLE, 0)
        roots = [mounts.open_real(folder) for folder in folders]
        process.drop_capabilities()
        process.no_new_privs()
        ruleset = landlock.create_ruleset(handled, 0, 0)
        for root, folder in zip(roots, folders, strict=True):
            landlock.add_path(ruleset, root, access, is_dir=True, subject=folder)
        landlock.restrict_self(ruleset, 0)
        os.close(ruleset)
        Hand(requests, roots, folders, no_links).loop()
    finally:
        os._exit(1)  # pid 1 sees the end of the socket, and the command gets errors


class Hand:
    def __init__(
        self, requests: _socket.socket, roots: list[int], folders: tuple[bytes, ...], no_links: frozenset[bytes]
    ) -> None:
        self.requests = requests
        self.roots = roots
        self.folders = folders
        self.no_links = no_links
        self.deeds: dict[str, Callable[..., int | None]] = {
            "open": self.open,
            "nameless": self.nameless,
            "mkdir": self.mkdir,
            "mknod": self.mknod,
            "symlink": self.symlink,
            "link": self.link,
            "rename": self.rename,
            "unlink": self.unlink,
            "chmod": self.chmod,
            "utime": self.utime,
            "truncate": self.truncate,
            "bind": self.bind,
        }

    def loop(self) -> None:
        while True:
            data, control, flags, _ = self.requests.recvmsg(
                MESSAGE_MAX, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC
            )
            if not data:
                return
            given = int.from_bytes(control[0][2][:4], sys.byteorder) if control else -1
            made = -1
            try:
                if flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
                    raise OSError(EIO, "request")
                name, umask, arguments = marshal.loads(data)
                os.umask(umask)
                found = self.deeds[name](*arguments, *((given,) if given >= 0 else ()))
                made = -1 if found is None else found
                code = 0
            except OSError as error:
                code = error.errno or EIO
            except Exception:  # a bug must not look like success
                code = EIO
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, made.to_bytes(4, sys.byteorder))] if made >= 0 else []
            self.requests.sendmsg([code.to_bytes(4, "little")], rights)
            for descriptor in (made, given):
                if descriptor >= 0:
                    os.close(descriptor)

    # Finding

    def folder(self, place: Folder) -> int:
        """Open it, and be sure that it is the one which pid 1 judged."""
        root, below, device, inode = place
        fd = mounts.openat2(self.roots[root], below or b".", O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, _INSIDE)
        seen = os.fstat(fd)
        if (seen.st_dev, seen.st_ino) != (device, inode):
            os.close(fd)
            raise OSError(ESTALE, "another folder by now")
        return fd

    def at(self, place: Folder, deed: Callable[[int], Any]) -> Any:
        fd = self.folder(place)
        try:
            return deed(fd)
        finally:
            os.close(fd)

    def check_entry(self, folder: int, name: bytes, seen: Seen) -> int:
        """Is there what pid 1 judged, or nothing as there? Its kind, or 0 for nothing."""
        try:
            now = os.stat(_one(name).rstrip(b"/"), dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            found: Seen = None
            kind = 0
        else:
            found = (now.st_dev, now.st_ino)
            kind = now.st_mode & S_IFMT
        if found != seen:
            raise OSError(ESTALE, "something else by now")
        return kind

    def check_link(self, place: Folder, name: bytes) -> None:
        """A symlink may be put here, since no rule's own path leads through it."""
        folder = self.folders[place[0]].rstrip(b"/") + (b"/" + place[1] if place[1] else b"")
        if folder + b"/" + name.rstrip(b"/") in self.no_links:
            raise OSError(EACCES, "a rule's own path")

    def on(self, place: Folder, name: bytes, identity: tuple[int, int], deed: Callable[[int, int], Any]) -> Any:
        """Something that is there already, as an O_PATH descriptor of the very inode that pid 1 judged."""

        def work(folder: int) -> Any:
            fd = os.open(_one(name), O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                seen = os.fstat(fd)
                if (seen.st_dev, seen.st_ino) != identity:
                    raise OSError(ESTALE, "another file by now")
                return deed(fd, seen.st_mode & S_IFMT)
            finally:
                os.close(fd)

        return self.at(place, work)

    # Doing

    def open(self, place: Folder, name: bytes, flags: int, mode: int, seen: Seen) -> int | None:
        """Only a regular file is opened, and only for writing is it handed over."""

        def work(folder: int) -> int | None:
            # A FIFO or a device would wait or do something by being opened: they are found before.
            there = self.check_entry(folder, name, seen)
            if there in (0o010000, 0o020000, 0o060000, 0o140000):
                raise OSError(EACCES, "not a regular file")
            careful = flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
            fd = os.open(name, careful, mode, dir_fd=folder)
            if os.fstat(fd).st_mode & S_IFMT != S_IFREG or not flags & 3:
                os.close(fd)
                if not flags & 3:
                    return None
                raise OSError(EACCES, "not a regular file")
            if not flags & os.O_NONBLOCK:
                fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NONBLOCK)
            return fd

        found: int | None = self.at(place, work)
        return found

    def nameless(self, place: Folder, flags: int, mode: int) -> int:
        made: int = self.at(place, lambda folder: os.open(b".", flags | os.O_CLOEXEC, mode, dir_fd=folder))
        if os.fstat(made).st_mode & S_IFMT != S_IFREG:
            os.close(made)
            raise OSError(EACCES, "not a regular file")  # a folder would lead everywhere
        return made

    def mkdir(self, place: Folder, name: bytes, mode: int) -> None:
        self.at(place, lambda folder: os.mkdir(_one(name), mode, dir_fd=folder))

    def mknod(self, place: Folder, name: bytes, mode: int, device: int) -> None:
        self.at(place, lambda folder: os.mknod(_one(name), mode, device, dir_fd=folder))

    def symlink(self, place: Folder, name: bytes, text: bytes) -> None:
        self.check_link(place, name)
        self.at(place, lambda folder: os.symlink(text, _one(name), dir_fd=folder))

    def link(self, place: Folder, name: bytes, *source: Any) -> None:
        """From a descriptor of a file without a name, or from (folder, name, inode)."""

        def make(fd: int, kind: int = 0) -> None:
            if kind == S_IFLNK:
                self.check_link(place, name)
            text = b"/proc/self/fd/%d" % fd
            self.at(
                place, lambda to: syscall("linkat", _LINKAT, "lzlzl", AT_FDCWD, text, to, _one(name), AT_SYMLINK_FOLLOW)
            )

        if len(source) == 1:
            make(source[0])
        else:
            old, old_name, identity = source
            self.on(old, old_name, identity, make)

    def rename(self, old: Folder, name: bytes, new: Folder, to: bytes, flags: int, seen: tuple[Seen, Seen]) -> None:
        names = (_one(name), _one(to))

        def move(source: int, target: int) -> None:
            if self.check_entry(source, name, seen[0]) == S_IFLNK:
                self.check_link(new, to)
            if self.check_entry(target, to, seen[1]) == S_IFLNK and flags & RENAME_EXCHANGE:
                self.check_link(old, name)
            syscall("renameat2", _RENAMEAT2, "lzlzl", source, names[0], target, names[1], flags)

        self.at(old, lambda source: self.at(new, lambda target: move(source, target)))

    def unlink(self, place: Folder, name: bytes, is_dir: bool, seen: Seen) -> None:
        def work(folder: int) -> None:
            self.check_entry(folder, name, seen)
            (os.rmdir if is_dir else os.unlink)(name, dir_fd=folder)

        self.at(place, work)

    def chmod(self, place: Folder, name: bytes, identity: tuple[int, int], mode: int) -> None:
        self.on(place, name, identity, lambda fd, _kind: os.chmod(b"/proc/self/fd/%d" % fd, mode))

    def truncate(self, place: Folder, name: bytes, identity: tuple[int, int], size: int) -> None:
        self.on(place, name, identity, lambda fd, _kind: os.truncate(b"/proc/self/fd/%d" % fd, size))

    def utime(self, place: Folder, name: bytes, identity: tuple[int, int], times: bytes | None) -> None:
        def work(fd: int, kind: int) -> None:
            if kind == S_IFLNK:  # the link itself: nothing can be followed from it
                raise OSError(EACCES, "a link")
            syscall("utimensat", _UTIMENSAT, "lzzl", AT_FDCWD, b"/proc/self/fd/%d" % fd, times, 0)

        self.on(place, name, identity, work)

    def bind(self, place: Folder, name: bytes, socket_fd: int) -> None:
        def work(folder: int) -> None:
            address = (1).to_bytes(2, "little") + _one(name) + b"\0"
            os.fchdir(folder)
            try:
                syscall("bind", _BIND, "lzl", socket_fd, address, len(address))
            finally:
                os.chdir(b"/")

        self.at(place, work)


def _one(name: bytes) -> bytes:
    """One name and nothing else; a trailing slash is for the kernel to judge."""
    plain = name.rstrip(b"/")
    if plain in (b"", b".", b"..") or b"/" in plain:
        raise OSError(EACCES, "not one name")
    return name


class Reach:
    """pid 1's side of it: which places the hand serves, and asking it."""

    def __init__(self, socket_fd: int, folders: tuple[bytes, ...]) -> None:
        self.asked = _socket.socket(fileno=socket_fd)
        self.folders = tuple(os.fsdecode(folder) for folder in folders)

    def folder(self, location: str, fd: int) -> Folder | None:
        """How to tell the hand of the open folder at `location`; None where it does not reach."""
        for number, root in enumerate(self.folders):
            if location == root or location.startswith(root if root == "/" else root + "/"):
                seen = os.fstat(fd)
                return (number, os.fsencode(location[len(root) :].lstrip("/")), seen.st_dev, seen.st_ino)
        return None

    def ask(self, name: str, umask: int, arguments: tuple[Any, ...], given: int = -1) -> int | None:
        """The hand's own answer: a descriptor, None, or the error."""
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, given.to_bytes(4, sys.byteorder))] if given >= 0 else []
        try:
            self.asked.sendmsg([marshal.dumps((name, umask, arguments))], rights)
            data, control, _flags, _ = self.asked.recvmsg(4, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        except OSError:
            raise OSError(EIO, "the hand outside is gone") from None
        code = int.from_bytes(data, "little") if data else EIO
        if code:
            # Another folder than is seen here: a cover, where the hand does not reach.
            raise OSError(EACCES if code == ESTALE else code, name)
        return int.from_bytes(control[0][2][:4], sys.byteorder) if control else None
