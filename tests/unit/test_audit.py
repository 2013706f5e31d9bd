"""The audit log: its lines, concurrent writers, rotation, and what happens when it cannot be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from capabilities import requires
from hypothesis import given
from hypothesis import strategies as st

from sbx import audit
from sbx.cli.audit import command
from sbx.errors import SandboxUnavailable
from sbx.launch import audit_line
from sbx.launch.audit_line import append, encode
from sbx.model.guarantee import Applied
from sbx.model.result import Denial, Result, Status

plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(plain_values)
def test_the_small_encoder_writes_json(value: object) -> None:
    assert json.loads(encode(value)) == value
    assert encode(value).isascii() and "\n" not in encode(value)


def test_a_name_that_is_not_text_is_replaced() -> None:
    assert json.loads(encode(os.fsdecode(b"a\xff"))) == "a\ufffd"


def result(**change: object) -> Result:
    made = Result(
        Status.EXIT, 2, 2, None, "exited with status 2", 10, ("make", "all"), "/w", "build", "ab" * 16, "namespaces"
    )
    for name, value in change.items():
        setattr(made, name, value)
    return made


class Done:
    def __init__(self) -> None:
        self.environ: dict[bytes, bytes] = {}
        self.options: dict[str, object] = {}
        self.notes: list[str] = []


def log(home: Path) -> Path:
    return home / ".local" / "state" / "sbx" / "audit.jsonl"


def test_a_run_is_one_private_line(home: Path) -> None:
    made = result(
        stdout=b"captured",
        denials=(Denial("read", "/h/.ssh/id", rule="~/.ssh/**", place="sbx.yaml:3"),),
        enforced={"memory": Applied(True, False, "no cgroup"), "network": Applied(True, True, "own namespace")},
    )
    done = Done()
    audit.record(made, done)  # type: ignore[arg-type]
    assert done.notes == []
    [fields] = audit.records()
    assert (fields["event"], fields["status"], fields["traceId"], fields["argv"]) == (
        "run", "EXIT", "ab" * 16, ["make", "all"],
    )  # fmt: skip
    assert fields["platform"] == sys.platform
    assert fields["enforced"] == {"network": "own namespace"} and fields["lacking"] == {"memory": "no cgroup"}
    assert len(fields["stdout_sha256"]) == 64 and "stderr_sha256" not in fields
    assert audit.is_denial(fields)
    assert log(home).stat().st_mode & 0o777 == 0o600
    assert log(home).parent.stat().st_mode & 0o777 == 0o700


def test_unavailability_is_a_class_of_its_own(home: Path) -> None:
    error = SandboxUnavailable("no namespaces", remedy="allow them", platform="linux", reason="EPERM")
    audit.record_unavailable(result(status=Status.INTERNAL_ERROR, rc=125), error)
    [fields] = audit.records()
    assert fields["event"] == "spawn_sandbox_unavailable"
    assert fields["unavailable"] == {"platform": "linux", "reason": "EPERM", "remediation": "allow them"}


def test_writers_at_the_same_time_lose_and_mix_nothing(home: Path) -> None:
    script = (
        "import os, sys; from sbx.launch.audit_line import append\n"
        "for i in range(200): append({'writer': int(sys.argv[1]), 'i': i, 'fill': 'x' * 3000}, dict(os.environb))"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, str(number)]) for number in range(4)]
    assert [writer.wait() for writer in writers] == [0] * 4
    seen = {(each["writer"], each["i"]) for each in audit.records()}
    assert seen == {(writer, i) for writer in range(4) for i in range(200)}


def test_it_is_rotated_and_stays_bounded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_line, "ROTATE_AT", 2000)
    environ = audit.environ_bytes()
    for number in range(100):
        assert append({"i": number, "fill": "x" * 200}, environ) is None
    names = sorted(path.name for path in log(home).parent.iterdir())
    assert names == ["audit.jsonl", "audit.jsonl.1", "audit.jsonl.2", "audit.jsonl.3", "audit.lock"]
    numbers = [each["i"] for each in audit.records()]
    assert numbers == list(range(numbers[0], 100)), "in order, the oldest gone"
    assert all(path.stat().st_size <= 2300 for path in log(home).parent.iterdir())


def test_a_torn_record_costs_only_itself(home: Path) -> None:
    environ = audit.environ_bytes()
    append({"i": 1}, environ)
    with log(home).open("a") as file:
        file.write('{"time":"2026-01-01T00:00:00.000Z","i":2,"fi')  # the disk was full
    append({"i": 3}, environ)
    assert [each["i"] for each in audit.records()] == [1, 3]


def test_a_home_that_cannot_be_written_is_a_note(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "file"))
    done = Done()
    audit.record(result(), done)  # type: ignore[arg-type]
    assert len(done.notes) == 1 and done.notes[0].startswith("no audit record was written: ")


def test_a_log_that_is_no_file_is_left_alone(home: Path) -> None:
    log(home).parent.mkdir(mode=0o700)
    target = home / "elsewhere"
    log(home).symlink_to(target)
    assert append({"i": 1}, audit.environ_bytes()) is not None
    assert not target.exists()
    log(home).unlink()
    os.mkfifo(log(home))
    assert append({"i": 1}, audit.environ_bytes()) is not None, "a fifo must not hang it either"


@requires(root=True)
def test_a_log_of_another_user_is_left_alone(home: Path) -> None:
    """sudo that kept HOME."""
    log(home).parent.mkdir(mode=0o700)
    log(home).touch(mode=0o600)
    os.chown(log(home), 12345, 12345)
    assert "belongs to another user" in (append({"i": 1}, audit.environ_bytes()) or "")
    assert log(home).read_bytes() == b""


def test_the_command(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done()
    audit.record(result(cmd=("echo", "a b")), done)  # type: ignore[arg-type]
    audit.record(result(denials=(Denial("read", "/x", rule="r", place="p:1"),)), done)  # type: ignore[arg-type]
    audit.record_denied("/y", "modify", "!y", "sbx.yaml:9", "build")
    assert command({}, []) == 0
    everything = capsys.readouterr().out
    assert "build: echo 'a b'" in everything and "denied modify /y: rule !y at sbx.yaml:9" in everything
    command({"denied": True, "json": True}, [])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["denials"][0]["path"] for each in lines] == ["/x", "/y"]
    command({"last": "1", "json": True}, [])
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_hot_path_writes_the_same_fields(home: Path) -> None:
    environ = {**audit.environ_bytes(), b"MY_TOKEN": b"abcdefgh"}
    done = {
        "options": {},
        "command": ["true", "abcdefgh"],
        "environ": environ,
        "outcome": {"duration_s": 0.012},
        "run": {"env": {}},
        "prepared": {
            "env": ((), (), (), False),
            "launch": {"cwd": b"/w"},
            "profile": "build",
            "backend": "namespaces",
            "enforced": (("network", True, True, "own namespace"),),
        },
    }
    audit_line.record_success(done)
    audit_line.record_success({**done, "options": {"no-audit": True}})
    [fast] = audit.records()
    assert fast["argv"] == ["true", "[REDACTED]"]
    assert set(fast) == {"time", *audit.fields_of(result())}


def test_the_quick_encoder_writes_what_the_hot_path_writes() -> None:
    plain = {"argv": ["true", "a b", 'quo"ted'], "rc": 0, "ok": True, "none": None, "text": "ümlaut"}
    assert audit.quick_encode(plain) == encode(plain)
    odd = {"argv": ["\udcff", "\U0001f600"]}
    assert audit.quick_encode(odd) == encode(odd)
    assert "\\udcff" not in audit.quick_encode(odd)


def test_a_refused_host_is_a_sentence(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = {"host": "x.org", "port": 443, "verdict": "deny", "reason": "no rule", "count": 2}
    made = result(network=(entry,))
    fields = audit.fields_of(made)
    assert append(fields, audit.environ_bytes()) is None
    command({"denied": True}, [])
    assert "    network: denied x.org:443 (2 times), no rule\n" in capsys.readouterr().out
