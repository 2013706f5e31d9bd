"""The first run of a policy that sbx has not seen: YAML, planning, storing, then the run."""

from __future__ import annotations

from itertools import count

from harness.bench import Bench
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.trees import small_workspace

POLICY = """\
schemaVersion: 2
denyRead: ["./secret{number}/**"]
fsProfiles:
  own:
    extends: build
    read: ["/srv/data{number}/**"]
    modify: ["./out{number}/**"]
    limits: {{wall: 10m}}
"""


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("first") / "repository")
    policies = bench.folder("policies")
    numbers = count()
    reference = "bwrap, written by hand"

    def new_policy() -> float:
        number = next(numbers)
        policy = policies / f"policy{number}.yaml"
        policy.write_text(POLICY.format(number=number))
        return bench.way([bench.sbx, "run", "--policy", str(policy), "--profile", "own", "--", "true"], workspace)()

    def seen_policy() -> float:
        policy = policies / "policy0.yaml"
        return bench.way([bench.sbx, "run", "--policy", str(policy), "--profile", "own", "--", "true"], workspace)()

    ways = {"sbx, new policy": new_policy, "sbx, the same again": seen_policy}
    skipped = []
    if reason := need(bench, "bwrap"):
        skipped.append(f"bwrap: {reason}")
    else:
        ways[reference] = bench.way([*bwrap_by_hand(workspace), "true"], workspace)
    return [
        bench.section(
            "first",
            "First run of a new policy",
            ways,
            rounds=bench.rounds(15, 4),
            reference=reference,
            checks=[Check("first run of a new policy", "sbx, new policy", reference, at_most=11)],
            skipped=skipped,
        )
    ]
