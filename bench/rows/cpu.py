"""Work that only computes: a sandbox should cost its start and nothing more."""

from __future__ import annotations

from harness.bench import Bench
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.trees import small_workspace

COUNTING = "x = 0\nfor i in range({count}):\n    x ^= i * i\n"


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("cpu") / "repository")
    work = ["/usr/bin/python3", "-I", "-S", "-c", COUNTING.format(count=20_000_000)]
    commands = {"bare": work, "sbx run --profile build": [bench.sbx, "run", "--profile", "build", "--", *work]}
    skipped = []
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        commands["bwrap, written by hand"] = [*bwrap_by_hand(workspace), *work]
    return [
        bench.section(
            "cpu",
            "CPU-bound work: a Python loop of two to three seconds",
            {name: bench.way(argv, workspace, scale=1) for name, argv in commands.items()},
            rounds=bench.rounds(5, 2),
            unit="s",
            warmups=0,
            reference="bare",
            checks=[Check("CPU-bound work", "sbx run --profile build", "bare", at_most=1.03)],
            skipped=skipped,
        )
    ]
