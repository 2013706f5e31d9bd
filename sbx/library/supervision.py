"""Supervise one command that the launcher started: the loop of sbx.launch.wait, in steps, for threads and asyncio.

The sandbox is not a child of this process. It is signalled and waited for through a pidfd, which no other process can
take the place of; a command in a shared sandbox through the launcher inside it.
"""

from __future__ import annotations

import asyncio
import marshal
import os
import select
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from sbx.launch import inside, passing
from sbx.launch.wait import Supervisor
from sbx.launch.warm import BORN

assert sys.platform == "linux"  # for type checkers on other platforms

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbx.launch.wait import Outcome, Pump


class Remote(Supervisor):
    """`shared_pidfd` is that of the shared sandbox, where the command has none of its own. `told_last`: whoever is
    inside tells of the command's end only when nothing of it is left."""

    def __init__(
        self,
        status: socket.socket,
        *,
        wall_s: float | None,
        grace_s: float,
        pumps: tuple[Pump, ...],
        watch: Callable[[], str | None] | None,
        pidfd: int = -1,
        shared_pidfd: int = -1,
        told_last: bool = False,
        kill_signal: int = inside.SIGKILL,
    ) -> None:
        super().__init__(-1, status.fileno(), wall_s=wall_s, grace_s=grace_s, pumps=pumps, kill_signal=kill_signal)
        self.status = status
        self._watch_when_born = watch
        self.shared_pidfd = shared_pidfd
        self.told_last = told_last
        self.pidfd = pidfd
        self.done = False
        self._unsent: list[int] = []
        self._waiting: dict[int, Pump] = {}
        self._poll = select.epoll()
        self._poll.register(self.status_fd, select.EPOLLIN)
        for pump in self.pumps:
            self._waiting[pump.fd] = pump
            self._poll.register(pump.fd, pump.events)

    # Three ways to go on: block, be called by a loop, give up.

    def finish(self) -> Outcome:
        """Block until it is over."""
        try:
            while not self.done:
                self.step(self._patience_ms() if self.open else None)
        except BaseException:
            self.abandon()
            raise
        finally:
            self._poll.close()
        return self.outcome

    async def finish_async(self) -> Outcome:
        """Without a thread: the loop watches one descriptor. Cancelled, it kills the command's tree first."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        timer: list[asyncio.TimerHandle] = []

        def turn() -> None:
            for handle in timer:
                handle.cancel()
            timer.clear()
            try:
                self.step(0)
            except Exception as error:
                if not over.done():
                    over.set_exception(error)
                return
            if self.done:
                if not over.done():
                    over.set_result(None)
                return
            patience = self._patience_ms()
            if patience is not None:
                timer.append(loop.call_later(patience / 1000, turn))

        loop.add_reader(self._poll.fileno(), turn)
        try:
            turn()
            await over
        except BaseException:
            self.abandon()
            raise
        finally:
            for handle in timer:
                handle.cancel()
            loop.remove_reader(self._poll.fileno())
            self._poll.close()
        return self.outcome

    def abandon(self) -> None:
        """The caller gave up: nothing of the command survives that."""
        if not self.done:
            self.kill()
            while not self.done:
                self.step(None)

    def step(self, patience_ms: int | None) -> None:
        if self.open:
            self._turn(patience_ms)
        if not self.open and not self.done and self._is_gone(patience_ms):
            self._end()

    def _turn(self, patience_ms: int | None) -> None:
        for descriptor, _event in self._poll.poll(None if patience_ms is None else patience_ms / 1000):
            if descriptor == self.status_fd:
                self._messages()
            else:
                self._poll.unregister(descriptor)
                self._pump(self._waiting.pop(descriptor), self._poll, self._waiting)  # type: ignore[arg-type]
        self._clock()
        if not self.open:
            self._poll.unregister(self.status_fd)
            for descriptor in self._waiting:
                self._poll.unregister(descriptor)
            if self._ended_by >= 0:
                self._poll.register(self._ended_by, select.EPOLLIN)

    @property
    def _ended_by(self) -> int:
        """What becomes readable when nothing of the command is left; -1 when the launcher inside has said so."""
        last = self.pidfd if self.shared_pidfd < 0 else self.shared_pidfd
        if not self.told_last:
            return last
        seen = self.outcome
        said = seen["status"] is not None or seen["exec_errno"] is not None
        return -1 if said or (seen["failure"] is not None and not seen["started"]) else last

    def _is_gone(self, patience_ms: int | None) -> bool:
        if self._ended_by < 0:
            return True
        poll = select.poll()
        poll.register(self._ended_by, select.POLLIN)
        return bool(poll.poll(patience_ms))

    def _end(self) -> None:
        self.status.close()
        self._deliver(-1)
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1
        self.outcome["duration_s"] = time.monotonic() - self.began
        self.done = True

    def _messages(self) -> None:
        try:
            data, control, _flags, _address = self.status.recvmsg(65536, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            data, control = b"", []
        for descriptor in passing.unpack(control):
            self._born(descriptor)
        if not data:
            self.open = False
        self.pending += data
        while len(self.pending) >= 4:
            size = int.from_bytes(self.pending[:4], "little")
            if len(self.pending) < 4 + size:
                return
            message = marshal.loads(self.pending[4 : 4 + size])
            self.pending = self.pending[4 + size :]
            self._message(message)

    def _message(self, message: tuple[Any, ...]) -> None:
        if message[0] != BORN:
            super()._message(message)
        if message[0] == inside.EXITED and self.told_last:
            self.open = False  # nothing follows

    def _born(self, pidfd: int) -> None:
        self.pidfd = pidfd
        for number in self._unsent:
            self._send(number)
        watch = self._watch_when_born
        if watch is not None and hasattr(watch, "attach"):
            watch.attach(process_of(pidfd))
        self.watch = watch

    def _send(self, number: int) -> None:
        try:
            if self.shared_pidfd >= 0 and number == inside.SIGKILL:
                signal.pidfd_send_signal(self.shared_pidfd, number)  # the sandbox as a whole
            elif self.shared_pidfd >= 0:
                self.status.send(bytes((number,)))
            elif self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                self._unsent.append(number)
        except OSError:
            pass  # it has ended; the status says so


def process_of(pidfd: int) -> int:
    """The process id, as seen from here, for those who can only look at numbers."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        for line in file:
            if line.startswith("Pid:"):
                return int(line.split()[1])
    return -1
