"""A cgroup of its own for one run: memory and processes of the whole tree, limited and counted by the kernel.

The folder is made in one that was delegated to us (`backends.probe_cgroup` finds it), the command is born in it, and it
is removed afterwards. A supervisor that was killed cannot remove its folder; the next run does. The lock on the folder
says that its owner lives, across pid namespaces too.
"""

from __future__ import annotations

import fcntl
import os
import select
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypedDict

    from sbx.launch.wait import Outcome

    class Settings(TypedDict):
        parent: bytes
        memory_bytes: int | None
        pids: int | None
        cpu_s: float | None


O_CLOEXEC: int = getattr(os, "O_CLOEXEC", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
PREFIX = b"sbx-"
GONE_WITHIN_MS = 2000


class Cgroup:
    def __init__(self, settings: Settings) -> None:
        self.parent = settings["parent"]
        self.cpu_s = settings["cpu_s"]
        sweep(self.parent)
        self.path, self.fd = _make(self.parent)
        try:
            if settings["memory_bytes"] is not None:
                self._set(b"memory.max", settings["memory_bytes"])
                # Swap is not more memory; where it is not accounted there is no such file.
                self._set(b"memory.swap.max", 0, optional=True)
                self._set(b"memory.oom.group", 1)
            if settings["pids"] is not None:
                self._set(b"pids.max", settings["pids"] + 1)  # and the sandbox's own first process
        except OSError:
            self.close()
            raise

    def over(self) -> str | None:
        """CPU time has no limit file of its own: the supervisor asks."""
        if self.cpu_s is not None and self._cpu_us() >= self.cpu_s * 1_000_000:
            return "cpu"
        return None

    def settle(self, outcome: Outcome) -> None:
        """What the kernel counted."""
        outcome["cpu_s"] = max(outcome["cpu_s"], self._cpu_us() / 1_000_000)
        if not outcome["max_rss_bytes"]:  # nobody was left to measure it
            outcome["max_rss_bytes"] = self._number(b"memory.peak")
        failed = outcome["status"] != 0
        if outcome["limit"] is None and failed and self._numbers(b"memory.events").get(b"oom_kill", 0) > 0:
            # Without a limit of ours one victim may be survived by a shell, which makes an ordinary exit of it.
            outcome["limit"] = "memory"
        elif outcome["limit"] is None and outcome["status"] is not None and self.over() and _by_signal(outcome, 24):
            outcome["limit"] = "cpu"  # the backstop of one process was faster than the question

    def pids_peak(self) -> int:
        """Processes and threads at once, the sandbox's own not counted. 0 where it is not known (before Linux 6.1)."""
        return max(0, self._number(b"pids.peak") - 1)

    def refused_processes(self) -> int:
        """How often a new process was refused because of the limit."""
        return self._numbers(b"pids.events").get(b"max", 0)

    def close(self) -> None:
        """Whatever still lives in it is killed; the folder goes."""
        if self.fd < 0:
            return
        try:
            os.rmdir(self.path)
        except OSError:
            self._empty()
            try:
                os.rmdir(self.path)
            except OSError:
                pass  # the next run tries again
        os.close(self.fd)
        self.fd = -1

    def _empty(self) -> None:
        try:
            self._set(b"cgroup.kill", 1)
        except OSError:
            pass  # before Linux 5.14: the pid namespace has seen to it
        if sys.platform == "linux":
            poll = select.poll()
            events = os.open(self.path + b"/cgroup.events", os.O_RDONLY | O_CLOEXEC)
            try:
                poll.register(events, select.POLLPRI)
                while b"populated 1" in os.pread(events, 4096, 0) and poll.poll(GONE_WITHIN_MS):
                    pass
            finally:
                os.close(events)

    def _cpu_us(self) -> int:
        return self._numbers(b"cpu.stat").get(b"usage_usec", 0)

    def _number(self, name: bytes) -> int:
        """0 where the kernel has no such file yet."""
        try:
            return int(self._read(name))
        except (OSError, ValueError):
            return 0

    def _numbers(self, name: bytes) -> dict[bytes, int]:
        try:
            lines = self._read(name).splitlines()
        except OSError:
            return {}
        return {key: int(value) for key, _, value in (line.partition(b" ") for line in lines)}

    def _read(self, name: bytes) -> bytes:
        descriptor = os.open(self.path + b"/" + name, os.O_RDONLY | O_CLOEXEC)
        try:
            return os.read(descriptor, 65536)
        finally:
            os.close(descriptor)

    def _set(self, name: bytes, value: int, *, optional: bool = False) -> None:
        try:
            descriptor = os.open(self.path + b"/" + name, os.O_WRONLY | O_CLOEXEC)
        except FileNotFoundError:
            if optional:
                return
            raise
        try:
            os.write(descriptor, b"%d" % value)
        finally:
            os.close(descriptor)


def sweep(parent: bytes) -> None:
    """Remove the folders of runs whose supervisor is gone."""
    for name in os.listdir(parent):
        if not name.startswith(PREFIX):
            continue
        path = parent + b"/" + name
        try:
            descriptor = os.open(path, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except OSError:
            continue
        try:
            _lock(descriptor)
            os.rmdir(path)
        except OSError:
            pass  # its owner lives, or something in it does
        finally:
            os.close(descriptor)


def _lock(descriptor: int) -> None:
    if sys.platform != "win32":
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _make(parent: bytes) -> tuple[bytes, int]:
    while True:
        path = parent + b"/" + PREFIX + os.urandom(8).hex().encode()
        os.mkdir(path, 0o755)
        try:
            descriptor = os.open(path, os.O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        except FileNotFoundError:
            continue  # swept between two lines, by a run that started at the same moment
        try:
            _lock(descriptor)
            if os.path.exists(path):
                return path, descriptor
        except BlockingIOError:
            pass  # a sweeper has it, and removes it
        os.close(descriptor)


def _by_signal(outcome: Outcome, number: int) -> bool:
    status = outcome["status"]
    return status is not None and (status & 0x7F == number or status >> 8 == 128 + number)
