"""`sbx batch`: every job has exactly one result, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from leftovers import wait_until_gone

import sbx as library
from sbx.cli.main import main

pytestmark = requires("userns")


@pytest.fixture(autouse=True)
def ended(workspace: Any) -> Iterator[None]:
    yield
    library.shutdown()


def write_jobs(workspace: Any, jobs: list[dict[str, Any]]) -> Path:
    path: Path = workspace.write("jobs.jsonl", "".join(json.dumps(job) + "\n" for job in jobs))
    return path


def results(path: Path) -> dict[str, dict[str, Any]]:
    """By id; a second result of the same job fails."""
    found: dict[str, dict[str, Any]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        assert record["id"] not in found, f"two results of {record['id']}"
        found[record["id"]] = record
    return found


def test_jobs_and_their_results(sbx: Any, workspace: Any) -> None:
    jobs = write_jobs(
        workspace,
        [
            {"cmd": ["echo", "one"]},
            {"id": "fails", "cmd": ["sh", "-c", "exit 3"]},
            {"id": "slow", "cmd": ["sleep", "1000"], "timeout": "100ms"},
            {"id": "env", "cmd": ["env"], "env": {"A": "1"}},
            {"id": "input", "cmd": ["cat"], "stdin": "text"},
            {"id": "profile", "cmd": ["touch", "made"], "profile": "read-only"},
            {"id": "unknown", "cmd": ["true"], "profile": "no-such-profile"},
        ],
    )
    ran = sbx("batch", "--jobs", "2", "--out", "out.jsonl", jobs)
    assert ran.rc == 1
    assert "4 of 7 jobs" in ran.stderr
    found = results(workspace.root / "out.jsonl")
    assert {name: each["status"] for name, each in found.items()} == {
        "1": "OK", "fails": "EXIT", "slow": "TIMEOUT", "env": "OK", "input": "OK", "profile": "EXIT",
        "unknown": "INTERNAL_ERROR",
    }  # fmt: skip
    assert [found[name]["stdout"] for name in ("1", "env", "input")] == ["one\n", "A=1\n", "text"]
    assert (found["fails"]["rc"], found["slow"]["rc"]) == (3, 124)
    assert not (workspace.root / "made").exists()


def test_results_on_standard_output_and_jobs_on_standard_input(sbx: Any) -> None:
    ran = sbx("batch", "-", stdin='{"cmd": ["echo", "hello"]}\n')
    assert (ran.rc, ran.stderr) == (0, "")
    assert json.loads(ran.stdout)["stdout"] == "hello\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "0", "jobs.jsonl"], "--jobs 0"),
        (["--engine", "slurm", "jobs.jsonl"], "--engine slurm"),
        (["--resume", "jobs.jsonl"], "--resume needs --out"),
        (["missing.jsonl"], "missing.jsonl: No such file"),
        (["wrong.jsonl"], "wrong.jsonl:1: not JSON"),
        (["--out", "jobs.jsonl", "jobs.jsonl"], "jobs.jsonl exists"),
    ],
)
def test_a_wrong_call_runs_nothing(sbx: Any, workspace: Any, arguments: list[str], words: str) -> None:
    write_jobs(workspace, [{"cmd": ["touch", "ran"]}])
    workspace.write("wrong.jsonl", "{\n")
    ran = sbx("batch", *arguments)
    assert ran.rc == 2
    assert words in ran.stderr
    assert not (workspace.root / "ran").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_batch_goes_on_where_it_was(sbx: Any, workspace: Any, number: int) -> None:
    """The third job waits for a file that only the second attempt finds: the first attempt is stopped there."""
    os.mkfifo(workspace.root / "reached")
    block = "test -e go || { echo > reached; exec sleep 1000; }"
    jobs = [{"id": f"{at}", "cmd": ["sh", "-c", block if at == 3 else f"echo {at} >> log"]} for at in range(6)]
    path = write_jobs(workspace, jobs)
    argv = [*sbx.command, "batch", "--jobs", "1", "--out", "out.jsonl", str(path)]
    batch = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True, start_new_session=True)
    (workspace.root / "reached").read_text()
    batch.send_signal(number)
    _, stderr = batch.communicate(timeout=60)
    assert batch.returncode == (130 if number == signal.SIGINT else -number)
    assert ("--resume" in stderr) == (number == signal.SIGINT)
    assert sorted(results(workspace.root / "out.jsonl")) == ["0", "1", "2"]
    (workspace.root / "go").touch()
    assert sbx("batch", "--resume", "--jobs", "1", "--out", "out.jsonl", path).rc == 0
    assert sorted(results(workspace.root / "out.jsonl")) == [str(at) for at in range(6)]
    assert (workspace.root / "log").read_text().split() == ["0", "1", "2", "4", "5"]


def test_many_jobs_at_once(sbx: Any, workspace: Any) -> None:
    jobs = [{"cmd": ["sh", "-c", f"echo {at}; test ! -e /tmp/m && touch /tmp/m"]} for at in range(1, 201)]
    ran = sbx("batch", "--jobs", "8", "--out", "out.jsonl", write_jobs(workspace, jobs))
    assert (ran.rc, ran.stderr) == (0, "")
    found = results(workspace.root / "out.jsonl")
    assert {name: each["stdout"] for name, each in found.items()} == {str(at): f"{at}\n" for at in range(1, 201)}


def test_without_dask_the_message_says_how_to_get_it(
    workspace: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)  # what the import system takes for "not installed"
    jobs = write_jobs(workspace, [{"cmd": ["true"]}])
    assert main(["batch", "--engine", "dask://localhost:1", str(jobs)]) == 2
    assert "sbx[dask]" in capfd.readouterr().err


CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None)
    pids = [worker.pid for worker in cluster.workers.values()]
    print(cluster.scheduler_address, *pids, flush=True)
    sys.stdin.read()
    cluster.close()
"""


def test_a_lost_worker_loses_no_job(sbx: Any, workspace: Any) -> None:
    """Three workers, one killed while it runs a job: every job has one result, and that job's says what happened."""
    os.mkfifo(workspace.root / "reached")
    script = workspace.write("cluster.py", CLUSTER)
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(library.__file__))}
    env["TMPDIR"] = str(workspace.home)  # Dask keeps its scratch space
    cluster = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        cwd=workspace.root,
    )
    try:
        assert cluster.stdout is not None
        address, *pids = cluster.stdout.readline().split()
        block = "test -e go || { touch go; echo > reached; exec sleep 1000; }"
        jobs = [{"id": str(at), "cmd": ["sh", "-c", block if at == 0 else f"echo {at}"]} for at in range(60)]
        where = {"cwd": str(workspace.root)}
        path = write_jobs(workspace, [{**job, **where} for job in jobs])
        argv = [
            *sbx.command,
            "batch",
            "--engine",
            address.replace("tcp://", "dask://"),
            "--out",
            "out.jsonl",
            str(path),
        ]
        batch = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
        (workspace.root / "reached").read_text()
        victim = worker_with_sandbox([int(pid) for pid in pids])
        os.kill(victim, signal.SIGKILL)
        _, stderr = batch.communicate(timeout=120)
        assert batch.returncode == 0, stderr
        assert wait_until_gone(victim)
        found = results(workspace.root / "out.jsonl")
        assert sorted(found, key=int) == [str(at) for at in range(60)]
        assert found["0"]["attempts"] == 2
        assert "was lost" in found["0"]["notes"][0]
        assert {each["status"] for each in found.values()} == {"OK"}
    finally:
        cluster.communicate("", timeout=60)


def worker_with_sandbox(pids: list[int]) -> int:
    """The one in whose launcher's tree the sleep runs, or is about to: its shell has spoken before it executes it."""
    for _ in range(500):
        for pid in pids:
            if any(command == b"sleep\x001000\x00" for command in commands_below(pid)):
                return pid
        time.sleep(0.01)
    raise AssertionError("nobody runs it")


def commands_below(pid: int) -> Iterator[bytes]:
    try:
        yield Path(f"/proc/{pid}/cmdline").read_bytes()
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from commands_below(int(child))
    except OSError:
        return
