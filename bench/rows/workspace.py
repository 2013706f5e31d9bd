"""Starting in a workspace of 100,000 files with `**/*.env` denied: the second time should not walk it again."""

from __future__ import annotations

from harness.bench import Bench
from harness.record import Check, Section
from harness.trees import many_files

POLICY = """\
schemaVersion: 2
denyRead: ["**/*.env"]
fsProfiles:
  own: {read: ["./**"], modify: ["./**"]}
"""
HIDDEN = 50


def measure(bench: Bench) -> list[Section]:
    files = 20_000 if bench.quick else 100_000
    folder = bench.folder("workspace")
    big = many_files(folder / f"big{files}", files, size=10)
    for number in range(HIDDEN):
        (big / "part00" / f"{number % 100:02}" / f"service{number}.env").touch()
    empty = folder / "empty"
    empty.mkdir(exist_ok=True)
    policy = bench.folder("policies") / "workspace.yaml"
    policy.write_text(POLICY)
    argv = [bench.sbx, "run", "--policy", str(policy), "--profile", "own", "--", "true"]
    name = f"{files} files, second start"
    first = bench.way(argv, big)()
    return [
        bench.section(
            "workspace",
            f"Start in a workspace of {files} files, {HIDDEN} of them denied by `**/*.env`",
            {"empty workspace": bench.way(argv, empty), name: bench.way(argv, big)},
            rounds=bench.rounds(15, 5),
            reference="empty workspace",
            checks=[Check(f"start among {files} files, second time", name, "empty workspace", at_most=2.0)],
            commands={name: argv},
            notes=[f"The first start in it, with the walk, took {first / 1e3:.2f} s."],
        )
    ]
