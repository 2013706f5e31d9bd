"""The supervisor's loop against a stand-in for pid 1 inside, which says on its pipe what the real one would say."""

from __future__ import annotations

import marshal
import os
import subprocess
import sys

import pytest

from sbx.launch.inside import EXITED, STARTED
from sbx.launch.streams import StdinFeeder, StreamPump
from sbx.launch.wait import Supervisor

SAY = """
import marshal, os, select, signal, sys
fd = int(sys.argv[1])
def say(*message):
    data = marshal.dumps(message)
    os.write(fd, len(data).to_bytes(4, "little") + data)
"""
WAIT_FOR_TERM = """
signal.pthread_sigmask(signal.SIG_BLOCK, [15])
say(1, 2)
signal.sigwait([15])
"""


def stand_in(script: str, **options: object) -> Supervisor:
    read_fd, write_fd = os.pipe()
    keep = [write_fd, *options.pop("pass_fds", ())]  # type: ignore[misc]
    child = subprocess.Popen([sys.executable, "-I", "-c", SAY + script, str(write_fd)], pass_fds=keep)
    for descriptor in keep:
        os.close(descriptor)
    child.returncode = 0  # the supervisor reaps it
    return Supervisor(child.pid, read_fd, **options)  # type: ignore[arg-type]


def started(supervisor: Supervisor) -> Supervisor:
    """Past the first message, so that the clock and the stand-in do not race."""
    supervisor._messages()
    assert supervisor.outcome["started"]
    return supervisor


def test_the_messages_are_as_the_real_one_writes_them() -> None:
    assert (STARTED, EXITED) == (1, 5)
    assert marshal.loads(marshal.dumps((STARTED, 2))) == (1, 2)


def test_an_exit() -> None:
    outcome = stand_in("say(1, 2); say(5, 3 << 8, 0.25, 0.5, 10)").run()
    assert (outcome["started"], outcome["status"], outcome["cpu_s"], outcome["max_rss_bytes"]) == (
        True,
        768,
        0.75,
        10240,
    )
    assert not outcome["timed_out"]


def test_the_deadline_and_an_answer_to_sigterm() -> None:
    outcome = started(stand_in(WAIT_FOR_TERM + "say(5, 0, 0.0, 0.0, 1)", wall_s=0.01)).run()
    assert (outcome["timed_out"], outcome["killed"], outcome["status"]) == (True, False, 0)


def test_no_answer_to_sigterm() -> None:
    script = "signal.signal(15, signal.SIG_IGN); say(1, 2); select.select([], [], [])"
    outcome = started(stand_in(script, wall_s=0.01, grace_s=0.01)).run()
    assert (outcome["timed_out"], outcome["killed"]) == (True, True)


def test_an_exit_that_is_in_the_pipe_when_the_deadline_passes_is_an_exit() -> None:
    supervisor = stand_in("say(1, 2); say(5, 0, 0.0, 0.0, 1)")
    # Both are there before the loop looks for the first time.
    os.waitid(os.P_PID, supervisor.pid, os.WEXITED | os.WNOWAIT)
    supervisor.deadline = supervisor.began
    supervisor._clock()
    assert not supervisor.outcome["timed_out"]
    assert supervisor.run()["status"] == 0


@pytest.mark.parametrize("answer", ["memory", "cpu"])
def test_a_watcher_ends_the_run(answer: str) -> None:
    outcome = stand_in("say(1, 2); select.select([], [], [])", watch=lambda: answer).run()
    assert (outcome["limit"], outcome["killed"], outcome["status"]) == (answer, True, None)


def test_the_first_cause_counts() -> None:
    looks = iter([None, None, None])
    script = "signal.signal(15, signal.SIG_IGN); say(1, 2); select.select([], [], [])"
    outcome = started(
        stand_in(script, wall_s=0.0, grace_s=60.0, watch=lambda: next(looks, "memory"), watch_interval_s=0.01)
    ).run()
    assert (outcome["timed_out"], outcome["limit"], outcome["killed"]) == (True, None, True)


def test_what_the_command_wrote_reaches_a_slow_caller_after_its_end() -> None:
    out_read, out_write = os.pipe()
    read_fd, write_fd = os.pipe()
    pump = StreamPump(read_fd, out_write, cap_bytes=1 << 30)
    script = f"say(1, 2); os.write({write_fd}, b'x' * 65000); say(5, 0, 0.0, 0.0, 1)"
    os.set_blocking(out_write, False)
    os.write(out_write, bytes(60000))
    os.set_blocking(out_write, True)
    supervisor = stand_in(script, pumps=(pump,), pass_fds=(write_fd,))
    reader = subprocess.Popen(
        [sys.executable, "-I", "-c", "import sys; print(len(sys.stdin.buffer.read()))"],
        stdin=out_read,
        stdout=subprocess.PIPE,
    )
    os.close(out_read)
    supervisor.run()
    os.close(out_write)
    assert int(reader.communicate()[0]) == 125000


def test_a_caller_who_never_reads_does_not_hold_up_a_timeout() -> None:
    out_read, out_write = os.pipe()
    read_fd, write_fd = os.pipe()
    pump = StreamPump(read_fd, out_write, cap_bytes=1 << 30)
    script = f"say(1, 2)\nwhile True: os.write({write_fd}, b'x' * 65536)"
    outcome = stand_in(script, pumps=(pump,), pass_fds=(write_fd,), wall_s=0.5, grace_s=0.1).run()
    assert outcome["timed_out"]
    assert pump.undelivered > 0
    os.close(out_read)
    os.close(out_write)


def test_a_failing_stdin_writer_ends_the_run() -> None:
    def source() -> object:
        yield b"x"
        raise ValueError("broken source")

    read_fd, write_fd = os.pipe()
    feeder = StdinFeeder(write_fd, source())  # type: ignore[arg-type]
    outcome = stand_in("say(1, 2); select.select([], [], [])", pumps=(feeder,), pass_fds=(read_fd,)).run()
    assert outcome["failure"] == ("write its standard input", 0, "broken source", b"")
    assert outcome["killed"]
