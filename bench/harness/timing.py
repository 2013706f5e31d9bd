"""Timing of commands: every way once, then every way again. A busy moment then slows all of them alike."""

from __future__ import annotations

import os
import resource
import select
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Way = Callable[[], float]
# A command that hangs is a finding, not a reason for the others to go unmeasured.
DEADLINE_S = 120


class WayFailed(Exception):
    """A command that did not do what it was measured for."""


def run_once(
    argv: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    expect: tuple[int, ...] = (0,),
    stdout: int | None = None,
) -> float:
    """Seconds from the spawn to the end of the command. Without `stdout` all streams are /dev/null."""
    os.chdir(cwd)
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0),
    ]
    if stdout is None:
        actions.append((os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0))
    else:
        actions.append((os.POSIX_SPAWN_DUP2, stdout, 1))
    started = time.perf_counter()
    pid = os.posix_spawnp(argv[0], list(argv), dict(environ), file_actions=actions)
    code = ended(pid, argv)
    elapsed = time.perf_counter() - started
    if code not in expect:
        raise WayFailed(f"exit status {code} from: {shlex.join(argv)[:200]}")
    return elapsed


def ended(pid: int, argv: Sequence[str]) -> int:
    """The exit status of a child, which is killed at the deadline."""
    handle = os.pidfd_open(pid)
    try:
        in_time = bool(select.select([handle], [], [], DEADLINE_S)[0])
        if not in_time:
            os.kill(pid, signal.SIGKILL)
    finally:
        os.close(handle)
    _, status = os.waitpid(pid, 0)
    if not in_time:
        raise WayFailed(f"still running after {DEADLINE_S} s: {shlex.join(argv)[:200]}")
    return os.waitstatus_to_exitcode(status)


@dataclass(frozen=True, slots=True)
class Rounds:
    samples: dict[str, list[float]]
    cpu_s: dict[str, list[float]]  # of the commands and all below them; empty for what starts none
    failed: list[str]  # a line for each way that failed: it is left out, never counted


def interleave(ways: Mapping[str, Way], rounds: int, *, warmups: int = 1) -> Rounds:
    samples: dict[str, list[float]] = {name: [] for name in ways}
    cpu_s: dict[str, list[float]] = {name: [] for name in ways}
    failed: dict[str, str] = {}
    for number in range(warmups + rounds):
        for name, way in ways.items():
            if name in failed:
                continue
            before = children_cpu_s()
            try:
                value = way()
            except (WayFailed, OSError) as error:
                failed[name] = f"{name}: {error}"
                continue
            if number >= warmups:
                samples[name].append(value)
                cpu_s[name].append(children_cpu_s() - before)
    kept = {name: values for name, values in samples.items() if name not in failed}
    return Rounds(kept, {name: cpu_s[name] for name in kept if any(cpu_s[name])}, list(failed.values()))


def children_cpu_s() -> float:
    """CPU time of every child waited for so far, and of theirs: hardly changed by what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
