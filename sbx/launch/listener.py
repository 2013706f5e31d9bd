"""Answer the calls that the filter hands over: judge each, perform it on behalf of the command, or refuse it.

Loaded when the first of them arrives (see `attend`): a command that makes no name pays nothing for it.
"""

from __future__ import annotations

import sys

from sbx.kernel import signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.notify import Listener
from sbx.launch import turns
from sbx.launch.changes import Changes, LetThrough
from sbx.launch.names import Names, WouldBlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

assert sys.platform == "linux"  # for type checkers on other platforms

EPERM, EIO, E2BIG, EAGAIN, EFAULT, EINVAL, ENOSYS = 1, 5, 7, 11, 14, 22, 38
O_PATH = 0o10000000
ADDRESS_MAX = 128  # struct sockaddr_storage; longer ones fail as they are
SIGALRM = 14
MOVES = ("rename", "renameat", "renameat2")
ALL_SIGNALS = (*range(1, 32), *range(34, 65))  # but those of the C library
O_CREATES = 0o100 | 0o20000000  # O_CREAT, and the bit of O_TMPFILE that is its own
OPEN_FLAGS, RESOLVE_FLAGS, RESOLVE_CACHED = 0o37777703, 0x3F, 0x20  # what openat2 knows


class Serving:
    """Answers notifications until the command is gone."""

    def __init__(self, listener: Listener, names: Names, calls: dict[int, str]) -> None:
        self.listener = listener
        self.names = names
        self.changes = Changes(names)
        self.calls = calls

    def serve(self) -> None:
        found = self.listener.receive()
        if found is None:
            return
        self.answer(*found)

    def answer(self, identity: int, pid: int, number: int, arguments: tuple[int, ...]) -> None:
        """Judge and perform one call."""
        try:
            turns.begin(alone=self.calls[number] in MOVES)
            try:
                descriptor = self._perform(identity, pid, number, arguments)
            finally:
                turns.end()
        except WouldBlock as waiting:
            self._apart(identity, waiting)
        except LetThrough:
            self.listener.let_through(identity)  # it makes no name: see changes
        except OSError as error:
            self.listener.answer(identity, error=error.errno or EIO)
        except Exception:  # a bug must not let anything through
            self.listener.answer(identity, error=EPERM)
        else:
            if descriptor is None:
                self.listener.answer(identity)
            else:
                self.listener.answer_with(identity, descriptor, self.names.open_flags)

    def _apart(self, identity: int, waiting: WouldBlock) -> None:
        """Opening a FIFO waits for its other end: in a process of its own, which answers by itself."""
        if os.fork() != 0:
            os.close(waiting.fd)
            return

        def look_after(_number: int, _frame: object) -> None:
            if not self.listener.still_waiting(identity):
                os._exit(0)  # the caller was killed: nobody else would end this

        try:
            signals.signal(SIGALRM, look_after)
            signals.setitimer(signals.ITIMER_REAL, 1, 1)
            descriptor = os.open(waiting.name, waiting.flags, dir_fd=waiting.fd)
            self.listener.answer_with(identity, descriptor, waiting.flags)
        except OSError as error:
            self.listener.answer(identity, error=error.errno or EIO)
        except Exception:  # as in serve()
            self.listener.answer(identity, error=EPERM)
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
            if not a[2] & O_CREATES:
                return self.changes.open(pid, a[0], path(a[1]), a[2])
            return names.open(pid, a[0], path(a[1]), a[2], a[3] & 0o7777)
        if name == "open":
            if not a[1] & O_CREATES:
                return self.changes.open(pid, cwd, path(a[0]), a[1])
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
            names.bind(pid, a[0], lambda: self.listener.read(pid, a[1], min(a[2] & 0xFFFFFFFF, ADDRESS_MAX)))
        else:
            self._change(pid, name, a, path)
        return None

    def _change(self, pid: int, name: str, a: tuple[int, ...], path: Callable[[int], bytes]) -> None:
        """Calls that make no name, in runs with a hand outside."""
        changes, cwd = self.changes, -100
        if name == "unlinkat":
            changes.unlink(pid, a[0], path(a[1]), a[2])
        elif name in ("unlink", "rmdir"):
            changes.unlink(pid, cwd, path(a[0]), 0x200 if name == "rmdir" else 0)
        elif name == "chmod":
            changes.chmod(pid, cwd, path(a[0]), a[1])
        elif name == "fchmodat":
            changes.chmod(pid, a[0], path(a[1]), a[2])
        elif name == "fchmodat2":
            changes.chmod(pid, a[0], path(a[1]), a[2], a[3])
        elif name == "truncate":
            changes.truncate(pid, path(a[0]), a[1])
        elif name == "utimensat":
            if not a[1]:
                raise LetThrough  # about a descriptor
            changes.utime(pid, a[0], path(a[1]), lambda: self._times(pid, a[2], 32, 1), a[3])
        elif name == "utimes":
            changes.utime(pid, cwd, path(a[0]), lambda: self._times(pid, a[1], 32, 1000), 0)
        elif name == "utime":
            changes.utime(pid, cwd, path(a[0]), lambda: self._times(pid, a[1], 16, 0), 0)
        else:
            raise OSError(EPERM, name)

    def _times(self, pid: int, address: int, size: int, unit: int) -> bytes | None:
        """Two times as the kernel's struct timespec[2], from words of seconds and `unit` nanoseconds; None is now."""
        if not address:
            return None
        data = self.listener.read(pid, address, size)
        if len(data) < size:
            raise OSError(EFAULT, "times")
        words = [data[at : at + 8] for at in range(0, size, 8)]
        if unit == 0:
            return words[0] + bytes(8) + words[1] + bytes(8)
        if unit == 1:
            return data
        parts = [int.from_bytes(words[at], "little") for at in (1, 3)]
        if any(part >= 1_000_000 for part in parts):
            raise OSError(EINVAL, "times")
        return words[0] + (parts[0] * unit).to_bytes(8, "little") + words[2] + (parts[1] * unit).to_bytes(8, "little")

    def _openat2(self, pid: int, a: tuple[int, ...], path: Any) -> int:
        size = a[3]
        if size < 24:
            raise OSError(EINVAL, "open_how too small")
        if size > 4096:
            raise OSError(E2BIG, "open_how")
        how = self.listener.read(pid, a[2], size)
        if len(how) < size:
            raise OSError(EFAULT, "open_how")
        if any(how[24:]):
            raise OSError(E2BIG, "open_how")
        flags, mode, resolve = (int.from_bytes(how[at : at + 8], "little") for at in (0, 8, 16))
        if mode & 0o6000:
            raise OSError(EPERM, "set-user-ID")
        makes = flags & O_CREATES
        if flags & ~OPEN_FLAGS or mode & ~0o7777 or (mode and not makes) or resolve & ~RESOLVE_FLAGS:
            raise OSError(EINVAL, "open_how")
        if flags & O_PATH:
            raise OSError(ENOSYS, "such a descriptor cannot be handed over")
        if resolve & RESOLVE_CACHED:
            raise OSError(EAGAIN, "not cached")
        return self.names.open(pid, a[0], path(a[1]), flags, mode, resolve)
