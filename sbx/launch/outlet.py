"""Writing to a descriptor that belongs to the caller, without waiting and without changing it for anybody else.

Setting O_NONBLOCK on it would be seen by every process that shares the open file (the caller's shell, the next stage
of a pipeline) and break them. So each kind has its own way:
    pipe      splice with SPLICE_F_NONBLOCK, which asks for this one call only
    terminal  opened once more by its name, for a file description of our own that may be non-blocking
    socket    send with MSG_DONTWAIT
    the rest  regular files and devices never make a writer wait for a reader: plain write in bounded pieces
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CHUNK = 1 << 20
SPLICE_NONBLOCK = 2  # SPLICE_F_NONBLOCK
F_SETPIPE_SZ = 1031
MSG_DONTWAIT = 0x40 if sys.platform == "linux" else 0x80
PIECE = 65536

S_IFMT, S_IFIFO, S_IFCHR, S_IFSOCK = 0o170000, 0o010000, 0o020000, 0o140000


def enlarge(pipe_fd: int) -> None:
    """A pipe of 1 MiB: fewer wake-ups. Refused to a user whose pipes hold much already; then it stays as it is."""
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(pipe_fd, F_SETPIPE_SZ, CHUNK)
        except OSError:
            pass


def splice(source: int, target: int, count: int) -> int:
    """Move without waiting: BlockingIOError when either side is not ready, 0 at the end."""
    if sys.platform == "linux":
        return os.splice(source, target, count, flags=SPLICE_NONBLOCK)
    else:
        return os.write(target, os.read(source, min(count, 4096)))  # only into /dev/null: see open_outlet


def never_wait(own_fd: int) -> None:
    """For descriptors that are ours alone."""
    if sys.platform != "win32":
        os.set_blocking(own_fd, False)


class Outlet:
    """A plain one: files and harmless devices."""

    splices = False

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def write(self, data: bytes) -> int:
        """Write a part of it now, or raise BlockingIOError."""
        return os.write(self.fd, data[:PIECE])

    def take(self, pipe_fd: int, count: int) -> int:
        """Move up to `count` bytes from a pipe without looking at them: 0 at its end, BlockingIOError when either
        side is not ready. Only where `splices`."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what was opened here. The caller's descriptor stays open."""


class PipeOutlet(Outlet):
    splices = True

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._side: tuple[int, int] | None = None

    def take(self, pipe_fd: int, count: int) -> int:
        return splice(pipe_fd, self.fd, count)

    def write(self, data: bytes) -> int:
        # Through a pipe of our own: a plain write() may wait even after poll(), when somebody else fills the pipe.
        if self._side is None:
            self._side = os.pipe()
            never_wait(self._side[1])  # its size depends on what the user's other pipes hold
        reader, writer = self._side
        offered = os.write(writer, data[:PIECE])
        moved = 0
        try:
            moved = splice(reader, self.fd, offered)
        finally:
            if moved < offered:
                os.read(reader, offered - moved)
        return moved

    def close(self) -> None:
        if self._side is not None:
            for descriptor in self._side:
                os.close(descriptor)
            self._side = None


class ReopenedOutlet(Outlet):
    def __init__(self, fd: int, own: int) -> None:
        super().__init__(fd)
        self._own = own

    def write(self, data: bytes) -> int:
        return os.write(self._own, data[:PIECE])

    def close(self) -> None:
        if self._own >= 0:
            os.close(self._own)
        self._own = -1


class SocketOutlet(Outlet):
    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        import _socket  # only here: most outputs are no sockets

        self._socket: Any = _socket.socket(fileno=os.dup(fd))

    def write(self, data: bytes) -> int:
        sent: int = self._socket.send(data[:PIECE], MSG_DONTWAIT)
        return sent

    def close(self) -> None:
        self._socket.close()


def open_outlet(fd: int) -> Outlet:
    kind = os.fstat(fd).st_mode & S_IFMT
    if kind == S_IFIFO and sys.platform == "linux":
        return PipeOutlet(fd)
    if kind == S_IFSOCK:
        return SocketOutlet(fd)
    if kind == S_IFIFO or (kind == S_IFCHR and os.isatty(fd)):
        return _reopened(fd, kind)
    return Outlet(fd)


def _reopened(fd: int, kind: int) -> Outlet:
    if sys.platform != "win32":
        try:
            name = os.ttyname(fd) if kind == S_IFCHR else f"/dev/fd/{fd}"
            own = os.open(name, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            return Outlet(fd)  # not ours to open: small writes after poll() are the best that is left
        if os.fstat(own).st_ino == os.fstat(fd).st_ino:
            return ReopenedOutlet(fd, own)
        os.close(own)
    return Outlet(fd)
