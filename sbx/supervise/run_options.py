"""The command line's options as values: rules, limits, network, working directory. The same on every platform."""

from __future__ import annotations

import os

from sbx.errors import UsageError
from sbx.model.profile import LEAST_NOFILE, Environment, Limits, Network, NetworkMode, Require
from sbx.model.source import Source
from sbx.model.units import BadUnit, parse_count, parse_duration, parse_size
from sbx.policy.document import RunRules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def option_rules(options: Mapping[str, Any]) -> RunRules:
    """The command line's part of the policy. A flag beats the profile."""
    return RunRules(
        read=tuple(options.get("read", ())),
        modify=tuple(options.get("modify", ())),
        deny=tuple(options.get("deny", ())),
        network=_network(tuple(options.get("net", ()))),
        env=Environment(),
        limits=_limits(options),
        require=Require.PARTIAL if options.get("partial") else None,
    )


def _limits(options: Mapping[str, Any]) -> Limits:
    kinds = (
        ("timeout", "wall_s", parse_duration),
        ("grace", "grace_s", parse_duration),
        ("cpu", "cpu_s", parse_duration),
        ("memory", "memory_bytes", parse_size),
        ("pids", "pids", parse_count),
        ("nofile", "nofile", parse_count),
        ("max-stdout", "stdout_bytes", parse_size),
        ("max-stderr", "stderr_bytes", parse_size),
    )
    values: dict[str, Any] = {}
    for option, field, parse in kinds:
        if option in options:
            try:
                values[field] = parse(options[option])
            except BadUnit as error:
                raise UsageError(f"--{option}: {error}") from None
            # A timeout of 0 switches it off, as with GNU timeout; every other limit of 0 would forbid everything.
            if field == "wall_s" and values[field] == 0:
                values[field] = float("inf")
            elif values[field] == 0 and field in ("cpu_s", "memory_bytes", "pids", "nofile"):
                raise UsageError(f"--{option} 0 would let nothing run", remedy="give a larger value, or leave it out")
            elif field == "nofile" and values[field] < LEAST_NOFILE:
                raise UsageError(
                    f"--nofile {options[option]} is too small to start a command",
                    remedy=f"give at least {LEAST_NOFILE}, or leave it out",
                )
    return Limits(**values)


def _network(entries: tuple[str, ...]) -> Network | None:
    if not entries:
        return None
    source = Source("--net", layer="option")
    words = {entry for entry in entries if entry in ("none", "host")}
    if words and len(set(entries)) > 1:
        raise UsageError(f"--net {words.pop()} stands alone", remedy="name either none, host, or HOST:PORT pairs")
    if "none" in words:
        return Network(NetworkMode.NONE, (), source)
    if "host" in words:
        return Network(NetworkMode.HOST, (), source)
    from sbx.network.hosts import parse_rule
    from sbx.policy.nearest import nearest

    for entry in entries:
        try:
            parse_rule(entry)
        except ValueError as error:
            near = nearest(entry, ("none", "host")) if len(entry) < 7 and entry.isalpha() else None
            if near is not None:
                raise UsageError(f"--net {entry} names no port", remedy=f"did you mean '{near}'?") from None
            raise UsageError(f"--net {entry}: {error}", remedy="write HOST:PORT, none or host") from None
    return Network(NetworkMode.ALLOW, tuple((entry, source) for entry in entries), source)


def working_directory(options: Mapping[str, Any]) -> str:
    """Where the command starts, really. The policy is looked for from here."""
    named = options.get("cwd")
    try:
        start = os.getcwd()
    except OSError:
        if not named or not os.path.isabs(named):
            raise UsageError("the working directory is gone", remedy="cd to one that exists") from None
        start = "/"
    folder = os.path.realpath(os.path.join(start, named)) if named else os.path.realpath(start)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(f"--cwd {named} is a file, not a directory", remedy="name the directory that it is in")
    if not os.path.isdir(folder):
        raise UsageError(f"--cwd {named}: no such directory", remedy="name a directory that exists")
    if not os.access(folder, os.X_OK):
        raise UsageError(f"{named or folder}: you may not enter this directory", remedy="name one of yours with --cwd")
    return folder
