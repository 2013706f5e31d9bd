"""The system calls that name files, as data for a listener that watches them: which argument is what.

Only the compile side imports this; a launch plan carries the rows it needs, by number. Left out, because nothing is
lost by it: calls on descriptors alone (what they lead to was opened before, and seen then), reading of extended
attributes and of file system sizes (a look at the file comes first).
"""

from __future__ import annotations

from sbx.kernel.syscalls_table import numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # operation, (directory argument, path argument) for each path, flags argument, the flags that matter.
    # A directory argument of -1 is the working directory, a flags argument of -1 is none.
    PathCall: TypeAlias = tuple[str, tuple[tuple[int, int], ...], int, int]

NO_FOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW
FOLLOW = 0x400  # AT_SYMLINK_FOLLOW, of linkat
EMPTY_PATH = 0x1000  # AT_EMPTY_PATH
REMOVE_DIRECTORY = 0x200  # AT_REMOVEDIR
# The access mode, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY, O_NOFOLLOW, O_PATH and the bit of O_TMPFILE that is its own.
_OPEN_X86_64 = 0o3 | 0o100 | 0o200 | 0o1000 | 0o200000 | 0o400000 | 0o10000000 | 0o20000000
_OPEN_AARCH64 = 0o3 | 0o100 | 0o200 | 0o1000 | 0o40000 | 0o100000 | 0o10000000 | 0o20000000

# call, operation, paths, flags argument, mask. An operation that starts with `l` is about a link itself.
_HERE = ((-1, 0),)
_AT = ((0, 1),)
ROWS: tuple[tuple[str, PathCall], ...] = (
    ("open", ("open", _HERE, 1, 0)),
    ("openat", ("open", _AT, 2, 0)),
    ("creat", ("creat", _HERE, -1, 0)),
    ("stat", ("stat", _HERE, -1, 0)),
    ("lstat", ("lstat", _HERE, -1, 0)),
    ("newfstatat", ("stat", _AT, 3, NO_FOLLOW)),
    ("statx", ("stat", _AT, 2, NO_FOLLOW)),
    ("access", ("access", _HERE, 1, 7)),
    ("faccessat", ("access", _AT, 2, 7)),
    ("faccessat2", ("access", _AT, 2, 7)),
    ("readlink", ("readlink", _HERE, -1, 0)),
    ("readlinkat", ("readlink", _AT, -1, 0)),
    ("execve", ("execute", _HERE, -1, 0)),
    ("execveat", ("execute", _AT, 4, NO_FOLLOW)),
    ("chdir", ("chdir", _HERE, -1, 0)),
    ("fchdir", ("fchdir", (), -1, 0)),
    ("inotify_add_watch", ("watch", ((-1, 1),), -1, 0)),
    ("mkdir", ("mkdir", _HERE, -1, 0)),
    ("mkdirat", ("mkdir", _AT, -1, 0)),
    ("mknod", ("mknod", _HERE, -1, 0)),
    ("mknodat", ("mknod", _AT, -1, 0)),
    ("symlink", ("symlink", ((-1, 1),), -1, 0)),
    ("symlinkat", ("symlink", ((1, 2),), -1, 0)),
    ("link", ("link", ((-1, 0), (-1, 1)), -1, 0)),
    ("linkat", ("link", ((0, 1), (2, 3)), 4, FOLLOW | EMPTY_PATH)),
    ("rename", ("rename", ((-1, 0), (-1, 1)), -1, 0)),
    ("renameat", ("rename", ((0, 1), (2, 3)), -1, 0)),
    ("renameat2", ("rename", ((0, 1), (2, 3)), 4, 0x7)),
    ("unlink", ("unlink", _HERE, -1, 0)),
    ("rmdir", ("rmdir", _HERE, -1, 0)),
    ("unlinkat", ("unlink", _AT, 2, REMOVE_DIRECTORY)),
    ("truncate", ("truncate", _HERE, -1, 0)),
    ("chmod", ("chmod", _HERE, -1, 0)),
    ("fchmodat", ("chmod", _AT, -1, 0)),
    ("fchmodat2", ("chmod", _AT, 3, NO_FOLLOW)),
    ("chown", ("chown", _HERE, -1, 0)),
    ("lchown", ("lchown", _HERE, -1, 0)),
    ("fchownat", ("chown", _AT, 4, NO_FOLLOW)),
    ("utime", ("utime", _HERE, -1, 0)),
    ("utimes", ("utime", _HERE, -1, 0)),
    ("futimesat", ("utime", _AT, -1, 0)),
    ("utimensat", ("utime", _AT, 3, NO_FOLLOW)),
    ("setxattr", ("setxattr", _HERE, -1, 0)),
    ("lsetxattr", ("lsetxattr", _HERE, -1, 0)),
    ("removexattr", ("setxattr", _HERE, -1, 0)),
    ("lremovexattr", ("lsetxattr", _HERE, -1, 0)),
    ("connect", ("connect", ((-1, 1),), 2, 0xFFFFFFFF)),
    ("bind", ("bind", ((-1, 1),), 2, 0xFFFFFFFF)),
)

# Calls that are let through unseen: argument, mask, and the value under it (None: any bit of it).
# The C library's fstat() comes with an empty path, before every read.
UNSEEN = {"newfstatat": (3, EMPTY_PATH, None), "statx": (2, EMPTY_PATH, None)}

# Whoever walks a tree (git status, find, rm -r) looks at each name in it without following links, thousands of times,
# and mostly at what the folder itself has just named. And realpath() of the GNU C library asks of each part of a path
# whether it is a link, a thousand times for one C file; its buffer tells it from others. Only who learns what a command
# needs has to see that too.
_REALPATH = (0xFFFFFFFF, 1023)
WALKING = {
    "newfstatat": (3, EMPTY_PATH | NO_FOLLOW, None),
    "statx": (2, EMPTY_PATH | NO_FOLLOW, None),
    "readlink": (2, *_REALPATH),
    "readlinkat": (3, *_REALPATH),
}


def path_calls(machine: str) -> dict[int, PathCall]:
    """The rows for a machine, by number."""
    table = numbers(machine)
    open_flags = _OPEN_AARCH64 if machine == "aarch64" else _OPEN_X86_64
    found: dict[int, PathCall] = {}
    for name, (operation, paths, flags_at, mask) in ROWS:
        if name in table:
            found[table[name]] = (operation, paths, flags_at, open_flags if operation == "open" else mask)
    return found


def watched(machine: str, *, walking: bool) -> tuple[tuple[str, int, int, int | None], ...]:
    """What the filter hands to the listener: (call, argument, mask, value), let through unseen where that is so."""
    table = numbers(machine)
    unseen = UNSEEN if walking else WALKING
    names = [name for name, _ in ROWS if name in table and (walking or name != "lstat")]
    return tuple((name, *unseen.get(name, (-1, 0, None))) for name in names)
