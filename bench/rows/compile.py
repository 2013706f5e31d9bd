"""Compiling 60 generated C files with make -j2."""

from __future__ import annotations

from harness.bench import Bench, RowSkipped
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.trees import c_project, empty_folder

MAKE = ["make", "--silent", "-j2"]


def measure(bench: Bench) -> list[Section]:
    if reason := need(bench, "make", "gcc"):
        raise RowSkipped(reason)
    project = c_project(bench.folder("compile") / "project")

    def clean() -> float:
        empty_folder(project / "out")
        return 0.0

    commands = {"bare": MAKE, "sbx run --profile build": [bench.sbx, "run", "--profile", "build", "--", *MAKE]}
    skipped = []
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        commands["bwrap, written by hand"] = [*bwrap_by_hand(project), *MAKE]
    return [
        bench.section(
            "compile",
            "Compiling 60 C files with make -j2",
            {name: bench.way(argv, project, before=clean, scale=1) for name, argv in commands.items()},
            rounds=bench.rounds(5, 2),
            unit="s",
            warmups=0 if bench.quick else 1,
            reference="bare",
            checks=[Check("compiling 60 C files, -j2", "sbx run --profile build", "bare", at_most=1.03)],
            skipped=skipped,
        )
    ]
