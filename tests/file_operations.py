"""File operations by name, each one or two calls: performed inside a sandbox by this file as a script, and outside by
the tests as the reference.

As a script it reads `(folder, operations)` from standard input and writes one errno per operation, 0 for success.
An operation is `(kind, path)` or `(kind, path, path)`; paths are bytes, relative to the folder.
"""

from __future__ import annotations

import _ctypes
import errno
import marshal
import os
import stat
import sys
from collections.abc import Callable
from typing import Any

Operation = tuple[Any, ...]

RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
ON_X86_64 = os.uname().machine == "x86_64"
SYS_RENAMEAT2 = 316 if ON_X86_64 else 276
SYS_LINKAT = 265 if ON_X86_64 else 37
GARBAGE = b"\1no program\n"  # as a program it is ENOEXEC, if executing it is allowed at all


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg, misc]
    _type_ = "l"


class _Text(_ctypes._SimpleCData):  # type: ignore[type-arg, misc]
    _type_ = "z"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


def raw_syscall(number: int, *arguments: int | bytes | None) -> int:
    function = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), "syscall"))  # type: ignore[arg-type, call-overload]
    kinds = [_Text if isinstance(argument, bytes) else _Long for argument in arguments]
    function.argtypes = (_Long, *kinds)  # type: ignore[assignment]
    result: int = function(number, *(0 if argument is None else argument for argument in arguments))
    if result == -1:
        raise OSError(_ctypes.get_errno(), "syscall")
    return result


def read_file(path: bytes) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            os.read(fd, 10)
    finally:
        os.close(fd)


def write_with(flags: int) -> Callable[[bytes], None]:
    def write(path: bytes) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | flags, 0o755)  # for root outside any x bit will do
        try:
            os.write(fd, b"w")
        finally:
            os.close(fd)

    return write


def execute(path: bytes) -> None:
    """Never really: every file holds garbage."""
    try:
        os.execve(path, [path], {})
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise


def change_mode(path: bytes) -> None:
    os.chmod(path, os.stat(path).st_mode & 0o777 ^ 0o001)


def truncate(path: bytes) -> None:
    os.truncate(path, 3)


def link(old: bytes, new: bytes) -> None:
    os.link(old, new, follow_symlinks=False)


def rename_with(flags: int) -> Callable[[bytes, bytes], None]:
    return lambda old, new: void(raw_syscall(SYS_RENAMEAT2, AT_FDCWD, old, AT_FDCWD, new, flags))


def nameless_then_link(folder: bytes, new: bytes) -> None:
    fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o755)
    try:
        raw_syscall(SYS_LINKAT, AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, new, AT_SYMLINK_FOLLOW)
    finally:
        os.close(fd)


def bind_socket(path: bytes) -> None:
    import _socket

    head, _, name = path.rpartition(b"/")  # an address is at most 108 bytes long
    before = os.open(b".", os.O_PATH)
    made = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        os.chdir(head)
        made.bind(name)
    finally:
        made.close()
        os.fchdir(before)
        os.close(before)


def void(_result: object) -> None:
    pass


ONE_PATH: dict[str, Callable[[bytes], Any]] = {
    "read": read_file,
    "list": os.listdir,
    "readlink": os.readlink,
    "execute": execute,
    "write": write_with(0),
    "truncate": truncate,
    "chmod": change_mode,
    "utime": os.utime,
    "create": write_with(os.O_CREAT | os.O_EXCL),
    "open-create": write_with(os.O_CREAT | os.O_TRUNC),
    "mkdir": os.mkdir,
    "mkfifo": os.mkfifo,
    "bind": bind_socket,
    "unlink": os.unlink,
    "rmdir": os.rmdir,
}
TWO_PATHS: dict[str, Callable[[bytes, bytes], Any]] = {
    "link": link,
    "rename": os.rename,
    "rename-noreplace": rename_with(RENAME_NOREPLACE),
    "exchange": rename_with(RENAME_EXCHANGE),
    "nameless": nameless_then_link,
}


def perform(folder: bytes, operation: Operation) -> int:
    """The errno, 0 for success."""
    kind, first, *rest = operation
    path = folder + b"/" + first
    try:
        if kind == "symlink":  # (kind, path, text)
            os.symlink(rest[0], path)
        elif kind in ONE_PATH:
            ONE_PATH[kind](path)
        else:
            TWO_PATHS[kind](path, folder + b"/" + rest[0])
    except OSError as error:
        return error.errno or -1
    return 0


if __name__ == "__main__":
    where, operations = marshal.loads(sys.stdin.buffer.read())
    os.umask(0o022)
    sys.stdout.buffer.write(marshal.dumps([perform(where, operation) for operation in operations]))
