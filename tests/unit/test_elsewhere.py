"""`sbx run` and `sbx doctor` on macOS, Windows and others: the routes, with the platform patched."""

from __future__ import annotations

import json
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sbx.backends import macos, macos_run, windows
from sbx.backends.windows_status import Verdict
from sbx.backends.wrapped import WrappedCommand
from sbx.cli import doctor, run, run_elsewhere
from sbx.errors import SandboxUnavailable
from sbx.model.result import Status
from sbx.planner.macos import plan
from sbx.supervise import elsewhere

if TYPE_CHECKING:
    from conftest import Workspace

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs process groups")


def audited(home: Path) -> list[dict[str, Any]]:
    log = home / ".local" / "state" / "sbx" / "audit.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int | None]:
    """macOS as far as it can be had: sandbox-exec is left out, everything around it is the real thing."""
    ports: list[int | None] = []
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def wrap(_prepared: Any, argv: Any, *, path: str, proxy_port: int | None = None) -> WrappedCommand:
        ports.append(proxy_port)
        assert path
        return WrappedCommand(tuple(argv), (("TMPDIR", f"{scratch}/"),), ())

    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(macos, "probe", lambda *_: None)
    monkeypatch.setattr(macos, "prepare", lambda profile, cwd: macos.Prepared(profile, plan(profile, cwd), True))
    monkeypatch.setattr(macos, "wrap", wrap)
    monkeypatch.setattr(macos_run, "exit_descriptor", ExitEvent)
    return ports


class ExitEvent:
    """In place of kqueue."""

    def __init__(self, pid: int) -> None:
        self._fd = os.pidfd_open(pid)

    def __enter__(self) -> int:
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the stand-in for kqueue is a pidfd")
def test_a_run_on_macos(
    mac: list[int | None], workspace: Workspace, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "result.json"
    options = {"json": str(file), "profile": "build", "partial": True}
    code = run.command(options, ["sh", "-c", "echo out; echo err >&2; echo $GOCACHE; exit 3"])
    assert code == 3
    seen = capfd.readouterr()
    assert seen.out.splitlines()[0] == "out"
    # What the profile puts under the private /tmp is in TMPDIR here.
    assert seen.out.splitlines()[1] == str(tmp_path / "scratch" / "go-build")
    assert seen.err.startswith("err\n")
    record = json.loads(file.read_text())
    assert (record["status"], record["rc"], record["backend"]) == ("EXIT", 3, "sandbox-exec")
    assert record["enforced"]["filesystem"]["applied"] is True
    assert "PARTIAL_ENFORCEMENT" in record["reason"]
    assert audited(workspace.home)[-1]["backend"] == "sandbox-exec"
    assert mac == [None]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the stand-in for kqueue is a pidfd")
def test_the_proxy_on_macos(mac: list[int | None], workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    script = "import os, socket\n" + (
        "host, port = os.environ['HTTP_PROXY'].removeprefix('http://').split(':')\n"
        "with socket.create_connection((host, int(port)), 30) as sock:\n"
        "    sock.sendall(b'CONNECT evil.example.net:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    raise SystemExit(0 if b' 403 ' in sock.recv(100) else 1)\n"
    )
    options = {"json": str(file), "net": ("api.example.com:443",), "partial": True, "report": "never"}
    assert run.command(options, [sys.executable, "-c", script]) == 0
    [decision] = json.loads(file.read_text())["network"]
    assert (decision["verdict"], decision["host"]) == ("deny", "evil.example.net")
    assert mac[0] is not None and mac[0] > 0


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the stand-in for kqueue is a pidfd")
def test_the_callers_own_streams_where_nothing_looks_at_them(
    mac: list[int | None], workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run.command({"partial": True, "report": "never"}, ["sh", "-c", "echo straight"]) == 0
    assert capfd.readouterr().out == "straight\n"


def test_a_run_on_windows(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[Any, ...]] = []

    def fake_run(argv: Any, *, env: Any, cwd: str, limits: Any) -> Any:
        asked.append((tuple(argv), cwd, limits.pids))
        assert "PATH" in env
        verdict = Verdict(Status.EXIT, 9, 9, None, "exit status 9")
        return types.SimpleNamespace(
            verdict=verdict, stdout=b"from the job\n", stderr=b"", dropped={}, processes=2, cpu_ms=4
        )

    stand_in = types.ModuleType("sbx.backends.windows_run")
    stand_in.run = fake_run  # type: ignore[attr-defined]
    import sbx.backends

    monkeypatch.setitem(sys.modules, "sbx.backends.windows_run", stand_in)
    monkeypatch.setattr(sbx.backends, "windows_run", stand_in, raising=False)
    monkeypatch.setattr(windows, "probe", lambda *_: None)
    monkeypatch.delitem(sys.modules, "sbx.supervise.on_windows", raising=False)
    options = {"partial": True, "pids": "7", "report": "never"}
    job = elsewhere.prepare(options, ["tool.exe", "x"], cwd=str(workspace.root), environ=dict(os.environ))
    monkeypatch.setattr(sys, "platform", "win32")
    try:
        result, notes = elsewhere.perform(job, "win32")
    finally:
        monkeypatch.setattr(sys, "platform", "linux")
        sys.modules.pop("sbx.supervise.on_windows", None)
    assert (result.status, result.rc, result.backend, result.usage.pids) == (Status.EXIT, 9, "job-object", 2)
    assert asked == [(("tool.exe", "x"), str(workspace.root), 7)]
    assert notes == []
    assert run_elsewhere.finish(result, notes, options) == 9
    assert capfd.readouterr().out == "from the job\n"


def test_windows_refuses_what_it_cannot_hold(workspace: Workspace) -> None:
    job = elsewhere.prepare({}, ["tool.exe"], cwd=str(workspace.root), environ=dict(os.environ))
    with pytest.raises(SandboxUnavailable, match="Windows cannot enforce"):
        windows.prepare(job.profile, job.cwd)


def test_other_systems_are_refused_and_that_is_recorded(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "freebsd14")
    with pytest.raises(SandboxUnavailable, match="no sandbox for freebsd14"):
        run.command({}, ["true"])
    last = audited(workspace.home)[-1]
    assert last["event"] == "spawn_sandbox_unavailable"
    assert last["unavailable"]["platform"] == "freebsd14"


@pytest.mark.parametrize(
    ("value", "tmp", "expected"),
    [
        ("/tmp/go-build", "/private/x/tmp/", "/private/x/tmp/go-build"),
        ("/tmp", "/x", "/x"),
        ("/tmpfs/a", "/x", "/tmpfs/a"),
        ("1", "/x", "1"),
        ("/tmp/a", "", "/tmp/a"),
    ],
)
def test_places_in_the_private_tmp(value: str, tmp: str, expected: str) -> None:
    assert elsewhere.in_private_tmp(value, tmp) == expected


@pytest.mark.parametrize(
    ("system", "rc", "words"),
    [
        ("darwin", 0, "sandbox: sandbox-exec"),
        ("win32", 1, "sandbox: job object"),
        ("freebsd14", 1, "sandbox: missing: sbx has no sandbox for freebsd14"),
    ],
)
def test_doctor_says_what_it_can(
    system: str, rc: int, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(macos, "probe", lambda *_: None)
    monkeypatch.setattr(sys, "platform", system)
    assert doctor.command({}, []) == rc
    assert words in capsys.readouterr().out
    doctor.command({"json": True}, [])
    assert json.loads(capsys.readouterr().out)["available"] is (system != "freebsd14")
