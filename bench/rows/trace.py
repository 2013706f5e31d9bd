"""--trace on make and git status, against a bare run and strace."""

from __future__ import annotations

from harness.bench import Bench, RowSkipped
from harness.peers import need
from harness.record import Check, Section
from harness.trees import c_project, empty_folder, git_repository, many_files

OURS = "sbx run --trace"


def measure(bench: Bench) -> list[Section]:
    if reason := need(bench, "make", "gcc", "git"):
        raise RowSkipped(reason)
    project = c_project(bench.folder("trace") / "project")
    repository = git_repository(many_files(bench.folder("trace") / "repository", 10_000))
    make = ["make", "--silent", "-j2"]
    # As in the row of file work: several times in one run, and never an attempt to write to .git.
    status = ["sh", "-c", "for i in $(seq 10); do git --no-optional-locks status --porcelain || exit 1; done"]

    def clean() -> float:
        empty_folder(project / "out")
        return 0.0

    sections = []
    for title, work, cwd, before, at_most in (
        ("make -j2, 60 C files", make, project, clean, 2.0),
        ("git status, 10000 files, 10 times in one run", status, repository, None, 1.3),
    ):
        trace = str(bench.folder("records") / "strace")
        commands = {
            "bare": work,
            "sbx run": [bench.sbx, "run", "--profile", "build", "--", *work],
            OURS: [bench.sbx, "run", "--profile", "build", "--trace", "--", *work],
        }
        skipped = []
        if reason := need(bench, "strace"):
            skipped.append(f"strace: {reason}")
        else:
            fast = ["strace", "-f", "--seccomp-bpf", "-e", "trace=%file", "-o", trace]
            commands["strace --seccomp-bpf"] = [*fast, *work]
            commands["strace of file calls"] = ["strace", "-f", "-e", "trace=%file", "-o", trace, *work]
        sections.append(
            bench.section(
                "trace",
                f"--trace: {title}",
                {name: bench.way(argv, cwd, before=before) for name, argv in commands.items()},
                rounds=bench.rounds(4, 1),
                warmups=0 if bench.quick else 1,
                reference="bare",
                checks=[Check(f"--trace on {title.partition(',')[0]}", OURS, "bare", at_most=at_most)],
                commands=commands,
                skipped=skipped,
            )
        )
    return sections
