"""What a machine can do to a run: no room, no processes, no descriptors, nothing writable. Each has words and a status,
and leaves nothing behind (which every test is watched for)."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from capabilities import requires
from runs import LANDLOCK, PATIENCE_S, Host, with_command

if TYPE_CHECKING:
    from conftest import Sbx, Workspace

pytestmark = pytest.mark.usefixtures("workspace")

WITHOUT_SHM = """
set -e
mount -t tmpfs none "$1"
for node in null zero full random urandom tty; do : >"$1/$node"; mount --bind "/dev/$node" "$1/$node"; done
ln -s /proc/self/fd "$1/fd"
mount --rbind "$1" /dev
test ! -e /dev/shm
shift
exec setpriv --ambient-caps=-all --inh-caps=-all "$@"
"""


def limit(what: int, value: int) -> Callable[[], None]:
    """For `preexec_fn`: a limit that sbx itself is born with."""
    return lambda: resource.setrlimit(what, (value, value))


def reason_of(folder: Path) -> str:
    record = json.loads((folder / "result.json").read_text())
    assert record["status"] == "INTERNAL_ERROR"
    return str(record["reason"])


def test_no_room_for_the_record(here: Host) -> None:
    for command, code in (("true", 125), ("false", 1)):  # the command's own failure is not hidden by ours
        done = here.run("--json", "/dev/full", "--", command)
        assert (done.returncode, b"/dev/full: No space left on device; make room" in done.stderr) == (code, True)


def test_no_room_for_anything(here: Host, workspace: Workspace) -> None:
    """Neither plan nor record nor audit log can grow. The older record stays, and no half-written file does."""
    record = workspace.write("result.json", "older")
    # One byte of a file is all that sbx may write. The command's own limit is as it was born with it, too.
    no_room = {"preexec_fn": limit(resource.RLIMIT_FSIZE, 1)}
    done = here.run("--json", "result.json", "--", "true", **no_room)
    assert (done.returncode, b"could not write the result to result.json: File too large" in done.stderr) == (125, True)
    assert b"no audit record was written" in done.stderr
    assert record.read_text() == "older"
    done = here.run("--", "true", **no_room)
    assert (done.returncode, b"no audit record was written" in done.stderr) == (0, True)
    assert os.listdir(workspace.root) == ["result.json"]
    left = [path for path in workspace.home.rglob("*") if path.is_file() and path.name not in ("audit.jsonl", "turns")]
    assert left == []


def test_a_full_audit_log_is_told_by_the_short_way_too(here: Host, workspace: Workspace) -> None:
    assert here.run("--", "true").stderr == b""
    log = workspace.home / ".local/state/sbx/audit.jsonl"
    log.unlink()
    log.symlink_to("/dev/full")
    done = here.run("--", "true")
    assert (done.returncode, b"no audit record was written" in done.stderr) == (0, True)
    assert here.run("--no-audit", "--", "true").stderr == b""


@requires("seccomp", landlock=3)
def test_what_is_lacking_is_told_by_the_short_way_too(sbx: Sbx, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the stored plan as the first time; nothing that was asked for is missing silently."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    host = with_command(LANDLOCK, sbx.command)
    # But for the line with the time it took.
    told = [host.run("--", "true").stderr.decode().partition("sbx: ran:")[::2] for _ in range(3)]
    told = [(first, rest.partition("\n")[2]) for first, rest in told]
    assert "PARTIAL_ENFORCEMENT" in told[0][0] and "sbx: not enforced: processes" in told[0][1]
    assert told[1:] == told[:1] * 2


def test_a_report_that_nobody_can_read(here: Host) -> None:
    with open("/dev/full", "wb") as full, open(os.devnull, "wb") as null:
        assert here.run("--report", "always", "--", "sh", "-c", "exit 3", stdout=null, stderr=full).returncode == 3


def test_a_home_that_cannot_be_written(here: Host, workspace: Workspace) -> None:
    folders = [workspace.home, *(path for path in workspace.home.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o500)
    # Root ignores modes, unless it lacks the capability to.
    prefix = ("setpriv", "--bounding-set=-dac_override,-dac_read_search") if os.geteuid() == 0 else ()
    try:
        for _ in range(2):
            done = Host(here.name, prefix, (), here.command).run("--", "sh", "-c", "echo fine")
            assert (done.returncode, done.stdout) == (0, b"fine\n")
            words = done.stderr.decode()
            assert "no audit record was written" in words and "Permission denied" in words
    finally:
        for folder in folders:
            folder.chmod(0o700)


@requires("userns", tools=["unshare", "setpriv", "mount"])
def test_no_shared_memory_outside(host: Host, workspace: Workspace) -> None:
    script = workspace.write("without-shm", WITHOUT_SHM)
    folder = workspace.root / "dev"
    folder.mkdir()
    outside = ("unshare", "--user", "--map-current-user", "--keep-caps", "--mount", "sh", str(script), str(folder))
    machine = Host(host.name, (*outside, *host.prefix), host.options, host.command)
    text = "test -w /dev/shm && echo fine" if host.name == "namespaces" else "echo fine"
    done = machine.run("--", "sh", "-c", text)
    assert (done.returncode, done.stdout) == (0, b"fine\n"), done.stderr


@requires(root=False)
@pytest.mark.parametrize("probed", [True, False], ids=["known-machine", "unknown-machine"])
def test_no_processes_left(here: Host, workspace: Workspace, probed: bool) -> None:
    if probed:
        assert here.run("--", "true").returncode == 0
    done = here.run(
        "--report", "never", "--json", "result.json", "--", "true", preexec_fn=limit(resource.RLIMIT_NPROC, 0)
    )
    words = done.stderr.decode()
    assert done.returncode == 125
    assert "could not start the sandbox" in words and "ulimit -u" in words
    assert reason_of(workspace.root) in words
    # That says nothing of the machine: the next run is an ordinary one.
    assert here.run("--", "true").returncode == 0


def test_no_descriptors_left(here: Host, workspace: Workspace) -> None:
    """Below twelve the shell and Python cannot start themselves; from there on it is our turn to find words."""
    assert here.run("--", "true").returncode == 0
    seen = set()
    for number in (12, 13, 14, 16, 24):
        options = ("--report", "never", "--json", "result.json")  # never: about results, not about failures of sbx
        done = here.run(*options, "--", "true", preexec_fn=limit(resource.RLIMIT_NOFILE, number))
        seen.add(done.returncode)
        if done.returncode:
            assert done.returncode == 125, done.stderr
            assert b"Too many open files" in done.stderr
            assert "Too many open files" in reason_of(workspace.root)
    assert seen == {0, 125}


def test_a_policy_that_goes_away(here: Host, workspace: Workspace) -> None:
    policy = workspace.policy("schemaVersion: 2\nfsProfiles:\n  p: {read: ['./**']}\n")
    options = ("--policy", "sbx.yaml", "--profile", "p")
    assert here.run(*options, "--", "true").returncode == 0
    # While the command runs: it ends as it would have, and what it was denied cannot be held against rules.
    with here.started(*options, "--", "sh", "-c", "echo on; read line; : >denied", stdin=-1) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"on\n"
        policy.unlink()
        process.stdin.write(b"\n")
        words = process.stderr.read().decode()
        assert process.wait() == 2
    assert "sbx: EXIT: exited with status 2" in words and "mistake" not in words
    # Before the next: the stored plan is worth nothing any more.
    done = here.run(*options, "--", "true")
    assert (done.returncode, b"sbx.yaml: there is no such file" in done.stderr) == (125, True)


def test_a_working_directory_that_goes_away(here: Host, workspace: Workspace) -> None:
    below = workspace.root / "below"
    below.mkdir()
    with here.started("--report", "always", "--", "sh", "-c", "echo on; read line; exit 3", cwd=below, stdin=-1) as run:
        assert run.stdin is not None and run.stdout is not None and run.stderr is not None
        assert run.stdout.readline() == b"on\n"
        shutil.rmtree(below)
        run.stdin.write(b"\n")
        words = run.stderr.read().decode()
        assert run.wait() == 3
    assert "sbx: EXIT: exited with status 3" in words
    below.mkdir()
    text = "import os, sys; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"
    gone = Host(here.name, (sys.executable, "-c", text, str(below)), (), here.command)
    done = gone.run("--", "true")
    assert (done.returncode, b"the working directory is gone" in done.stderr) == (125, True)


@pytest.mark.parametrize(("count", "stored"), [(8, False), (64, True)], ids=["8-new", "64-stored"])
def test_many_runs_at_once(here: Host, workspace: Workspace, count: int, stored: bool) -> None:
    """Each has its own output, its own status and its own line in the log; the stored plan survives its writers."""
    log = workspace.home / ".local/state/sbx/audit.jsonl"
    before = int(stored and here.run("--", "true").returncode == 0)
    text = 'echo "$1" >"made-$1"; cat "made-$1"; exit "$2"'
    argv = here.argv("--report", "never", "--", "sh", "-c", text, "sh")
    codes = [0 if number % 8 else number for number in range(count)]  # a plain success goes the shortest way
    runs = [
        subprocess.Popen([*argv, str(number), str(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number, code in enumerate(codes)
    ]
    seen = [(*run.communicate(timeout=PATIENCE_S), run.returncode) for run in runs]
    assert seen == [(b"%d\n" % number, b"", code) for number, code in enumerate(codes)]
    records = [json.loads(line) for line in log.read_text().splitlines()][before:]
    assert sorted(record["rc"] for record in records) == sorted(codes)
    drafts = [path.name for path in (workspace.home / ".cache/sbx").rglob("*.*")]
    assert drafts == []
