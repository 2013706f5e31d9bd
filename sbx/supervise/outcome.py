"""What was observed -> how it ended: status, exit code, signal and the reason in words. Pure.

The first cause counts. The supervisor records a cause only while the command still runs, and only one of them, so
that a command that ended by itself a moment before its deadline or before a signal keeps its own status.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from sbx.errors import EXIT_INTERNAL, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND
from sbx.model.records import dataclass
from sbx.model.result import Status
from sbx.model.units import format_duration, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.launch.wait import Outcome

EXIT_TIMEOUT = 124
EXIT_MEM_LIMIT = 137
EXIT_CPU_LIMIT = 152

SETUID_REFUSED = 10_000  # as in launch.inside, which only Linux can import
SIGKILL, SIGTERM, SIGXCPU, SIGSYS = 9, 15, 24, 31
ENOENT, EAGAIN, ENOMEM, EACCES, ENOTDIR, ENFILE, EMFILE, E2BIG, ENOEXEC = 2, 11, 12, 13, 20, 23, 24, 7, 8

# The kernel counts CPU time in ticks, and checks the limit at one.
CPU_TOLERANCE_S = 0.1


@dataclass(frozen=True, slots=True)
class Ended:
    status: Status
    rc: int
    exit_code: int | None  # the command's own, 128+n for a signal; None on a timeout and when nothing ran
    signal: int | None
    reason: str


def judge(outcome: Outcome, limits: Mapping[str, Any]) -> Ended:
    """How it ended. `limits` are the run's, by their names in the model."""
    if outcome["failure"] is not None:
        return _failed(outcome)
    if outcome["exec_errno"] is not None:
        return _not_started(outcome["exec_errno"])
    if outcome["timed_out"]:
        return _timed_out(outcome, limits)
    if outcome["stop_signal"] is not None:
        return _stopped(outcome, outcome["stop_signal"])
    if outcome["limit"] is not None:
        return _limited(outcome, outcome["limit"], limits)
    if outcome["status"] is None:
        return _vanished(outcome)
    if term_signal(outcome["status"]):
        return _died(outcome, outcome["status"], limits)
    code = exit_status(outcome["status"])
    if code == 0:
        return Ended(Status.OK, 0, 0, None, "exited with status 0")
    return Ended(Status.EXIT, code, code, None, f"exited with status {code}")


def term_signal(status: int) -> int:
    """The signal in a wait status, 0 for an exit. By hand: the os module has these on Unix only."""
    return status & 0x7F


def exit_status(status: int) -> int:
    return status >> 8 & 0xFF


def signal_name(number: int) -> str:
    import signal  # an enum of sixty names, which a run that ends well does not need

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failed(outcome: Outcome) -> Ended:
    assert outcome["failure"] is not None
    from sbx.launch.exhausted import words_of

    step, _number, words, subject = outcome["failure"]
    after = "the command was running and was killed" if outcome["started"] else "nothing was run"
    return Ended(Status.INTERNAL_ERROR, EXIT_INTERNAL, None, None, f"{words_of(step, words, subject)}; {after}")


def _not_started(number: int) -> Ended:
    if number == SETUID_REFUSED:
        reason = "the command is a set-user-ID or set-group-ID program, which gains nothing in a sandbox: refused"
        return Ended(Status.NOT_EXECUTABLE, EXIT_NOT_EXECUTABLE, None, None, reason)
    words = os.strerror(number)
    if number in (ENOENT, ENOTDIR):
        reason = f"command not found: {words}"
        return Ended(Status.NOT_FOUND, EXIT_NOT_FOUND, None, None, reason)
    if number in (EAGAIN, ENOMEM, ENFILE, EMFILE):
        reason = f"could not start the command: {words}; nothing was run"
        return Ended(Status.INTERNAL_ERROR, EXIT_INTERNAL, None, None, reason)
    reason = f"the command could not be executed: {words}"
    return Ended(Status.NOT_EXECUTABLE, EXIT_NOT_EXECUTABLE, None, None, reason)


def _timed_out(outcome: Outcome, limits: Mapping[str, Any]) -> Ended:
    reason = "process timed out"
    if limits.get("wall_s") is not None:
        reason += f" after {format_duration(limits['wall_s'])}"
    status = outcome["status"]
    if outcome["killed"]:
        grace = limits.get("grace_s")
        patience = f" of {format_duration(grace)}" if grace is not None else ""
        reason += f"; SIGTERM was not enough, SIGKILL followed after the grace period{patience}"
        return Ended(Status.TIMEOUT, EXIT_TIMEOUT, None, SIGKILL, reason)
    ended_by = (term_signal(status) or None) if status is not None else None
    return Ended(Status.TIMEOUT, EXIT_TIMEOUT, None, ended_by, reason)


def _stopped(outcome: Outcome, number: int) -> Ended:
    reason = f"process interrupted by signal {signal_name(number)}"
    if outcome["killed"]:
        reason += "; it did not end within the grace period, SIGKILL followed"
    rc = 128 + number
    status = outcome["status"]
    own = rc
    if status is not None:
        own = 128 + term_signal(status) if term_signal(status) else exit_status(status)
    return Ended(_killed_status(number), rc, own, number, reason)


def _limited(outcome: Outcome, limit: str, limits: Mapping[str, Any]) -> Ended:
    if limit == "memory":
        size = limits.get("memory_bytes")
        what = f"the memory limit of {format_size(size)}" if size is not None else "the machine's memory"
        reason = f"out of memory: the command and what it started used up {what}, and were killed"
        return Ended(Status.MEM_LIMIT, EXIT_MEM_LIMIT, EXIT_MEM_LIMIT, SIGKILL, reason)
    if limit == "cpu":
        return _cpu_limit(limits, SIGKILL)
    if limit == "pids":
        reason = f"more than {limits.get('pids')} processes at once: the command and what it started were killed"
        return Ended(Status.KILLED_KILL, 128 + SIGKILL, 128 + SIGKILL, SIGKILL, reason)
    after = "the command was killed" if outcome["started"] else "nothing was run"
    return Ended(Status.INTERNAL_ERROR, EXIT_INTERNAL, None, None, f"could not watch the limits: {limit}; {after}")


def _cpu_limit(limits: Mapping[str, Any], number: int) -> Ended:
    limit = limits.get("cpu_s")
    what = f" of {format_duration(limit)}" if limit is not None else ""
    reason = f"the CPU time limit{what} was used up ({signal_name(number)})"
    return Ended(Status.CPU_LIMIT, EXIT_CPU_LIMIT, EXIT_CPU_LIMIT, number, reason)


def _vanished(outcome: Outcome) -> Ended:
    """The sandbox's first process is gone without a word: only SIGKILL does that, and it was not ours."""
    if outcome["started"]:
        reason = "the sandbox was killed from outside (SIGKILL): by a person, or by the machine running out of memory"
        return Ended(Status.KILLED_KILL, 128 + SIGKILL, 128 + SIGKILL, SIGKILL, reason)
    reason = "the sandbox was killed from outside while it was set up; nothing was run"
    return Ended(Status.INTERNAL_ERROR, EXIT_INTERNAL, None, None, reason)


def _died(outcome: Outcome, status: int, limits: Mapping[str, Any]) -> Ended:
    number = term_signal(status)
    cpu_limit = limits.get("cpu_s")
    if number in (SIGXCPU, SIGKILL) and cpu_limit is not None and outcome["cpu_s"] + CPU_TOLERANCE_S >= cpu_limit:
        return _cpu_limit(limits, number)
    rc = 128 + number
    if number == SIGSYS:
        reason = (
            "killed by SIGSYS: it made a system call that the sandbox forbids (a foreign architecture's), "
            "or raised the signal itself"
        )
        return Ended(Status.FORBIDDEN_SYSCALL, rc, rc, number, reason)
    core = ", core dumped" if status & 0x80 else ""
    by_whom = "" if number != SIGKILL else "; not by a limit of sbx"
    reason = f"killed by signal {signal_name(number)}{core}{by_whom}"
    return Ended(_killed_status(number), rc, rc, number, reason)


def _killed_status(number: int) -> Status:
    if number == SIGKILL:
        return Status.KILLED_KILL
    return Status.KILLED_TERM if number == SIGTERM else Status.KILLED_SIGNAL
