"""`sbx plan --format bwrap|systemd`: the line that is printed holds what the plan says, as far as it claims to."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

POLICY = """\
schemaVersion: 2
denyRead: ["./**/*.env", "./private/**"]
fsProfiles:
  build:
    read: ["./**"]
    modify: ["./out/**"]
    env: {pass: [PASSED, "GLOB_*"], set: {CI: "it's 1", API_TOKEN: hunter2}}
    limits: {wall: 1m, memory: 2GiB, pids: 64, nofile: 256, cpu: 50s}
"""

SCRIPT = """\
cat readme && echo made > out/new && cat out/new
cat .env && echo leaked
ls private && echo listed
(echo changed > readme) && echo written
cat "$1" && echo outside
test "$CI" = "it's 1" && test "$PASSED" = "a b" && test "$GLOB_X" = y && test "$BY_NAME" = 2 &&
  test -z "${OTHER+set}" && echo environment
test "$(ulimit -n)" = 256 && echo nofile
test "$(ls /sys/class/net 2>/dev/null | grep -v lo)" = "" && echo no-network
"""


@pytest.fixture
def project(workspace: Any) -> Any:
    workspace.policy(POLICY)
    workspace.write("readme", "read me\n")
    workspace.write(".env", "secret\n")
    workspace.write("private/key", "secret\n")
    workspace.write("job.sh", SCRIPT)
    return workspace


@requires("userns", tools=["bwrap"])
def test_the_bwrap_line_does_what_the_plan_says(
    sbx: Any, project: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = home / "outside"
    outside.write_text("secret\n")
    for name, value in {"PASSED": "a b", "GLOB_X": "y", "OTHER": "z"}.items():
        monkeypatch.setenv(name, value)
    options = ("--policy", "sbx.yaml", "--profile", "build", "--env", "BY_NAME=2")
    plan = sbx("plan", *options, "--format", "bwrap", "--", "sh", "./job.sh", str(outside))
    assert plan.rc == 0, plan.stderr
    assert "hunter2" not in plan.stdout
    done = subprocess.run(["sh"], input=plan.stdout, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["read", "me", "made", "environment", "nofile", "no-network"], done.stderr
    assert (project.root / "readme").read_text() == "read me\n"
    assert (project.root / "out" / "new").read_text() == "made\n"


def test_what_bwrap_cannot_do_is_said(sbx: Any, project: Any) -> None:
    ask = ("plan", "--policy", "sbx.yaml", "--profile", "build", "--net", "api.example.com:443")
    text = sbx(*ask, "--format", "bwrap", "--", "true").stdout
    if "Landlock rules, which bwrap" in text:
        pytest.skip("no user namespaces here")
    for words in ("seccomp", "hosts that may be reached", "limits on memory and processes", "CPU time of the tree"):
        assert words in text
    assert "--unshare-net" in text


@requires("userns", tools=["systemd-analyze"])
def test_the_unit_passes_systemds_own_check(sbx: Any, project: Any, tmp_path: Path) -> None:
    plan = sbx(
        "plan", "--policy", "sbx.yaml", "--profile", "build", "--format", "systemd", "--", "echo", "100% of", "$X"
    )
    assert plan.rc == 0, plan.stderr
    unit = tmp_path / "planned.service"
    unit.write_text(plan.stdout)
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    ours = [line for line in done.stderr.splitlines() if "planned.service" in line or str(unit) in line]
    assert (done.returncode, ours) == (0, []), done.stderr
    for line in ("TasksMax=64", "MemoryMax=2147483648", "TimeoutStartSec=60", "PrivateNetwork=yes"):
        assert line in plan.stdout.splitlines()
    assert 'echo" "100%% of" "$$X"' in plan.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--format", "bwrap"), "needs the command"),
        (("--format", "systemd", "--platform", "macos", "--", "true"), "add --platform linux"),
        (("--format", "systemd", "--", "no-such-command-anywhere"), "full path"),
    ],
)
def test_what_cannot_be_said(sbx: Any, project: Any, words: tuple[str, ...], said: str) -> None:
    done = sbx("plan", "--policy", "sbx.yaml", "--profile", "build", *words)
    assert (done.rc, done.stdout) == (2, "")
    assert said in done.stderr
