"""Plain HTTP, forwarded: request after request on one client connection, h11 on both sides.

Each message is parsed and written anew, so what reaches a server is one well-formed request and never the client's own
bytes. Every request is judged by itself. The server connection is kept for the next request to the same target.
"""

from __future__ import annotations

import socket
from collections.abc import Callable

import h11

from sbx.network import http_head
from sbx.network.dial import Dial, DialFailed
from sbx.network.hosts import NetDecision
from sbx.network.loop import READ, WRITE
from sbx.network.stages import Farewell, Server, reset_on_close

_PIECE = 64 << 10
_MAX_WAITING = 128 << 10  # bytes on their way to one side; over it, the other side is not read
_REPEATABLE = (b"GET", b"HEAD", b"OPTIONS")


class Exchange:
    def __init__(self, server: Server, sock: socket.socket, buffer: bytes) -> None:
        self._server = server
        self._client = sock
        self._client_fd = sock.fileno()
        self._buffer = buffer  # of the client's, not yet given to h11
        self._request: h11.Connection | None = None  # None between two requests
        self._response: h11.Connection | None = None
        self._upstream: socket.socket | None = None
        self._target: tuple[str, int] | None = None
        self._dial: Dial | None = None
        self._to_client = b""
        self._to_upstream = b""
        self._upstream_deaf = False  # it closed while the body was being sent; its answer may still come
        self._answered = False  # the client has seen a part of the answer
        self._retry: Callable[[], None] | None = None  # for when a kept server connection turns out to be gone
        self._deadline = server.loop.now + server.caps.header_s
        server.stages[self._client_fd] = self
        server.loop.watch(self._client_fd, READ, self._ready)
        self._begin()

    @property
    def deadline(self) -> float:
        return self._deadline if self._dial is None else self._dial.deadline

    # -- one request --

    def _begin(self) -> None:
        """Start on the next request if its head is there."""
        try:
            length = http_head.find_head(self._buffer, self._server.caps.max_header_bytes)
            if not length:
                self._server.loop.set_interest(self._client_fd, READ)
                return
            request, head = http_head.read_request(self._buffer, length, self._server.caps.max_header_bytes)
            if head.method == b"CONNECT":
                raise http_head.BadRequest(400, "CONNECT needs a connection of its own")
            decision, path = http_head.judge_absolute(head, self._server.settings)
        except http_head.BadRequest as error:
            self._leave(http_head.answer(error.status, error.reason))
            return
        self._buffer = b""
        if decision.rule is None:
            method = head.method.decode("ascii", "replace")
            self._server.events.record(decision, method, allowed=False, reason=decision.reason)
            self._leave(http_head.refusal(decision, decision.reason))
            return
        self._request = request
        self._answered = False
        self._upstream_deaf = False
        self._connect(decision, http_head.forwarded_request(head, decision, path))

    def _connect(self, decision: NetDecision, forwarded: h11.Request) -> None:
        assert decision.rule is not None
        method = forwarded.method.decode("ascii", "replace")
        self._retry = None
        if self._upstream is not None and self._target == (decision.host, decision.port):
            self._server.events.record(decision, method, allowed=True, reason=decision.reason)
            if forwarded.method in _REPEATABLE and not _has_body(forwarded):
                self._retry = lambda: self._connect(decision, forwarded)
            self._send_request(forwarded)
            return
        self._close_upstream()

        def done(outcome: socket.socket | DialFailed) -> None:
            self._dial = None
            if isinstance(outcome, DialFailed):
                if outcome.status == 403:
                    words = http_head.refusal(decision, outcome.reason)
                else:
                    words = http_head.answer(outcome.status, outcome.reason)
                self._leave(words)
                return
            self._upstream = outcome
            self._target = (decision.host, decision.port)
            self._server.loop.watch(outcome.fileno(), READ, self._ready)
            self._send_request(forwarded)

        self._server.loop.set_interest(self._client_fd, 0)
        self._dial = Dial(self._server, decision, decision.rule, method, done)
        self._dial.start()

    def _send_request(self, forwarded: h11.Request) -> None:
        self._response = h11.Connection(h11.CLIENT, self._server.caps.max_header_bytes + 1024)
        self._to_upstream = self._response.send(forwarded) or b""
        self._ready()

    # -- moving --

    def _ready(self) -> None:
        """Something can be read or written: do all that can be done, then say what to wait for."""
        if self._dial is not None:
            return
        try:
            moved = self._move()
        except _ClientLost:
            self._abort()
            return
        except http_head.BadRequest as error:
            self._fail(error.status, error.reason)
            return
        if moved:
            self._deadline = self._server.loop.now + self._server.caps.idle_s
        if self._client_fd in self._server.stages and self._server.stages[self._client_fd] is self:
            self._set_interest()

    def _move(self) -> bool:
        if self._request is None:
            return self._read_next_head()
        moved = self._flush_to_client()
        if self._wants_body():
            moved = self._read_client() or moved
        self._pump_body()
        moved = self._flush_to_upstream() or moved
        if self._wants_response():
            moved = self._read_upstream() or moved
            self._flush_to_client()
        if not self._to_client and self._response_is_complete():
            self._finish()
        return moved

    def _read_next_head(self) -> bool:
        if self._upstream is not None:
            # An idle server connection has nothing to say but goodbye, and anything else would be for nobody.
            try:
                self._upstream.recv(1)
            except BlockingIOError:
                pass
            except OSError:
                self._close_upstream()
            else:
                self._close_upstream()
        try:
            data = self._client.recv(_PIECE)
        except BlockingIOError:
            return False
        except OSError:
            raise _ClientLost from None
        if not data:
            self._close()
            return False
        if not self._buffer:
            self._deadline = self._server.loop.now + self._server.caps.header_s
        self._buffer += data
        self._begin()
        return False

    def _read_client(self) -> bool:
        assert self._request is not None
        try:
            data = self._client.recv(_PIECE)
        except BlockingIOError:
            return False
        except OSError:
            raise _ClientLost from None
        self._request.receive_data(data)
        return True

    def _pump_body(self) -> None:
        """The request's body, from one h11 to the other."""
        request, response = self._request, self._response
        if request is None or response is None:
            return
        while len(self._to_upstream) < _MAX_WAITING and request.their_state is h11.SEND_BODY:
            try:
                event = request.next_event()
            except h11.RemoteProtocolError as error:
                raise http_head.BadRequest(400, f"not a valid request body: {error}") from None
            if isinstance(event, h11.Data):
                self._to_upstream += response.send(event) or b""
            elif isinstance(event, h11.EndOfMessage):
                self._to_upstream += response.send(h11.EndOfMessage()) or b""
            else:
                break
        if request.their_state is not h11.SEND_BODY and response.our_state is h11.SEND_BODY:
            # A request without a body: h11 still wants its end said, on both sides.
            self._to_upstream += response.send(h11.EndOfMessage()) or b""

    def _read_upstream(self) -> bool:
        assert self._upstream is not None and self._response is not None
        try:
            data = self._upstream.recv(_PIECE)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
            if self._answered:
                raise http_head.BadRequest(502, "the server's connection was reset") from None
        if not data and self._retry is not None:
            self._close_upstream()
            self._retry()
            return True
        try:
            self._response.receive_data(data)
            self._pump_response()
        except h11.RemoteProtocolError as error:
            reason = "the server closed the connection without an answer" if not data else f"not valid HTTP: {error}"
            raise http_head.BadRequest(502, reason) from None
        return True

    def _pump_response(self) -> None:
        request, response = self._request, self._response
        assert request is not None and response is not None
        while True:
            event = response.next_event()
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    raise h11.RemoteProtocolError("an upgrade that nobody asked for")
                headers = http_head.end_to_end(event.headers)
                out: h11.Event = h11.InformationalResponse(status_code=event.status_code, headers=headers)
            elif isinstance(event, h11.Response):
                out = http_head.forwarded_response(event)
            elif isinstance(event, h11.Data):
                out = event
            elif isinstance(event, h11.EndOfMessage):
                out = h11.EndOfMessage()
            else:
                return
            self._answered = True
            self._retry = None
            self._to_client += request.send(out) or b""

    def _flush_to_client(self) -> bool:
        if not self._to_client:
            return False
        try:
            self._to_client = self._to_client[self._client.send(self._to_client) :]
        except BlockingIOError:
            return False
        except OSError:
            raise _ClientLost from None
        return True

    def _flush_to_upstream(self) -> bool:
        if not self._to_upstream or self._upstream is None:
            return False
        try:
            self._to_upstream = self._to_upstream[self._upstream.send(self._to_upstream) :]
        except BlockingIOError:
            return False
        except OSError:
            self._upstream_deaf = True
            self._to_upstream = b""
        return True

    # -- states --

    def _wants_body(self) -> bool:
        return (
            self._request is not None
            and self._request.their_state is h11.SEND_BODY
            and not self._upstream_deaf
            and len(self._to_upstream) < _MAX_WAITING
        )

    def _wants_response(self) -> bool:
        return self._upstream is not None and not self._response_is_complete() and len(self._to_client) < _MAX_WAITING

    def _response_is_complete(self) -> bool:
        return self._response is not None and self._response.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)

    def _set_interest(self) -> None:
        loop = self._server.loop
        between = self._request is None
        read_client = between or self._wants_body()
        loop.set_interest(self._client_fd, (READ if read_client else 0) | (WRITE if self._to_client else 0))
        if self._upstream is not None:
            read = between or self._wants_response()
            loop.set_interest(self._upstream.fileno(), (READ if read else 0) | (WRITE if self._to_upstream else 0))

    def _finish(self) -> None:
        """The answer is with the client: on to the next request, if both sides can."""
        request, response = self._request, self._response
        assert request is not None and response is not None
        self._request = self._response = None
        if response.our_state is not h11.DONE or response.their_state is not h11.DONE or response.trailing_data[0]:
            self._close_upstream()
        if request.our_state is not h11.DONE or request.their_state is not h11.DONE:
            self._leave(b"")
            return
        self._buffer, ended = request.trailing_data
        self._deadline = self._server.loop.now + self._server.caps.keepalive_s
        if self._buffer:
            self._begin()
        elif ended:
            self._close()

    # -- ends --

    def _fail(self, status: int, reason: str) -> None:
        if self._answered:
            self._abort()  # too late for an answer of our own: what the client has must not look complete
        else:
            self._leave(http_head.answer(status, reason))

    def _leave(self, words: bytes) -> None:
        self._close_upstream()
        Farewell(self._server, self._client, self._to_client + words)

    def _abort(self) -> None:
        reset_on_close(self._client)
        self._close()

    def _close(self) -> None:
        if self._dial is not None:
            self._dial.cancel()
        self._close_upstream()
        self._server.drop(self._client)

    def _close_upstream(self) -> None:
        if self._upstream is not None:
            self._server.loop.forget(self._upstream.fileno())
            self._upstream.close()
            self._upstream = None

    def expire(self) -> None:
        if self._dial is not None:
            self._dial.expire()
        elif self._request is not None:
            self._fail(504, "the server took too long")
        elif self._buffer:
            self._leave(http_head.answer(408, "the request header took too long"))
        else:
            self._close()


class _ClientLost(Exception):
    pass


def _has_body(request: h11.Request) -> bool:
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers)
