"""The lines of a batch: what a job may say, and how a wrong one is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbx.errors import UsageError
from sbx.library.batch import Job, ResultFile, read_jobs
from sbx.model.profile import Limits


def test_a_job_becomes_the_arguments_of_run() -> None:
    line = {
        "id": "a", "cmd": ["make", "-j4"], "profile": "build", "cwd": "/w", "env": {"A": "1"}, "stdin": "x",
        "timeout": "1m30s", "limits": {"memory": "512MiB", "pids": 7}, "net": ["example.com:443"],
    }  # fmt: skip
    options = {
        "profile": "build", "cwd": "/w", "env": {"A": "1"}, "stdin": b"x", "timeout": 90.0,
        "limits": Limits(memory_bytes=512 << 20, pids=7), "net": ["example.com:443"],
    }  # fmt: skip
    assert read_jobs([json.dumps(line)], "jobs") == [Job("a", ("make", "-j4"), options)]


def test_lines_are_numbered_and_defaults_fill_in() -> None:
    jobs = read_jobs(['{"cmd": ["a"]}', "", '{"cmd": ["b"], "profile": "lint"}'], "jobs", {"profile": "build"})
    assert [(job.id, job.options["profile"]) for job in jobs] == [("1", "build"), ("3", "lint")]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["{"], "jobs:1: not JSON"),
        (["[]"], "jobs:1: a job is an object"),
        (['{"cmd": ["a"]}', '{"cmd": ["a"], "profil": "x"}'], "jobs:2: unknown field 'profil'; did you mean 'profile'"),
        (["{}"], "jobs:1: no command"),
        (['{"cmd": "true"}'], "jobs:1: cmd is a list"),
        (['{"cmd": ["a", 1]}'], "jobs:1: cmd is a list"),
        (['{"cmd": ["a"], "timeout": "soon"}'], "jobs:1: 'soon'"),
        (['{"cmd": ["a"], "limits": {"mem": 1}}'], "jobs:1: unknown limit 'mem'"),
        (['{"cmd": ["a"], "env": {"A": 1}}'], "jobs:1: env is an object of texts"),
        (['{"cmd": ["a"], "id": "x"}', '{"cmd": ["b"], "id": "x"}'], "jobs:2: the id 'x' is taken by line 1"),
    ],
)
def test_a_wrong_line_is_told_with_its_place(lines: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_jobs(lines, "jobs")
    assert str(caught.value).startswith(words)


def test_a_torn_result_is_run_again(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text('{"id": "1"}\n{"id": "2"}\n{"id": "3", "sta')
    results = ResultFile(str(path), resume=True)
    assert results.done == {"1", "2"}
    results.write({"id": "3"})
    results.close()
    assert path.read_text() == '{"id": "1"}\n{"id": "2"}\n{"id": "3"}\n'


def test_results_are_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("precious")
    with pytest.raises(UsageError, match="--resume"):
        ResultFile(str(path), resume=False)
    with pytest.raises(UsageError, match="not a result"):
        path.write_text("precious\n")
        ResultFile(str(path), resume=True)
    assert path.read_text() == "precious\n"
