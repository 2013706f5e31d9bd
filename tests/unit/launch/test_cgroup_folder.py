"""What is written to and read from a run's cgroup, on a folder that behaves like the kernel's.

The real one, where it is delegated: tests/kernel/test_cgroup.py.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sbx.launch import cgroup
from sbx.launch.cgroup import Cgroup, sweep

if TYPE_CHECKING:
    from sbx.launch.wait import Outcome

FILES = {
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.oom.group": "0\n",
    "memory.peak": "4096\n",
    "memory.events": "low 0\noom_kill 0\n",
    "pids.max": "max\n",
    "pids.peak": "3\n",
    "pids.events": "max 2\n",
    "cpu.stat": "usage_usec 1500000\nuser_usec 1\n",
    "cgroup.kill": "",
    "cgroup.events": "populated 0\n",
}


@pytest.fixture
def parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new folder comes with the kernel's files, and they do not keep it from being removed."""
    make, remove = os.mkdir, os.rmdir

    def mkdir(path: bytes, mode: int) -> None:
        make(path, mode)
        for name, text in FILES.items():
            Path(os.fsdecode(path), name).write_text(text)

    def rmdir(path: Any) -> None:
        folder = Path(os.fsdecode(path))
        if "populated 1" in (folder / "cgroup.events").read_text():
            raise OSError(16, "busy")
        for file in folder.iterdir():
            file.unlink()
        remove(folder)

    monkeypatch.setattr(cgroup.os, "mkdir", mkdir)
    monkeypatch.setattr(cgroup.os, "rmdir", rmdir)
    folder = tmp_path / "delegated"
    make(folder)
    return folder


@pytest.fixture
def made(parent: Path) -> Callable[..., tuple[Cgroup, Path]]:
    def make(*, memory: int | None = None, pids: int | None = None, cpu: float | None = None) -> tuple[Cgroup, Path]:
        group = Cgroup({"parent": os.fsencode(parent), "memory_bytes": memory, "pids": pids, "cpu_s": cpu})
        return group, Path(os.fsdecode(group.path))

    return make


def outcome(status: int | None, **more: Any) -> Outcome:
    blank: Outcome = {
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
    return {**blank, **more}  # type: ignore[typeddict-item]


def test_the_limits_are_written(parent: Path, made: Any) -> None:
    group, folder = made(memory=1000, pids=7)
    assert (folder / "memory.max").read_text().startswith("1000")
    assert (folder / "memory.swap.max").read_text().startswith("0")
    assert (folder / "memory.oom.group").read_text().startswith("1")
    assert (folder / "pids.max").read_text().startswith("8"), "the sandbox's own first process is not the command's"
    group.close()
    group.close()
    assert list(parent.iterdir()) == []


def test_what_was_not_asked_for_is_left_alone(made: Any) -> None:
    group, folder = made()
    assert (folder / "memory.max").read_text() == (folder / "pids.max").read_text() == "max\n"
    group.close()


def test_a_limit_that_cannot_be_set_leaves_no_folder(parent: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(FILES, "memory.swap.max")  # not accounted: no reason to fail
    group, _ = made(memory=1000)
    group.close()
    monkeypatch.delitem(FILES, "memory.max")
    with pytest.raises(FileNotFoundError):
        made(memory=1000)
    assert list(parent.iterdir()) == []


def test_what_the_kernel_counted(made: Any) -> None:
    group, folder = made(cpu=2.0)
    assert group.over() is None
    assert (group.pids_peak(), group.refused_processes()) == (2, 2)
    done = outcome(0)
    group.settle(done)
    assert (done["cpu_s"], done["max_rss_bytes"], done["limit"]) == (1.5, 4096, None)
    (folder / "cpu.stat").write_text("usage_usec 2000000\n")
    assert group.over() == "cpu"
    for name in ("pids.peak", "pids.events", "cpu.stat"):
        (folder / name).unlink()
    assert (group.pids_peak(), group.refused_processes(), group.over()) == (0, 0, None), "an older kernel"
    group.close()


@pytest.mark.parametrize(
    ("status", "killed", "cpu", "limit"),
    [
        (9, 1, 0, "memory"),
        (137 << 8, 1, 0, "memory"),
        (0, 1, 0, None),  # it went on without the victim
        (9, 0, 0, None),
        (24, 0, 3_000_000, "cpu"),
        ((128 + 24) << 8, 0, 3_000_000, "cpu"),
        (1 << 8, 0, 3_000_000, None),
        (24, 0, 0, None),  # somebody else sent it
        (None, 0, 3_000_000, None),
    ],
)
def test_the_cause_of_the_end(made: Any, status: int | None, killed: int, cpu: int, limit: str | None) -> None:
    group, folder = made(cpu=2.0)
    (folder / "memory.events").write_text(f"oom_kill {killed}\n")
    (folder / "cpu.stat").write_text(f"usage_usec {cpu}\n")
    done = outcome(status)
    group.settle(done)
    assert done["limit"] == limit
    first = outcome(status, limit="wall")
    group.settle(first)
    assert first["limit"] == "wall", "the first cause counts"
    group.close()


def test_what_still_lives_is_killed(parent: Path, made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "GONE_WITHIN_MS", 1)
    group, folder = made()
    (folder / "cgroup.events").write_text("populated 1\n")
    group.close()  # it cannot be waited for here: no file but the kernel's tells of a change
    assert (folder / "cgroup.kill").read_text() == "1"
    assert folder.exists(), "left for the next run"
    (folder / "cgroup.events").write_text("populated 0\n")
    sweep(os.fsencode(parent))
    assert list(parent.iterdir()) == []


def test_only_what_has_no_owner_is_swept(parent: Path, made: Any) -> None:
    group, folder = made()
    os.symlink("/", parent / "other")
    sweep(os.fsencode(parent))
    assert folder.exists(), "its owner lives: the lock says so"
    fcntl.flock(group.fd, fcntl.LOCK_UN)
    sweep(os.fsencode(parent))
    assert not folder.exists()
    assert (parent / "other").is_symlink(), "not one of ours"
    os.close(group.fd)
