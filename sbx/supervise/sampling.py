"""The last resort for limits: look at the whole tree every now and then. The only user of psutil.

A look cannot refuse anything; it can only end the run when a limit was passed, which happens up to one interval late.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psutil


class Sampler:
    """Sums over the process that leads the sandbox and all its descendants."""

    def __init__(self, names: tuple[str, ...], limits: Mapping[str, Any]) -> None:
        self.names = names
        self.cpu_s: float | None = limits.get("cpu_s") if "cpu" in names else None
        self.memory_bytes: int | None = limits.get("memory_bytes") if "memory" in names else None
        self.pids: int | None = limits.get("pids") if "pids" in names else None
        self.peak_rss_bytes = 0
        self.peak_pids = 0
        self.spent_s = 0.0
        self._leader: psutil.Process | None = None

    def attach(self, pid: int) -> None:
        try:
            self._leader = psutil.Process(pid)
        except psutil.NoSuchProcess:
            self._leader = None

    def over(self) -> str | None:
        """The first limit that is passed, or None."""
        tree = self._tree()
        if self.cpu_s is not None and self._cpu(tree) >= self.cpu_s:
            return "cpu"
        if self.memory_bytes is not None and self._memory(tree, self.memory_bytes) > self.memory_bytes:
            return "memory"
        if self.pids is not None and self._count(tree) > self.pids:
            return "pids"
        return None

    def _tree(self) -> list[psutil.Process]:
        if self._leader is None:
            return []
        try:
            return [self._leader, *self._leader.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _cpu(self, tree: list[psutil.Process]) -> float:
        """With what each has waited for: a child that ended counts with its parent."""
        total = 0.0
        for process in tree:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system + times.children_user + times.children_system
        # A child that nobody waits for takes its time with it; the sum never goes back.
        self.spent_s = max(self.spent_s, total)
        return self.spent_s

    def _memory(self, tree: list[psutil.Process], limit: int) -> int:
        """Resident sizes count shared pages once for each process. Only if they are over the limit is it worth the
        time to ask for the exact share of each."""
        rough = 0
        for process in tree:
            try:
                rough += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        if rough <= limit:
            self.peak_rss_bytes = max(self.peak_rss_bytes, rough)
            return rough
        exact = sum(_share(process) for process in tree)
        self.peak_rss_bytes = max(self.peak_rss_bytes, exact)
        return exact

    def _count(self, tree: list[psutil.Process]) -> int:
        """Processes and threads, the sandbox's own first process not counted."""
        count = 0
        for process in tree[1:]:
            try:
                count += process.num_threads()
            except psutil.NoSuchProcess:
                continue
        self.peak_pids = max(self.peak_pids, count)
        return count


def _share(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", full.uss)) + int(getattr(full, "swap", 0))
    except psutil.AccessDenied:
        try:
            info = process.memory_info()
        except psutil.NoSuchProcess:
            return 0
        return max(0, int(info.rss) - int(getattr(info, "shared", 0)))
    except psutil.NoSuchProcess:
        return 0
