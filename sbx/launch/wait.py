"""The supervisor's event loop: messages from pid 1 inside, signals to sbx, the clock, captured streams.

One poll() over descriptors; nothing here ticks unless a watcher asks for it. The result is a plain dict (`Outcome`)
that says what was observed; `supervise.outcome` turns it into a status.
"""

from __future__ import annotations

import marshal
import select
import sys
import time

from sbx.kernel import signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.hearing import STOPPING
from sbx.launch.inside import (
    CONTINUE_WITH_TERMINAL,
    COUNTED,
    DENIED,
    EXEC_FAILED,
    EXITED,
    FAILED,
    SIGCONT,
    SIGHUP,
    SIGKILL,
    SIGSTOP,
    SIGTERM,
    SIGTSTP,
    SIGTTIN,
    SIGTTOU,
    STARTED,
    STOPPED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NotRequired, Protocol, TypedDict

    class Pump(Protocol):
        """A stream that the supervisor looks at on its way."""

        failure: tuple[str, int, str, bytes] | None  # of sbx's own, ends the run

        @property
        def fd(self) -> int:
            """What to wait for now: it changes while the other side is slow."""

        @property
        def events(self) -> int: ...

        def ready(self) -> bool:
            """Move what is there; False at the end of the stream."""

        def finish(self) -> bool:
            """The command is gone: move what is left. False while the other side must be waited for."""

        def give_up(self) -> None:
            """Leave the rest."""

    class Outcome(TypedDict):
        started: bool
        failure: tuple[str, int, str, bytes] | None  # a set-up step that failed
        exec_errno: int | None
        status: int | None  # as wait() gives it; None when the command was killed with its namespace
        cpu_s: float
        max_rss_bytes: int
        duration_s: float
        timed_out: bool
        stop_signal: int | None  # the signal that told sbx to stop
        typed: bool  # at the terminal, which told the rest of the caller's job as well
        killed: bool  # SIGKILL was needed
        denied: NotRequired[list[tuple[Any, ...]]]  # of a traced run: see observe
        counted: NotRequired[tuple[tuple[int, ...], int, int]]  # how often each, calls not seen, records left out
        limit: str | None  # memory | cpu | pids | a failed watcher's words


assert sys.platform == "linux"  # for type checkers on other platforms

LONGEST_MESSAGE = 1 << 24  # far beyond any that pid 1 inside sends
SIGNALFD_SIZE = 128
SI_KERNEL = 0x80  # not from a process: the terminal's own
FOREVER = float("inf")


class Supervisor:
    def __init__(
        self,
        pid: int,
        status_fd: int,
        *,
        wall_s: float | None = None,
        grace_s: float = 5.0,
        terminal: int = -1,
        foreground: bool = False,
        pumps: tuple[Pump, ...] = (),
        watch: Callable[[], str | None] | None = None,
        watch_interval_s: float = 0.1,
        cancel_fd: int = -1,
        kill_signal: int = SIGKILL,
        at_exit: Callable[[Outcome], None] | None = None,
    ) -> None:
        self.pid = pid
        self.status_fd = status_fd
        self.grace_s = grace_s
        self.terminal = terminal
        self.foreground = foreground  # the command had the terminal from the start
        self.pumps = pumps
        self.watch = watch
        if watch is not None and hasattr(watch, "attach"):
            watch.attach(pid)
        self.watch_interval_s = watch_interval_s
        self.cancel_fd = cancel_fd
        self.kill_signal = kill_signal  # what makes the other side end everything
        self.at_exit = at_exit  # called when the command has ended, while its sandbox is being taken apart
        self.began = time.monotonic()
        # Infinity: a limit of the profile, switched off for this run.
        self.deadline = None if wall_s is None or wall_s == FOREVER else self.began + wall_s
        self.delivered_by = self.deadline
        self.kill_at: float | None = None
        self.next_watch = self.began
        self.pending = b""
        self.stopping = False  # the command was stopped by us, and may still say so
        self.open = True
        self.outcome: Outcome = {
            "started": False, "failure": None, "exec_errno": None, "status": None, "cpu_s": 0.0, "max_rss_bytes": 0,
            "duration_s": 0.0, "timed_out": False, "stop_signal": None, "typed": False, "killed": False,
            "limit": None,
        }  # fmt: skip

    def run(self, signal_fd: int = -1) -> Outcome:
        """Until pid 1 inside is gone, and with it everything that it ever started."""
        poll = select.poll()
        for descriptor in (self.status_fd, signal_fd, self.cancel_fd):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        waiting: dict[int, Pump] = {}
        for pump in self.pumps:
            waiting[pump.fd] = pump
            poll.register(pump.fd, pump.events)
        while self.open:
            for descriptor, _event in poll.poll(self._patience_ms()):
                if descriptor == self.status_fd:
                    self._messages()
                elif descriptor == signal_fd:
                    self._signals(signal_fd)
                elif descriptor == self.cancel_fd:
                    poll.unregister(self.cancel_fd)
                    self.stop(SIGTERM)
                else:
                    poll.unregister(descriptor)
                    self._pump(waiting.pop(descriptor), poll, waiting)
            self._clock()
        os.close(self.status_fd)
        os.waitpid(self.pid, 0)  # returns when the pid namespace is empty
        self._deliver(signal_fd)
        self.outcome["duration_s"] = time.monotonic() - self.began
        return self.outcome

    def _pump(self, pump: Pump, poll: select.poll, waiting: dict[int, Pump]) -> None:
        if pump.ready():
            waiting[pump.fd] = pump
            poll.register(pump.fd, pump.events)
        elif pump.failure is not None and self.outcome["failure"] is None:
            self.outcome["failure"] = pump.failure
            self.kill()

    def _deliver(self, signal_fd: int) -> None:
        """The command is gone; what it wrote still belongs to the caller, who may read slowly or not at all.

        As long as the command itself could have waited for them: until the deadline, or for the grace period when it
        was stopped, or until sbx is told to stop.
        """
        left = [pump for pump in self.pumps if not pump.finish()]
        if self.outcome["timed_out"] or self.outcome["killed"] or self.outcome["stop_signal"] is not None:
            self.delivered_by = time.monotonic() + self.grace_s
        while left:
            poll = select.poll()
            for descriptor in (signal_fd, self.cancel_fd):
                if descriptor >= 0:
                    poll.register(descriptor, select.POLLIN)
            for pump in left:
                poll.register(pump.fd, pump.events)
            events = poll.poll(_until_ms(self.delivered_by))
            late = not events and time.monotonic() >= (self.delivered_by or 0.0)
            if late or self._told_to_stop(signal_fd, events):
                for pump in left:
                    pump.give_up()
                return
            left = [pump for pump in left if not pump.finish()]

    def _told_to_stop(self, signal_fd: int, events: list[tuple[int, int]]) -> bool:
        for descriptor, _ in events:
            if descriptor == self.cancel_fd:
                return True
            if descriptor == signal_fd:
                numbers = [number for number, _ in _read_signals(signal_fd)]
                if any(number in STOPPING for number in numbers):
                    return True
                if SIGTSTP in numbers:
                    os.kill(os.getpid(), SIGSTOP)
        return False

    def stop(self, number: int) -> None:
        """Ask the whole group, and wait no longer than the grace period for the answer."""
        self._send(number)
        self._send(SIGCONT)  # a stopped process would never hear of it
        if self.kill_at is None:
            self.kill_at = time.monotonic() + self.grace_s

    def kill(self) -> None:
        self.outcome["killed"] = True
        self._send(self.kill_signal)

    def _send(self, number: int) -> None:
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            pass

    def _patience_ms(self) -> int | None:
        times = [when for when in (self.deadline, self.kill_at) if when is not None]
        if self.watch is not None:
            times.append(self.next_watch)
        return _until_ms(min(times) if times else None)

    def _clock(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self._catch_up()
            if self._still_running():
                self.outcome["timed_out"] = True
                self.stop(SIGTERM)
            self.deadline = None
        if self.kill_at is not None and now >= self.kill_at:
            self.kill_at = None
            self.kill()
        if self.watch is not None and now >= self.next_watch:
            self.next_watch = now + self.watch_interval_s
            over = self.watch()
            if over is not None:
                self.watch = None
                self._catch_up()
                if self._still_running():
                    self.outcome["limit"] = over
                self.kill()

    def _still_running(self) -> bool:
        """Nothing has ended it yet, nor began to: the first cause is the one that counts."""
        seen = self.outcome
        ended = seen["status"] is not None or seen["failure"] is not None or seen["exec_errno"] is not None
        stopped = seen["timed_out"] or seen["stop_signal"] is not None or seen["limit"] is not None
        return self.open and not ended and not stopped

    def _catch_up(self) -> None:
        """Before the clock blames the command: perhaps it has ended, and the message is on its way."""
        poll = select.poll()
        poll.register(self.status_fd, select.POLLIN)
        while self.open and poll.poll(0):
            self._messages()

    def _messages(self) -> None:
        try:
            data = os.read(self.status_fd, 65536)
        except InterruptedError:
            return
        if not data:
            self.open = False
            return
        self.pending += data
        while len(self.pending) >= 4:
            size = int.from_bytes(self.pending[:4], "little")
            if size > LONGEST_MESSAGE:
                self.open = False
                self.outcome["failure"] = ("hear from the sandbox", 0, "its message is too long", b"")
                self.kill()
                return
            if len(self.pending) < 4 + size:
                return
            message = marshal.loads(self.pending[4 : 4 + size])
            self.pending = self.pending[4 + size :]
            self._message(message)

    def _message(self, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == STARTED:
            self.outcome["started"] = True
        elif kind == FAILED:
            self.outcome["failure"] = message[1:]
        elif kind == EXEC_FAILED:
            self.outcome["exec_errno"] = message[1]
        elif kind == EXITED and self.outcome["status"] is None:  # it ends once
            _, status, user_s, system_s, max_rss_kib = message
            self.outcome["status"] = status
            self.outcome["cpu_s"] = user_s + system_s
            self.outcome["max_rss_bytes"] = max_rss_kib * 1024
            self.deadline = None  # it ended by itself, however close the deadline was
            self.outcome["duration_s"] = time.monotonic() - self.began
            if self.at_exit is not None:
                self.at_exit(self.outcome)
        elif kind == DENIED:
            self.outcome.setdefault("denied", []).extend(message[1])
        elif kind == COUNTED:
            self.outcome["counted"] = message[1:]
        elif kind == STOPPED and self.terminal >= 0:
            self._stopped(message[1], message[2])

    def _stopped(self, number: int, had_terminal: bool) -> None:
        """Job control: the command stopped, so the caller's shell must see this job stop, and later resume it."""
        wants_terminal = number in (SIGTTIN, SIGTTOU)
        if self.kill_at is not None or (self.stopping and number == SIGSTOP):
            self.stopping = False
            self._send(SIGCONT)  # it was told to end, and has to hear it; or this is old, and sbx was stopped with it
            return
        if not (wants_terminal and self._in_foreground()):
            if had_terminal:
                take_terminal(self.terminal)
            # To the whole group, as the terminal would; unlike SIGSTOP the kernel drops it where no shell could
            # ever continue us.
            resumed = self._pause(lambda: os.killpg(0, number if wants_terminal else SIGTSTP))
            if wants_terminal and not resumed:
                self._send(SIGHUP)  # as the kernel has it for a group that nobody could wake up
                self._send(SIGCONT)
                return
        give = (wants_terminal or had_terminal) and self._in_foreground()
        self._send(CONTINUE_WITH_TERMINAL if give else SIGCONT)

    def _stop_with_the_job(self) -> None:
        """At once, without waiting for the command to be stopped: a process in vfork() is only when its child is."""
        self._send(SIGTSTP)
        self.stopping = self.terminal >= 0
        # Where there is a terminal, the kernel knows whether a shell could ever continue us.
        self._pause(lambda: os.kill(os.getpid(), SIGTSTP if self.stopping else SIGSTOP))
        self._resume()

    def _resume(self) -> None:
        self._send(CONTINUE_WITH_TERMINAL if self.foreground and self._in_foreground() else SIGCONT)

    def _pause(self, stop: Callable[[], None]) -> bool:
        """Stopped until somebody says SIGCONT; False if the kernel refused. The clock does not run meanwhile."""
        before = time.monotonic()
        mask = signals.pthread_sigmask(signals.SIG_UNBLOCK, {SIGTSTP})
        stop()
        signals.pthread_sigmask(signals.SIG_SETMASK, mask)
        if self.deadline is not None:
            self.deadline += time.monotonic() - before
        return SIGCONT in signals.sigpending()

    def _in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(self.terminal) == os.getpgrp()
        except OSError:
            return False

    def _signals(self, signal_fd: int) -> None:
        for number, code in _read_signals(signal_fd):
            if number in STOPPING:
                if self._still_running():
                    self.outcome["stop_signal"] = number
                    self.outcome["typed"] = code == SI_KERNEL
                self.stop(number)
            elif number == SIGTSTP:
                self._stop_with_the_job()
            elif number == SIGCONT:
                self._resume()
            else:
                self._send(number)


def _until_ms(when: float | None) -> int | None:
    """For poll(), which counts in 31 bits: a limit of months is waited for in pieces."""
    return None if when is None else min(max(0, int((when - time.monotonic()) * 1000) + 1), 1 << 30)


def _read_signals(signal_fd: int) -> list[tuple[int, int]]:
    """(number, code) of each: the first and the third field of struct signalfd_siginfo."""
    try:
        data = os.read(signal_fd, SIGNALFD_SIZE * 16)
    except BlockingIOError:
        return []
    starts = range(0, len(data), SIGNALFD_SIZE)
    return [
        (int.from_bytes(data[at : at + 4], "little"), int.from_bytes(data[at + 8 : at + 12], "little")) for at in starts
    ]


def take_terminal(terminal: int) -> None:
    """The terminal's foreground is the caller's job again."""
    blocked = signals.pthread_sigmask(signals.SIG_BLOCK, {SIGTTOU})
    try:
        os.tcsetpgrp(terminal, os.getpgrp())
    except OSError:
        pass  # hung up: there is nothing to take
    finally:
        signals.pthread_sigmask(signals.SIG_SETMASK, blocked)
