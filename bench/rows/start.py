"""What one start costs: `true` under everything that can run it."""

from __future__ import annotations

from harness.bench import Bench
from harness.peers import bwrap_by_hand, bwrap_like, bwrap_minimal, need, others
from harness.record import Check, Section
from harness.trees import small_workspace

OURS = "sbx run --profile build"
BY_HAND = "bwrap, written by hand"
SAME_BINDS = "bwrap, every bind of the plan"


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("start") / "repository")
    commands: dict[str, list[str]] = {"bare": []}
    peers, skipped = others(bench)
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        commands["bwrap, minimal"] = bwrap_minimal()
        commands[BY_HAND] = bwrap_by_hand(workspace)
        commands[SAME_BINDS] = bwrap_like(bench.plan(workspace, "--profile", "build"))
    commands[OURS] = [bench.sbx, "run", "--profile", "build", "--"]
    commands["sbx run"] = [bench.sbx, "run", "--"]
    commands |= peers
    full = {name: [*argv, "true"] for name, argv in commands.items()}
    full["python -I -S -c pass"] = [bench.python, "-I", "-S", "-c", "pass"]
    ways = {name: bench.way(argv, workspace) for name, argv in full.items()}
    section = bench.section(
        "start",
        "One start: `true`, stored plan",
        ways,
        rounds=bench.rounds(40, 8),
        warmups=2,
        reference=BY_HAND,
        commands=full,
        skipped=skipped,
    )
    section.checks.append(Check("start, stored plan", OURS, SAME_BINDS, at_most=3.0))
    section.checks.append(Check("start, stored plan", OURS, BY_HAND, at_most=3.0))
    sandboxes = [name for name in peers if name in section.samples and name not in ("timeout", "unshare")]
    for name in sandboxes:
        section.checks.append(Check("start, below every other sandbox", OURS, name, at_most=1.0))
    section.notes.append(
        "`timeout` and `unshare` isolate little or nothing, and `bwrap` applies neither Landlock nor a system call "
        "filter nor denies of names to come: they are here for scale."
    )
    return [section]
