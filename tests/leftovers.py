"""What a test left behind: processes, mounts, files. Nothing may survive a run, so nothing may survive a test."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import tempfile
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36
GONE_WITHIN_MS = 5000  # after a SIGKILL of sbx the kernel still has to tear the namespace down


def adopt_orphans() -> None:
    """Make this process the parent of every orphaned descendant, so that a daemon cannot slip away."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children() -> set[int]:
    """Direct children; thanks to adopt_orphans() a surviving descendant has one of them above it or is one."""
    found: set[int] = set()
    try:
        for task in os.listdir("/proc/self/task"):
            found.update(int(pid) for pid in Path(f"/proc/self/task/{task}/children").read_text().split())
    except OSError:
        import psutil

        found = {process.pid for process in psutil.Process().children()}
    return found


def is_running(pid: int) -> bool:
    """Alive and not merely waiting to be reaped (the test process adopts orphans, init would reap them at once)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat.rpartition(b")")[2].split()[0] not in (b"Z", b"X")


def wait_until_gone(pid: int, timeout_ms: int = GONE_WITHIN_MS) -> bool:
    """Wait, by event, until the process has ended."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_ms))
    finally:
        os.close(descriptor)


def mounts() -> set[str]:
    try:
        lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return set()
    return {line.split(" ")[4] for line in lines}


def files() -> set[str]:
    """Names in the temporary folder of this test session, and sbx's own names in the system's shared ones."""
    found = {entry.path for entry in os.scandir(tempfile.gettempdir())}
    for shared in ("/tmp", "/var/tmp", "/dev/shm", "/run/lock"):
        try:
            names = os.listdir(shared)
        except OSError:
            continue
        own = f"sbx-{os.getuid()}"
        found.update(f"{shared}/{name}" for name in names if name == own or name.startswith((own + "-", "sbx_")))
    return found


class Snapshot:
    """How things were before a test; `differences` says what is new."""

    def __init__(self) -> None:
        self.children = children()
        self.mounts = mounts()
        self.files = files()

    def differences(self, patience_ms: int = GONE_WITHIN_MS) -> list[str]:
        found = self._processes(patience_ms)
        found += [f"mount {path}" for path in sorted(mounts() - self.mounts)]
        found += [f"file {path}" for path in sorted(files() - self.files)]
        return found

    def _processes(self, patience_ms: int) -> list[str]:
        found = []
        for pid in sorted(children() - self.children):
            if is_running(pid) and not wait_until_gone(pid, patience_ms):
                found.append(f"process {pid} {_command_of(pid)}")
                os.kill(pid, signal.SIGKILL)
                wait_until_gone(pid)
            _reap(pid)
        return found


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
