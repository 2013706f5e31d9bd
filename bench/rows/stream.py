"""2 GiB through standard output to a reader: bare, inherited, capped and captured."""

from __future__ import annotations

import fcntl
import os
import shlex
import subprocess
import threading
import time

from harness.bench import Bench
from harness.record import Check, Section
from harness.timing import DEADLINE_S, Way, WayFailed
from harness.trees import small_workspace

PIECE = 1 << 20
SET_PIPE_SIZE = 1031  # F_SETPIPE_SZ; the fcntl module has it by name since Python 3.10 on Linux only

# What a program does that passes a command's output on with the standard library alone.
WITH_SUBPROCESS = """\
import subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
while piece := process.stdout.read1(65536):
    sys.stdout.buffer.write(piece)
sys.exit(process.wait())
"""


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("stream") / "repository")
    mebibytes = 512 if bench.quick else 2048
    work = ["dd", "if=/dev/zero", "bs=1M", f"count={mebibytes}", "status=none"]
    record = str(bench.folder("records") / "stream.json")
    run = [bench.sbx, "run", "--profile", "build"]
    commands = {
        "bare pipe": work,
        "sbx, inherited": [*run, "--", *work],
        "sbx, capped (--max-stdout 4GiB)": [*run, "--max-stdout", "4GiB", "--", *work],
        "sbx, captured (--json)": [*run, "--json", record, "--", *work],
        "subprocess.Popen, passed on": [bench.python, "-I", "-S", "-c", WITH_SUBPROCESS, *work],
    }
    os.chdir(workspace)
    size = mebibytes << 20
    checks = [
        # A bare pipe's own rounds differ by some percent: equal is what they cannot tell apart.
        Check("2 GiB through stdout, inherited", "sbx, inherited", "bare pipe", at_least=0.95),
        *(
            Check(f"2 GiB through stdout, {way.split()[1]}", way, "bare pipe", at_least=0.65)
            for way in ("sbx, capped (--max-stdout 4GiB)", "sbx, captured (--json)")
        ),
    ]
    return [
        bench.section(
            "stream",
            f"{mebibytes} MiB through stdout",
            {name: _reading(bench, argv, size) for name, argv in commands.items()},
            rounds=bench.rounds(7, 2),
            unit="GB/s",
            reference="bare pipe",
            checks=checks,
            commands=commands,
            notes=[
                "The reader takes 1 MiB at a time from a pipe of 1 MiB. The whole run counts, with its start. "
                "For inherited streams 1.0x is wanted; 0.95x counts as that: the rounds of one way differ by more."
            ],
        )
    ]


def _reading(bench: Bench, argv: list[str], size: int) -> Way:
    buffer = bytearray(PIECE)

    def measured() -> float:
        started = time.perf_counter()
        process = subprocess.Popen(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=bench.environ, bufsize=0
        )
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, SET_PIPE_SIZE, PIECE)
        left = size
        # A command that hangs must not hang the table: its end closes the pipe.
        killer = threading.Timer(DEADLINE_S, process.kill)
        killer.start()
        while count := os.readv(process.stdout.fileno(), [buffer]):
            left -= count
        code = process.wait()
        killer.cancel()
        elapsed = time.perf_counter() - started
        process.stdout.close()
        if code or left:
            raise WayFailed(f"exit status {code}, {left} bytes missing from: {shlex.join(argv)[:200]}")
        return size / elapsed / 1e9

    return measured
