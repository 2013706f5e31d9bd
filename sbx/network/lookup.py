"""Name lookup that does not stop the loop: getaddrinfo on a few threads, answers handed back through a socket pair.

Only names that a rule allows come here, so what a client can make it ask is bounded by the policy.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping

from sbx.network.loop import READ, Loop

_CACHE_S = 5.0  # long enough for a burst of connections, short enough to follow a name that moves
_MAX_CACHED = 256
_THREAD_STACK = 256 << 10

Answer = tuple[str, ...]  # empty: the name has no address
Waiter = Callable[[Answer], None]


class Lookup:
    def __init__(self, loop: Loop, table: Mapping[str, Answer], threads: int, max_waiting: int) -> None:
        self._loop = loop
        self._table = table
        self._max_threads = threads
        self._max_waiting = max_waiting
        self._threads = 0
        self._waiters: dict[str, list[Waiter]] = {}
        self._cache: dict[str, tuple[float, Answer]] = {}
        self._questions: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: deque[tuple[str, Answer]] = deque()
        self._wake: socket.socket | None = None

    def find(self, name: str, waiter: Waiter) -> bool:
        """Call ``waiter`` with the addresses, now or later. False: too many names are being asked for already."""
        known = self._table.get(name)
        if known is None:
            cached = self._cache.get(name)
            if cached is not None and cached[0] > self._loop.now:
                known = cached[1]
        if known is not None:
            waiter(known)
            return True
        waiting = self._waiters.get(name)
        if waiting is not None:
            waiting.append(waiter)
            return True
        if len(self._waiters) >= self._max_waiting:
            return False
        self._waiters[name] = [waiter]
        self._questions.put(name)
        if self._threads < min(self._max_threads, len(self._waiters)):
            self._start_thread()
        return True

    def _start_thread(self) -> None:
        if not self._threads:
            woken, self._wake = socket.socketpair()
            woken.setblocking(False)
            self._wake.setblocking(False)
            self._loop.watch(woken.fileno(), READ, lambda: self._deliver(woken))
            threading.stack_size(_THREAD_STACK)
        self._threads += 1
        # Daemon: a lookup that hangs in libc must not keep the process.
        threading.Thread(target=self._work, args=(self._wake,), daemon=True).start()

    def _work(self, wake: socket.socket) -> None:
        while True:
            name = self._questions.get()
            self._answers.append((name, ask_system(name)))
            try:
                wake.send(b"!")
            except BlockingIOError:
                pass  # it is full of wake-ups already

    def _deliver(self, woken: socket.socket) -> None:
        try:
            woken.recv(4096)
        except BlockingIOError:
            pass
        while self._answers:
            name, addresses = self._answers.popleft()
            if len(self._cache) >= _MAX_CACHED:
                self._cache.clear()
            if addresses:
                self._cache[name] = (self._loop.now + _CACHE_S, addresses)
            for waiter in self._waiters.pop(name, ()):
                waiter(addresses)


def ask_system(name: str) -> Answer:
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    # A scoped address ("fe80::1%eth0") is link-local: without its scope it is judged, and refused, as that.
    return tuple(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
