"""A cgroup from the user's own systemd, where one runs: limits that the kernel counts, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sbx.backends.user_systemd import private_socket

if TYPE_CHECKING:
    from conftest import Sbx, Workspace

RUNTIME = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")  # before the tests' own frame replaces it
HUNGRY = "import signal; kept = bytearray(400 << 20); kept[::4096] = bytes(b'x' * len(kept[::4096])); signal.pause()"

pytestmark = pytest.mark.skipif(
    not os.path.exists(private_socket({"XDG_RUNTIME_DIR": RUNTIME})), reason="no systemd of this user's is running"
)


@pytest.fixture(autouse=True)
def in_touch(monkeypatch: pytest.MonkeyPatch, workspace: Workspace) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", RUNTIME)
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")


def scopes() -> list[str]:
    mount = Path("/sys/fs/cgroup")
    return [str(path) for path in mount.rglob("sbx-*") if path.is_dir() and "probe" not in path.name]


def result(sbx: Sbx, *arguments: str) -> dict[str, object]:
    sbx("run", "--json", "result.json", *arguments)
    found: dict[str, object] = json.loads(Path("result.json").read_text())
    return found


def test_limits_of_the_whole_tree(sbx: Sbx) -> None:
    if "in a scope of the user's systemd" not in sbx("doctor").stdout:
        pytest.skip("a cgroup is delegated directly, which is better")
    found = result(sbx, "--memory", "100M", "--", "/usr/bin/python3", "-I", "-c", HUNGRY)
    assert (found["status"], found["rc"]) == ("MEM_LIMIT", 137), found["reason"]
    assert "cgroup v2 memory.max" in str(found["enforced"])
    text = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; exit 0"
    found = result(sbx, "--pids", "4", "--cpu", "60", "--", "sh", "-c", text)
    assert "cgroup v2 pids.max" in str(found["enforced"])
    assert found["status"] == "EXIT", found["reason"]
    assert scopes() == []


def test_a_killed_run_leaves_no_scope(sbx: Sbx) -> None:
    line = [*sbx.command, "run", "--memory", "100M", "--", "sh", "-c", "echo on; exec sleep 1000"]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"on\n"
        inside = Path(f"/proc/{process.pid}/cgroup").read_text()
        process.send_signal(signal.SIGKILL)
    if ".scope" not in inside or "sbx-" not in inside:
        pytest.skip("a cgroup is delegated directly, which is better")
    # The next run finds nothing of it: what was left is swept, and systemd collects the scope.
    assert result(sbx, "--memory", "100M", "--", "true")["status"] == "OK"
