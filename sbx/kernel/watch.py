"""Notifications as fast as Python can take them: for a listener that looks at every call of a whole process tree.

The same kernel interface as `notify`. Everything that can be is made once, and the calls go through `fcntl` and `pread`
of /proc/<pid>/mem: through `_ctypes` they would cost three times as much.
"""

from __future__ import annotations

import sys
from fcntl import ioctl

from sbx.kernel import system as os  # not `os`: it costs a millisecond

assert sys.platform == "linux"  # for type checkers on other platforms

_RECV = 0xC0502100
_SEND = 0xC0182101
_CONTINUE = 1 << 32  # the flags are the upper half of the reply's last word
_PAGE = 4096
SHORT = 256  # most paths end before
_OPEN = 64  # processes whose memory is held open
EPERM, ENOENT, EINTR, EFAULT, ENAMETOOLONG = 1, 2, 4, 14, 36


class Watcher:
    """`receive` fills `event`: its words are id, pid, number, -, and from 4 on the arguments."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._request = bytearray(80)
        self._reply = bytearray(24)
        self._empty = bytes(80)
        self.event = memoryview(self._request).cast("Q")
        self._answer = memoryview(self._reply).cast("Q")
        self._answer[2] = _CONTINUE
        self.memory: dict[int, int] = {}  # descriptors of it, by pid

    def receive(self) -> bool:
        """False when the caller is gone again."""
        self._request[:] = self._empty  # the kernel insists
        try:
            ioctl(self.descriptor, _RECV, self._request)
        except OSError as error:
            if error.errno in (ENOENT, EINTR):
                return False
            raise
        return True

    def let_through(self) -> None:
        """The call that was received goes on as if nobody had looked."""
        self._answer[0] = self.event[0]
        try:
            ioctl(self.descriptor, _SEND, self._reply)
        except OSError as error:
            if error.errno != ENOENT:
                raise

    def text(self, pid: int, address: int) -> bytes:
        """The caller's memory up to the first NUL. OSError: EFAULT, ENOENT, EACCES; ENAMETOOLONG without one."""
        data = self.data(pid, address, SHORT)
        end = data.find(0)
        if end < 0:
            data = self.data(pid, address, _PAGE)
            end = data.find(0)
            if end < 0:
                raise OSError(ENAMETOOLONG if len(data) == _PAGE else EFAULT, "path")
        return data[:end]

    def data(self, pid: int, address: int, size: int) -> bytes:
        """That much of the caller's memory, or less where it ends."""
        try:
            found = os.pread(self.memory[pid], size, address)
            if found:
                return found
        except (KeyError, OSError, OverflowError):
            pass
        self.forget(pid)  # it was another program's, or another process's
        if len(self.memory) >= _OPEN:
            self.forget()
        descriptor = self.memory[pid] = os.open(b"/proc/%d/mem" % pid, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, size, address)
        except OverflowError:
            raise OSError(EFAULT, "address") from None

    def forget(self, pid: int = 0) -> None:
        """This process is about to become another program; without a number, every one may be."""
        for each in (pid,) if pid else tuple(self.memory):
            descriptor = self.memory.pop(each, -1)
            if descriptor >= 0:
                os.close(descriptor)
