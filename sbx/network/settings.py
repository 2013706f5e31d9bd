"""What the proxy process is told: rules, caps, and for tests a table of names. One JSON text, given by descriptor.

``resolve`` maps a host to the addresses it has, in place of the system's name lookup. It comes only from this text,
which only the process that starts the proxy can write, and it changes nothing about which addresses may be dialled:
a test that sends a name to 127.0.0.1 has to list ``127.0.0.1:PORT`` as well, as a policy would.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from sbx.network.hosts import HostRule, normalize_host, parse_rules

MAX_SETTINGS_BYTES = 4 << 20

# Run by path and not by -m, so that an isolated interpreter finds this very package wherever it is installed.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from sbx.network.proxy import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Caps:
    """Every bound of the proxy. Times in seconds, sizes in bytes."""

    max_connections: int = 2048  # beyond it: 503
    max_header_bytes: int = 32 << 10
    max_lookups: int = 256  # waiting names, beyond it: 503
    lookup_threads: int = 8
    max_pipes: int = 32  # streams relayed inside the kernel at once; others are copied
    max_events: int = 4096  # decisions waiting for a slow reader of events
    header_s: float = 15.0  # from the connection to the end of its first header
    keepalive_s: float = 75.0  # between two requests of one connection
    idle_s: float = 900.0  # a relay in which nothing moves
    dial_s: float = 20.0  # name lookup and connection together
    linger_s: float = 3.0  # for the client to take a refusal


@dataclass(frozen=True, slots=True)
class ProxySettings:
    rules: tuple[HostRule, ...]
    caps: Caps = Caps()
    resolve: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return json.dumps(
            {
                "rules": [rule.text for rule in self.rules],
                "caps": asdict(self.caps),
                "resolve": {name: list(addresses) for name, addresses in self.resolve.items()},
            }
        ).encode()

    @classmethod
    def from_json(cls, text: bytes) -> ProxySettings:
        """Raises ValueError for anything that is not exactly understood."""
        document = json.loads(text)
        if not isinstance(document, dict):
            raise ValueError("the proxy's settings are not an object")
        unknown = set(document) - {"rules", "caps", "resolve"}
        if unknown:
            raise ValueError(f"unknown proxy setting {min(unknown)!r}")
        rules = document.get("rules", [])
        if not isinstance(rules, list) or not all(isinstance(rule, str) for rule in rules):
            raise ValueError("the proxy's rules are not a list of texts")
        return cls(
            parse_rules(rules), _parse_caps(document.get("caps", {})), _parse_resolve(document.get("resolve", {}))
        )


def _parse_caps(document: object) -> Caps:
    if not isinstance(document, dict):
        raise ValueError("the proxy's caps are not an object")
    kinds = {item.name: type(item.default) for item in fields(Caps)}
    values: dict[str, int | float] = {}
    for name, value in document.items():
        if name not in kinds:
            raise ValueError(f"unknown proxy cap {name!r}")
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise ValueError(f"proxy cap {name!r} is not a positive number")
        values[name] = float(value) if kinds[name] is float else int(value)
    return Caps(**values)  # type: ignore[arg-type]


def _parse_resolve(document: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(document, dict):
        raise ValueError("the proxy's table of names is not an object")
    table: dict[str, tuple[str, ...]] = {}
    for name, value in document.items():
        addresses = [value] if isinstance(value, str) else value
        if not isinstance(addresses, list) or not all(isinstance(address, str) for address in addresses):
            raise ValueError(f"the addresses of {name!r} are not texts")
        table[normalize_host(name)] = tuple(addresses)
    return table


def proxy_argv(
    listen_fd: int, *, config_fd: int = 0, event_fd: int | None = None, lifeline_fd: int | None = None, python: str = ""
) -> list[str]:
    """The command that serves a listening socket. The numbers are those of the new process."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    argv = [python or sys.executable, "-I", "-c", _START, root]
    argv += ["--listen-fd", str(listen_fd), "--config-fd", str(config_fd)]
    if event_fd is not None:
        argv += ["--event-fd", str(event_fd)]
    if lifeline_fd is not None:
        argv += ["--lifeline-fd", str(lifeline_fd)]
    return argv
