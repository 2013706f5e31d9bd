"""`sbx explain PATH` with a stored policy and plain output."""

from __future__ import annotations

from harness.bench import Bench
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.trees import small_workspace


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("explain") / "repository")
    reference = "bwrap, written by hand"
    denied_is_one = (0, 1)
    commands = {
        "sbx explain Makefile": [bench.sbx, "explain", "--profile", "build", "Makefile"],
        "sbx explain, 100 paths": [
            *(bench.sbx, "explain", "--profile", "build"),
            *(f"part00/00/file{number:06}.txt" for number in range(100)),
        ],
    }
    ways = {name: bench.way(argv, workspace, expect=denied_is_one) for name, argv in commands.items()}
    skipped = []
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        ways[reference] = bench.way([*bwrap_by_hand(workspace), "true"], workspace)
    return [
        bench.section(
            "explain",
            "explain, stored policy",
            ways,
            rounds=bench.rounds(20, 5),
            reference=reference,
            checks=[Check("explain PATH, stored policy, plain", "sbx explain Makefile", reference, at_most=6)],
            commands={"sbx explain Makefile": commands["sbx explain Makefile"]},
            skipped=skipped,
        )
    ]
