"""The proxy of one run: started when the sandbox has made its listening socket, gone with the run.

The socket is made inside the sandbox's network namespace and handed out by descriptor passing, so nothing bridges the
two worlds but the proxy itself, which is a process of its own: whatever happens to it cannot harm the supervisor.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
from typing import Any

from sbx.backends.linux import PROXY_PORT
from sbx.errors import SetupFailed
from sbx.network.environment import proxy_environment
from sbx.network.hosts import parse_rules
from sbx.network.settings import ProxySettings, proxy_argv

MAX_KEPT = 1000  # decisions in the result; further ones are counted
GRACE_S = 5.0


class EventPump:
    """Collects the proxy's decisions; never grows beyond its bound."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._pending = b""
        self.events: list[dict[str, Any]] = []
        self.dropped = 0
        self.ended = False
        os.set_blocking(descriptor, False)

    @property
    def fd(self) -> int:
        return self._fd

    def ready(self) -> bool:
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            self._keep(json.loads(line))
        return True

    def _keep(self, event: dict[str, Any]) -> None:
        if event["event"] == "network-end":
            self.ended = True
        elif event["event"] == "network-dropped":
            self.dropped += event["count"]
        elif len(self.events) < MAX_KEPT:
            self.events.append(event)
        else:
            self.dropped += 1

    def drain(self) -> None:
        """To the end of the stream: the proxy is gone."""
        os.set_blocking(self._fd, True)
        while self.ready():
            pass
        os.close(self._fd)


class _PumpForSupervisor:
    """The supervisor's view of the events: it may stop looking at any time, the rest is read at the end."""

    failure: tuple[str, int, str, bytes] | None = None

    def __init__(self, events: EventPump) -> None:
        self._events = events

    @property
    def fd(self) -> int:
        return self._events.fd

    @property
    def events(self) -> int:
        return select.POLLIN

    def ready(self) -> bool:
        return self._events.ready()

    def finish(self) -> bool:
        return True

    def give_up(self) -> None:
        """The rest is read when the proxy has ended."""


class ProxyRun:
    """Context of one run with an allow-list."""

    def __init__(self, allow: tuple[str, ...]) -> None:
        self.rules = parse_rules(allow)
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lifeline: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        events, self._event_write = os.pipe()
        self.pump = EventPump(events)

    @property
    def channel(self) -> int:
        """Where the sandbox sends its listening socket."""
        return self._theirs.fileno()

    def pumps(self) -> tuple[_PumpForSupervisor, ...]:
        return (_PumpForSupervisor(self.pump),)

    def environment(self, python: str) -> dict[str, str]:
        return proxy_environment(PROXY_PORT, self.rules, python=python)

    def started(self) -> None:
        """The sandbox is being set up: take its socket and serve it. Connections wait in its queue until then."""
        self._theirs.close()
        _data, descriptors, _flags, _address = socket.recv_fds(self._ours, 1, 1)
        self._ours.close()
        if not descriptors:
            return  # the set-up failed before that; its own words follow
        config_read, config_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        passed = (descriptors[0], config_read, self._event_write, lifeline_read)
        try:
            self._process = subprocess.Popen(
                proxy_argv(
                    descriptors[0], config_fd=config_read, event_fd=self._event_write, lifeline_fd=lifeline_read
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
                env={name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")},
                cwd="/",
            )
        except OSError as error:
            raise SetupFailed(f"could not start the network proxy: {error}", remedy="run 'sbx doctor'") from None
        finally:
            for descriptor in passed:
                os.close(descriptor)
            self._event_write = -1
            with os.fdopen(config_write, "wb") as config:
                if self._process is not None:
                    config.write(ProxySettings(self.rules).to_json())

    def close(self) -> str:
        """End it. Returns words about a proxy that did not do its work to the end, or nothing."""
        for end in (self._ours, self._theirs):
            end.close()
        if self._event_write >= 0:
            os.close(self._event_write)
        early = None if self._process is None else self._process.poll()
        if self._lifeline is not None:
            os.close(self._lifeline)
        trouble = ""
        if self._process is not None:
            if early is not None:
                trouble = f"the network proxy ended early (status {early}): connections failed from then on"
            try:
                self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.pump.drain()
        return trouble
