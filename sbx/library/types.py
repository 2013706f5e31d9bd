"""What the library's callers hand in and get back, besides the model's own types. Everything here pickles."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from sbx.errors import UsageError
from sbx.model.profile import Limits
from sbx.model.units import format_duration

PathLike = str | os.PathLike[str]
EnvironmentChoice = Mapping[str, str] | Literal["all"] | None


class Enforcement(StrEnum):
    """How strongly a capability would be enforced here."""

    FULL = "full"  # by the kernel, as the policy says
    SUPERVISED = "supervised"  # sbx itself watches, and ends the run
    PARTIAL = "partial"  # not everything the policy can say
    NONE = "none"


class OnUnavailable(StrEnum):
    """What if this machine cannot enforce all that the profile asks for? The command never runs without a sandbox."""

    REFUSE = "refuse"  # raise SandboxUnavailable
    PARTIAL = "partial"  # run with what there is; `Result.enforced` and `Result.reason` say what is missing
    REPORT = "report"  # do not run; return a Result with status INTERNAL_ERROR and the reason


class SandboxProfile(StrEnum):
    """Coarse profiles for callers without a policy file. They come with sbx, as names of ordinary profiles."""

    READ_ONLY = "read-only"  # the workspace can be read, nothing can be written, no network
    WORKSPACE_WRITE = "workspace-write"  # the workspace can be written; the host's network
    NO_NETWORK = "no-network"  # the workspace can be written; no network


@dataclass(frozen=True, slots=True)
class Rules:
    """What a call or a session is held to: the library's way to write the options of `sbx run`."""

    policy: str | None = None
    profile: str | None = None
    read: tuple[str, ...] = ()
    modify: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    net: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    partial: bool = False

    def options(self) -> dict[str, Any]:
        """As the option table of `sbx run` spells them."""
        found: dict[str, Any] = {}
        for name in ("policy", "profile", "read", "modify", "deny", "net", "partial"):
            value = getattr(self, name)
            if value:
                found[name] = value
        limits = self.limits
        for name, seconds in (("timeout", limits.wall_s), ("grace", limits.grace_s), ("cpu", limits.cpu_s)):
            if seconds is not None:
                found[name] = format_duration(_positive(name, seconds))
        for name, number in (
            ("memory", limits.memory_bytes),
            ("pids", limits.pids),
            ("nofile", limits.nofile),
            ("max-stdout", limits.stdout_bytes),
            ("max-stderr", limits.stderr_bytes),
        ):
            if number is not None:
                found[name] = str(int(_positive(name, number)))
        return found

    def arguments(self) -> list[str]:
        """As words of a command line."""
        words: list[str] = []
        for name, value in self.options().items():
            if value is True:
                words.append(f"--{name}")
            else:
                words += [f"--{name}={each}" for each in (value if isinstance(value, tuple) else (value,))]
        return words


def make_rules(
    *,
    policy: PathLike | None,
    profile: str | None,
    read: Sequence[str],
    modify: Sequence[str],
    deny: Sequence[str],
    net: str | Sequence[str] | None,
    limits: Limits | None,
    timeout: float | None,
    on_unavailable: OnUnavailable,
) -> Rules:
    chosen = limits or Limits()
    if timeout is not None:
        chosen = Limits(wall_s=timeout).over(chosen)
    return Rules(
        policy=None if policy is None else os.path.abspath(os.fspath(policy)),
        profile=None if profile is None else str(profile),
        read=_texts("read", read),
        modify=_texts("modify", modify),
        deny=_texts("deny", deny),
        net=() if net is None else (net,) if isinstance(net, str) else tuple(net),
        limits=chosen,
        partial=on_unavailable is OnUnavailable.PARTIAL,
    )


def words_of(cmd: Sequence[PathLike]) -> list[str]:
    """A command is a list of words: nothing here is ever given to a shell."""
    if isinstance(cmd, str | bytes):
        raise UsageError("a command is a list of words, not one text", remedy='write ["make", "-j4"]')
    words = [os.fspath(word) for word in cmd]
    if not words or not words[0]:
        raise UsageError("no command to run", remedy='write ["make", "-j4"]')
    if any("\0" in word for word in words):
        raise UsageError("a word of the command contains a NUL byte", remedy="no program can be given one")
    return words


def _texts(name: str, rules: Sequence[str]) -> tuple[str, ...]:
    if isinstance(rules, str):
        raise UsageError(f"{name} is a list of rules, not one text", remedy=f"write {name}=[{rules!r}]")
    return tuple(rules)


def _positive(name: str, value: float) -> float:
    if not value >= 0:
        raise UsageError(f"{name}={value} is not a limit", remedy="give a positive number, or None for no limit")
    return value
