"""One JSON line per decision, to a descriptor whose reader may be slow or gone. Never blocks, never grows."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections import deque

from sbx.network.hosts import NetDecision
from sbx.network.loop import WRITE, Loop

_MAX_FIELD = 300  # keeps a line below PIPE_BUF, so that the kernel writes all of it or none
_MAX_STARTS = 256


def _start_of_line(decision: NetDecision, method: str, allowed: bool, reason: str) -> bytes:
    event = {
        "event": "network",
        "verdict": "allow" if allowed else "deny",
        "host": decision.host[:_MAX_FIELD],
        "port": decision.port,
        "method": method[:20],
        "rule": decision.rule.text[:_MAX_FIELD] if decision.rule is not None else None,
        "reason": reason[:_MAX_FIELD],
        "remedy": decision.remedy,
    }
    return json.dumps(event).encode()[:-1]


class EventWriter:
    """``{"event": "network", "verdict": "allow"|"deny", "host", "port", "method", "rule", "reason", "remedy",
    "time"}``.

    Lines that found no room are counted, and the count is sent when there is room again, as
    ``{"event": "network-dropped", "count"}``. ``{"event": "network-end", …}`` is the last line: a stream without it
    is that of a proxy that did not end in good order.
    """

    def __init__(self, loop: Loop, fd: int | None, max_waiting: int) -> None:
        self._loop = loop
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._max_waiting = max_waiting
        self._unreported = 0
        self._watched = False
        self._starts: dict[tuple[str, int, str, bool, str], bytes] = {}  # equal but for the time, and often repeated
        self.allowed = 0
        self.denied = 0
        self.dropped = 0
        if fd is not None and sys.platform != "win32":
            os.set_blocking(fd, False)

    def record(self, decision: NetDecision, method: str, *, allowed: bool, reason: str) -> None:
        if allowed:
            self.allowed += 1
        else:
            self.denied += 1
        if self._fd is None:
            return
        if len(self._waiting) >= self._max_waiting:
            self.dropped += 1
            self._unreported += 1
            return
        key = (decision.host, decision.port, method, allowed, reason)
        start = self._starts.get(key)
        if start is None:
            if len(self._starts) >= _MAX_STARTS:
                self._starts.clear()
            start = self._starts[key] = _start_of_line(decision, method, allowed, reason)
        self._waiting.append(b'%s, "time": %.3f}\n' % (start, time.time()))

    def _append(self, event: dict[str, object]) -> None:
        self._waiting.append(json.dumps(event).encode() + b"\n")

    def flush(self) -> None:
        """Write what the descriptor takes. Called once per turn of the loop."""
        if self._fd is None or not self._waiting:
            return
        try:
            while self._waiting:
                line = self._waiting[0]
                written = os.write(self._fd, line)
                if written < len(line):
                    self._waiting[0] = line[written:]
                else:
                    self._waiting.popleft()
                if self._unreported and len(self._waiting) < self._max_waiting:
                    self._append({"event": "network-dropped", "count": self._unreported})
                    self._unreported = 0
        except BlockingIOError:
            self._watch(self._fd, True)
        except OSError:
            self._give_up()
        else:
            self._watch(self._fd, False)

    def _watch(self, fd: int, blocked: bool) -> None:
        if blocked != self._watched:
            self._watched = blocked
            try:
                self._loop.watch(fd, WRITE if blocked else 0, self.flush)
            except OSError:
                pass  # a regular file cannot be watched, and never blocks either

    def _give_up(self) -> None:
        """The reader is gone: the verdicts stay as they are, only nobody is told."""
        if self._fd is not None:
            self._loop.forget(self._fd)
            os.close(self._fd)
        self._fd = None
        self._waiting.clear()

    def finish(self, connections: int, patience_s: float) -> None:
        """The last lines, with a bounded wait for a reader that is behind."""
        self._append(
            {
                "event": "network-end",
                "connections": connections,
                "allowed": self.allowed,
                "denied": self.denied,
                "dropped": self.dropped,
                "time": round(time.time(), 3),
            }
        )
        end = time.monotonic() + patience_s
        self.flush()
        while self._fd is not None and self._waiting and time.monotonic() < end:
            select.select([], [self._fd], [], max(0.0, end - time.monotonic()))
            self.flush()
