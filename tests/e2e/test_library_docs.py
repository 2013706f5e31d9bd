"""The examples of the documentation do what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

import sbx as library

pytestmark = requires("userns")

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = re.findall(r"```python\n(.*?)```", (DOCS / "library.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=[str(at) for at in range(1, len(EXAMPLES) + 1)])
def test_an_example_of_the_library(workspace: Any, example: str) -> None:
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(library.__file__))}
    argv = [sys.executable, "-W", "error", "-c", example]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_job_lines_of_the_batch_page() -> None:
    from sbx.library.batch import read_jobs

    (lines,) = re.findall(r"```json\n(.*?)```", (DOCS / "batch.md").read_text(), re.DOTALL)
    assert [job.id for job in read_jobs(lines.splitlines(), "docs")] == ["lint", "test", "3"]


def recipe(sbx: Any, name: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = " ".join(sbx.command)
    argv = ["sh", str(DOCS / "examples" / name), *arguments]
    return subprocess.run(argv, env={**os.environ, "SBX": command, **env}, capture_output=True, text=True, check=False)


def test_the_slurm_recipe_covers_every_job_once(workspace: Any, sbx: Any) -> None:
    """With the variables that Slurm gives the tasks of an array."""
    jobs = [{"id": f"job-{at}", "cmd": ["echo", str(at)]} for at in range(7)]
    workspace.write("jobs.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
    for task in ("3", "4", "5", "4"):  # one of them is started again
        env = {"SLURM_ARRAY_TASK_ID": task, "SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_COUNT": "3"}
        done = recipe(sbx, "slurm-array.sh", "jobs.jsonl", env={**env, "SLURM_CPUS_PER_TASK": "2"})
        assert (done.returncode, done.stderr) == (0, "")
    lines = [line for path in workspace.root.glob("results.*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(json.loads(line)["id"] for line in lines) == [f"job-{at}" for at in range(7)]


@requires(tools=["parallel"])
def test_the_gnu_parallel_recipe(workspace: Any, sbx: Any) -> None:
    for at in range(1, 4):
        workspace.write(f"file{at}", "line\n" * at)
    done = recipe(sbx, "parallel.sh", "file1", "file2", "file3", env={})
    assert done.stdout == "1 file1\n2 file2\n3 file3\n", done.stderr
