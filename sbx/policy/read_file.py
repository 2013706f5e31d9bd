"""The bytes of a policy file, and how the file looked: never blocks, never reads more than a policy can be."""

from __future__ import annotations

import errno
import os
import stat
import time

from sbx.errors import PolicyError
from sbx.model.source import Source
from sbx.policy.document import FileStamp

MAX_BYTES = 1024 * 1024
# A second write within one tick of the file system's clock leaves the same mtime: such a stamp proves nothing.
RACY_NS = 50_000_000

_KINDS = (
    (stat.S_ISDIR, "is a directory", "name the file inside it"),
    (stat.S_ISFIFO, "is a FIFO", "write the policy to a regular file"),
    (stat.S_ISSOCK, "is a socket", "write the policy to a regular file"),
    (stat.S_ISCHR, "is a device", "write the policy to a regular file"),
    (stat.S_ISBLK, "is a device", "write the policy to a regular file"),
)


def stamp_of(path: str, status: os.stat_result) -> FileStamp:
    return FileStamp(path, status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)


def read_bytes(path: str, source: Source) -> tuple[bytes, FileStamp, bool]:
    """(content, stamp, racy). Raises PolicyError for all that is not a readable regular file of a sensible size."""
    try:
        # Asked before the open as well: opening a device can act on it, opening a FIFO tells its writer.
        _check_kind(os.stat(path), source)
        # O_NONBLOCK: a FIFO put in its place meanwhile must not hold us.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0))
        try:
            status = os.fstat(descriptor)
            _check_kind(status, source)
            content = _read_all(descriptor)
            after = os.fstat(descriptor)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:
        what, remedy = _words(error)
        raise PolicyError(what, remedy=remedy, source=source) from None
    if len(content) > MAX_BYTES:
        raise PolicyError("is over 1 MiB", remedy="a policy is a few rules: split it or shorten it", source=source)
    stamp = stamp_of(path, after)
    newest = max(after.st_mtime_ns, after.st_ctime_ns)
    racy = stamp != stamp_of(path, status) or len(content) != after.st_size or time.time_ns() - newest < RACY_NS
    return content, stamp, racy


def _read_all(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MAX_BYTES:
        piece = os.read(descriptor, MAX_BYTES + 1 - size)
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _check_kind(status: os.stat_result, source: Source) -> None:
    for test, what, remedy in _KINDS:
        if test(status.st_mode):
            raise PolicyError(what, remedy=remedy, source=source)


def _words(error: OSError | ValueError) -> tuple[str, str]:
    """What is wrong, and what to do."""
    if isinstance(error, ValueError):
        return "cannot be a path, because it has a NUL byte", "check the name"
    if error.errno == errno.ELOOP:
        return "is a loop of symlinks", "replace it by the file itself"
    if error.errno == errno.ENOENT:
        return "there is no such file", "check the name, or write a starter policy with 'sbx init'"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "may not be read by you", "give yourself permission (chmod u+r), or remove it"
    return f"cannot be read: {os.strerror(error.errno or 0)}", "check the path and the disk"
