"""A progress bar on a terminal; nothing anywhere else."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from sbx.report.text import is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class JobProgress:
    """Counts jobs that are done, and of them those that failed."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.failed = 0
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        if is_terminal(sys.stderr):
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=total, completed=done)

    def advance(self, *, failed: bool) -> None:
        self.failed += failed
        if self._bar is not None and self._task is not None:
            words = f"{self.failed} failed" if self.failed else ""
            self._bar.update(self._task, advance=1, description=words)

    def __enter__(self) -> JobProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
