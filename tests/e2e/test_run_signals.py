"""Signals to sbx: once, to the whole group, with grace; and nothing that outlives the run, however it ends."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runs import PATIENCE_S, PYTHON, READ_PYTHON, Host, python, read_line

if TYPE_CHECKING:
    from conftest import Workspace

# Says what it hears, and ends with the marker that is sent last: whatever arrives twice is heard before it.
LISTENS = """
import os, signal
def heard(number, frame):
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
    if number == signal.SIGUSR1: os._exit(0)
for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
    signal.signal(getattr(signal, name), heard)
os.write(1, b"ready\\n")
while True: signal.pause()
"""
STOPPING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT]


def names(numbers: list[signal.Signals]) -> list[str]:
    return [number.name for number in numbers]


@pytest.mark.parametrize("number", STOPPING, ids=names(STOPPING))
@pytest.mark.parametrize("to_group", [False, True], ids=["to-sbx", "to-its-group"])
def test_a_signal_arrives_once(host: Host, workspace: Workspace, number: signal.Signals, to_group: bool) -> None:
    with host.started(*python(LISTENS), start_new_session=True) as process:
        assert read_line(process) == b"ready\n"
        (os.killpg if to_group else os.kill)(process.pid, number)
        assert read_line(process).decode().strip() == number.name
        os.kill(process.pid, signal.SIGUSR1)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert out == b"SIGUSR1\n"
        assert process.returncode == 128 + number
        assert f"process interrupted by signal {number.name}".encode() in err


def test_user_signals_are_passed_on_and_end_nothing(host: Host) -> None:
    with host.started(*python(LISTENS)) as process:
        assert read_line(process) == b"ready\n"
        os.kill(process.pid, signal.SIGUSR2)
        assert read_line(process) == b"SIGUSR2\n"
        os.kill(process.pid, signal.SIGUSR1)
        out, err = process.communicate(timeout=PATIENCE_S)
        assert (out, process.returncode) == (b"SIGUSR1\n", 0)
        assert b"interrupted" not in err


@pytest.mark.parametrize("number", STOPPING, ids=names(STOPPING))
def test_the_whole_group_hears_it(host: Host, number: signal.Signals) -> None:
    text = "sleep 1000 & sleep 1000 & echo ready; wait"
    with host.started("--", "sh", "-c", text) as process:
        read_line(process)
        os.kill(process.pid, number)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (out, process.returncode) == (b"", 128 + number)


def test_a_signal_that_the_caller_ignores_stays_ignored(host: Host) -> None:
    """nohup."""
    with host.started(*python(LISTENS), preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        assert read_line(process) == b"ready\n"
        os.kill(process.pid, signal.SIGHUP)
        os.kill(process.pid, signal.SIGUSR1)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (out, process.returncode) == (b"SIGUSR1\n", 0)


def test_the_command_has_the_signals_blocked_and_ignored_that_its_caller_has_and_no_others(host: Host) -> None:
    # What starts a CI's steps may ignore signals itself, even those which no C library names. The two of the GNU C
    # library's threads its posix_spawn ignores in every new process; a program that has threads takes them back.
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    of_threads = 1 << 31 | 1 << 32  # signals 32 and 33

    def masks(status: bytes) -> list[tuple[bytes, int]]:
        return [(line.split()[0], int(line.split()[1], 16) & ~of_threads) for line in status.splitlines()]

    bare = subprocess.run(command, capture_output=True, check=True, timeout=PATIENCE_S).stdout
    assert (b"SigBlk:", 0) in masks(bare)
    assert masks(host.run("--", *command).stdout) == masks(bare)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_grace_then_sigkill(host: Host, number: signal.Signals) -> None:
    ignoring = ["env", "--ignore-signal=TERM,INT", "sh", "-c", "echo ready; sleep 1000"]
    with host.started("--grace", "100ms", "--", *ignoring) as process:
        read_line(process)
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + number
        assert b"did not end within the grace period" in err


def test_what_the_command_does_within_the_grace_period_is_done(host: Host) -> None:
    text = "trap 'echo tidy; exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done"
    with host.started("--grace", "60s", "--", "sh", "-c", text) as process:
        read_line(process)
        os.kill(process.pid, signal.SIGTERM)
        out, _ = process.communicate(timeout=PATIENCE_S)
        assert (out, process.returncode) == (b"tidy\n", 143)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_stopped_command_hears_it_too(host: Host, number: signal.Signals) -> None:
    stops = "import os, signal; os.write(1, b'ready\\n'); os.kill(os.getpid(), signal.SIGSTOP)"
    with host.started(*python(stops)) as process:
        read_line(process)
        os.kill(process.pid, number)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 128 + number


def test_a_stopped_command_times_out(host: Host) -> None:
    assert host.run("--timeout", "300ms", "--", "sh", "-c", "kill -STOP $$").returncode == 124


def test_sbx_stopped_and_continued(here: Host) -> None:
    """kill -TSTP and kill -CONT: the command stops and goes on with it."""
    with here.started(*python(LISTENS)) as process:
        assert read_line(process) == b"ready\n"
        os.kill(process.pid, signal.SIGTSTP)
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        os.kill(process.pid, signal.SIGCONT)
        os.kill(process.pid, signal.SIGUSR1)
        assert read_line(process) == b"SIGUSR1\n"


# A daemon as the books have it; it would hold the output open for a long time.
DAEMON = """
import os, signal
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)
        os.write(1, b"daemon\\n")
        while True: signal.pause()
    os._exit(0)
if os.fork() == 0:
    os.setpgid(0, 0)
    os.write(1, b"other group\\n")
    os.kill(os.getpid(), signal.SIGSTOP)
if os.fork() == 0:
    os.setsid()
    os.write(1, b"other session\\n")
    while True: signal.pause()
"""
SURVIVORS = {b"daemon\n", b"other group\n", b"other session\n"}


def test_nothing_survives_the_end_of_the_command(host: Host) -> None:
    code = DAEMON + "os.read(0, 1)"
    with host.started(*python(code), stdin=subprocess.PIPE) as process:
        assert {read_line(process) for _ in range(3)} == SURVIVORS
        # The end of the output comes when the last of them is gone.
        out, _ = process.communicate(b"x", timeout=PATIENCE_S)
        assert (out, process.returncode) == (b"", 0)


@pytest.mark.parametrize("way", ["timeout", "signal", "sigkill", "sigkill-group"])
def test_nothing_survives_any_other_end(host: Host, way: str) -> None:
    code = DAEMON + "\nwhile True: signal.pause()"
    options = ("--timeout", "1s", "--grace", "100ms") if way == "timeout" else ()
    with host.started(*options, *python(code), start_new_session=True) as process:
        if way != "timeout":
            assert {read_line(process) for _ in range(3)} == SURVIVORS
        if way == "signal":
            os.kill(process.pid, signal.SIGTERM)
        elif way == "sigkill":
            os.kill(process.pid, signal.SIGKILL)
        elif way == "sigkill-group":
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=PATIENCE_S)  # to the end of the output
        assert process.returncode == {"timeout": 124, "signal": 143}.get(way, -signal.SIGKILL)


def test_a_fork_bomb_ends_with_the_run(here: Host) -> None:
    """As one that is cut down by its limits while it still forks."""
    code = "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass"
    done = here.run("--pids", "60", "--timeout", "1s", "--grace", "100ms", *python(code))
    assert done.returncode in (124, 137)


def test_the_command_cannot_end_its_supervisor(host: Host) -> None:
    """Not by its parent's number, and not by shooting at everything that can be seen."""
    code = (
        "import os, signal\n"
        "signal.signal(15, signal.SIG_IGN)\n"
        "for target in (os.getppid(), -1):\n"
        "    try: os.kill(target, 15)\n"
        "    except OSError: pass\n"
        "try: os.kill(os.getppid(), 9)\n"
        "except OSError: pass\n"
        "print('here')\n"
    )
    done = host.run(*python(code))
    assert (done.stdout, done.returncode) == (b"here\n", 0)


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_sigkill_at_random_moments(host: Host, workspace: Workspace, state: str) -> None:
    """200 times in all: no process, no mount and no file may stay; the frame of the tests looks for the first two."""
    code = DAEMON + "\nwhile True: signal.pause()"
    arguments = (*READ_PYTHON, "--", PYTHON, "-I", "-c", code)
    cache = Path(os.environ["XDG_CACHE_HOME"]) / "sbx"
    dice = random.Random(f"{host.name} {state}")
    if state == "warm":
        host.run(*READ_PYTHON, "--", "true")  # the plan does not depend on the command
    for _ in range(30 if state == "cold" else 70):
        if state == "cold":
            for entry in cache.glob("plans/*"):
                entry.unlink()
        with host.started(*arguments) as process:
            assert process.stdout is not None
            poll = select.poll()
            poll.register(process.stdout, 0)  # nothing but its end
            poll.poll(dice.uniform(0, 400 if state == "cold" else 120))
            process.kill()
            process.communicate(timeout=PATIENCE_S)  # comes back when nobody holds the output any more
            assert process.returncode == -signal.SIGKILL
    assert list(workspace.root.iterdir()) == []
    assert host.run("--", "true").returncode == 0
