"""--trace against a bare run and strace (bench/trace.py does the measuring)."""

from __future__ import annotations

from harness.bench import Bench
from harness.record import Section
from harness.script import sections_of
from harness.trees import c_project, git_repository


def measure(bench: Bench) -> list[Section]:
    project = git_repository(c_project(bench.folder("trace") / "project"))
    return sections_of(bench, "trace", "trace.py", ["--sbx", bench.sbx], project)
