"""The signals sbx answers to, heard through a descriptor: all that the supervisor needs before the start."""

from __future__ import annotations

import sys

from sbx.kernel import process, signals

assert sys.platform == "linux"  # for type checkers on other platforms

STOPPING = (1, 2, 3, 15)  # HUP INT QUIT TERM: the command gets it, then grace, then SIGKILL
PASSED_ON = (10, 12, 28)  # USR1 USR2 WINCH
SIGTSTP, SIGCONT = 20, 18


def watched_signals() -> tuple[int, ...]:
    """The signals sbx answers to; one that the caller ignores (nohup, a background job) stays ignored."""
    return tuple(
        number for number in (*STOPPING, *PASSED_ON, SIGTSTP, SIGCONT) if signals.getsignal(number) != signals.SIG_IGN
    )


def open_signal_fd(numbers: tuple[int, ...]) -> tuple[int, set[int]]:
    """Block the signals and read them from a descriptor. Returns it and the mask to restore."""
    blocked = signals.pthread_sigmask(signals.SIG_BLOCK, set(numbers))
    return process.signalfd(numbers), {int(number) for number in blocked}
