"""Every status by a real process, on both kinds of hosts, and the same again the next time."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from capabilities import requires
from runs import PYTHON, READ_PYTHON, Host, python

if TYPE_CHECKING:
    from conftest import Workspace

HUNGRY = "import signal; kept = bytearray(400 << 20); kept[::4096] = bytes(b'x' * len(kept[::4096])); signal.pause()"
FOREIGN = {
    # The x32 door of the same kernel, which a filter for x86-64 alone would leave open.
    "x86_64": "import ctypes; ctypes.CDLL(None).syscall(0x40000000 + 39)",
}.get(os.uname().machine, "import os, signal; os.kill(os.getpid(), signal.SIGSYS)")


@dataclass(frozen=True)
class Case:
    name: str
    arguments: tuple[str, ...]
    status: str
    rc: int
    exit_code: int | None
    signal: int | None = None
    words: str = ""


def sh(text: str) -> tuple[str, ...]:
    return ("--", "sh", "-c", text)


CASES = [
    Case("ok", ("--", "true"), "OK", 0, 0),
    Case("exit", sh("exit 3"), "EXIT", 3, 3),
    Case("exit-of-255", sh("exit 255"), "EXIT", 255, 255),
    Case("exit-like-a-timeout", sh("exit 124"), "EXIT", 124, 124),
    Case("exit-like-a-failure", sh("exit 125"), "EXIT", 125, 125),
    Case("exit-like-a-kill", sh("exit 137"), "EXIT", 137, 137),
    Case("timeout", ("--timeout", "300ms", "--", "sleep", "1000"), "TIMEOUT", 124, None, 15, "timed out"),
    Case(
        "timeout-kill",
        ("--timeout", "1s", "--grace", "100ms", "--", "env", "--ignore-signal=TERM", "sleep", "1000"),
        "TIMEOUT", 124, None, 9, "SIGKILL",
    ),
    Case("timeout-of-a-polite-one", ("--timeout", "1s", *sh("trap 'exit 7' TERM; sleep 1000 & wait")),
         "TIMEOUT", 124, None, None),
    Case("internal-error", ("--timeout", "soon", "--", "true"), "INTERNAL_ERROR", 125, None, None, "soon"),
    Case("not-executable", ("--", "./data"), "NOT_EXECUTABLE", 126, None, None, "Permission denied"),
    Case("a-directory", ("--", "/usr"), "NOT_EXECUTABLE", 126, None),
    Case("not-found", ("--", "no-such-command-anywhere"), "NOT_FOUND", 127, None),
    Case("not-found-by-path", ("--", "./missing/command"), "NOT_FOUND", 127, None),
    Case("memory", ("--memory", "100M", *python(HUNGRY)), "MEM_LIMIT", 137, 137, 9, "memory limit"),
    Case("killed", sh("kill -KILL $$"), "KILLED_KILL", 137, 137, 9, "not by a limit"),
    Case("terminated", sh("kill -TERM $$"), "KILLED_TERM", 143, 143, 15),
    Case("signalled", sh("kill -USR1 $$"), "KILLED_SIGNAL", 138, 138, 10, "SIGUSR1"),
    Case("cpu", ("--cpu", "300ms", *sh("while :; do :; done")), "CPU_LIMIT", 152, 152, None, "CPU time"),
    Case("cpu-of-the-tree", ("--cpu", "500ms", *sh("while :; do :; done & while :; do :; done & wait")),
         "CPU_LIMIT", 152, 152, None, "CPU time"),
    Case("forbidden", python(FOREIGN), "FORBIDDEN_SYSCALL", 159, 159, 31, "SIGSYS"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_every_status_twice_in_a_row(case: Case, host: Host, workspace: Workspace) -> None:
    workspace.write("data", "no program\n").chmod(0o644)
    first = host.result(workspace.root, *case.arguments)
    assert (first["status"], first["rc"], first["seen"]) == (case.status, case.rc, case.rc), first["reason"]
    assert first["exit_code"] == case.exit_code
    assert case.words in first["reason"]
    if case.signal is not None:
        assert first["signal"] == case.signal
    if case.status != "INTERNAL_ERROR":
        assert first["backend"] == host.name
        assert first["enforced"]
        lacking = [name for name, row in first["enforced"].items() if row["requested"] and not row["applied"]]
        assert bool(lacking) == ("PARTIAL_ENFORCEMENT" in first["reason"])
        assert bool(lacking) == (host.name == "landlock")

    second = host.result(workspace.root, *case.arguments)
    same = ("status", "rc", "exit_code", "enforced", "backend", "cmd", "profile")
    assert {name: second[name] for name in same} == {name: first[name] for name in same}
    # Without a record it goes the short way, from the stored plan.
    assert [host.run(*case.arguments).returncode for _ in range(2)] == [case.rc, case.rc]


@requires(tools=["timeout"])
@pytest.mark.parametrize(
    "ours",
    [
        ["--", "true"],
        ["--", "false"],
        ["--", "sh", "-c", "exit 17"],
        ["--timeout", "0.2", "--", "sleep", "1000"],
        ["--timeout", "0", "--", "true"],
        ["--timeout", "0.5s", "--", "sleep", "1000"],
        ["--", "no-such-command-anywhere"],
        ["--", "./data"],
        ["--", "/"],
        ["--timeout", "nonsense", "--", "true"],
        ["--no-such-option", "--", "true"],
        ["--"],
    ],
    ids=" ".join,
)
def test_exit_codes_are_those_of_gnu_timeout(ours: list[str], here: Host, workspace: Workspace) -> None:
    workspace.write("data", "no program\n").chmod(0o644)
    theirs = ["timeout"]
    if ours[0] == "--timeout":
        theirs += ["--", ours[1], *ours[3:]]
    elif ours[0] == "--":
        theirs += ["--", "60", *ours[1:]]
    else:
        theirs += ours
    expected = subprocess.run(theirs, capture_output=True, check=False).returncode
    assert here.run(*ours).returncode == expected


@requires(tools=["timeout"])
def test_where_sbx_differs_from_gnu_timeout(here: Host) -> None:
    """docs/exit-codes.md lists these."""
    died = ["sh", "-c", "kill -TERM $$"]
    # timeout dies of the command's signal itself; sbx exits with 128+n, what a shell would say of both.
    assert subprocess.run(["timeout", "60", *died], check=False).returncode == -signal.SIGTERM
    assert here.run("--", *died).returncode == 128 + signal.SIGTERM
    # A command that needed SIGKILL: timeout says 137, sbx says that it was the clock.
    stubborn = ["env", "--ignore-signal=TERM", "sleep", "1000"]
    theirs = subprocess.run(["timeout", "-k", "0.1", "0.5", *stubborn], check=False).returncode
    assert theirs in (137, -9)
    assert here.run("--timeout", "0.5", "--grace", "0.1", "--", *stubborn).returncode == 124


def test_a_command_that_ends_at_its_deadline_has_one_status(here: Host, workspace: Workspace) -> None:
    """Exit and timeout race; either may win, and then everything says the same."""
    for _ in range(20):
        found = here.result(workspace.root, "--timeout", "60ms", "--", "sleep", "0.05")
        assert (found["status"], found["rc"], found["exit_code"]) in (("OK", 0, 0), ("TIMEOUT", 124, None))
        assert found["seen"] == found["rc"]


def test_usage_is_measured(host: Host, workspace: Workspace) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nkept = b'x' * (64 << 20)"
    usage = host.result(workspace.root, *python(busy))["usage"]
    assert usage["cpu_ms"] >= 300
    assert usage["max_rss_bytes"] >= 64 << 20


def test_a_limit_of_descriptors(host: Host, workspace: Workspace) -> None:
    found = host.run("--nofile", "33", "--", "sh", "-c", "ulimit -n; ulimit -Hn")
    assert found.stdout.split() == [b"33", b"33"]


def test_a_limit_of_processes_holds_for_the_run_alone(host: Host) -> None:
    code = (
        "import os, signal\n"
        "made = 0\n"
        "try:\n"
        "    while made < 50:\n"
        "        if os.fork() == 0: signal.pause()\n"
        "        made += 1\n"
        "except OSError as error: print(made, error.strerror, flush=True)\n"
        "else: signal.pause()\n"
    )
    done = host.run("--pids", "10", *READ_PYTHON, "--", PYTHON, "-I", "-c", code)
    if done.returncode == 0:  # the kernel refused the eleventh
        assert done.stdout == b"9 Resource temporarily unavailable\n"
    else:  # sampling ended it
        assert done.returncode == 137
        assert b"more than 10 processes" in done.stderr


@requires("userns", tools=["setpriv"])
def test_a_command_that_wants_to_end_with_its_parent_lives_as_long_as_it(host: Host) -> None:
    """The parent is a thread of pid 1: where it ended, the kernel would send the signal at once. With luck the command
    was quicker, so it is tried more than once."""
    script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; echo alive"
    for _ in range(8):
        done = host.run("--", "setpriv", "--pdeathsig", "TERM", "sh", "-c", script)
        assert (done.returncode, done.stdout) == (0, b"alive\n"), done.stderr
