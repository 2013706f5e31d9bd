"""The proxy process: one listening socket in, one loop, one line per decision out.

Theory of operation. The listening socket was made inside the sandbox's network namespace and is served here, outside:
that socket is the only way between the two. The process that starts the proxy gives it that socket, its settings, a
descriptor for events and a lifeline: a pipe whose other end only the starter holds. When the lifeline ends, however the
starter died, the proxy ends. It reads no file, no environment and no argument beyond descriptor numbers.
"""

from __future__ import annotations

import errno
import gc
import os
import signal
import socket
import sys

from sbx.network.events import EventWriter
from sbx.network.greeting import Greeting
from sbx.network.hosts import NetDecision
from sbx.network.lookup import Lookup
from sbx.network.loop import READ, Loop
from sbx.network.pipes import Pipes
from sbx.network.settings import MAX_SETTINGS_BYTES, ProxySettings
from sbx.network.stages import Farewell, Stage, no_delay

_ACCEPTS_PER_TURN = 64
_MAX_FAREWELLS_OVER_CAP = 64
_RESERVED_FDS = 64
_LAST_EVENTS_S = 1.0
# Written out: under a flood of connections this is the whole work, and it should not wait for h11 to be loaded.
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nX-Sbx-Reason: too many connections\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 39\r\nConnection: close\r\n\r\nsbx: network: too many connections now\n"
)


class Proxy:
    def __init__(self, listener: socket.socket, settings: ProxySettings, event_fd: int | None) -> None:
        self.loop = Loop()
        self.settings = settings
        self.caps = settings.caps
        self.events = EventWriter(self.loop, event_fd, self.caps.max_events)
        self.lookup = Lookup(self.loop, settings.resolve, self.caps.lookup_threads, self.caps.max_lookups)
        self.pipes = Pipes(self.caps.max_pipes)
        self.stages: dict[int, Stage] = {}
        self.heads: dict[bytes, NetDecision] = {}
        self.connections = 0
        self.ending = False
        self._listener = listener
        self._max_connections = min(self.caps.max_connections, _connections_that_fit(self.caps.max_pipes))
        self._spare_fd = os.open(os.devnull, os.O_RDONLY)
        times = (self.caps.header_s, self.caps.keepalive_s, self.caps.idle_s, self.caps.dial_s, self.caps.linger_s)
        self._sweep_s = min(1.0, min(times) / 4)
        self._next_sweep = 0.0
        listener.setblocking(False)
        no_delay(listener)  # accepted sockets inherit it
        self.loop.watch(listener.fileno(), READ, self._accept)

    def hold(self, lifeline_fd: int) -> None:
        """End when the other end of this descriptor is closed."""

        def ready() -> None:
            try:
                self.ending = not os.read(lifeline_fd, 512)
            except OSError:
                self.ending = True

        self.loop.watch(lifeline_fd, READ, ready)

    def serve(self) -> None:
        loop = self.loop
        while not self.ending:
            loop.turn(self._sweep_s if self.stages else -1)
            if loop.now >= self._next_sweep:
                self._next_sweep = loop.now + self._sweep_s
                self._sweep()
            self.events.flush()
        self.events.finish(self.connections, _LAST_EVENTS_S)

    def _sweep(self) -> None:
        now = self.loop.now
        for stage in [stage for stage in self.stages.values() if stage.deadline <= now]:
            stage.expire()

    def _accept(self) -> None:
        # A quiet loop comes back at once, so that asking for a second client would mostly be in vain.
        for _ in range(min(self.loop.batch, _ACCEPTS_PER_TURN)):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_one_away()
                return  # ECONNABORTED and the like: the client has gone again
            sock.setblocking(False)
            self.connections += 1
            if len(self.stages) < self._max_connections:
                Greeting(self, sock)
            elif len(self.stages) < self._max_connections + _MAX_FAREWELLS_OVER_CAP:
                Farewell(self, sock, _BUSY)
            else:
                try:
                    sock.send(_BUSY)
                    sock.recv(65536)  # unread input would turn the close into a reset
                except OSError:
                    pass
                sock.close()

    def _turn_one_away(self) -> None:
        """Out of descriptors: give up the spare one, so that the client sees a close and the loop does not spin."""
        os.close(self._spare_fd)
        try:
            self._listener.accept()[0].close()
        except OSError:
            pass
        self._spare_fd = os.open(os.devnull, os.O_RDONLY)

    def drop(self, sock: socket.socket) -> None:
        fd = sock.fileno()
        if fd >= 0:
            self.loop.forget(fd)
            self.stages.pop(fd, None)
            sock.close()


if sys.platform == "win32":

    def _raise_file_limit() -> int:
        return 512

    def _leave_terminal() -> None:
        pass

else:
    import resource

    def _raise_file_limit() -> int:
        """As many descriptors as the system lets this process have."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                soft = hard
            except (OSError, ValueError):
                pass  # macOS has a kernel limit below its hard limit
        return sys.maxsize if soft == resource.RLIM_INFINITY else soft

    def _leave_terminal() -> None:
        """Ctrl-C and a closed terminal are the command's to answer; the proxy lives until its lifeline ends."""
        try:
            os.setsid()
        except OSError:
            pass  # already a group leader
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)


def _connections_that_fit(pipes: int) -> int:
    """Two descriptors each."""
    return max(1, (_raise_file_limit() - _RESERVED_FDS - _MAX_FAREWELLS_OVER_CAP - 2 * pipes) // 2)


def _read_all(fd: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := os.read(fd, 65536):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_SETTINGS_BYTES:
            raise ValueError("the proxy's settings are too long")
    return b"".join(pieces)


def _parse_arguments(arguments: list[str]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    names = ("--listen-fd", "--config-fd", "--event-fd", "--lifeline-fd")
    if len(arguments) % 2:
        raise ValueError(f"each of {' '.join(names)} takes a number")
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if name not in names or not value.isdecimal():
            raise ValueError(f"unexpected argument {name} {value}")
        numbers[name] = int(value)
    if "--listen-fd" not in numbers:
        raise ValueError("--listen-fd is missing")
    return numbers


def main(arguments: list[str] | None = None) -> int:
    try:
        fds = _parse_arguments(sys.argv[1:] if arguments is None else arguments)
        settings = ProxySettings.from_json(_read_all(fds.get("--config-fd", 0)))
        listener = socket.socket(fileno=fds["--listen-fd"])
    except (ValueError, OSError) as error:
        print(f"sbx: network proxy: {error}", file=sys.stderr)
        return 125
    _leave_terminal()
    # The stages free themselves without the collector; it only has to look for the odd cycle now and then.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    proxy = Proxy(listener, settings, fds.get("--event-fd"))
    if "--lifeline-fd" in fds:
        proxy.hold(fds["--lifeline-fd"])
    proxy.serve()
    sys.stderr.flush()
    os._exit(0)  # a name lookup may hang in libc on another thread


if __name__ == "__main__":
    sys.exit(main())
