"""In-process runs, sessions and batch (bench/library.py does the measuring)."""

from __future__ import annotations

from harness.bench import Bench
from harness.peers import bwrap_by_hand
from harness.record import Section
from harness.script import sections_of
from harness.trees import small_workspace


def measure(bench: Bench) -> list[Section]:
    workspace = small_workspace(bench.folder("library") / "repository")
    return sections_of(bench, "library", "library.py", ["--bwrap", *bwrap_by_hand(workspace)], workspace)
