"""Files that only their owner can have written: what is read here is treated as code."""

from __future__ import annotations

import errno
import os
import stat

from sbx.kernel.own_folder import make_own_folder

MAX_BYTES = 16 * 1024 * 1024


def private_folder(folder: str) -> None:
    """Make sure the folder exists, is ours and is closed to others. Raises OSError."""
    make_own_folder(folder)
    status = os.lstat(folder)
    if not stat.S_ISDIR(status.st_mode) or not _is_ours(status):
        raise PermissionError(errno.EPERM, "it belongs to somebody else or is not a folder", folder)
    if status.st_mode & 0o077:
        os.chmod(folder, 0o700)


def read_private(path: str) -> bytes | None:
    """The content, or None for all that somebody else could have put there."""
    folder = os.path.dirname(path)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        holder = os.lstat(folder)
        if not stat.S_ISDIR(holder.st_mode) or not _is_ours(holder) or _writable_by_others(holder):
            return None
        descriptor = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(descriptor)
        sane = stat.S_ISREG(status.st_mode) and _is_ours(status) and not _writable_by_others(status)
        if not sane or status.st_size > MAX_BYTES:
            return None
        pieces = []
        while piece := os.read(descriptor, status.st_size + 1):  # which is more than most have
            pieces.append(piece)
            if len(piece) == status.st_size:
                break
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def write_private(path: str, content: bytes) -> None:
    """Whole or not at all, for the owner only. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o600)
    try:
        try:
            view = memoryview(content)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
    except BaseException:
        try:
            os.unlink(temporary)
        except OSError:
            pass  # the first failure is the one to tell
        raise


def _is_ours(status: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _writable_by_others(status: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
