"""File-heavy work: tar of 10,000 files, git status, find."""

from __future__ import annotations

from harness.bench import Bench, RowSkipped
from harness.peers import bwrap_by_hand, need
from harness.record import Check, Section
from harness.trees import git_repository, many_files

FILES = 10_000


def measure(bench: Bench) -> list[Section]:
    if reason := need(bench, "tar", "git", "find"):
        raise RowSkipped(reason)
    tree = git_repository(many_files(bench.folder("files") / "tree", FILES))
    repeats = {"tar": 3, "git status": 20, "find": 20}
    # Each work several times over inside one run, so that the row shows file work and not the start. The tar goes
    # through a pipe: told to write to /dev/null it would not read the files. Optional locks: the profile keeps .git
    # from being written, so without the flag the bare run would do something else.
    scripts = {
        "tar": "tar cf - . | cat >/dev/null",
        "git status": "git --no-optional-locks status --porcelain",
        "find": "find . -type f -size +100k",
    }
    targets = {"tar": 1.10, "git status": 1.10, "find": 1.25}
    sections = []
    for name, script in scripts.items():
        loop = f"for i in $(seq {repeats[name]}); do {script} || exit 1; done"
        work = ["sh", "-c", loop]
        commands = {"bare": work, "sbx run --profile build": [bench.sbx, "run", "--profile", "build", "--", *work]}
        skipped = []
        if reason := need(bench, "bwrap"):
            skipped.append(f"bwrap: {reason}")
        else:
            commands["bwrap, written by hand"] = [*bwrap_by_hand(tree), *work]
        sections.append(
            bench.section(
                "files",
                f"{name} over {FILES} files, {repeats[name]} times in one run",
                {way: bench.way(argv, tree) for way, argv in commands.items()},
                rounds=bench.rounds(7, 2),
                reference="bare",
                checks=[Check(f"{name}, {FILES} files", "sbx run --profile build", "bare", at_most=targets[name])],
                commands={"bare": work},
                skipped=skipped,
            )
        )
    return sections
