"""Sixty-four runs started at once: how long the slowest of them takes, against a run alone.

Of `true`, where nearly all is the processors' work and a machine with few of them must take longer for 64 times the
work; and of a command that waits for a second, as most of what people run at once waits for something.
"""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

from harness.bench import Bench
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.timing import DEADLINE_S, WayFailed
from harness.trees import small_workspace

COUNT = 64
AT_MOST = 8


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("crowd") / "repository")
    return [_section(bench, workspace, ["true"]), _section(bench, workspace, ["sleep", "1"])]


def _section(bench: Bench, workspace: Path, command: list[str]) -> Section:
    shown = " ".join(command)
    programs = {"sbx": [bench.sbx, "run", "--", *command]}
    skipped = []
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        programs["bwrap, written by hand"] = [*bwrap_by_hand(workspace), *command]
    ways = {}
    for name, argv in programs.items():
        ways[f"{name}, one"] = bench.way(argv, workspace)
        ways[f"{name}, the slowest of {COUNT}"] = lambda argv=argv: slowest(argv, workspace, bench.environ)
    return bench.section(
        "crowd",
        f"{COUNT} runs of {shown} at once",
        ways,
        rounds=bench.rounds(7, 2),
        reference="sbx, one",
        checks=[Check(f"{COUNT} runs of {shown} at once", f"sbx, the slowest of {COUNT}", "sbx, one", at_most=AT_MOST)],
        notes=[f"The least it can take: {COUNT} times the CPU time of one, shared by {os.cpu_count()} processors."],
        skipped=skipped,
    )


def slowest(argv: list[str], cwd: Path, environ: dict[str, str]) -> float:
    """Milliseconds from its own start to its end of the run that took longest. All of them have to succeed."""
    os.chdir(cwd)
    null = [(os.POSIX_SPAWN_OPEN, number, "/dev/null", os.O_RDWR, 0) for number in (0, 1, 2)]
    poll = select.poll()
    started: dict[int, tuple[int, float]] = {}
    for _ in range(COUNT):
        now = time.perf_counter()
        pid = os.posix_spawnp(argv[0], argv, environ, file_actions=null)
        handle = os.pidfd_open(pid)
        started[handle] = (pid, now)
        poll.register(handle, select.POLLIN)
    longest, failed = 0.0, 0
    while started:
        ready = poll.poll(DEADLINE_S * 1000)
        now = time.perf_counter()
        if not ready:
            for pid, _ in started.values():
                os.kill(pid, 9)
        for handle, _ in ready or [(handle, 0) for handle in started]:
            pid, begin = started.pop(handle)
            poll.unregister(handle)
            os.close(handle)
            failed += os.waitpid(pid, 0)[1] != 0
            longest = max(longest, now - begin)
    if failed:
        raise WayFailed(f"{failed} of {COUNT} runs at once failed")
    return longest * 1000
