"""Sessions: many commands in warm sandboxes, of which none meets another."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

import sbx

pytestmark = requires("userns")


@pytest.fixture(autouse=True)
def ended(workspace: Any) -> Iterator[None]:
    yield
    sbx.shutdown()


def namespaces(result: sbx.Result) -> bytes:
    assert result.success, result
    return result.stdout


PID_NAMESPACE = ["readlink", "/proc/self/ns/pid"]


def test_commands_share_a_warm_sandbox_one_after_the_other() -> None:
    with sbx.Session() as session:
        seen = {namespaces(session.run(PID_NAMESPACE)) for _ in range(3)}
        assert len(seen) == 1
    with sbx.Session(shared=False) as session:
        seen = {namespaces(session.run(PID_NAMESPACE)) for _ in range(3)}
        assert len(seen) == 3


def test_nothing_of_a_command_outlives_it() -> None:
    with sbx.Session() as session:
        left = "sleep 1000 & setsid sleep 1000 & (setsid sh -c 'sleep 1000 & sleep 1000' &) ; kill -STOP $!"
        session.run(["sh", "-c", left])
        assert b"sleep" not in session.run(["sh", "-c", "cat /proc/[0-9]*/comm"]).stdout


def test_what_it_left_in_temporary_folders_is_gone() -> None:
    mess = (
        "cd /tmp; mkdir -p a/b/c; touch a/b/c/d .hidden; ln -s /etc link; mkfifo pipe; mkdir locked; touch locked/x;"
        "chmod 000 locked; touch /dev/shm/x /var/tmp/x; chmod 0 /tmp"
    )
    with sbx.Session() as session:
        before = session.run(["sh", "-c", "ls -lAR /tmp /dev/shm /var/tmp | grep -v ^total; stat -c %a /tmp"]).stdout
        assert session.run(["sh", "-c", mess]).success
        after = session.run(["sh", "-c", "ls -lAR /tmp /dev/shm /var/tmp | grep -v ^total; stat -c %a /tmp"]).stdout
        assert names_only(after) == names_only(before)


def names_only(listing: bytes) -> list[bytes]:
    return [line.split()[-1] if line.split() else b"" for line in listing.splitlines()]


def test_tmp_of_the_session_is_kept_and_its_own() -> None:
    with sbx.Session(tmp="session") as session, sbx.Session(tmp="session") as other:
        session.run(["touch", "/tmp/kept"])
        assert session.run(["test", "-e", "/tmp/kept"]).success
        assert not other.run(["test", "-e", "/tmp/kept"]).success
        with ThreadPoolExecutor(4) as pool:
            seen = set(pool.map(lambda _: namespaces(session.run(PID_NAMESPACE)), range(8)))
        assert len(seen) == 1


def test_parallel_commands_never_meet(workspace: Any) -> None:
    """Each in a sandbox of its own: they wait for one another, so they do run at the same time."""
    for name in ("a", "b"):
        os.mkfifo(workspace.root / name)
    script = "echo {0} > {0} & cat {1} > /dev/null; readlink /proc/self/ns/pid; cat /proc/[0-9]*/comm | grep -c cat"
    with sbx.Session() as session:
        with ThreadPoolExecutor(2) as pool:
            one = pool.submit(session.run, ["sh", "-c", script.format("a", "b")])
            two = pool.submit(session.run, ["sh", "-c", script.format("b", "a")])
        assert one.result().stdout.split()[0] != two.result().stdout.split()[0]


def test_a_command_cannot_spoil_the_sandbox_for_the_next() -> None:
    with sbx.Session() as session:
        first = namespaces(session.run(PID_NAMESPACE))
        spoil = "import os, resource; os.setpriority(os.PRIO_PROCESS, 1, 19)"
        assert session.run(["/usr/bin/python3", "-c", spoil]).success or os.geteuid() != 0
        niceness = session.run(["sh", "-c", "readlink /proc/self/ns/pid; nice"])
        assert niceness.stdout.split()[-1] == b"%d" % os.nice(0)
        assert first
        # A launcher that was killed from inside is replaced.
        session.run(["sh", "-c", "kill -9 1 2 3; kill -9 -1"])
        assert session.run(["echo", "well"]).stdout == b"well\n"


def test_objects_that_outlive_processes_are_not_met() -> None:
    make = (
        "import ctypes; l = ctypes.CDLL(None); print(l.shmget(77, 10, 0o1600) >= 0, l.mq_open(b'/q', 66, 0o600, None))"
    )
    find = "import ctypes; l = ctypes.CDLL(None); print(l.shmget(77, 10, 0o600), l.mq_open(b'/q', 2))"
    with sbx.Session() as session:
        made = session.run(["/usr/bin/python3", "-c", make])
        assert made.stdout.split() == [b"True", b"-1"], made
        assert session.run(["/usr/bin/python3", "-c", find]).stdout == b"-1 -1\n"


def test_each_call_has_its_own_folder_environment_and_limits(workspace: Any) -> None:
    (workspace.root / "inner").mkdir()
    with sbx.Session(extra_env={"A": "session"}) as session:
        assert session.run(["pwd"], cwd="inner").stdout.endswith(b"/inner\n")
        assert session.run(["sh", "-c", "pwd; echo $PWD"]).stdout.count(os.fsencode(workspace.root) + b"\n") == 2
        assert session.run(["sh", "-c", "echo $A"], extra_env={"A": "call"}).stdout == b"call\n"
        assert session.run(["sh", "-c", "echo $A"]).stdout == b"session\n"
        assert session.run(["sh", "-c", "ulimit -n"], limits=sbx.Limits(nofile=55)).stdout == b"55\n"
        assert session.run(["sh", "-c", "ulimit -n"]).stdout != b"55\n"
        assert session.run(["sleep", "1000"], timeout=0.1).status is sbx.Status.TIMEOUT
        script = "import time; x = b'x' * (300 << 20); time.sleep(60)"
        limits = sbx.Limits(memory_bytes=100 << 20, wall_s=60)
        assert session.run(["/usr/bin/python3", "-c", script], limits=limits).status is sbx.Status.MEM_LIMIT
        with pytest.raises(sbx.UsageError, match="no such directory"):
            session.run(["pwd"], cwd="no-such-folder")


def test_ends_have_their_status() -> None:
    with sbx.Session() as session:
        assert session.run(["no-such-command"]).status is sbx.Status.NOT_FOUND
        assert session.run(["sh", "-c", "exit 7"]).rc == 7
        assert session.run(["sh", "-c", "kill -KILL $$"]).status is sbx.Status.KILLED_KILL
        stubborn = ["sh", "-c", "trap '' TERM; sleep 1000 & wait; wait"]
        assert session.run(stubborn, limits=sbx.Limits(wall_s=0.2, grace_s=0.1)).status is sbx.Status.TIMEOUT
        assert session.run(["true"]).success


def test_denies_hold_for_what_appears_meanwhile(workspace: Any) -> None:
    policy = workspace.write(
        "p.yaml", "schemaVersion: 2\ndenyRead: ['**/*.env']\nfsProfiles: {a: {read: ['./**'], modify: ['./**']}}\n"
    )
    with sbx.Session(policy, "a") as session:
        assert session.run(["sh", "-c", "ls"]).success
        workspace.write("late.env", "SECRET=1")
        assert b"SECRET" not in session.run(["sh", "-c", "cat late.env"]).stdout
        assert not session.run(["sh", "-c", "echo > made.env"]).success


def test_asyncio(workspace: Any) -> None:
    async def go() -> None:
        async with sbx.Session() as session:
            done = await asyncio.gather(*(session.arun(["echo", str(number)]) for number in range(20)))
            assert [each.stdout for each in done] == [b"%d\n" % number for number in range(20)]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(session.arun(["sleep", "1000"]), 0.2)
            assert (await session.arun(["echo", "on"])).stdout == b"on\n"
        async with sbx.Session(tmp="session") as session:
            done = await asyncio.gather(*(session.arun(PID_NAMESPACE) for _ in range(5)))
            assert len({each.stdout for each in done}) == 1

    asyncio.run(go())


def test_shutdown_ends_what_runs(workspace: Any) -> None:
    os.mkfifo(workspace.root / "ready")
    session = sbx.Session()
    results: list[sbx.Result] = []
    script = ["sh", "-c", "echo > ready; sleep 1000"]
    thread = threading.Thread(target=lambda: results.append(session.run(script)))
    thread.start()
    (workspace.root / "ready").read_text()
    session.shutdown()
    thread.join()
    assert results[0].status is sbx.Status.KILLED_KILL
    with pytest.raises(sbx.UsageError, match="shut down"):
        session.run(["true"])


def test_wrap_gives_a_command_line_that_sandboxes_itself(workspace: Any) -> None:
    outside = workspace.home / "outside"
    session = sbx.Session(profile="no-network", extra_env={"ADDED": "1"})
    wrapped = session.wrap(["sh", "-c", f"echo $ADDED; touch '{outside}' inside"])
    env = {**os.environ, **dict(wrapped.env_additions)}
    done = subprocess.run(wrapped.argv, env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "1\n"
    assert not outside.exists()
    assert (workspace.root / "inside").exists()


def many(count: int) -> None:
    with sbx.Session() as session:

        def one(number: int) -> None:
            result = session.run(
                ["sh", "-c", f"echo {number}; cat; test ! -e /tmp/m && touch /tmp/m"], stdin=b"x%d" % number
            )
            assert (result.status, result.stdout) == (sbx.Status.OK, b"%d\nx%d" % (number, number))

        one(0)
        launcher = launcher_memory()
        before = len(os.listdir("/proc/self/fd"))
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(one, range(count)):
                pass
        assert len(os.listdir("/proc/self/fd")) <= before + 4 * 8
        assert launcher_memory() < launcher + (4 << 20)


def launcher_memory() -> int:
    from sbx.library.launcher import launcher

    return int(Path(f"/proc/{launcher().pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_from_eight_threads() -> None:
    many(500)


@pytest.mark.deep
@pytest.mark.timeout(1800)
def test_ten_thousand_from_eight_threads() -> None:
    many(10_000)


CLIENT = """
import asyncio
import sbx

def once() -> int:
    result: sbx.Result = sbx.run(["true"], profile=sbx.SandboxProfile.READ_ONLY, limits=sbx.Limits(wall_s=5))
    return result.rc

async def many() -> list[bytes]:
    async with sbx.Session(profile="build") as session:
        done = await asyncio.gather(*(session.arun(["true"]) for _ in range(3)))
    return [each.stdout for each in done]

def ask() -> bool:
    strengths: dict[str, sbx.Enforcement] = sbx.probe()
    decision: sbx.Decision = sbx.decide("x", sbx.Access.MODIFY)
    wrapped: sbx.WrappedCommand = sbx.Session().wrap(["true"])
    code, output = sbx.run_pytests(["tests"], 3.0)
    print(sbx.__version__, strengths, wrapped.argv, code, output)
    return decision.allowed
"""


def test_the_public_api_is_typed(tmp_path: Path) -> None:
    client = tmp_path / "client.py"
    client.write_text(CLIENT)
    root = os.path.dirname(os.path.dirname(sbx.__file__))
    # Installed, it is found by itself, and mypy refuses to be told; here it may be a checkout.
    env = {**os.environ} if root.endswith("-packages") else {**os.environ, "MYPYPATH": root}
    argv = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--cache-dir",
        str(tmp_path / "c"),
        str(client),
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
