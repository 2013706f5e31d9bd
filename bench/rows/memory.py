"""Memory of all of sbx's own processes while a command runs: the sum of their proportional set sizes."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from harness.bench import Bench, RowSkipped
from harness.record import Check, Section

DEADLINE_S = 20
# The command says that it runs, then waits for its standard input to end.
WAITING = ["sh", "-c", "echo running; exec cat"]


def measure(bench: Bench) -> list[Section]:
    workspace = bench.folder("memory")
    policy = bench.folder("policies") / "memory.yaml"
    policy.write_text("schemaVersion: 2\nfsProfiles: {own: {extends: build}}\n")
    settings = {
        "sbx run --profile build": ["--profile", "build"],
        "the same with capped streams": ["--profile", "build", "--max-stdout", "1MiB"],
        "the same with a proxy": ["--profile", "build", "--net", "localhost:9"],
        "the same with a memory limit": ["--profile", "build", "--memory", "1GiB"],
    }
    samples: dict[str, list[float]] = {}
    notes: list[str] = []
    skipped = []
    for name, options in settings.items():
        try:
            rounds = [_one(bench, workspace, options, notes if not samples else []) for _ in range(bench.rounds(3, 1))]
        except RowSkipped as error:
            skipped.append(f"{name}: {error}")
            continue
        samples[name] = rounds
    load, now = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    title = "Memory of sbx's own processes while a command runs"
    checks = [Check(f"memory, {name}", name, at_most=25) for name in samples]
    return [Section("memory", title, "MiB", samples, checks, notes=notes, skipped=skipped, load=load, measured=now)]


def _one(bench: Bench, workspace: Path, options: list[str], notes: list[str]) -> float:
    argv = [*bench.prefix, bench.sbx, "run", *options, "--", *WAITING]
    process = subprocess.Popen(
        argv, cwd=workspace, env=bench.environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        if process.stdout.readline() != b"running\n":
            process.stdin.close()
            words = process.stderr.read().decode(errors="replace").strip().splitlines()
            raise RowSkipped(words[0] if words else "the command did not start")
        return _own_memory(process.pid, notes)
    finally:
        process.stdin.close()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        process.stdout.close()
        process.stderr.close()


def _own_memory(top: int, notes: list[str]) -> float:
    """MiB of PSS, or of resident memory where that is all one may see: a bound from above."""
    total, processes, bounded = 0, 0, False
    for pid in _family(top):
        if (Path(f"/proc/{pid}/comm").read_text()).strip() == "cat":
            continue
        processes += 1
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            bounded = True
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
    if not notes:
        notes.append(f"A plain run has {processes} processes of its own.")
        if bounded:
            notes.append("Some of them show their PSS to root only: their whole resident memory was counted instead.")
    return total / 1024


def _family(top: int) -> list[int]:
    """The process and all below it, also those in other namespaces."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [top]
    for pid in found:
        found += parents.get(pid, [])
    return found
