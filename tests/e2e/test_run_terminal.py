"""A terminal stays a terminal: each behaviour as a person at the keyboard meets it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shlex
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pexpect
import pytest
from capabilities import requires
from runs import PATIENCE_S, PYTHON, READ_PYTHON, Host

if TYPE_CHECKING:
    from conftest import Workspace

pytestmark = pytest.mark.usefixtures("workspace")

PROMPT = "shell-is-here> "
CTRL_BACKSLASH, CTRL_C, CTRL_D, CTRL_Z = "\x1c", "\x03", "\x04", "\x1a"


@contextmanager
def terminal(argv: list[str], **more: Any) -> Iterator[pexpect.spawn[str]]:
    env = {**os.environ, "TERM": "xterm", "HISTFILE": "", **more.pop("env", {})}
    child = pexpect.spawn(argv[0], argv[1:], env=env, encoding="utf-8", timeout=PATIENCE_S, echo=False, **more)
    child.delaybeforesend = None
    try:
        yield child
    finally:
        child.close(force=True)


@contextmanager
def at(host: Host, *arguments: str, **more: Any) -> Iterator[pexpect.spawn[str]]:
    """sbx directly on a terminal."""
    with terminal(host.argv(*arguments), **more) as child:
        yield child


@contextmanager
def shell(host: Host, **more: Any) -> Iterator[pexpect.spawn[str]]:
    """An interactive bash with job control. `sbx-run` is the command under test."""
    with terminal(["bash", "--norc", "--noprofile", "-i"], **more) as child:
        child.sendline(f"PS1='shell-is'-here'> '; stty -echo; sbx-run() {{ {shlex.join(host.argv())} \"$@\"; }}")
        child.expect_exact(PROMPT)
        # An alias, since a function would run in a process of its own when it is put into the background.
        say(child, f"unset -f sbx-run; shopt -s expand_aliases; alias sbx-run={shlex.quote(shlex.join(host.argv()))}")
        yield child


def say(child: pexpect.spawn[str], line: str) -> str:
    """Type a line, and what came back until the next prompt."""
    child.sendline(line)
    child.expect_exact(PROMPT)
    return str(child.before)


def end(child: pexpect.spawn[str]) -> int:
    """The exit status, 128+n for a death by signal: what a shell would say."""
    child.expect(pexpect.EOF)
    child.wait()
    return 128 + child.signalstatus if child.signalstatus is not None else child.exitstatus or 0


def python(code: str) -> tuple[str, ...]:
    return (*READ_PYTHON, "--", PYTHON, "-I", "-c", code)


def waits(*mark: str) -> tuple[str, ...]:
    """Says that it is ready and waits for a key that ends it. Not the shell: between two commands dash loses Ctrl-C."""
    code = (
        "import resource, signal, sys; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); "
        "signal.signal(signal.SIGINT, signal.SIG_DFL); print(sys.argv[1], flush=True); signal.pause()"
    )
    return (*python(code), *mark)


def settings(child: pexpect.spawn[str]) -> list[Any]:
    return termios.tcgetattr(child.child_fd)[:4]


def test_a_repl(host: Host, workspace: Workspace) -> None:
    with at(host, *READ_PYTHON, "--", PYTHON, "-I", "-q") as child:
        child.expect_exact(">>> ")
        child.sendline("6 * 7")
        child.expect_exact("42")
        child.expect_exact(">>> ")
        child.send(CTRL_C)
        child.expect_exact("KeyboardInterrupt")
        child.expect_exact(">>> ")
        child.send(CTRL_D)
        assert end(child) == 0


@requires(tools=["vi"])
def test_vi(here: Host, workspace: Workspace) -> None:
    with at(here, "--", "vi", "-u", "NONE", "-n", "note.txt") as child:
        child.expect_exact("note.txt")
        child.send("ihello from vi\x1b:wq\r")
        assert end(child) == 0
    assert (workspace.root / "note.txt").read_text() == "hello from vi\n"


@requires(tools=["less"])
def test_less(here: Host, workspace: Workspace) -> None:
    workspace.write("long.txt", "".join(f"line {number}\n" for number in range(500)))
    with at(here, "--", "less", "long.txt", dimensions=(24, 80)) as child:
        child.expect_exact("line 1")
        child.send("G")
        child.expect_exact("line 499")
        child.send("q")
        assert end(child) == 0


def test_colours_and_size(host: Host) -> None:
    code = "import os, sys; print([os.isatty(n) for n in (0, 1, 2)], *os.get_terminal_size())"
    with at(host, *python(code), dimensions=(31, 97)) as child:
        child.expect_exact("[True, True, True] 97 31")
        assert end(child) == 0


def test_the_controlling_terminal_is_the_callers(host: Host) -> None:
    """Prompts for passwords open /dev/tty."""
    code = "t = open('/dev/tty', 'r+b', buffering=0); t.write(b'name? '); print('got', t.readline().decode().strip())"
    with at(host, *python(code)) as child:
        child.expect_exact("name? ")
        child.sendline("ada")
        child.expect_exact("got ada")
        assert end(child) == 0


def test_resize(host: Host) -> None:
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])\n"
        "print('ready', flush=True)\n"
        "signal.sigwait([signal.SIGWINCH])\n"
        "print('now', *os.get_terminal_size())\n"
    )
    with at(host, *python(code), dimensions=(24, 80)) as child:
        child.expect_exact("ready")
        child.setwinsize(50, 132)
        child.expect_exact("now 132 50")
        assert end(child) == 0


@pytest.mark.parametrize(
    ("key", "number"), [(CTRL_C, signal.SIGINT), (CTRL_BACKSLASH, signal.SIGQUIT)], ids=["Ctrl-C", "Ctrl-backslash"]
)
def test_keys_that_end(host: Host, key: str, number: signal.Signals) -> None:
    with at(host, *waits("ready")) as child:
        child.expect_exact("ready")
        child.send(key)
        child.expect_exact(f"signal {number.name}")
        assert end(child) == 128 + number


def test_ctrl_c_arrives_once(host: Host) -> None:
    code = (
        "import os, signal\n"
        "def heard(number, frame): os.write(1, b'<%d>' % number)\n"
        "signal.signal(signal.SIGINT, heard)\n"
        "os.write(1, b'ready')\n"
        "os.read(0, 1)\n"
        "os.write(1, b'end')\n"
    )
    with at(host, *python(code)) as child:
        child.expect_exact("ready")
        child.send(CTRL_C)
        child.expect_exact("<2>")
        child.sendline("")
        child.expect_exact("end")
        assert "<2>" not in str(child.before)
        assert end(child) == 0


def test_ctrl_c_in_a_pipeline_arrives_once(host: Host) -> None:
    """There the terminal's foreground is the whole job, sbx in it, and sbx passes it on."""
    code = (
        "import os, signal\n"
        "def heard(number, frame): os.write(2, b'<%d>' % number)\n"
        "signal.signal(signal.SIGINT, heard)\n"
        "signal.signal(signal.SIGUSR1, lambda number, frame: os._exit(0))\n"
        "os.write(2, b'ready')\n"
        "while True: signal.pause()\n"
    )
    with shell(host) as child:
        child.sendline(f"sbx-run {shlex.join(python(code))} | (trap '' INT; cat)")
        child.expect_exact("ready")
        child.send(CTRL_C)
        child.expect_exact("<2>")
        child.expect_exact("interrupted by signal SIGINT")
        assert "<2>" not in str(child.before)
        child.expect_exact(PROMPT)


def test_ctrl_c_stops_a_loop_around_it(here: Host) -> None:
    with shell(here) as child:
        child.sendline(f"for n in 1 2 3; do sbx-run {shlex.join(waits())} turn-$n; done")
        child.expect_exact("turn-1")
        child.send(CTRL_C)
        child.expect_exact(PROMPT)
        assert "turn-2" not in str(child.before)


def test_ctrl_c_stops_a_script_around_it(here: Host, workspace: Workspace) -> None:
    script = workspace.write("job.sh", f"{shlex.join(here.argv(*waits('ready')))}\necho next\n")
    with shell(here) as child:
        child.sendline(f"bash {script.name}")
        child.expect_exact("ready")
        child.send(CTRL_C)
        child.expect_exact(PROMPT)
        assert "next" not in str(child.before)
        assert "130" in say(child, "echo $?")


def test_ctrl_z_and_fg(host: Host) -> None:
    code = "import os; os.write(1, b'ready'); print('read', os.read(0, 10), flush=True); print('again', os.read(0, 10))"
    with shell(host) as child:
        child.sendline(f"sbx-run {shlex.join(python(code))}")
        child.expect_exact("ready")
        child.send(CTRL_Z)
        child.expect_exact("Stopped")
        child.expect_exact(PROMPT)
        assert "Stopped" in say(child, "jobs")
        child.sendline("fg")
        child.sendline("one")
        child.expect_exact("read b'one")
        child.send(CTRL_Z)
        child.expect_exact("Stopped")
        child.expect_exact(PROMPT)
        child.sendline("fg")
        child.sendline("two")
        child.expect_exact("again b'two")
        child.expect_exact(PROMPT)
        assert "0" in say(child, "echo $?")


@requires(tools=["vi"])
def test_ctrl_z_in_vi(here: Host, workspace: Workspace) -> None:
    with shell(here) as child:
        child.sendline("sbx-run -- vi -u NONE -n note.txt")
        child.expect_exact("note.txt")
        child.send("ione\x1b" + CTRL_Z)
        child.expect_exact("Stopped")
        child.expect_exact(PROMPT)
        assert "still-a-shell" in say(child, "echo still-a'-shell'")
        child.sendline("fg")
        child.send("atwo\x1b:wq\r")
        child.expect_exact(PROMPT)
    assert (workspace.root / "note.txt").read_text() == "onetwo\n"


def test_bg_and_a_background_job_that_reads(host: Host) -> None:
    code = "import os; os.write(1, b'ready'); print('read', os.read(0, 10))"
    with shell(host) as child:
        child.sendline(f"sbx-run {shlex.join(python(code))}")
        child.expect_exact("ready")
        child.send(CTRL_Z)
        child.expect_exact("Stopped")
        child.expect_exact(PROMPT)
        say(child, "bg")
        # It reads, which it may not there: stopped once more, and the shell keeps the terminal.
        assert "still-here" in say(child, "until jobs | grep -q Stopped; do :; done; echo still'-here'")
        child.sendline("fg")
        child.sendline("mine")
        child.expect_exact("read b'mine")
        child.expect_exact(PROMPT)


def test_started_in_the_background(host: Host) -> None:
    with shell(host) as child:
        say(child, "sbx-run -- cat &")
        say(child, "until jobs | grep -q Stopped; do :; done")
        child.sendline("fg")
        child.sendline("typed later")
        child.expect_exact("typed later")
        child.send(CTRL_D)
        child.expect_exact(PROMPT)


def test_a_background_job_leaves_the_terminal_alone(host: Host) -> None:
    with shell(host) as child:
        say(child, "sbx-run --report never -- sh -c 'echo done > out' & wait; echo $?")
        assert "done" in say(child, "cat out; rm out")


def test_another_member_of_the_pipeline_has_the_keyboard(host: Host) -> None:
    reader = f"{PYTHON} -I -c " + shlex.quote(
        "import sys; t = open('/dev/tty'); n = len(sys.stdin.read()); print('read', n, t.readline())"
    )
    with shell(host) as child:
        child.sendline(f"sbx-run -- sh -c 'echo 123' | {reader}")
        child.sendline("to the reader")
        child.expect_exact("read 4 to the reader")
        child.expect_exact(PROMPT)


def test_a_pipeline_stops_and_goes_on_as_one_job(host: Host) -> None:
    code = (
        "import os, signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCONT])\n"
        "os.write(2, b'ready')\n"
        "signal.sigwait([signal.SIGCONT])\n"
        "print('out')\n"
    )
    with shell(host) as child:
        child.sendline(f"sbx-run {shlex.join(python(code))} | cat")
        child.expect_exact("ready")
        child.send(CTRL_Z)
        child.expect_exact("Stopped")
        child.expect_exact(PROMPT)
        child.sendline("fg")
        child.expect_exact("out")
        child.expect_exact(PROMPT)


RAW = "import os, signal, tty; tty.setraw(0); os.write(1, b'raw'); os.read(0, 1); os.kill(os.getpid(), signal.SIGKILL)"


def test_the_terminal_is_restored_when_the_command_dies_in_raw_mode(host: Host) -> None:
    with at(host, *python(RAW)) as child:
        before = settings(child)
        child.expect_exact("raw")
        assert settings(child) != before
        child.send("x")
        child.expect_exact("KILLED_KILL")
        assert settings(child) == before
        assert end(child) == 137


def test_the_terminal_is_restored_after_a_timeout(host: Host) -> None:
    raw = "import os, signal, tty; tty.setraw(0); os.write(1, b'raw'); signal.pause()"
    with at(host, "--timeout", "2s", *python(raw)) as child:
        before = settings(child)
        child.expect_exact("raw")
        child.expect_exact("TIMEOUT")
        assert settings(child) == before
        assert end(child) == 124


@requires(tools=["stty"])
def test_settings_that_were_wanted_stay(host: Host) -> None:
    with shell(host) as child:
        assert "intr = ^K" in say(child, "sbx-run -- stty intr ^K; stty -a")


def test_the_shell_has_the_terminal_back(host: Host) -> None:
    with shell(host) as child:
        for _ in range(10):
            say(child, "sbx-run -- true")
        assert "still-here" in say(child, "echo still'-here'")


@pytest.mark.parametrize("option", ["--json", "--max-stdout"])
def test_a_terminal_that_is_looked_at_stays_one(host: Host, workspace: Workspace, option: str) -> None:
    file = workspace.root / "result.json"
    options = ("--json", str(file)) if option == "--json" else ("--json", str(file), "--max-stdout", "10")
    code = "import os; print([os.isatty(n) for n in (0, 1, 2)], 'and more than ten bytes')"
    with at(host, *options, *python(code)) as child:
        child.expect_exact("[True, True, True] and more than ten bytes")
        assert end(child) == 0
    found = json.loads(file.read_text())
    assert (found["stdout"], found["truncated"]) == ("", {})
    if option == "--max-stdout":
        assert "terminal" in found["enforced"]["stdout"]["details"]
        assert not found["enforced"]["stdout"]["applied"]


def test_without_the_terminal_everything_is_looked_at(host: Host, workspace: Workspace) -> None:
    file = workspace.root / "result.json"
    code = "import os; print([os.isatty(n) for n in (1, 2)]); os.open('/dev/tty', 0)"
    with at(host, "--no-tty", "--json", str(file), "--max-stdout", "6", *python(code)) as child:
        child.expect_exact("[False")
        assert end(child) == 1
    assert "[TRUNCATED]" in json.loads(file.read_text())["stdout"]


@pytest.mark.parametrize("flags", ["os.O_RDWR", "os.O_RDWR | os.O_CREAT"])
def test_with_other_streams_the_callers_terminal_is_out_of_reach(host: Host, workspace: Workspace, flags: str) -> None:
    """Also where what may make a name is opened on the command's behalf."""
    code = (
        "import os\n"
        f"try: os.write(os.open('/dev/tty', {flags}), b'seen')\n"
        "except OSError as error: print(error.errno)\n"
        "else: print('opened')\n"
    )
    line = shlex.join(host.argv("--profile", "build", "--no-tty", *python(code)))
    with terminal(["sh", "-c", f"{line} </dev/null >out 2>&1; echo over"]) as child:
        child.expect_exact("over")
        assert "seen" not in (child.before or "")
    assert (workspace.root / "out").read_text().splitlines()[0] == str(errno.ENXIO)


def test_nothing_can_be_typed_into_the_callers_shell(host: Host) -> None:
    code = (
        "import fcntl\n"
        "for request in (0x5412, 0x541C):\n"  # TIOCSTI, TIOCLINUX
        "    try: fcntl.ioctl(0, request, b'e')\n"
        "    except OSError as error: print('errno', error.errno)\n"
        "    else: print('typed')\n"
    )
    with at(host, *python(code)) as child:
        child.expect_exact("errno")
        child.expect_exact("errno")
        assert end(child) == 0


def test_hang_up(host: Host, workspace: Workspace) -> None:
    """The window is closed: the command hears of it, and everything ends."""
    text = "trap 'echo hup > mark; exit 0' HUP; echo ready; while :; do sleep 1000 & wait; done"
    master, slave = os.openpty()
    process = subprocess.Popen(
        host.argv("--", "sh", "-c", text),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    seen = b""
    while b"ready" not in seen:
        seen += os.read(master, 1000)
    os.close(master)  # as a terminal emulator would
    assert process.wait(PATIENCE_S) == 128 + signal.SIGHUP
    assert (workspace.root / "mark").read_text() == "hup\n"
