"""The proxy of one run: started when the sandbox has made its listening socket, gone with the run.

The socket is made inside the sandbox's network namespace and handed out by descriptor passing, so nothing bridges the
two worlds but the proxy itself, which is a process of its own: whatever happens to it cannot harm the supervisor.
Without a network namespace the socket is the host's own, at a port that is free, and Landlock keeps the command to it.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from typing import Any

from sbx.errors import SetupFailed
from sbx.network.environment import PROXY_PORT, proxy_environment
from sbx.network.hosts import parse_rules
from sbx.network.settings import ProxySettings, proxy_argv

assert sys.platform != "win32"  # descriptors are handed from process to process

MAX_KEPT = 1000  # different decisions in the result; further ones are counted
GRACE_S = 5.0


class EventPump:
    """Collects the proxy's decisions, equal ones counted; never grows beyond its bound."""

    def __init__(self, descriptor: int) -> None:
        self._fd = descriptor
        self._pending = b""
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}
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

    @property
    def events(self) -> list[dict[str, Any]]:
        """In the order of their first time."""
        return list(self._known.values())

    def _keep(self, event: dict[str, Any]) -> None:
        if event["event"] == "network-end":
            self.ended = True
            return
        if event["event"] == "network-dropped":
            self.dropped += event["count"]
            return
        key = tuple(event[name] for name in ("verdict", "host", "port", "method", "rule", "reason"))
        known = self._known.get(key)
        if known is not None:
            known["count"] += 1
        elif len(self._known) < MAX_KEPT:
            self._known[key] = {**event, "count": 1}
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


def _listen_on_the_host() -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", 0), backlog=1024)
    except OSError as error:
        raise SetupFailed(f"could not open a port for the network proxy: {error}", remedy="run 'sbx doctor'") from None


class ProxyRun:
    """Context of one run with an allow-list."""

    def __init__(self, allow: tuple[str, ...], *, own_namespace: bool = True) -> None:
        self.rules = parse_rules(allow)
        self.port = PROXY_PORT
        self._listener: socket.socket | None = None
        if not own_namespace:
            self._listener = _listen_on_the_host()
            self.port = self._listener.getsockname()[1]
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._lifeline: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        events, self._event_write = os.pipe()
        self.pump = EventPump(events)

    @property
    def channel(self) -> int:
        """Where the sandbox sends its listening socket, if it has to make one."""
        return self._theirs.fileno() if self._listener is None else -1

    def pumps(self) -> tuple[_PumpForSupervisor, ...]:
        return (_PumpForSupervisor(self.pump),)

    def environment(self, python: str, java_options: str = "") -> dict[str, str]:
        return proxy_environment(self.port, self.rules, python=python, java_options=java_options)

    def started(self) -> None:
        """The sandbox is being set up: take its socket and serve it. Connections wait in its queue until then."""
        self._theirs.close()
        if self._listener is None:
            _data, descriptors, _flags, _address = socket.recv_fds(self._ours, 1, 1)
        else:
            descriptors = [self._listener.detach()]
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
        """End it. Returns words about what did not go as it should (a proxy that died, decisions not kept), or none."""
        for end in (self._ours, self._theirs, self._listener):
            if end is not None:
                end.close()
        if self._event_write >= 0:
            os.close(self._event_write)
        early = None if self._process is None else self._process.poll()
        if self._lifeline is not None:
            os.close(self._lifeline)
        notes = []
        if self._process is not None:
            if early is not None:
                notes.append(f"the network proxy {_death(early)} before the command ended: connections failed then")
            try:
                self._process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self.pump.drain()
        if self.pump.dropped:
            notes.append(f"{self.pump.dropped} further network decisions were made, too many to keep")
        return "; ".join(notes)

    def decisions(self, *, profile: str, by_option: bool) -> tuple[dict[str, Any], ...]:
        """For the result: each with what would allow it, where the rules for it are."""
        return tuple({**event, "remedy": _remedy(event, profile, by_option)} for event in self.pump.events)


def _death(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"failed with status {status}"


def _remedy(event: dict[str, Any], profile: str, by_option: bool) -> str:
    option = str(event["remedy"])
    if not option or by_option:
        return f"add {option}" if option else ""
    entry = option.removeprefix("--net ")
    return f'add "{entry}" to network: {{allow: [...]}} of profile {profile}'
