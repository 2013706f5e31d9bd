"""A cgroup of its own for one run, where one is delegated to us."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from capabilities import requires

from sbx.backends.probe_cgroup import probe_cgroup
from sbx.launch.cgroup import PREFIX, Cgroup, sweep

if TYPE_CHECKING:
    from sbx.launch.wait import Outcome

pytestmark = requires("cgroup")


DELEGATED = os.environ.get("SBX_CGROUP", "")  # before the tests' own frame clears it


@pytest.fixture
def parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[bytes]:
    monkeypatch.setenv("SBX_CGROUP", DELEGATED)
    found = probe_cgroup()
    assert found.mechanism == "direct", found.reason
    folder = os.fsencode(found.path)
    before = set(os.listdir(folder))
    yield folder
    assert set(os.listdir(folder)) == before


def outcome(status: int | None) -> Outcome:
    return {
        "started": True,
        "failure": None,
        "exec_errno": None,
        "status": status,
        "cpu_s": 0.0,
        "max_rss_bytes": 0,
        "duration_s": 0.0,
        "timed_out": False,
        "stop_signal": None,
        "killed": False,
        "limit": None,
    }


def run_in(cgroup: Cgroup, script: str) -> subprocess.CompletedProcess[str]:
    """The child moves itself in, then does as told."""
    enter = f"open({os.fsdecode(cgroup.path)!r} + '/cgroup.procs', 'w').write('0')\n"
    text = f"import os, subprocess, sys, time\n{enter}{script}"
    return subprocess.run([sys.executable, "-I", "-c", text], capture_output=True, text=True, check=False)


def test_memory_of_the_whole_tree_is_limited_and_the_kill_is_told(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": 64 << 20, "pids": None, "cpu_s": None})
    try:
        grow = "x = b'x' * (40 << 20); import time; time.sleep(1000)"
        script = f"for _ in range(3): subprocess.Popen([sys.executable, '-I', '-c', {grow!r}])\ntime.sleep(1000)"
        done = run_in(cgroup, script)
        assert done.returncode == -9, "the whole group is killed, not one of it"
        seen = outcome(None)
        cgroup.settle(seen)
        assert seen["limit"] == "memory"
    finally:
        cgroup.close()


def test_reserved_address_space_is_not_memory(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": 64 << 20, "pids": None, "cpu_s": None})
    try:
        assert run_in(cgroup, "import mmap; reserved = mmap.mmap(-1, 2 << 30, flags=0x4022)").returncode == 0
        seen = outcome(0)
        cgroup.settle(seen)
        assert seen["limit"] is None
    finally:
        cgroup.close()


def test_a_command_that_kills_itself_is_no_memory_kill(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": 64 << 20, "pids": None, "cpu_s": None})
    try:
        assert run_in(cgroup, "os.kill(os.getpid(), 9)").returncode == -9
        seen = outcome(9)
        cgroup.settle(seen)
        assert seen["limit"] is None
    finally:
        cgroup.close()


def test_pids_are_limited_and_counted(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": None, "pids": 4, "cpu_s": None})
    try:
        script = """
pids = []
try:
    while True:
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        pids.append(pid)
except BlockingIOError:
    print(len(pids))
for pid in pids:
    os.kill(pid, 9)
"""
        done = run_in(cgroup, script)
        # The test's own process stands for the sandbox's first one.
        assert done.stdout.strip() == "4", done.stderr
        assert cgroup.pids_peak() in (0, 4)
    finally:
        cgroup.close()


def test_cpu_time_is_that_of_the_whole_tree(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": None, "pids": None, "cpu_s": 0.2})
    try:
        assert cgroup.over() is None
        burn = "import time\nwhile time.process_time() < 0.15: pass"
        run_in(cgroup, f"for _ in range(2): subprocess.run([sys.executable, '-I', '-c', {burn!r}])")
        assert cgroup.over() == "cpu"
        seen = outcome(0)
        cgroup.settle(seen)
        assert seen["cpu_s"] >= 0.3
    finally:
        cgroup.close()


def test_what_still_lives_in_it_is_killed(parent: bytes) -> None:
    cgroup = Cgroup({"parent": parent, "memory_bytes": None, "pids": 10, "cpu_s": None})
    path = os.fsdecode(cgroup.path)
    script = f"open({path!r} + '/cgroup.procs', 'w').write('0'); print('in', flush=True); import time; time.sleep(1000)"
    child = subprocess.Popen([sys.executable, "-I", "-c", script], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    if not os.path.exists(path + "/cgroup.kill"):  # before Linux 5.14
        child.kill()
    cgroup.close()
    assert child.wait() == -9
    child.stdout.close()
    assert not os.path.exists(path)


def test_leftovers_of_the_dead_are_swept_and_those_of_the_living_are_not(parent: bytes) -> None:
    dead = parent + b"/" + PREFIX + b"dead"
    alive = parent + b"/" + PREFIX + b"alive"
    os.mkdir(dead)
    os.mkdir(alive)
    descriptor = os.open(alive, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        sweep(parent)
        assert not os.path.exists(dead)
        assert os.path.exists(alive)
    finally:
        os.close(descriptor)
        os.rmdir(alive)


def test_a_setting_that_is_refused_leaves_nothing(parent: bytes) -> None:
    with pytest.raises(OSError, match=r"Invalid argument|out of range"):
        Cgroup({"parent": parent, "memory_bytes": None, "pids": -5, "cpu_s": None})
