"""What was observed -> how it ended: every status, and every race between them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from sbx.model.result import Status
from sbx.supervise.outcome import judge, signal_name

if TYPE_CHECKING:
    from sbx.launch.wait import Outcome

LIMITS = {"wall_s": 2.0, "cpu_s": 3.0, "memory_bytes": 64 << 20, "grace_s": 5.0}


def seen(**what: Any) -> Outcome:
    outcome: Outcome = {
        "started": True,
        "failure": None,
        "exec_errno": None,
        "status": None,
        "cpu_s": 0.0,
        "max_rss_bytes": 0,
        "duration_s": 0.0,
        "timed_out": False,
        "stop_signal": None,
        "killed": False,
        "limit": None,
    }
    outcome.update(what)  # type: ignore[typeddict-item]
    return outcome


def exited(code: int) -> int:
    return code << 8


def by(number: int) -> int:
    return number


@pytest.mark.parametrize(
    ("observed", "status", "rc", "exit_code", "number"),
    [
        (seen(status=exited(0)), Status.OK, 0, 0, None),
        (seen(status=exited(3)), Status.EXIT, 3, 3, None),
        # its own exit codes that look like ours stay its own
        (seen(status=exited(124)), Status.EXIT, 124, 124, None),
        (seen(status=exited(125)), Status.EXIT, 125, 125, None),
        (seen(status=exited(137)), Status.EXIT, 137, 137, None),
        # deaths by signal, none of them a limit's
        (seen(status=by(9)), Status.KILLED_KILL, 137, 137, 9),
        (seen(status=by(15)), Status.KILLED_TERM, 143, 143, 15),
        (seen(status=by(11) | 0x80), Status.KILLED_SIGNAL, 139, 139, 11),
        (seen(status=by(2)), Status.KILLED_SIGNAL, 130, 130, 2),
        (seen(status=by(24), cpu_s=0.01), Status.KILLED_SIGNAL, 152, 152, 24),
        (seen(status=by(34)), Status.KILLED_SIGNAL, 162, 162, 34),
        (seen(status=by(31)), Status.FORBIDDEN_SYSCALL, 159, 159, 31),
        # CPU: the kernel's own limit, the watcher's
        (seen(status=by(24), cpu_s=3.0), Status.CPU_LIMIT, 152, 152, 24),
        (seen(status=by(9), cpu_s=3.95), Status.CPU_LIMIT, 152, 152, 9),
        (seen(limit="cpu", killed=True), Status.CPU_LIMIT, 152, 152, 9),
        (seen(limit="memory", killed=True), Status.MEM_LIMIT, 137, 137, 9),
        (seen(limit="pids", killed=True), Status.KILLED_KILL, 137, 137, 9),
        (seen(limit="memory", status=by(9)), Status.MEM_LIMIT, 137, 137, 9),
        # a handler that ends well on TERM is still a timeout
        (seen(timed_out=True, status=exited(0)), Status.TIMEOUT, 124, None, None),
        (seen(timed_out=True, status=by(15)), Status.TIMEOUT, 124, None, 15),
        (seen(timed_out=True, killed=True), Status.TIMEOUT, 124, None, 9),
        # an OOM kill while it was being stopped does not change the cause
        (seen(timed_out=True, killed=True, limit="memory"), Status.TIMEOUT, 124, None, 9),
        (seen(stop_signal=2, status=by(2)), Status.KILLED_SIGNAL, 130, 130, 2),
        (seen(stop_signal=2, status=exited(0)), Status.KILLED_SIGNAL, 130, 0, 2),
        (seen(stop_signal=15, status=by(15)), Status.KILLED_TERM, 143, 143, 15),
        (seen(stop_signal=1, killed=True), Status.KILLED_SIGNAL, 129, 129, 1),
        (seen(stop_signal=15, limit="memory"), Status.KILLED_TERM, 143, 143, 15),
        # before the command
        (seen(started=False, exec_errno=2), Status.NOT_FOUND, 127, None, None),
        (seen(started=False, exec_errno=20), Status.NOT_FOUND, 127, None, None),
        (seen(started=False, exec_errno=13), Status.NOT_EXECUTABLE, 126, None, None),
        (seen(started=False, exec_errno=7), Status.NOT_EXECUTABLE, 126, None, None),
        (seen(started=False, exec_errno=11), Status.INTERNAL_ERROR, 125, None, None),
        (seen(started=False, exec_errno=24), Status.INTERNAL_ERROR, 125, None, None),
        (seen(started=False, failure=("mount /x", 1, "EPERM", b"")), Status.INTERNAL_ERROR, 125, None, None),
        (seen(started=False, stop_signal=15), Status.KILLED_TERM, 143, 143, 15),
        (seen(started=False, timed_out=True), Status.TIMEOUT, 124, None, None),
        (seen(started=False), Status.INTERNAL_ERROR, 125, None, None),
        # from outside, or a failure of sbx while it ran
        (seen(), Status.KILLED_KILL, 137, 137, 9),
        (seen(limit="psutil is missing", killed=True), Status.INTERNAL_ERROR, 125, None, None),
        (seen(failure=("write its standard input", 0, "x", b""), killed=True), Status.INTERNAL_ERROR, 125, None, None),
    ],
)
def test_every_ending(observed: Outcome, status: Status, rc: int, exit_code: int | None, number: int | None) -> None:
    ended = judge(observed, LIMITS)
    assert (ended.status, ended.rc, ended.exit_code, ended.signal) == (status, rc, exit_code, number)
    assert ended.reason


def test_without_a_cpu_limit_sigxcpu_is_only_a_signal() -> None:
    assert judge(seen(status=by(24), cpu_s=999.0), {}).status is Status.KILLED_SIGNAL


@pytest.mark.parametrize(
    ("observed", "words"),
    [
        (seen(timed_out=True, killed=True), ["process timed out after 2s", "SIGKILL", "5s"]),
        (seen(timed_out=True, status=by(15)), ["process timed out after 2s"]),
        (seen(stop_signal=2, status=by(2)), ["process interrupted by signal SIGINT"]),
        (seen(limit="memory"), ["memory limit of 64MiB"]),
        (seen(limit="cpu"), ["CPU time limit of 3s"]),
        (seen(status=by(9)), ["SIGKILL", "not by a limit"]),
        (
            seen(started=False, failure=("bind", 13, "EACCES: refused", b"/x")),
            ["bind /x", "refused", "nothing was run"],
        ),
        (seen(failure=("write its standard input", 5, "EIO", b"")), ["standard input", "was killed"]),
        (seen(limit="no psutil"), ["no psutil", "was killed"]),
        (seen(started=False, exec_errno=13), ["Permission denied"]),
    ],
)
def test_reasons_name_the_cause(observed: Outcome, words: list[str]) -> None:
    reason = judge(observed, LIMITS).reason
    assert [word for word in words if word not in reason] == []


def test_signal_names() -> None:
    assert signal_name(signal.SIGTERM) == "SIGTERM"
    assert signal_name(63) == "signal 63"
