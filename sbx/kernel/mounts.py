"""Mounts, in the kernel's own words: the new mount API, and the classic calls for kernels that lack a part of it."""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, syscall

assert sys.platform == "linux"  # for type checkers on other platforms

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 0x04
MOVE_MOUNT_T_EMPTY_PATH = 0x40

MOUNT_ATTR_RDONLY = 0x01
MOUNT_ATTR_NOSUID = 0x02
MOUNT_ATTR_NODEV = 0x04
MOUNT_ATTR_NOEXEC = 0x08

MS_RDONLY = 0x01
MS_NOSUID = 0x02
MS_NODEV = 0x04
MS_NOEXEC = 0x08
MS_REMOUNT = 0x20
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

O_PATH = os.O_PATH if hasattr(os, "O_PATH") else 0o10000000  # absent on the platforms mypy also checks


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int, data: bytes | None = None) -> None:
    syscall("mount", NUMBERS["mount"], "zzzlz", source, target, kind, flags, data, subject=target)


def umount2(target: bytes, flags: int) -> None:
    syscall("umount2", NUMBERS["umount2"], "zl", target, flags, subject=target)


def pivot_root(new_root: bytes, put_old: bytes) -> None:
    syscall("pivot_root", NUMBERS["pivot_root"], "zz", new_root, put_old, subject=new_root)


def open_tree(dir_fd: int, path: bytes, flags: int) -> int:
    return syscall("open_tree", NUMBERS["open_tree"], "lzl", dir_fd, path, flags, subject=path)


def move_mount(from_fd: int, to_fd: int) -> None:
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    syscall("move_mount", NUMBERS["move_mount"], "lzlzl", from_fd, b"", to_fd, b"", flags)


def move_mount_to(from_fd: int, target: bytes) -> None:
    """The same onto a path: only below a directory that nobody else can change."""
    call = NUMBERS["move_mount"]
    syscall("move_mount", call, "lzlzl", from_fd, b"", AT_FDCWD, target, MOVE_MOUNT_F_EMPTY_PATH, subject=target)


def mount_setattr(mount_fd: int, flags: int, attr_set: int, attr_clr: int = 0) -> None:
    """struct mount_attr: attr_set, attr_clr, propagation, userns_fd."""
    attributes = attr_set.to_bytes(8, "little") + attr_clr.to_bytes(8, "little") + bytes(16)
    call = NUMBERS["mount_setattr"]
    syscall("mount_setattr", call, "lzlzl", mount_fd, b"", AT_EMPTY_PATH | flags, attributes, 32)


def restrict_mounts_at(path: bytes, attr_set: int) -> None:
    """The same for the mount at a path and all below it."""
    call = NUMBERS["mount_setattr"]
    attributes = attr_set.to_bytes(8, "little") + bytes(24)
    syscall("mount_setattr", call, "lzlzl", AT_FDCWD, path, AT_RECURSIVE, attributes, 32, subject=path)


def openat2(dir_fd: int, path: bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """struct open_how: flags, mode, resolve."""
    how = flags.to_bytes(8, "little") + mode.to_bytes(8, "little") + resolve.to_bytes(8, "little")
    return syscall("openat2", NUMBERS["openat2"], "lzzl", dir_fd, path, how, 24, subject=path)


def open_link(path: bytes) -> int:
    """An O_PATH descriptor of a symlink itself, none of whose parents is a symlink."""
    flags = O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    return openat2(AT_FDCWD, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)


def open_real(path: bytes) -> int:
    """An O_PATH descriptor of an absolute path none of whose names is a symlink.

    Plans hold resolved paths. A symlink met here was put there after the plan was made, perhaps by a command that
    wants the next run to bind something else: it is an error, never followed.
    """
    try:
        return openat2(AT_FDCWD, path, O_PATH | os.O_CLOEXEC, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
    except OSError as error:
        if error.errno != 38:  # ENOSYS: before Linux 5.6
            raise
    current = os.open(b"/", O_PATH | os.O_CLOEXEC)
    for name in path.split(b"/"):
        if not name:
            continue
        following = os.open(name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
        os.close(current)
        current = following
        if (os.fstat(current).st_mode & 0o170000) == 0o120000:
            os.close(current)
            raise OSError(40, "open: a symlink has appeared", path)
    return current
