"""pid 1's loop where calls are judged: notifications from the filter, children, signals from the supervisor.

The command is forked instead of spawned here, because it is the forked child that installs the filter: this process
must not be under it. The filter's listener comes back over a socket.
"""

from __future__ import annotations

import _socket
import select
import sys

from sbx.kernel import process, seccomp
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.notify import Listener
from sbx.launch.names import Names, WouldBlock

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

EPERM, EIO = 1, 5


def spawn_listened(
    program: bytes, prepare: Callable[[], None], execute: Callable[[], None], tell_failure: Callable[[OSError], None]
) -> tuple[int, Listener]:
    """Fork; the child goes under the filter, hands its listener over and becomes the command."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    child = os.fork()
    if child == 0:
        try:
            ours.close()
            prepare()
            handed = seccomp.install(program, seccomp.FLAG_NEW_LISTENER | seccomp.FLAG_WAIT_KILLABLE_RECV)
            rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed.to_bytes(4, "little"))
            theirs.sendmsg([b"l"], [rights])
            os.close(handed)
            execute()
        except OSError as error:
            tell_failure(error)
        finally:
            os._exit(125)
    theirs.close()
    data, control, _flags, _address = ours.recvmsg(1, _socket.CMSG_SPACE(4))
    ours.close()
    if not data or not control:
        raise OSError(EIO, "the system call filter did not hand its listener over")
    listener = Listener(int.from_bytes(control[0][2][:4], "little"))
    os.set_inheritable(listener.descriptor, False)
    listener.wake_up_in_step()
    return child, listener


class Serving:
    """Answers notifications until the command is gone."""

    def __init__(self, listener: Listener, names: Names, calls: dict[int, str]) -> None:
        self.listener = listener
        self.names = names
        self.calls = calls

    def loop(self, numbers: tuple[int, ...], on_signal: Callable[[int], None]) -> NoReturn:
        """The signals are blocked since before the fork; `on_signal` ends the process when the command is gone."""
        signal_fd = process.signalfd(numbers)
        poll = select.poll()
        poll.register(signal_fd, select.POLLIN)
        poll.register(self.listener.descriptor, select.POLLIN)
        while True:
            for descriptor, event in poll.poll():
                if descriptor == signal_fd:
                    for at in _read_signals(signal_fd):
                        on_signal(at)
                elif event & select.POLLIN:
                    self.serve()
                else:  # POLLHUP: nobody is under the filter any more
                    poll.unregister(descriptor)

    def serve(self) -> None:
        found = self.listener.receive()
        if found is None:
            return
        identity, pid, number, arguments = found
        try:
            descriptor = self._perform(identity, pid, number, arguments)
        except WouldBlock:
            self._apart(identity, pid, number, arguments)
        except OSError as error:
            self.listener.answer(identity, error=error.errno or EIO)
        except Exception:  # a bug must not let anything through
            self.listener.answer(identity, error=EPERM)
        else:
            if descriptor is None:
                self.listener.answer(identity)
            else:
                self.listener.answer_with(identity, descriptor, self._open_flags(pid, number, arguments))
                os.close(descriptor)

    def _open_flags(self, pid: int, number: int, arguments: tuple[int, ...]) -> int:
        name = self.calls[number]
        if name == "open":
            return arguments[1]
        if name == "openat":
            return arguments[2]
        if name == "openat2":
            return self._how_flags
        return 0

    _how_flags = 0

    def _apart(self, identity: int, pid: int, number: int, arguments: tuple[int, ...]) -> None:
        """Opening a FIFO waits for its other end: in a process of its own, which answers by itself."""
        if os.fork() != 0:
            return
        try:
            path_at, flags_at = (0, 1) if self.calls[number] == "open" else (1, 2)
            path = self.listener.read_path(pid, arguments[path_at])
            dir_fd = arguments[0] if path_at else -100
            flags = os.O_RDWR if self.calls[number] == "creat" else arguments[flags_at]
            place = self.names.place(pid, dir_fd, path)
            descriptor = os.open(place.name, flags & ~os.O_CREAT & ~os.O_TRUNC, dir_fd=place.fd)
            self.listener.answer_with(identity, descriptor, flags)
        except OSError as error:
            self.listener.answer(identity, error=error.errno or EIO)
        finally:
            os._exit(0)

    def _perform(self, identity: int, pid: int, number: int, a: tuple[int, ...]) -> int | None:
        """One call by its number. The arguments in memory are read once, and belong to a caller that still waits."""
        names, name = self.names, self.calls[number]
        cwd = -100

        def path(address: int) -> bytes:
            text = self.listener.read_path(pid, address)
            if not self.listener.still_waiting(identity):
                raise OSError(2, "gone")
            return text

        if name == "openat":
            return names.open(pid, a[0], path(a[1]), a[2], a[3] & 0o7777)
        if name == "open":
            return names.open(pid, cwd, path(a[0]), a[1], a[2] & 0o7777)
        if name == "creat":
            return names.open(pid, cwd, path(a[0]), os.O_CREAT | os.O_WRONLY | os.O_TRUNC, a[1] & 0o7777)
        if name == "openat2":
            return self._openat2(pid, a, path)
        if name == "mkdir":
            names.mkdir(pid, cwd, path(a[0]), a[1])
        elif name == "mkdirat":
            names.mkdir(pid, a[0], path(a[1]), a[2])
        elif name == "mknod":
            names.mknod(pid, cwd, path(a[0]), a[1], a[2])
        elif name == "mknodat":
            names.mknod(pid, a[0], path(a[1]), a[2], a[3])
        elif name == "symlink":
            names.symlink(pid, path(a[0]), cwd, path(a[1]))
        elif name == "symlinkat":
            names.symlink(pid, path(a[0]), a[1], path(a[2]))
        elif name == "link":
            names.link(pid, cwd, path(a[0]), cwd, path(a[1]), 0)
        elif name == "linkat":
            names.link(pid, a[0], path(a[1]), a[2], path(a[3]), a[4])
        elif name == "rename":
            names.rename(pid, cwd, path(a[0]), cwd, path(a[1]), 0)
        elif name == "renameat":
            names.rename(pid, a[0], path(a[1]), a[2], path(a[3]), 0)
        elif name == "renameat2":
            names.rename(pid, a[0], path(a[1]), a[2], path(a[3]), a[4])
        elif name == "bind":
            address = self.listener.read(pid, a[1], min(a[2] & 0xFFFFFFFF, 128))
            names.bind(pid, _group_leader(pid), a[0], address)
        else:
            raise OSError(EPERM, name)
        return None

    def _openat2(self, pid: int, a: tuple[int, ...], path: Any) -> int | None:
        size = a[3]
        if size < 24:
            raise OSError(22, "open_how too small")
        how = self.listener.read(pid, a[2], min(size, 4096))
        if len(how) < 24 or any(how[24:]):
            raise OSError(7 if any(how[24:]) else 14, "open_how")
        flags, mode, resolve = (int.from_bytes(how[at : at + 8], "little") for at in (0, 8, 16))
        if mode & 0o6000 or flags >> 32:
            raise OSError(EPERM if mode & 0o6000 else 22, "open_how")
        self._how_flags = flags
        return self.names.open(pid, a[0], path(a[1]), flags, mode & 0o7777, resolve)


def _read_signals(signal_fd: int) -> list[int]:
    try:
        data = os.read(signal_fd, 128 * 32)
    except BlockingIOError:
        return []
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 128)]


def _group_leader(thread: int) -> int:
    """The process a thread belongs to."""
    fd = os.open(b"/proc/%d/status" % thread, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(fd, 512)
    finally:
        os.close(fd)
    start = text.find(b"\nTgid:\t") + 7
    return int(text[start : text.index(b"\n", start)])
