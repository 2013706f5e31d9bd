"""The proxy's event loop: descriptors, their readiness, and one coarse clock. One thread, no allocation per event.

A descriptor that is forgotten and whose number is used again within one batch of events gets none of the old ones: what
is ready stays ready, so the next turn tells.
"""

from __future__ import annotations

import select
import selectors
import sys
import time
from collections.abc import Callable
from typing import Protocol

READ = 1
WRITE = 4

Handler = Callable[[], None]


class Poller(Protocol):
    def set_interest(self, fd: int, old: int, new: int) -> None: ...
    def wait(self, timeout_s: float) -> list[tuple[int, int]]: ...


if sys.platform == "linux":

    class EpollPoller:
        def __init__(self) -> None:
            self._epoll = select.epoll()

        def set_interest(self, fd: int, old: int, new: int) -> None:
            # Interest 0 must leave the set: epoll reports a hang-up even to those who asked for nothing, and a relay
            # that waits for the other side would spin on it.
            if not old:
                self._epoll.register(fd, new)
            elif new:
                self._epoll.modify(fd, new)
            else:
                self._epoll.unregister(fd)

        def wait(self, timeout_s: float) -> list[tuple[int, int]]:
            return self._epoll.poll(timeout_s, 256)


class SelectorPoller:
    """The same on kqueue, for platforms without epoll."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def set_interest(self, fd: int, old: int, new: int) -> None:
        wanted = (selectors.EVENT_READ if new & READ else 0) | (selectors.EVENT_WRITE if new & WRITE else 0)
        if not old:
            self._selector.register(fd, wanted)
        elif new:
            self._selector.modify(fd, wanted)
        else:
            self._selector.unregister(fd)

    def wait(self, timeout_s: float) -> list[tuple[int, int]]:
        return [
            (key.fd, (READ if mask & selectors.EVENT_READ else 0) | (WRITE if mask & selectors.EVENT_WRITE else 0))
            for key, mask in self._selector.select(None if timeout_s < 0 else timeout_s)
        ]


def best_poller() -> Poller:
    if sys.platform == "linux":
        return EpollPoller()
    else:
        return SelectorPoller()


class Loop:
    """``now`` is read once per turn: time-outs need no better clock, and a system call saved is a system call."""

    def __init__(self, poller: Poller | None = None) -> None:
        self._poller = poller if poller is not None else best_poller()
        self._handlers: dict[int, Handler] = {}
        self._interest: dict[int, int] = {}
        self._forgotten: set[int] = set()
        self.batch = 0  # how many were ready in this turn
        self.now = time.monotonic()

    def watch(self, fd: int, interest: int, handler: Handler) -> None:
        self._handlers[fd] = handler
        old = self._interest.get(fd, 0)
        if old != interest:
            self._poller.set_interest(fd, old, interest)
            self._interest[fd] = interest

    def set_interest(self, fd: int, interest: int) -> None:
        old = self._interest.get(fd, 0)
        if old != interest:
            self._poller.set_interest(fd, old, interest)
            self._interest[fd] = interest

    def forget(self, fd: int) -> None:
        """To be called before the descriptor is closed."""
        self._handlers.pop(fd, None)
        self._forgotten.add(fd)
        if self._interest.pop(fd, 0) and sys.platform != "linux":
            # epoll drops a closed descriptor by itself; a selectors object keeps its own books.
            self._poller.set_interest(fd, READ, 0)

    def turn(self, timeout_s: float) -> None:
        """Wait once and call the handlers of what is ready."""
        events = self._poller.wait(timeout_s)
        self.now = time.monotonic()
        self.batch = len(events)
        handlers, forgotten = self._handlers, self._forgotten
        forgotten.clear()
        for fd, _mask in events:
            handler = handlers.get(fd)
            if handler is not None and fd not in forgotten:
                handler()
