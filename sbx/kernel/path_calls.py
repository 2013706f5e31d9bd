"""The system calls that name files, as data for a listener that watches them: which argument is what.

Only the compile side imports this; a launch plan carries the rows it needs, by number. Left out, because nothing is
lost by it: calls on descriptors alone (what they lead to was opened before, and seen then), reading of extended
attributes and of file system sizes (a look at the file comes first).
"""

from __future__ import annotations

from sbx.kernel.seccomp_filter import UPPER, WORD
from sbx.kernel.syscalls_table import numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from sbx.kernel.seccomp_filter import Condition, Watch

    # operation, (directory argument, path argument) for each path, flags argument, the flags that matter.
    # A directory argument of -1 is the working directory, a flags argument of -1 is none.
    PathCall: TypeAlias = tuple[str, tuple[tuple[int, int], ...], int, int]

NO_FOLLOW = 0x100  # AT_SYMLINK_NOFOLLOW
FOLLOW = 0x400  # AT_SYMLINK_FOLLOW, of linkat
EMPTY_PATH = 0x1000  # AT_EMPTY_PATH
REMOVE_DIRECTORY = 0x200  # AT_REMOVEDIR
LOOKS = ("newfstatat", "statx")  # of these, those by a descriptor are only shown to who learns
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

# The C library's fstat() comes with an empty path, before every read: it is about a descriptor, and never shown.
# Of the other looks that follow no link, most are made by who walks a tree (git status, find, rm -r): one for each name
# in it, mostly of what the folder itself has just named. They have two marks: they start at the folder, which is open,
# or they come from one of many threads. The stack of a program's first thread has a range of addresses of its own;
# those of others lie among the mapped files. So what is shown of these looks is what the first thread asks for by path.
# And realpath() of the GNU C library asks of each part of a path whether it is a link, a thousand times for one C file;
# its buffer tells it from others. Only who learns what a command needs has to see all of them.
_CWD = 0xFFFFFF9C  # AT_FDCWD
_REALPATH = (((2, WORD, 1023),), False)
_REALPATH_AT = (((3, WORD, 1023),), False)
# By machine: (half of the argument, mask, value) of an address on the first stack, and of one among the mappings, which
# is asked for afterwards.
_STACKS: dict[str, tuple[tuple[Condition, ...], tuple[Condition, ...]]] = {
    "x86_64": (((UPPER, 0xFFFFFFFC, 0x7FFC),), ((UPPER, 0xFFFFF000, 0x7000),)),  # 16 GiB below 2^47
    "aarch64": (((UPPER, WORD, 0xFFFF), (0, 0xC0000000, 0xC0000000)), ((UPPER, 0xFFFFE000, 0xE000),)),  # 1 GiB, 2^48
}


def _looks(machine: str, flags: int, result: int, *, at: bool) -> tuple[tuple[tuple[Condition, ...], bool], ...]:
    """For a call that may follow no link: its flags argument (-1: it never does), and where its result goes."""
    first, others = (
        tuple((half + result, mask, value) for half, mask, value in conditions) for conditions in _STACKS[machine]
    )
    by_path: tuple[Condition, ...] = ((0, WORD, _CWD),) if at else ()
    may_follow = ((((flags, EMPTY_PATH, None),), False), (((flags, NO_FOLLOW, 0),), True)) if flags >= 0 else ()
    return (*may_follow, ((*by_path, *first), True), (others, False), *(((by_path, True),) if at else ()))


def path_calls(machine: str) -> dict[int, PathCall]:
    """The rows for a machine, by number."""
    table = numbers(machine)
    open_flags = _OPEN_AARCH64 if machine == "aarch64" else _OPEN_X86_64
    found: dict[int, PathCall] = {}
    for name, (operation, paths, flags_at, mask) in ROWS:
        if name in table:
            found[table[name]] = (operation, paths, flags_at, open_flags if operation == "open" else mask)
    return found


def watched(machine: str, *, walking: bool) -> tuple[Watch, ...]:
    """What the filter hands to the listener, see `build_filter`. `walking`: also the looks of who walks a tree."""
    table = numbers(machine)
    about_descriptors = {
        "newfstatat": ((((3, EMPTY_PATH, None),), False),),
        "statx": ((((2, EMPTY_PATH, None),), False),),
    }
    some = {
        "lstat": _looks(machine, -1, 1, at=False),
        "newfstatat": _looks(machine, 3, 2, at=True),
        "statx": _looks(machine, 2, 4, at=True),
        "readlink": (_REALPATH,),
        "readlinkat": (_REALPATH_AT,),
    }
    chosen = about_descriptors if walking else some
    names = [name for name, _ in ROWS if name in table]
    return tuple((name, chosen.get(name, ()), walking or name not in LOOKS) for name in names)
