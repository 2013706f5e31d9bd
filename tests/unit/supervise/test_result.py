"""The result and its JSON record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbx.errors import CommandNotFound, SandboxUnavailable, UsageError
from sbx.launch.redact import Redactor
from sbx.model.guarantee import Applied
from sbx.model.result import Denial, Result, Status, Usage
from sbx.supervise.result import JsonTarget, ResultNotWritten, failed_result, partial_words, to_json, write_json

FIELDS = (
    "version status rc exit_code signal reason duration_ms cmd cwd profile traceId backend stdout stderr truncated "
    "usage denials network enforced"
)


def example(**change: object) -> Result:
    result = Result(
        status=Status.EXIT,
        rc=3,
        exit_code=3,
        signal=None,
        reason="exited with status 3",
        duration_ms=12,
        cmd=("sh", "-c", "exit 3"),
        cwd="/w",
        profile="build",
        trace_id="ab" * 16,
        backend="namespaces",
        stdout=b"out\n",
        stderr=b"err\n",
        usage=Usage(5, 4096, 2),
        denials=(Denial("read", "/home/u/.ssh/id", "cat", 1, "~/.ssh/**", "sbx.yaml:3"),),
        enforced={"memory": Applied(True, True, "cgroup v2")},
    )
    for name, value in change.items():
        setattr(result, name, value)
    return result


def test_the_fields_are_the_documented_ones() -> None:
    record = to_json(example())
    assert list(record) == FIELDS.split()
    assert set(record["usage"]) == {"cpu_ms", "max_rss_bytes", "pids"}
    assert record["enforced"] == {"memory": {"requested": True, "applied": True, "details": "cgroup v2"}}
    json.dumps(record, allow_nan=False)


def test_a_count_that_nobody_made_is_null() -> None:
    assert to_json(example(usage=Usage(5, 4096)))["usage"]["pids"] is None
    assert to_json(example())["usage"]["pids"] == 2


def test_bytes_that_are_not_text_are_replaced_and_noted() -> None:
    record = to_json(example(stdout=b"a\xffb", cmd=("x", os.fsdecode(b"\xfe"))))
    assert record["stdout"] == "a�b"
    assert "bytes of stdout that are not UTF-8" in record["reason"]
    assert record["cmd"] == ["x", "�"]


def test_captured_secrets_are_masked() -> None:
    record = to_json(example(stdout=b"token=abcdef\n"), Redactor([b"abcdef"]))
    assert record["stdout"] == "token=[REDACTED]\n"


def test_what_was_not_applied_is_in_the_reason() -> None:
    assert partial_words({"cpu": Applied(True, True, "x"), "exec": Applied(False, False, "y")}) == ""
    assert "PARTIAL_ENFORCEMENT" in partial_words({"memory": Applied(True, False, "no cgroup")})


def test_it_is_written_whole_and_keeps_the_files_mode(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text("old")
    path.chmod(0o640)
    write_json(example(), str(path))
    assert json.loads(path.read_text())["rc"] == 3
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["r.json"]


def test_a_symlink_that_was_there_before_is_followed_and_one_put_there_by_the_command_is_not(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir()
    (outside / "target").write_text("precious")
    (inside / "link").symlink_to(outside / "target")
    write_json(example(), str(inside / "link"))
    assert json.loads((outside / "target").read_text())["rc"] == 3
    (outside / "target").write_text("precious")
    target = JsonTarget(str(inside / "r.json"))
    (inside / "r.json").symlink_to(outside / "target")  # the command's doing
    target.write(example())
    target.close()
    assert (outside / "target").read_text() == "precious"
    assert json.loads((inside / "r.json").read_text())["rc"] == 3
    # and the folder itself cannot be swapped for another one
    target = JsonTarget(str(inside / "r2.json"))
    inside.rename(tmp_path / "moved")
    inside.symlink_to(outside)
    target.write(example())
    target.close()
    assert os.listdir(outside) == ["target"]


def test_standard_output_belongs_to_the_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="belongs to the command"):
        JsonTarget("-")
    script = "from sbx.supervise.result import JsonTarget\nJsonTarget('/dev/stdout')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "belongs to the command" in done.stderr


def test_another_descriptor_is_written_to() -> None:
    read_fd, write_fd = os.pipe()
    write_json(example(), f"/dev/fd/{write_fd}")
    os.close(write_fd)
    with open(read_fd, "rb") as file:
        assert json.loads(file.read())["status"] == "EXIT"


@pytest.mark.parametrize("name", ["no/such/folder/r.json", "file/r.json"])
def test_an_impossible_place_is_found_before_the_run(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ResultNotWritten, match=r"could not write the result to .*r\.json"):
        JsonTarget(str(tmp_path / name))


def test_a_full_disk_leaves_the_old_record_alone(tmp_path: Path) -> None:
    """RLIMIT_FSIZE stands in for a full disk: the write fails half-way."""
    path = tmp_path / "r.json"
    path.write_text("old")
    script = f"""
import resource, signal
from sbx.model.result import Result, Status
from sbx.supervise.result import ResultNotWritten, write_json
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
result = Result(Status.OK, 0, 0, None, "", 0, (), "/", "p", "t", "b")
try:
    write_json(result, {str(path)!r})
except ResultNotWritten as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "File too large" in done.stdout
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["r.json"]


def test_failures_of_sbx_have_a_result_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "abcdefgh")
    result = failed_result(SandboxUnavailable("no namespaces"), {"profile": "build"}, ["x", "--token=abcdefgh"])
    assert (result.status, result.rc, result.exit_code) == (Status.INTERNAL_ERROR, 125, None)
    assert result.cmd == ("x", "--token=[REDACTED]")
    assert failed_result(CommandNotFound("nope"), {}, ["nope"]).status is Status.NOT_FOUND
