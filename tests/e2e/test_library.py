"""sbx.run and its asyncio twin, as a program uses them: results, limits, threads, cancellation, nothing left behind."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from leftovers import wait_until_gone

import sbx

pytestmark = requires("userns")


@pytest.fixture(autouse=True)
def ended(workspace: Any) -> Iterator[None]:
    """The launcher is kept for the next call, but not beyond a test."""
    yield
    sbx.shutdown()


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_a_command_and_its_result() -> None:
    result = sbx.run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.status, result.rc, result.exit_code) == (sbx.Status.EXIT, 3, 3)
    assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
    assert not result.success
    assert result.enforced["filesystem"].applied
    assert pickle.loads(pickle.dumps(result)) == result


def test_the_sandbox_is_one(workspace: Any) -> None:
    workspace.write("here", "x")
    outside = workspace.home / "secret"
    outside.write_text("s")
    script = f"cat here; cat '{outside}'; ls /tmp; touch new; : > /proc/sys/kernel/hostname"
    result = sbx.run(["sh", "-c", script], profile=sbx.SandboxProfile.READ_ONLY)
    assert result.stdout.startswith(b"x")
    assert b"secret" in result.stderr and b"new" in result.stderr
    assert not (workspace.root / "new").exists()
    assert sbx.run(["touch", "new"], profile=sbx.SandboxProfile.NO_NETWORK).success
    assert (workspace.root / "new").exists()


def test_every_run_is_fresh() -> None:
    for _ in range(3):
        result = sbx.run(["sh", "-c", "ls -A /tmp /dev/shm | grep mark; touch /tmp/mark /dev/shm/mark; sleep 1000 &"])
        assert (result.status, result.stdout) == (sbx.Status.OK, b"")
        seen = sbx.run(["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout
        assert b"sleep" not in seen


def test_stdin_is_nothing_bytes_or_a_file(tmp_path: Path) -> None:
    assert sbx.run(["cat"]).stdout == b""
    data = os.urandom(300_000)
    assert sbx.run(["cat"], stdin=data).stdout == data
    path = tmp_path / "input"
    path.write_bytes(b"from a file")
    with path.open("rb") as file:
        assert sbx.run(["cat"], stdin=file).stdout == b"from a file"


def test_the_environment_is_the_profiles_or_all_or_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret-value")
    assert b"API_TOKEN" not in sbx.run(["env"]).stdout
    assert b"API_TOKEN=s3cret-value" in sbx.run(["env"], env="all").stdout
    assert sbx.run(["env"], env={"ONLY": "this"}).stdout == b"ONLY=this\n"
    assert b"MORE=1" in sbx.run(["env"], extra_env={"MORE": "1"}).stdout


def test_ends_have_their_status() -> None:
    assert sbx.run(["no-such-command"]).status is sbx.Status.NOT_FOUND
    assert sbx.run(["sh", "-c", "kill -TERM $$"]).status is sbx.Status.KILLED_TERM
    slow = sbx.run(["sleep", "1000"], timeout=0.1)
    assert (slow.status, slow.rc, slow.exit_code) == (sbx.Status.TIMEOUT, 124, None)
    stubborn = sbx.run(
        ["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait"], limits=sbx.Limits(wall_s=0.2, grace_s=0.2)
    )
    assert stubborn.status is sbx.Status.TIMEOUT
    with pytest.raises(sbx.CommandFailed) as caught:
        sbx.run(["false"], check=True)
    assert caught.value.result.rc == 1


def test_limits_hold(workspace: Any) -> None:
    cut = sbx.run(["sh", "-c", "yes | head -c 100000"], limits=sbx.Limits(stdout_bytes=1000))
    assert cut.truncated == {"stdout": 99000}
    assert b"[TRUNCATED]" in cut.stdout
    files = sbx.run(["sh", "-c", "ulimit -n"], limits=sbx.Limits(nofile=77))
    assert files.stdout == b"77\n"
    script = "import time; x = b'x' * (300 << 20); time.sleep(60)"
    memory = sbx.run(["/usr/bin/python3", "-c", script], limits=sbx.Limits(memory_bytes=100 << 20, wall_s=60))
    assert memory.status is sbx.Status.MEM_LIMIT


def test_live_output_is_masked_and_captured(workspace: Any) -> None:
    script = (
        "import sbx, sys; r = sbx.run(['sh', '-c', 'echo $API_TOKEN; echo err >&2'], env='all', live=True);"
        "assert r.stdout == b's3cret-value\\n', r.stdout"
    )
    env = {**os.environ, "API_TOKEN": "s3cret-value", "PYTHONPATH": os.path.dirname(os.path.dirname(sbx.__file__))}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[REDACTED]\n", "err\n")


def test_errors_are_typed_and_nothing_was_run(workspace: Any) -> None:
    with pytest.raises(sbx.UnknownProfile):
        sbx.run(["touch", "x"], profile="no-such-profile")
    workspace.policy("schemaVersion: 2\nfsProfiles: {a: {read: ['./**']}}\n")
    with pytest.raises(sbx.UntrustedPolicy):
        sbx.run(["touch", "x"])
    broken = workspace.write("broken.yaml", "schemaVersion: 2\nfsProfiles: [\n")
    with pytest.raises(sbx.PolicyError):
        sbx.run(["touch", "x"], policy=broken)
    assert not (workspace.root / "x").exists()


def test_a_changed_policy_is_noticed(workspace: Any) -> None:
    text = "schemaVersion: 2\nfsProfiles: {a: {read: ['./**'], modify: ['./**']}}\n"
    policy = workspace.write("p.yaml", text)
    assert sbx.run(["touch", "one"], policy=policy, profile="a").success
    policy.write_text(text.replace(", modify: ['./**']", ""))
    assert not sbx.run(["touch", "two"], policy=policy, profile="a").success


def test_a_folder_that_was_replaced_is_the_new_one(workspace: Any) -> None:
    (workspace.root / "build").mkdir()
    run = ["touch", "build/made"]
    assert sbx.run(run).success
    (workspace.root / "build").rename(workspace.root / "old")
    (workspace.root / "build").mkdir()
    assert sbx.run(run).success
    assert (workspace.root / "build" / "made").exists()


def test_decide_and_enforce(workspace: Any) -> None:
    workspace.write("file", "x")
    assert sbx.decide("file", sbx.Access.READ, profile="read-only").allowed
    assert not sbx.decide("file", "modify", profile="read-only").allowed
    assert sbx.enforce("file", profile="read-only").allowed
    with pytest.raises(sbx.Denied, match="modify of"):
        sbx.enforce("file", "modify", profile="read-only")
    from sbx.audit import records

    assert [each["event"] for each in records()] == ["denied"]


def test_probe_names_every_capability() -> None:
    strengths = sbx.probe()
    assert strengths == asyncio.run(sbx.aprobe())
    assert strengths["filesystem"] is sbx.Enforcement.FULL
    assert set(sbx.run(["true"]).enforced) <= set(strengths)


def test_the_callers_process_is_left_alone() -> None:
    sbx.run(["true"])
    sbx.shutdown()

    def state() -> tuple[Any, ...]:
        handlers = [signal.getsignal(number) for number in range(1, 32)]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return dict(os.environ), os.getcwd(), handlers, mask, threading.enumerate(), open_descriptors()

    before = state()
    sbx.run(["true"])
    asyncio.run(sbx.arun(["true"]))
    sbx.run(["sleep", "1000"], timeout=0.1)
    sbx.shutdown()
    assert state() == before


def test_cancellation_kills_the_whole_tree(workspace: Any) -> None:
    fifo = workspace.root / "ready"
    os.mkfifo(fifo)

    async def cancelled() -> int:
        loop = asyncio.get_running_loop()
        reading = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        ready = asyncio.Event()
        loop.add_reader(reading, ready.set)
        script = "(setsid sleep 4242 &) ; sleep 4242 & echo > ready; wait"
        task = asyncio.create_task(sbx.arun(["sh", "-c", script]))
        await ready.wait()
        loop.remove_reader(reading)
        os.close(reading)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sleepers()

    assert asyncio.run(cancelled()) == 0


def sleepers() -> int:
    found = 0
    for name in os.listdir("/proc"):
        try:
            found += name.isdigit() and Path(f"/proc/{name}/cmdline").read_bytes() == b"sleep\0004242\0"
        except OSError:
            continue
    return found


def test_a_killed_owner_takes_everything_along(workspace: Any) -> None:
    script = (
        "import sbx, os, sys, threading\n"
        "s = sbx.Session(); s.prepare()\n"
        "threading.Thread(target=lambda: s.run(['sleep', '4243'], stdin=None), daemon=True).start()\n"
        "import time\n"
        "from sbx.library import launcher\n"
        "print(launcher._launcher.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sbx.__file__))}
    owner = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert owner.stdout is not None
    launcher = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    assert wait_until_gone(launcher)


def test_a_forked_child_has_a_launcher_of_its_own() -> None:
    assert sbx.run(["true"]).success
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if sbx.run(["echo", "child"]).stdout == b"child\n" else 2
            sbx.shutdown()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert sbx.run(["echo", "parent"]).stdout == b"parent\n"


def test_a_dead_launcher_is_replaced() -> None:
    from sbx.library import launcher

    assert sbx.run(["true"]).success
    pid = launcher.launcher().pid
    below = [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    os.kill(pid, signal.SIGKILL)
    assert all(wait_until_gone(each) for each in (pid, *below))
    assert sbx.run(["echo", "again"]).stdout == b"again\n"


def many(count: int, with_threads: int) -> None:
    """Each command says something that no other one says, and must hear just that."""

    def one(number: int) -> None:
        result = sbx.run(
            ["sh", "-c", f"echo {number}; cat; test ! -e /tmp/mark && touch /tmp/mark"], stdin=b"%d" % number
        )
        assert (result.status, result.stdout) == (sbx.Status.OK, b"%d\n%d" % (number, number))

    one(-1)
    sbx.run(["true"])
    before = len(open_descriptors())
    with ThreadPoolExecutor(with_threads) as pool:
        for _ in pool.map(one, range(count)):
            pass
    assert len(open_descriptors()) <= before + 16  # a few spare sandboxes more, whatever the count


async def many_at_once(count: int) -> None:
    async def one(number: int) -> None:
        result = await sbx.arun(["sh", "-c", f"echo {number}; cat"], stdin=b"%d" % number)
        assert (result.status, result.stdout) == (sbx.Status.OK, b"%d\n%d" % (number, number))

    await one(-1)
    before = len(open_descriptors())
    await asyncio.gather(*(one(number) for number in range(count)))
    assert len(open_descriptors()) <= before + 16


def test_from_eight_threads() -> None:
    many(250, with_threads=8)


def test_from_asyncio() -> None:
    asyncio.run(many_at_once(250))


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_ten_thousand_from_eight_threads() -> None:
    many(10_000, with_threads=8)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_ten_thousand_from_asyncio() -> None:
    asyncio.run(many_at_once(10_000))


def test_pytest_in_a_sandbox(workspace: Any) -> None:
    workspace.write("test_good.py", "import os\ndef test_it(): assert os.environ['PYTHONHASHSEED'] == '0'\n")
    workspace.write("test_bad.py", "def test_it(): assert False\n")
    rc, output = sbx.run_pytests(["test_good.py"], timeout_s=120)
    assert rc == 0, output
    done = sbx.run_pytests_v2(["test_bad.py"], sbx.SandboxPolicy(wall_s=120))
    assert (done.rc, done.status, done.success) == (1, sbx.Status.EXIT, False)
    assert "1 failed" in done.output
    assert not (workspace.root / "__pycache__").exists()


def test_the_pytest_option_runs_the_session_in_a_sandbox(workspace: Any) -> None:
    outside = workspace.home / "outside"
    workspace.write("test_it.py", f"def test_it(): open({str(outside)!r}, 'w')\n")
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sbx.__file__))}
    argv = [sys.executable, "-m", "pytest", "-p", "sbx.pytest_plugin", "-q", "test_it.py"]
    plain = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stdout
    boxed = subprocess.run([*argv, "--sbx=test"], env=env, capture_output=True, text=True, check=False)
    assert boxed.returncode == 1, boxed.stdout + boxed.stderr
    assert "1 failed" in boxed.stdout
