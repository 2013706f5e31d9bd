"""Sampling of real process trees."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from sbx.supervise.limits import Watch
from sbx.supervise.sampling import Sampler


@contextmanager
def tree(script: str) -> Iterator[int]:
    """A leader that has done what `script` says when the test goes on, and stays until then."""
    text = f"import os, sys, subprocess, threading, time\n{script}\nprint('ready', flush=True)\nsys.stdin.read()\n"
    child = subprocess.Popen([sys.executable, "-I", "-c", text], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == b"ready\n"
        yield child.pid
    finally:
        for descendant in psutil.Process(child.pid).children(recursive=True):
            descendant.kill()
        child.communicate()


def sampler(pid: int, **limits: float) -> Sampler:
    names = {"cpu_s": "cpu", "memory_bytes": "memory", "pids": "pids"}
    made = Sampler(tuple(names[name] for name in limits), limits)
    made.attach(pid)
    return made


SLEEPER = "subprocess.Popen([sys.executable, '-I', '-c', {!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)"


def test_memory_is_that_of_the_whole_tree() -> None:
    grow = "x = b'x' * (60 << 20); print('grown', flush=True); import sys; sys.stdin.read()"
    script = f"children = [{SLEEPER.format(grow)} for _ in range(2)]\nfor each in children: each.stdout.readline()"
    with tree(script) as pid:
        assert sampler(pid, memory_bytes=100 << 20).over() == "memory"
        roomy = sampler(pid, memory_bytes=1 << 30)
        assert roomy.over() is None
        assert roomy.peak_rss_bytes > 120 << 20


def test_shared_memory_counts_once_and_reserved_address_space_not_at_all() -> None:
    script = """
import mmap
reserved = mmap.mmap(-1, 4 << 30)  # never touched
shared = b'y' * (80 << 20)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(1000)
"""
    with tree(script) as pid:
        assert sampler(pid, memory_bytes=200 << 20).over() is None
        assert sampler(pid, memory_bytes=70 << 20).over() == "memory"


def test_cpu_includes_children_that_are_gone() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    script = f"subprocess.run([sys.executable, '-I', '-c', {burn!r}])"
    with tree(script) as pid:
        made = sampler(pid, cpu_s=0.3)
        assert made.over() == "cpu"
        assert made.spent_s >= 0.3
        assert sampler(pid, cpu_s=60.0).over() is None


def test_pids_counts_threads_and_not_the_leader() -> None:
    script = "stop = threading.Event()\nfor _ in range(2): threading.Thread(target=stop.wait, daemon=True).start()"
    inner = f"import threading, sys\n{script}\nprint('up', flush=True); sys.stdin.read()"
    with tree(f"child = {SLEEPER.format(inner)}\nchild.stdout.readline()") as pid:
        made = sampler(pid, pids=2)
        assert made.over() == "pids"
        assert made.peak_pids == 3
        assert sampler(pid, pids=3).over() is None


def test_a_tree_that_is_gone_is_over_no_limit() -> None:
    child = subprocess.Popen([sys.executable, "-I", "-c", ""])
    made = sampler(child.pid, cpu_s=0.0001, memory_bytes=1, pids=0)
    child.wait()
    assert made.over() in (None, "cpu")
    late = Sampler(("pids",), {"pids": 0})
    late.attach(child.pid)
    assert late.over() is None


def test_a_watch_that_fails_says_so() -> None:
    class Broken:
        def over(self) -> str | None:
            raise RuntimeError("no /proc")

    assert Watch(None, Broken())() == "RuntimeError: no /proc"  # type: ignore[arg-type]
