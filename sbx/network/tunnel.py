"""Bytes between two sockets, both ways, unread. What CONNECT and SOCKS turn into.

Small pieces are copied through one shared buffer. A direction that fills that buffer is a stream, and gets a pipe from
the pool: splice then moves pages from socket to socket inside the kernel. Either way a direction holds at most one
buffer or one pipe of data, and is not read again before that is gone: a client that never reads stops its own server,
and costs nothing more.
"""

from __future__ import annotations

import os
import socket
import sys

from sbx.network.loop import READ, WRITE
from sbx.network.pipes import PIPE_BYTES
from sbx.network.stages import Server, reset_on_close

COPY_BYTES = 32 << 10
_ROUNDS = 16  # pipes moved for one event before others get their turn

_shared = bytearray(COPY_BYTES)
_shared_view = memoryview(_shared)
_SPLICE_FLAGS = 1 | 2  # SPLICE_F_MOVE | SPLICE_F_NONBLOCK, which os names on Linux only


class Flow:
    """One direction. ``move`` returns whether anything moved; OSError means that the connection is lost."""

    __slots__ = ("blocked", "done", "ended", "in_pipe", "pending", "pipe", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket, pending: bytes) -> None:
        self.source = source
        self.sink = sink
        self.pending = pending
        self.pipe: tuple[int, int] | None = None
        self.in_pipe = 0
        self.ended = False  # the source has said all
        self.done = False  # and the sink has got it
        self.blocked = False  # the sink takes nothing at the moment

    def move(self, server: Server) -> bool:
        if self.pending and not self._flush():
            return False
        if self.pipe is not None:
            return self._splice()
        try:
            count = self.source.recv_into(_shared)
        except BlockingIOError:
            return False
        if not count:
            self.ended = True
            return True
        try:
            sent = self.sink.send(_shared_view[:count])
        except BlockingIOError:
            sent = 0
        if sent < count:
            self.pending = bytes(_shared_view[sent:count])
            self.blocked = True
        elif count == COPY_BYTES:
            self.pipe = server.pipes.take()
        return True

    def _flush(self) -> bool:
        try:
            self.pending = self.pending[self.sink.send(self.pending) :]
        except BlockingIOError:
            pass
        self.blocked = bool(self.pending)
        return not self.blocked

    if sys.platform == "linux":

        def _splice(self) -> bool:
            assert self.pipe is not None
            read_end, write_end = self.pipe
            source, sink = self.source.fileno(), self.sink.fileno()
            moved = False
            for _ in range(_ROUNDS):
                if not self.in_pipe:
                    try:
                        # The pipe is empty, so "would block" can only mean the socket.
                        self.in_pipe = os.splice(source, write_end, PIPE_BYTES, flags=_SPLICE_FLAGS)
                    except BlockingIOError:
                        return moved
                    moved = True
                    if not self.in_pipe:
                        self.ended = True
                        return True
                try:
                    self.in_pipe -= os.splice(read_end, sink, self.in_pipe, flags=_SPLICE_FLAGS)
                    self.blocked = self.in_pipe > 0
                    moved = True
                except BlockingIOError:
                    self.blocked = True
                if self.blocked:
                    return moved
            return moved

    else:

        def _splice(self) -> bool:
            raise AssertionError("the pool gives no pipes on this platform")


class Tunnel:
    """The last stage of a connection that was let through."""

    __slots__ = ("_client", "_client_fd", "_down", "_server", "_up", "_upstream", "_upstream_fd", "deadline")

    def __init__(
        self, server: Server, client: socket.socket, upstream: socket.socket, first_words: bytes, early: bytes
    ) -> None:
        """``first_words`` is our own answer to the client, ``early`` what it said before it could know the answer."""
        self._server = server
        self._client, self._client_fd = client, client.fileno()
        self._upstream, self._upstream_fd = upstream, upstream.fileno()
        self._up = Flow(client, upstream, early)
        self._down = Flow(upstream, client, first_words)
        self.deadline = server.loop.now + server.caps.idle_s
        server.stages[self._client_fd] = self
        server.loop.watch(self._client_fd, READ, self._client_ready)
        server.loop.watch(self._upstream_fd, READ, self._upstream_ready)
        try:
            self._down._flush()
            if early:
                self._up._flush()
        except OSError:
            self._abort()
            return
        if self._up.blocked or self._down.blocked:
            self._set_interest()

    def _client_ready(self) -> None:
        self._run(self._up, self._down)

    def _upstream_ready(self) -> None:
        self._run(self._down, self._up)

    def _run(self, outward: Flow, inward: Flow) -> None:
        """An event on one socket: it may be readable (outward) or writable again (inward)."""
        try:
            moved = False
            was_blocked = inward.blocked
            if was_blocked:
                moved = self._advance(inward)
            if not outward.done and not outward.blocked:
                moved = self._advance(outward) or moved
        except OSError:
            self._abort()
            return
        if moved:
            self.deadline = self._server.loop.now + self._server.caps.idle_s
        if outward.done and inward.done:
            self._close()
        elif was_blocked or outward.blocked or outward.done or inward.done:
            self._set_interest()

    def _advance(self, flow: Flow) -> bool:
        moved = flow.move(self._server)
        if flow.ended and not flow.done and not flow.pending and not flow.in_pipe:
            flow.done = True
            if not (self._up.done and self._down.done):
                flow.sink.shutdown(socket.SHUT_WR)
        return moved

    def _set_interest(self) -> None:
        up, down, loop = self._up, self._down, self._server.loop
        read_client = not up.done and not up.blocked
        read_upstream = not down.done and not down.blocked
        loop.set_interest(self._client_fd, (READ if read_client else 0) | (WRITE if down.blocked else 0))
        loop.set_interest(self._upstream_fd, (READ if read_upstream else 0) | (WRITE if up.blocked else 0))

    def expire(self) -> None:
        self._abort()

    def _abort(self) -> None:
        reset_on_close(self._client)
        reset_on_close(self._upstream)
        self._close()

    def _close(self) -> None:
        for flow in (self._up, self._down):
            if flow.pipe is not None:
                self._server.pipes.give_back(flow.pipe, empty=not flow.in_pipe)
                flow.pipe = None
        self._server.loop.forget(self._upstream_fd)
        self._upstream.close()
        self._server.drop(self._client)
