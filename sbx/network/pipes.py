"""Pipes for splice, a bounded number of them."""

from __future__ import annotations

import os
import sys

PIPE_BYTES = 1 << 20


class Pipes:
    """A bounded pool: pipe memory is counted against the user, whose other programs want some of it too."""

    def __init__(self, limit: int) -> None:
        self._left = limit if hasattr(os, "splice") else 0
        self._idle: list[tuple[int, int]] = []

    def take(self) -> tuple[int, int] | None:
        if self._idle:
            return self._idle.pop()
        if self._left <= 0:
            return None
        try:
            pipe = os.pipe()
        except OSError:
            return None
        _widen(pipe[1])
        self._left -= 1
        return pipe

    def give_back(self, pipe: tuple[int, int], empty: bool) -> None:
        if empty:
            self._idle.append(pipe)
            return
        os.close(pipe[0])
        os.close(pipe[1])
        self._left += 1


def _widen(fd: int) -> None:
    if sys.platform == "linux":
        import fcntl

        try:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # over the user's quota: the default size works, in smaller steps
