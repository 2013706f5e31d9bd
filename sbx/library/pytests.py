"""Run tests that somebody else wrote: pytest in a sandbox, with tight limits and an environment that never differs."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sbx.library.api import run
from sbx.library.types import PathLike, SandboxProfile
from sbx.model.glob import escape
from sbx.model.profile import Limits
from sbx.model.result import Result, Status

MIB = 1 << 20
DETERMINISTIC = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
PASSED_ON = ("COVERAGE_", "COV_CORE_")  # where a measuring parent wants its data


@dataclass(frozen=True, slots=True)
class SandboxPolicy:
    """What the tests may use. None is no limit."""

    wall_s: float | None = 30.0
    cpu_s: float | None = 20.0
    memory_bytes: int | None = 512 * MIB
    pids: int | None = 32
    nofile: int | None = 512
    output_bytes: int | None = MIB
    network: bool = False
    writable: bool = True  # the workspace; /tmp is private and writable in any case
    env: tuple[tuple[str, str], ...] = ()
    read: tuple[str, ...] = ()
    cwd: str | None = None
    arguments: tuple[str, ...] = ("-q",)
    python: str = ""  # default: the one that runs this

    def limits(self) -> Limits:
        return Limits(
            wall_s=self.wall_s,
            cpu_s=self.cpu_s,
            memory_bytes=self.memory_bytes,
            pids=self.pids,
            nofile=self.nofile,
            stdout_bytes=self.output_bytes,
            stderr_bytes=self.output_bytes,
        )


@dataclass(frozen=True, slots=True)
class SandboxResultV2:
    rc: int
    status: Status
    reason: str
    output: str  # standard output, then standard error
    duration_ms: int
    truncated: bool
    result: Result

    @property
    def success(self) -> bool:
        return self.status is Status.OK


def run_pytests(paths: Sequence[PathLike], timeout_s: float = 30.0) -> tuple[int, str]:
    """The exit code and the output of pytest over `paths`."""
    done = run_pytests_v2(paths, SandboxPolicy(wall_s=timeout_s))
    return done.rc, done.output


def run_pytests_v2(paths: Sequence[PathLike], policy: SandboxPolicy | None = None) -> SandboxResultV2:
    chosen = policy or SandboxPolicy()
    profile = SandboxProfile.NO_NETWORK if chosen.writable else SandboxProfile.READ_ONLY
    python = chosen.python or sys.executable
    result = run(
        [python, "-m", "pytest", "-p", "no:cacheprovider", *chosen.arguments, *paths],
        profile=profile,
        net="host" if chosen.network else None,
        cwd=chosen.cwd,
        extra_env=fixed_environment() | dict(chosen.env),
        limits=chosen.limits(),
        read=[*interpreter_rules(python), *chosen.read],
    )
    output = (result.stdout + result.stderr).decode("utf-8", "replace")
    return SandboxResultV2(
        result.rc, result.status, result.reason, output, result.duration_ms, bool(result.truncated), result
    )


def fixed_environment() -> dict[str, str]:
    """The same for every run, but for what a measuring parent asks for."""
    passed = {name: value for name, value in os.environ.items() if name.startswith(PASSED_ON)}
    return {**passed, **DETERMINISTIC}


def interpreter_rules(python: str) -> list[str]:
    """Where Python and its packages are: not always in a place that every profile shows."""
    places = [sys.prefix, sys.base_prefix] if python == sys.executable else [os.path.dirname(os.path.dirname(python))]
    return [f"{escape(os.path.realpath(place))}/**" for place in dict.fromkeys(places)]
