"""From a verdict on a name to a connected socket: look up, judge each address, dial exactly what was judged."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from sbx.network.hosts import HostRule, NetDecision, address_verdict
from sbx.network.loop import WRITE
from sbx.network.stages import Server, no_delay

_ATTEMPT_S = 4.0  # for one address while others are left to try


class DialFailed(Exception):
    """``status`` is the HTTP answer, ``socks`` the SOCKS5 one."""

    def __init__(self, status: int, socks: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.socks = socks
        self.reason = reason


REFUSED = 2  # SOCKS5: connection not allowed by ruleset
_SOCKS_OF_ERRNO = {errno.ECONNREFUSED: 5, errno.ENETUNREACH: 3, errno.EHOSTUNREACH: 4, errno.ETIMEDOUT: 6}

_UNDER_WAY = (0, errno.EINPROGRESS, errno.EALREADY)
_NONBLOCK: int = getattr(socket, "SOCK_NONBLOCK", 0)  # where it exists, it saves a call

Done = Callable[[socket.socket | DialFailed], None]


class Dial:
    """One allowed target. ``done`` is called once, unless ``cancel`` comes first. Emits the decision's event."""

    __slots__ = ("_addresses", "_attempt_end", "_decision", "_done", "_end", "_method", "_rule", "_server", "_sock")

    def __init__(self, server: Server, decision: NetDecision, rule: HostRule, method: str, done: Done) -> None:
        self._server = server
        self._decision = decision
        self._rule = rule
        self._method = method
        self._done: Done | None = done
        self._sock: socket.socket | None = None
        self._addresses: list[str] = []
        self._end = self._attempt_end = server.loop.now + server.caps.dial_s

    def start(self) -> None:
        """Apart from the constructor, because ``done`` may be called before this returns."""
        if self._rule.address is not None:
            self._found((self._decision.host,))
        elif not self._server.lookup.find(self._decision.host, self._found):
            self._fail(DialFailed(503, 1, "too many names are being looked up"))

    @property
    def deadline(self) -> float:
        return self._attempt_end

    def _found(self, addresses: tuple[str, ...]) -> None:
        if self._done is None:
            return  # cancelled while the name was looked up
        if not addresses:
            self._server.events.record(self._decision, self._method, allowed=True, reason=self._decision.reason)
            self._fail(DialFailed(502, 4, f"{self._decision.host} has no address"))
            return
        rules = self._server.settings.rules
        verdicts = [address_verdict(address, self._rule, rules) for address in addresses]
        self._addresses = [verdict.address for verdict in verdicts if verdict.allowed]
        if not self._addresses:
            reason = verdicts[0].reason
            self._server.events.record(self._decision, self._method, allowed=False, reason=reason)
            self._fail(DialFailed(403, REFUSED, reason))
            return
        self._server.events.record(self._decision, self._method, allowed=True, reason=self._decision.reason)
        self._try_next(0)

    def _try_next(self, last_error: int) -> None:
        loop = self._server.loop
        while self._addresses and loop.now < self._end:
            address = self._addresses.pop(0)
            try:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                sock = socket.socket(family, socket.SOCK_STREAM | _NONBLOCK)
            except OSError as error:
                last_error = error.errno or errno.EIO
                continue
            if not _NONBLOCK:
                sock.setblocking(False)
            no_delay(sock)
            target = (address, self._decision.port)
            last_error = sock.connect_ex(target)
            if last_error == errno.EINPROGRESS and address.startswith("127."):
                last_error = sock.connect_ex(target)  # loopback has answered by now: spares a turn of the loop
            if last_error in _UNDER_WAY:
                self._sock = sock
                self._attempt_end = min(self._end, loop.now + _ATTEMPT_S) if self._addresses else self._end
                if last_error:
                    loop.watch(sock.fileno(), WRITE, self._connected)
                else:
                    self._connected()
                return
            sock.close()
        reason = os.strerror(last_error) if last_error else "timed out"
        self._fail(DialFailed(502, _SOCKS_OF_ERRNO.get(last_error, 1), f"{self._decision.authority}: {reason}"))

    def _connected(self) -> None:
        sock = self._sock
        if sock is None:
            return
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._close()
            self._try_next(error)
            return
        done, self._done, self._sock = self._done, None, None
        if done is not None:
            done(sock)

    def expire(self) -> None:
        self._close()
        if self._addresses and self._server.loop.now < self._end:
            self._try_next(errno.ETIMEDOUT)
        else:
            self._fail(DialFailed(504, 6, f"{self._decision.authority}: timed out"))

    def cancel(self) -> None:
        self._done = None
        self._close()

    def _fail(self, failure: DialFailed) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(failure)

    def _close(self) -> None:
        if self._sock is not None:
            self._server.loop.forget(self._sock.fileno())
            self._sock.close()
            self._sock = None
