"""Ways out of the sandbox, each refused: with namespaces, with a listener that performs calls, with Landlock alone."""

from __future__ import annotations

import ctypes
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import escape_attempts
import pytest
from capabilities import requires
from sandboxed import Rules, compile_rules, run_compiled, this_machine, without_namespaces

SCRIPT = Path(escape_attempts.__file__).read_text()
SECRET = "do-not-tell-b5d7"
RULES = Rules(
    read=("./**",),
    modify=("./mod/**", "./top/**"),
    exec=("/**",),
    deny_modify=("./top/p/kept/**",),
)
LISTENING = replace(RULES, deny_modify=(*RULES.deny_modify, "./mod/**/.denied"))

# What Landlock alone does not speak of, or has another test: mounts of the sandbox's own and the host's /dev and /proc.
NOT_LANDLOCK = {
    "device_nodes": "the host's /dev is there, and Landlock grants none of it",
    "kernel_settings": "the host's /proc and /sys are there: as root some files can be opened, none may be written",
    "shared_memory_of_the_host": "System V objects belong to the host: there is no IPC namespace",
    "move_what_leads_to_the_workspace": "the folders above are the host's own, and not granted",
}
MODES = ("namespaces", "listening", "landlock")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What lies outside, alive while the attempts are made."""
    outside = tmp_path_factory.mktemp("outside").resolve()
    (outside / "secret").write_text(SECRET)
    abstract = f"sbx-test-{os.getpid()}"
    shm = f"sbx-test-{os.getpid()}"
    key = 0x5B7 << 16 | os.getpid() & 0xFFFF
    libc = ctypes.CDLL(None)
    segment = libc.shmget(key, 4096, 0o1600)  # IPC_CREAT
    Path("/dev/shm", shm).write_text(SECRET)
    sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    sockets = [socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX), socket.socket()]
    os.environ["TEST_SECRET_TOKEN"] = SECRET
    try:
        sockets[0].bind(b"\0" + abstract.encode())
        sockets[1].bind(str(outside / "service"))
        sockets[2].bind(("127.0.0.1", 0))
        for each in sockets:
            each.listen()
        yield {
            "secret": str(outside / "secret"),
            "secret value": SECRET,
            "abstract": abstract,
            "unix socket": str(outside / "service"),
            "port": sockets[2].getsockname()[1],
            "host pid": sleeper.pid,
            "supervisor": os.getpid(),
            "shm": shm,
            "sysv key": key,
        }
    finally:
        del os.environ["TEST_SECRET_TOKEN"]
        for each in sockets:
            each.close()
        sleeper.kill()
        sleeper.wait()
        Path("/dev/shm", shm).unlink()
        libc.shmctl(segment, 0, None)  # IPC_RMID


def workspace_of(factory: pytest.TempPathFactory, name: str) -> dict[str, str]:
    workspace = factory.mktemp(name).resolve()
    (workspace / "mod").mkdir()
    (workspace / "top/p/kept").mkdir(parents=True)
    (workspace / "top/p/kept/file").write_text("original")
    return {
        "workspace": str(workspace),
        "modifiable": str(workspace / "mod"),
        "protected": str(workspace / "top/p/kept/file"),
    }


@pytest.fixture(scope="module")
def ran(world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, str]]]:
    """All attempts in every mode this machine has; each test looks at one of them."""
    found = {}
    machines = {
        "namespaces": replace(this_machine(), user_notif=False),
        "listening": this_machine(),
        "landlock": without_namespaces(),
    }
    for mode, machine in machines.items():
        context = {**world, **workspace_of(tmp_path_factory, mode), "mode": mode}
        if mode == "landlock":
            context["skip"] = tuple(NOT_LANDLOCK)
        compiled = compile_rules(LISTENING if mode == "listening" else RULES, context["workspace"], machine=machine)
        assert (compiled.prepared["launch"]["future"] is not None) == (mode == "listening")
        folder = os.open("/", os.O_RDONLY)  # a way out, if it were inherited
        os.set_inheritable(folder, True)
        try:
            ended = run_compiled(compiled, [sys.executable, "-I", "-c", SCRIPT], stdin=marshal.dumps(context))
        finally:
            os.close(folder)
        assert ended.status == 0, ended.stderr.decode(errors="replace")
        found[mode] = marshal.loads(ended.stdout)
        kept = Path(context["protected"])
        assert kept.read_text() == "original"
        assert sorted(path.name for path in kept.parent.iterdir()) == ["file"]
    return found


@requires("userns", "seccomp", "notify", landlock=6)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("attempt", escape_attempts.ATTEMPTS)
def test_escape_is_refused(ran: dict[str, dict[str, dict[str, str]]], mode: str, attempt: str) -> None:
    if mode == "landlock" and attempt in NOT_LANDLOCK:
        assert attempt not in ran[mode]
        return
    outcomes = ran[mode][attempt]
    assert outcomes
    assert {what: said for what, said in outcomes.items() if said.startswith("escaped")} == {}


def test_the_attempts_can_succeed(world: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Outside of a sandbox the harmless ones do: a test of refusals that cannot fail would show nothing."""
    context = {**world, **workspace_of(tmp_path_factory, "control"), "mode": "none", "only": escape_attempts.CONTROLS}
    folder = os.open("/", os.O_RDONLY)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", SCRIPT], input=marshal.dumps(context), capture_output=True, check=True,
            pass_fds=(folder,), env={**os.environ},
        )  # fmt: skip
    finally:
        os.close(folder)
    found = marshal.loads(done.stdout)
    assert set(found) == escape_attempts.CONTROLS
    for attempt, outcomes in found.items():
        assert any(said.startswith("escaped") for said in outcomes.values()), (attempt, outcomes)


I386 = """
int main(void) {
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory");  /* getpid of i386 */
    return result == -38 ? 38 : 0;
}
"""
X32 = """
#define _GNU_SOURCE
#include <unistd.h>
#include <sys/syscall.h>
int main(void) { return syscall(0x40000000 | 39) == -1 ? 1 : 0; }
"""


@requires("userns", "seccomp", tools=["gcc"])
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="these call tables exist on x86-64 only")
@pytest.mark.parametrize("source", [I386, X32], ids=["i386", "x32"])
def test_calls_of_other_architectures_kill(tmp_path: Path, source: str) -> None:
    (tmp_path / "foreign.c").write_text(source)
    subprocess.run(["gcc", "-o", tmp_path / "foreign", tmp_path / "foreign.c"], check=True)
    compiled = compile_rules(Rules(), str(tmp_path.resolve()))
    ended = run_compiled(compiled, [str(tmp_path.resolve() / "foreign")])
    assert ended.status == -signal.SIGSYS


@requires("userns", "seccomp")
def test_setuid_programs_are_refused_as_the_command(tmp_path: Path) -> None:
    found = next((path for name in ("su", "passwd", "mount") if (path := shutil.which(name))), None)
    if found is None or not os.stat(found).st_mode & 0o4000:
        pytest.skip("this machine has no set-user-ID program on PATH")
    from sbx.errors import SbxError

    compiled = compile_rules(Rules(), str(tmp_path.resolve()))
    with pytest.raises(SbxError):
        run_compiled(compiled, [found])


SIGNALS = """
import os, signal
for number in set(range(1, 65)) - {9, 19, 32, 33}:
    signal.signal(number, signal.SIG_IGN)  # pid 1 forwards some of them
for number in set(range(1, 65)) - {signal.SIGTSTP}:  # which stops the command, as the terminal's would
    try:
        os.kill(1, number)
    except OSError:
        pass
print("alive")
"""


@requires("userns", "seccomp")
def test_signals_from_inside_do_not_reach_pid_1(tmp_path: Path) -> None:
    """It has the sandbox to hold together; even SIGKILL from its own namespace means nothing to it."""
    rules = Rules(modify=("./**",), deny_modify=("./**/.denied",))
    for machine in (replace(this_machine(), user_notif=False), this_machine()):
        compiled = compile_rules(rules, str(tmp_path.resolve()), machine=machine)
        ended = run_compiled(compiled, [sys.executable, "-I", "-c", SIGNALS])
        assert (ended.status, ended.stdout) == (0, b"alive\n")
