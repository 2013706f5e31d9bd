"""The first words of a client: which protocol, which target, and on to the dial."""

from __future__ import annotations

import socket

from sbx.network import socks
from sbx.network.dial import Dial, DialFailed
from sbx.network.hosts import NetDecision
from sbx.network.loop import READ
from sbx.network.stages import Farewell, Server
from sbx.network.tunnel import Tunnel

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_MAX_REMEMBERED = 512
_MAX_REMEMBERED_BYTES = 2048


class Greeting:
    __slots__ = ("_buffer", "_dial", "_fd", "_header_end", "_server", "_sock", "_socks_greeted")

    def __init__(self, server: Server, sock: socket.socket) -> None:
        self._server = server
        self._sock = sock
        self._fd = sock.fileno()
        self._buffer = b""
        self._socks_greeted = False
        self._dial: Dial | None = None
        self._header_end = server.loop.now + server.caps.header_s
        server.stages[self._fd] = self
        server.loop.watch(self._fd, READ, self._readable)
        self._readable()  # the first words are often there already

    @property
    def deadline(self) -> float:
        return self._header_end if self._dial is None else self._dial.deadline

    def _readable(self) -> None:
        try:
            data = self._sock.recv(16384)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._server.drop(self._sock)
            return
        self._buffer = self._buffer + data if self._buffer else data
        first = self._buffer[0]
        if self._socks_greeted or first == socks.VERSION:
            self._advance_socks()
        elif first == 4:
            Farewell(self._server, self._sock, socks.SOCKS4_REFUSED)
        else:
            self._advance_http()

    def _advance_http(self) -> None:
        # The verdict is a function of the head and the rules, and programs repeat their CONNECT word by word.
        decision = self._server.heads.get(self._buffer)
        if decision is not None:
            self._connect(decision, b"")
            return
        from sbx.network import http_head  # h11 costs time and memory that a SOCKS client need not pay

        try:
            length = http_head.find_head(self._buffer, self._server.caps.max_header_bytes)
            if not length:
                return
            if not self._buffer.startswith(b"CONNECT "):
                from sbx.network.exchange import Exchange

                Exchange(self._server, self._sock, self._buffer)
                return
            head, early = self._buffer[:length], self._buffer[length:]
            _, request = http_head.read_request(head, length, self._server.caps.max_header_bytes)
            decision = http_head.judge_connect(request, self._server.settings)
        except http_head.BadRequest as error:
            Farewell(self._server, self._sock, http_head.answer(error.status, error.reason))
            return
        if length <= _MAX_REMEMBERED_BYTES:
            if len(self._server.heads) >= _MAX_REMEMBERED:
                self._server.heads.clear()
            self._server.heads[head] = decision
        self._connect(decision, early)

    def _connect(self, decision: NetDecision, early: bytes) -> None:
        if decision.rule is None:
            from sbx.network import http_head

            self._server.events.record(decision, "CONNECT", allowed=False, reason=decision.reason)
            Farewell(self._server, self._sock, http_head.refusal(decision, decision.reason))
            return

        def done(outcome: socket.socket | DialFailed) -> None:
            if not isinstance(outcome, DialFailed):
                self._tunnel(outcome, ESTABLISHED, early)
                return
            from sbx.network import http_head

            if outcome.status == 403:
                words = http_head.refusal(decision, outcome.reason)
            else:
                words = http_head.answer(outcome.status, outcome.reason)
            Farewell(self._server, self._sock, words)

        self._wait_for(Dial(self._server, decision, decision.rule, "CONNECT", done))

    def _advance_socks(self) -> None:
        try:
            if not self._socks_greeted:
                length = socks.read_greeting(self._buffer)
                if not length:
                    return
                self._socks_greeted = True
                self._buffer = self._buffer[length:]
                self._sock.send(socks.NO_AUTHENTICATION)
            length, decision = socks.read_request(self._buffer, self._server.settings)
        except socks.SocksError as error:
            Farewell(self._server, self._sock, error.reply)
            return
        except OSError:
            self._server.drop(self._sock)
            return
        if decision is not None:
            self._connect_socks(decision, self._buffer[length:])

    def _connect_socks(self, decision: NetDecision, early: bytes) -> None:
        if decision.rule is None:
            self._server.events.record(decision, "SOCKS5", allowed=False, reason=decision.reason)
            Farewell(self._server, self._sock, socks.reply(socks.NOT_ALLOWED))
            return

        def done(outcome: socket.socket | DialFailed) -> None:
            if isinstance(outcome, DialFailed):
                Farewell(self._server, self._sock, socks.reply(outcome.socks))
            else:
                self._tunnel(outcome, socks.reply(socks.SUCCEEDED), early)

        self._wait_for(Dial(self._server, decision, decision.rule, "SOCKS5", done))

    def _wait_for(self, dial: Dial) -> None:
        # What the client says meanwhile stays in the kernel's buffer.
        self._server.loop.watch(self._fd, READ, self._stop_reading)
        self._dial = dial
        dial.start()

    def _stop_reading(self) -> None:
        # Only now, because most clients wait for the answer, and this costs two system calls.
        self._server.loop.set_interest(self._fd, 0)

    def _tunnel(self, upstream: socket.socket, first_words: bytes, early: bytes) -> None:
        Tunnel(self._server, self._sock, upstream, first_words, early)

    def expire(self) -> None:
        if self._dial is not None:
            self._dial.expire()
        elif self._buffer and self._buffer[0] not in (socks.VERSION, 4):
            from sbx.network import http_head

            Farewell(self._server, self._sock, http_head.answer(408, "the request header took too long"))
        else:
            self._server.drop(self._sock)
