"""Planning: how compiling a run grows with the rules of its policy and with the files that a glob looks at."""

from __future__ import annotations

import os
import time
from pathlib import Path

from harness.bench import Bench
from harness.curve import growth_check, point
from harness.record import Section
from harness.timing import Way
from harness.trees import many_files

from sbx.planner.linux import plan
from sbx.policy.effective import effective_profile
from sbx.policy.layers import load_policy

SHAPES = ("./src{n}/**", "./src{n}/*.c", "./**/n{n}.key", "./data{n}/{{a,b}}/**", "./x{n}")


def measure(bench: Bench) -> list[Section]:
    policies = bench.folder("plan-policies")
    workspace = many_files(bench.folder("plan") / "tree", 200)

    def with_rules(count: int) -> Way:
        denies = ", ".join('"' + SHAPES[n % len(SHAPES)].format(n=n) + '"' for n in range(count))
        policy = policies / f"rules{count}.yaml"
        policy.write_text(
            f'schemaVersion: 2\ndenyRead: [{denies}]\nfsProfiles: {{own: {{read: ["./**"], modify: ["./**"]}}}}\n'
        )
        return _planning(policy, workspace)

    glob = policies / "glob.yaml"
    glob.write_text(
        'schemaVersion: 2\ndenyRead: ["./**/*.env"]\nfsProfiles: {own: {read: ["./**"], modify: ["./**"]}}\n'
    )
    by_rules = {point(count, "rules"): with_rules(count) for count in (10, 30, 100, 300, 1000)}
    by_paths = {
        point(count, "files"): _planning(glob, many_files(bench.folder("plan") / f"tree{count}", count))
        for count in (10, 100, 1000, 10_000)
    }
    sections = []
    for title, ways in (
        ("by the number of rules (200 files)", by_rules),
        ("by the number of files, `./**/*.env` denied", by_paths),
    ):
        section = bench.section(
            "plan", f"plan, {title}", ways, rounds=bench.rounds(3, 1), warmups=0, reference=next(iter(ways))
        )
        sections.append(growth_check(section, f"plan, {title}"))
    return sections


def _planning(policy: Path, cwd: Path) -> Way:
    """YAML already read (that is another cost, paid once): the effective profile and the plan, nothing cached."""
    loaded = load_policy(str(cwd), policy_file=str(policy), environ=os.environ)

    def measured() -> float:
        started = time.perf_counter()
        plan(effective_profile(loaded, "own"), str(cwd))
        return (time.perf_counter() - started) * 1e3

    return measured
