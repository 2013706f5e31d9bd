"""Notifications as fast as Python can take them: for a listener that looks at every call of a whole process tree.

The same kernel interface as `notify`, with everything that can be is made once: buffers, views on them, prototypes.
"""

from __future__ import annotations

import _ctypes

from sbx.kernel.call import NUMBERS, Buffer, prototype

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_RECV = 0xC0502100
_SEND = 0xC0182101
_CONTINUE = 1 << 32  # the flags are the upper half of the reply's last word
_IOCTL = NUMBERS["ioctl"]
_READV = NUMBERS["process_vm_readv"]
_PAGE = 4096
_SHORT = 256  # most paths end before
ENOENT, EINTR, EFAULT = 2, 4, 14


class Watcher:
    """`receive` fills `event`: its words are id, pid, number, -, and from 4 on the arguments."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._request = Buffer(80)
        self._answer = Buffer(24)
        self._memory = Buffer(_PAGE + _PAGE)
        self._local = Buffer(16)
        self._remote = Buffer(32)
        self.event: Any = self._request.words()
        self._reply: Any = self._answer.words()
        self._reply[2] = _CONTINUE
        self._bytes: Any = self._memory.octets()
        self._place: Any = self._local.words()
        self._place[0] = self._memory.address
        self._pieces: Any = self._remote.words()
        self._empty = bytes(80)
        self._call3: Any = prototype("lll")
        self._call6: Any = prototype("llllll")

    def receive(self) -> bool:
        """False when the caller is gone again."""
        self._request.write(self._empty)
        if self._call3(_IOCTL, self.descriptor, _RECV, self._request.address) == -1:
            code = _ctypes.get_errno()  # type: ignore[attr-defined, unused-ignore]
            if code in (ENOENT, EINTR):
                return False
            raise OSError(code, "ioctl(NOTIF_RECV)")
        return True

    def let_through(self) -> None:
        """The call that was received goes on as if nobody had looked."""
        self._reply[0] = self.event[0]
        if self._call3(_IOCTL, self.descriptor, _SEND, self._answer.address) == -1:
            code = _ctypes.get_errno()  # type: ignore[attr-defined, unused-ignore]
            if code != ENOENT:
                raise OSError(code, "ioctl(NOTIF_SEND)")

    def text(self, pid: int, address: int) -> bytes:
        """The caller's memory from there to the first NUL. OSError: EFAULT, ESRCH, EPERM; ENAMETOOLONG without one."""
        size = _PAGE - address % _PAGE  # what is after a page border may not exist
        if size > _SHORT:
            size = _SHORT
        data = self._read(pid, address, size)
        end = data.find(b"\0")
        while end < 0:
            if len(data) >= _PAGE:
                raise OSError(36, "path")
            more = self._read(pid, address + len(data), min(_PAGE - (address + len(data)) % _PAGE, _PAGE - len(data)))
            if not more:
                raise OSError(EFAULT, "path")
            data += more
            end = data.find(b"\0")
        return data[:end]

    def data(self, pid: int, address: int, size: int) -> bytes:
        """That much of the caller's memory, or less where it ends."""
        first = min(size, _PAGE - address % _PAGE)
        data = self._read(pid, address, first)
        return data + self._read(pid, address + first, size - first) if size > first == len(data) else data

    def _read(self, pid: int, address: int, size: int) -> bytes:
        place, pieces = self._place, self._pieces
        place[1] = size
        pieces[0] = address
        pieces[1] = size
        got = self._call6(_READV, pid, self._local.address, 1, self._remote.address, 1, 0)
        if got == -1:
            code = _ctypes.get_errno()  # type: ignore[attr-defined, unused-ignore]
            raise OSError(code, "process_vm_readv")
        return self._bytes[:got].tobytes()  # type: ignore[no-any-return]
