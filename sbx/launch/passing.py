"""Messages with descriptors over a Unix socket: how the library speaks with the launcher it started.

One message is one packet of marshalled plain values; what does not fit into a packet travels in a memory file.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

assert sys.platform == "linux"  # for type checkers on other platforms

INLINE, IN_MEMORY = b"i", b"m"
MAX_INLINE = 65536
MAX_DESCRIPTORS = 16
_SPACE = _socket.CMSG_SPACE(4 * MAX_DESCRIPTORS)
_FLAGS = _socket.MSG_CMSG_CLOEXEC


def send(channel: _socket.socket, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
    """The receiver gets copies of the descriptors; ours stay open."""
    data = marshal.dumps(message)
    if len(data) <= MAX_INLINE:
        channel.sendmsg([INLINE, data], _rights(descriptors))
        return
    memory = os.memfd_create("sbx")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(memory, view) :]
        channel.sendmsg([IN_MEMORY], _rights((*descriptors, memory)))
    finally:
        os.close(memory)


def receive(channel: _socket.socket) -> tuple[tuple[Any, ...] | None, list[int]]:
    """The next message and its descriptors, close-on-exec; (None, []) when the other side is gone."""
    data, control, flags, _address = channel.recvmsg(MAX_INLINE + 1, _SPACE, _FLAGS)
    descriptors = unpack(control)
    if not data or flags & (_socket.MSG_TRUNC | _socket.MSG_CTRUNC):
        for descriptor in descriptors:
            os.close(descriptor)
        return None, []
    if data[:1] == INLINE:
        return marshal.loads(data[1:]), descriptors
    memory = descriptors.pop()
    try:
        os.lseek(memory, 0, os.SEEK_SET)
        size = os.fstat(memory).st_size
        pieces = bytearray()
        while len(pieces) < size:
            pieces += os.read(memory, size - len(pieces))
        return marshal.loads(pieces), descriptors
    finally:
        os.close(memory)


def unpack(control: Sequence[tuple[int, int, bytes]]) -> list[int]:
    """The descriptors that came along."""
    found: list[int] = []
    for level, kind, data in control:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            found += [int.from_bytes(data[at : at + 4], sys.byteorder) for at in range(0, len(data) - 3, 4)]
    return found


def _rights(descriptors: Sequence[int]) -> list[tuple[int, int, bytes]]:
    if not descriptors:
        return []
    packed = b"".join(descriptor.to_bytes(4, sys.byteorder) for descriptor in descriptors)
    return [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)]
