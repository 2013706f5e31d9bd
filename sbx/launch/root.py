"""Build the private root from the plan's operations, then make it the only root there is.

Runs as pid 1 of the new namespaces, with the capabilities of the user namespace and nothing imported afterwards.
The new root is staged on a directory that no operation reads from, so that every source is still reachable by its
own path until pivot_root. Sources and targets are opened without following a single symlink: plans hold real paths.
"""

from __future__ import annotations

import sys

from sbx.kernel import mounts
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.mounts import (
    AT_EMPTY_PATH,
    AT_FDCWD,
    AT_RECURSIVE,
    MOUNT_ATTR_NODEV,
    MOUNT_ATTR_NOEXEC,
    MOUNT_ATTR_NOSUID,
    MOUNT_ATTR_RDONLY,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    OPEN_TREE_CLOEXEC,
    OPEN_TREE_CLONE,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeAlias

    LaunchOp: TypeAlias = tuple[int, bytes, bytes, int]  # (code, path, source, attributes)

assert sys.platform == "linux"  # for type checkers on other platforms

# Operation codes: the planner's Op, as the plain ints of the launch plan.
# COPY writes a small system file's content (the `source`) instead of mounting it: a tenth of a bind's cost.
TMPFS, PROC, DEV, SKELETON, SYMLINK, BIND_RO, BIND_RW, MASK, MAKE_DIR, PIN, COPY = range(11)

IS_DIR, LISTABLE, NOEXEC, OPTIONAL, IS_LINK = 1, 2, 4, 8, 16
SYSTEM = 32  # the source lies in folders that only root can change: no symlink can appear on the way
FRESH = 64  # the target is made here, in our own tmpfs: nothing can be there yet

DEVICE_NODES = (b"null", b"zero", b"full", b"random", b"urandom", b"tty")
DEVICE_LINKS = (
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
    (b"ptmx", b"pts/ptmx"),
)
# For uid 0 the files of /proc/sys and their like are its own: read-only, whoever runs us.
PROC_READ_ONLY = (b"sys", b"sysrq-trigger", b"irq", b"bus", b"fs", b"acpi", b"scsi", b"driver", b"asound")

ENOENT, ENOTDIR, ENOSYS = 2, 20, 38
_WORDS = {
    TMPFS: "mount a private tmpfs",
    PROC: "mount a private /proc",
    DEV: "set up a minimal /dev",
    SKELETON: "make a directory of the private root",
    SYMLINK: "make a link of the private root",
    BIND_RO: "bind read-only",
    BIND_RW: "bind writable",
    MASK: "mask",
    PIN: "pin a directory in its place",
    COPY: "write a system file of the private root",
}


class SetupStep(Exception):
    """A step failed: (step in words, errno, the system's words, subject)."""


def make_directories(operations: Iterable[LaunchOp]) -> None:
    """Directories that a modify rule names and that are not there: made in the real tree, before any namespace.

    One name at a time, below a descriptor that was opened without following symlinks.
    """
    for code, path, _source, _attributes in operations:
        if code != MAKE_DIR:
            continue
        parent, _, name = path.rpartition(b"/")
        try:
            above = mounts.open_real(parent or b"/")
            try:
                os.mkdir(name, 0o777, dir_fd=above)
            finally:
                os.close(above)
        except FileExistsError:
            pass
        except OSError as error:
            raise SetupStep("create a directory that a modify rule names", error.errno, str(error), path) from None


class Root:
    """The staged root under construction."""

    def __init__(self, staging: bytes, *, restrict_proc: bool) -> None:
        self.staging = staging
        self.restrict_proc = restrict_proc
        self.closed: dict[bytes, None] = {}  # skeleton directories that may be passed through but not listed
        self.hidden = -1  # where covers lie, below the staged root
        self.covers: list[tuple[bytes, int]] = []  # masks: place and final mode
        self.covers_made = 0  # with those whose place had vanished
        self.sealed: list[bytes] = []  # our own file systems, to be made read-only at the end
        self.writable: set[bytes] = set()  # private folders that stay the command's to write

    def build(self, operations: tuple[LaunchOp, ...]) -> None:
        umask = os.umask(0)
        mounts.mount(None, b"/", None, mounts.MS_REC | mounts.MS_PRIVATE)
        # Directories in the real tree were made before there was a namespace.
        rest = self._base(tuple(each for each in operations if each[0] != MAKE_DIR))
        for operation in rest:
            try:
                self._apply(*operation)
            except OSError as error:
                if operation[3] & OPTIONAL and error.errno in (ENOENT, ENOTDIR):
                    continue  # vanished; any other failure of a mask would leave open what it should cover
                raise SetupStep(_WORDS[operation[0]], error.errno, str(error), operation[1]) from None
        self._seal()
        os.umask(umask)

    def enter(self) -> None:
        """pivot_root onto the staged root and let go of the old one."""
        os.chdir(self.staging)
        mounts.pivot_root(b".", b".")
        mounts.umount2(b".", mounts.MNT_DETACH)
        os.chdir(b"/")

    def _base(self, operations: tuple[LaunchOp, ...]) -> tuple[LaunchOp, ...]:
        """What everything else is mounted on: a tmpfs, or a clone of `/` where all of it is granted."""
        if operations and operations[0][1] == b"/" and operations[0][0] in (BIND_RO, BIND_RW):
            code, _path, _source, attributes = operations[0]
            # Cloned before anything is mounted over the staging directory, or the clone would contain itself.
            tree = _clone_tree(b"/")
            self._hide(operations)
            self._attach(tree, self.staging, _wanted(code, attributes))
            return operations[1:]
        self._hide(operations)
        options = b"mode=0755,size=16m,nr_inodes=200000"
        mounts.mount(b"tmpfs", self.staging, b"tmpfs", MS_NOSUID | MS_NODEV, options)
        self.sealed.append(self.staging)
        return operations

    def _hide(self, operations: tuple[LaunchOp, ...]) -> None:
        """A file system for covers, under the one that is mounted on the same place next: it goes with the old root."""
        if any(operation[0] == MASK for operation in operations):
            options = b"mode=0700,size=1m,nr_inodes=200000"
            mounts.mount(b"tmpfs", self.staging, b"tmpfs", MS_NOSUID | MS_NODEV, options)
            self.hidden = os.open(self.staging, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _apply(self, code: int, path: bytes, source: bytes, attributes: int) -> None:
        target = self.staging + path if path != b"/" else self.staging
        if code in (BIND_RO, BIND_RW, PIN):
            self._bind(target, source or path, attributes, _wanted(code, attributes))
        elif code == COPY:
            descriptor = os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_EXCL, 0o444)
            os.write(descriptor, source)
            os.close(descriptor)
        elif code == SKELETON:
            self._skeleton(target, attributes)
        elif code == MASK:
            self._mask(target, attributes)
        elif code == SYMLINK:
            self._directory(target.rpartition(b"/")[0])
            try:
                os.symlink(source, target)
            except FileExistsError:
                pass
        elif code == TMPFS:
            self._mount_point(target, IS_DIR)
            flags = MS_NOSUID | MS_NODEV | (MS_NOEXEC if attributes & NOEXEC else 0)
            mounts.mount(b"tmpfs", target, b"tmpfs", flags, b"mode=1777")
            self.writable.add(target)
        elif code == PROC:
            self._proc(target)
        elif code == DEV:
            self._dev(target)

    def _bind(self, target: bytes, source: bytes, attributes: int, wanted: int) -> None:
        is_link = attributes & IS_LINK
        if attributes & (SYSTEM | FRESH | OPTIONAL | IS_LINK) == SYSTEM | FRESH:
            self._bind_by_path(target, source, attributes, wanted)
            return
        tree = _clone_system(source) if attributes & SYSTEM and not is_link else _clone_tree(source, is_link)
        if attributes & FRESH:
            _make_place(target, attributes & IS_DIR)
            self._attach_fresh(tree, target, wanted)
        else:
            self._mount_point(target, attributes & IS_DIR)
            self._attach(tree, target, wanted, is_link)

    def _bind_by_path(self, target: bytes, source: bytes, attributes: int, wanted: int) -> None:
        """From where nobody can put a symlink, to where nobody else can look yet: the classic call, half the price."""
        _make_place(target, attributes & IS_DIR)
        mounts.mount(source, target, None, mounts.MS_BIND | mounts.MS_REC)
        try:
            mounts.restrict_mounts_at(target, wanted)
        except OSError as error:
            if error.errno != ENOSYS:  # before Linux 5.12
                raise
            _remount_each(target, wanted)

    def _attach_fresh(self, tree: int, target: bytes, wanted: int) -> None:
        """On a place of our own: by its path, since nothing else can be there."""
        try:
            restricted = not wanted or _restrict(tree, wanted)
            mounts.move_mount_to(tree, target)
        finally:
            os.close(tree)
        if not restricted:
            _remount_each(target, wanted)

    def _attach(self, tree: int, target: bytes, wanted: int, is_link: int = 0) -> None:
        """Mount the detached tree on `target`, restricted before it can be reached where the kernel allows that."""
        restricted = False
        try:
            if wanted:
                restricted = _restrict(tree, wanted)
            place = mounts.open_link(target) if is_link else mounts.open_real(target)
            try:
                mounts.move_mount(tree, place)
            finally:
                os.close(place)
        finally:
            os.close(tree)
        if wanted and not restricted:
            _remount_each(target, wanted)

    def _mount_point(self, target: bytes, is_dir: int) -> None:
        """There already inside a bind, made here inside the skeleton."""
        if os.lexists(target):
            return
        self._directory(target.rpartition(b"/")[0])
        _make_place(target, is_dir)

    def _directory(self, target: bytes) -> None:
        """mkdir -p inside the staged root; what is only passed through is not listable."""
        if target == self.staging or os.is_directory(target):
            return
        parent = target.rpartition(b"/")[0]
        self._directory(parent)
        os.mkdir(target, 0o755)
        self.closed[target] = None
        if parent in self.writable:
            # A mount of its own, sealed like the rest: else the command could move it, and what is bound below it
            # would be found under names that no rule speaks of.
            self._attach(_clone_one(target), target, 0)
            self.sealed.append(target)

    def _skeleton(self, target: bytes, attributes: int) -> None:
        self._directory(target)
        if attributes & LISTABLE:
            self.closed.pop(target, None)
        else:
            self.closed[target] = None

    def _mask(self, target: bytes, attributes: int) -> None:
        """Cover what is there with something of the same kind that cannot be opened.

        The covers lie on a tmpfs that is nowhere to be reached once the old root is gone.
        """
        cover = b"%d" % self.covers_made
        self.covers_made += 1
        mode = 0
        if attributes & IS_DIR:
            os.mkdir(cover, 0o700, dir_fd=self.hidden)
            mode = 0o555 if attributes & LISTABLE else 0o111
        else:
            flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_EXCL
            os.close(os.open(cover, flags, 0o000, dir_fd=self.hidden))
        self._attach(mounts.open_tree(self.hidden, cover, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC), target, 0)
        self.covers.append((target, mode))

    def _proc(self, target: bytes) -> None:
        self._mount_point(target, IS_DIR)
        mounts.mount(b"proc", target, b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        if self.restrict_proc:
            for name in PROC_READ_ONLY:
                path = target + b"/" + name
                try:
                    tree = _clone_one(path)
                except FileNotFoundError:
                    continue
                self._attach(tree, path, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)

    def _dev(self, target: bytes) -> None:
        self._mount_point(target, IS_DIR)
        mounts.mount(b"tmpfs", target, b"tmpfs", MS_NOSUID | MS_NOEXEC, b"mode=0755,size=64k")
        for name in DEVICE_NODES:
            place = target + b"/" + name
            _make_place(place, 0)
            try:
                mounts.mount(b"/dev/" + name, place, None, mounts.MS_BIND)
            except FileNotFoundError:
                os.unlink(place)  # a container without it: the command sees the same absence
        for name, text in DEVICE_LINKS:
            os.symlink(text, target + b"/" + name)
        os.mkdir(target + b"/pts", 0o755)
        options = b"newinstance,ptmxmode=0666,mode=620"
        mounts.mount(b"devpts", target + b"/pts", b"devpts", MS_NOSUID | MS_NOEXEC, options)
        os.mkdir(target + b"/shm", 0o755)  # a private tmpfs of its own follows as an operation
        self.sealed.append(target)

    def _seal(self) -> None:
        """Final modes, and nothing of our own file systems can be written any more."""
        for directory in self.closed:  # some stand inside a mask
            os.chmod(directory, 0o111)
        for place, mode in self.covers:
            if mode:
                # 0111 also where nothing below is granted: every name inside answers ENOENT, as if it were empty.
                os.chmod(place, mode)
            _make_read_only(place)
        if self.hidden >= 0:
            os.close(self.hidden)
        for place in self.sealed:
            _make_read_only(place)


def _make_place(target: bytes, is_dir: int) -> None:
    """Something of our own to mount on."""
    if is_dir:
        os.mkdir(target, 0o755)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC | os.O_EXCL, 0o444))


def _wanted(code: int, attributes: int) -> int:
    wanted = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV
    if code == BIND_RO:
        wanted |= MOUNT_ATTR_RDONLY
    if attributes & NOEXEC:
        wanted |= MOUNT_ATTR_NOEXEC
    return wanted


def _clone_tree(source: bytes, is_link: int = 0) -> int:
    """A detached recursive copy of the mounts at `source`.

    Recursive always: in a user namespace the kernel refuses to copy a mount without the ones locked below it.
    """
    location = mounts.open_link(source) if is_link else mounts.open_real(source)
    try:
        return mounts.open_tree(location, b"", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE)
    finally:
        os.close(location)


def _clone_system(source: bytes) -> int:
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | mounts.AT_SYMLINK_NOFOLLOW
    return mounts.open_tree(AT_FDCWD, source, flags)


def _clone_one(path: bytes) -> int:
    return mounts.open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)


def _restrict(tree: int, wanted: int) -> bool:
    try:
        mounts.mount_setattr(tree, AT_RECURSIVE, wanted)
    except OSError as error:
        if error.errno == ENOSYS:  # before Linux 5.12
            return False
        raise
    return True


def _make_read_only(place: bytes) -> None:
    """One mount of ours, not what is mounted below it."""
    tree = os.open(place, mounts.O_PATH | os.O_CLOEXEC)
    try:
        mounts.mount_setattr(tree, 0, MOUNT_ATTR_RDONLY)
        return
    except OSError as error:
        if error.errno != ENOSYS:
            raise
    finally:
        os.close(tree)
    _remount_each(place, MOUNT_ATTR_RDONLY, below=False)


_MOUNTINFO_FLAGS = {b"ro": 1, b"nosuid": MS_NOSUID, b"nodev": MS_NODEV, b"noexec": MS_NOEXEC, b"noatime": 1024}
_MOUNTINFO_FLAGS.update({b"nodiratime": 2048, b"relatime": 1 << 21})


def _remount_each(target: bytes, wanted: int, *, below: bool = True) -> None:
    """Linux before 5.12: each mount at and below `target`, one by one, keeping the flags it has (some are locked)."""
    with open("/proc/self/mountinfo", "rb") as table:
        lines = table.read().splitlines()
    done: dict[bytes, int] = {}
    for line in lines:
        fields = line.split(b" ")
        place = _unescape(fields[4])
        if place == target or (below and place.startswith(target + b"/")):
            flags = 0
            for word in fields[5].split(b","):
                flags |= _MOUNTINFO_FLAGS.get(word, 0)
            done[place] = flags  # the last mount on a place is the one on top
    for place, flags in done.items():
        # MOUNT_ATTR_RDONLY, NOSUID, NODEV, NOEXEC have the values of their MS_ twins.
        mounts.mount(None, place, None, mounts.MS_REMOUNT | mounts.MS_BIND | flags | wanted)


def _unescape(text: bytes) -> bytes:
    """mountinfo writes space, tab, newline and backslash as octal."""
    for code, char in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
        text = text.replace(code, char)
    return text
