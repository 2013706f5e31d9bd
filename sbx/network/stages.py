"""What the stages of a connection share: the server they belong to, and the last stage of all.

A client connection is always in exactly one stage: greeting, dial, tunnel, exchange or farewell. The stage owns the
descriptor, its handler in the loop, and a deadline.
"""

from __future__ import annotations

import socket
from typing import Protocol

from sbx.network.events import EventWriter
from sbx.network.hosts import NetDecision
from sbx.network.lookup import Lookup
from sbx.network.loop import READ, WRITE, Loop
from sbx.network.pipes import Pipes
from sbx.network.settings import Caps, ProxySettings

_MAX_DRAINED = 1 << 20


class Stage(Protocol):
    @property
    def deadline(self) -> float: ...

    def expire(self) -> None:
        """The deadline has passed."""


class Server(Protocol):
    """What a stage may ask of the proxy."""

    loop: Loop
    settings: ProxySettings
    caps: Caps
    events: EventWriter
    lookup: Lookup
    stages: dict[int, Stage]
    heads: dict[bytes, NetDecision]
    pipes: Pipes

    def drop(self, sock: socket.socket) -> None:
        """Close a client's socket and forget its stage."""


class Farewell:
    """Send a last answer and see it arrive.

    Closing a socket with unread input makes the kernel send a reset, which can overtake the answer. So the rest of what
    the client says is read and thrown away, for a bounded time and size.
    """

    __slots__ = ("_drained", "_fd", "_rest", "_server", "_sock", "deadline")

    def __init__(self, server: Server, sock: socket.socket, last_words: bytes) -> None:
        self._server = server
        self._sock = sock
        self._fd = sock.fileno()
        self._rest = last_words
        self._drained = 0
        self.deadline = server.loop.now + server.caps.linger_s
        server.stages[self._fd] = self
        server.loop.watch(self._fd, WRITE, self._ready)
        self._ready()

    def _ready(self) -> None:
        try:
            if self._rest:
                self._rest = self._rest[self._sock.send(self._rest) :]
                if self._rest:
                    return
                self._sock.shutdown(socket.SHUT_WR)
                self._server.loop.set_interest(self._fd, READ)
            while data := self._sock.recv(65536):
                self._drained += len(data)
                if self._drained > _MAX_DRAINED:
                    break
        except BlockingIOError:
            return
        except OSError:
            pass
        self._server.drop(self._sock)

    def expire(self) -> None:
        self._server.drop(self._sock)


def reset_on_close(sock: socket.socket) -> None:
    """Make the close a reset, so that a transfer that was cut short does not look complete to the other side."""
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    except OSError:
        pass  # already gone, which is as good


def no_delay(sock: socket.socket) -> None:
    """A relay passes on small pieces as they come; waiting to fill a packet would add delays of its own."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError:
        pass
