"""The filter on the running kernel: each case in a child. The kernel's answers must be those of the interpreter."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from children import errno_of, exit_of_child, in_child, run_denied

from sbx.kernel import bpf, seccomp
from sbx.kernel.call import MACHINE, syscall
from sbx.kernel.process import no_new_privs
from sbx.kernel.seccomp_filter import NOTIFY_CREATES, REFUSED, build_filter
from sbx.kernel.syscalls_table import AUDIT_ARCH, numbers

pytestmark = [
    requires("seccomp"),
    pytest.mark.skipif(MACHINE not in AUDIT_ARCH, reason=f"no system call table for {MACHINE}"),
]


def filtered(work: Callable[[], Any], **options: Any) -> Any:
    def child() -> Any:
        no_new_privs()
        seccomp.install(build_filter(MACHINE, **options))
        return work()

    return in_child(child)


def raw(name: str | int, *arguments: int) -> str:
    """Call with numbers only; what it fails with."""
    number = numbers(MACHINE)[name] if isinstance(name, str) else name
    padded = (*arguments, *([0] * (6 - len(arguments))))
    return errno_of(lambda: syscall(str(name), number, "llllll", *padded))


def test_the_kernel_answers_every_refusal_as_the_interpreter_does() -> None:
    table = numbers(MACHINE)
    program = build_filter(MACHINE)
    names = [name for _, _, names in REFUSED for name in names.split() if name in table]
    expected = {}
    for name in names:
        action, _ = bpf.simulate(program, AUDIT_ARCH[MACHINE], table[name])
        assert action & bpf.ACTION_MASK == bpf.ERRNO
        expected[name] = errno.errorcode[action & bpf.DATA_MASK]
    assert len(expected) > 50
    assert filtered(lambda: {name: raw(name) for name in names}) == expected


def test_numbers_beyond_the_table() -> None:
    beyond = max(numbers(MACHINE).values()) + 1
    assert filtered(lambda: [raw(beyond), raw(beyond + 1000)]) == ["ENOSYS", "ENOSYS"]


def test_namespaces_and_threads() -> None:
    def work() -> list[Any]:
        done = subprocess.run(["/bin/sh", "-c", "echo ok"], capture_output=True, text=True, check=True)
        return [raw("unshare", 0x10000000), raw("clone3"), raw("clone", 0x10000000 | signal.SIGCHLD), done.stdout]

    assert filtered(work) == ["EPERM", "ENOSYS", "EPERM", "ok\n"]


def test_terminal_injection() -> None:
    def work() -> list[str]:
        _, slave = os.openpty()
        return [
            raw("ioctl", slave, 0x5412),
            raw("ioctl", slave, 0x5412 | 1 << 32),
            raw("ioctl", slave, 0x541C),
            errno_of(lambda: os.get_terminal_size(slave)),
        ]

    assert filtered(work) == ["EPERM", "EPERM", "EPERM", ""]


def test_set_id_files_cannot_be_made(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("")

    def work() -> list[str]:
        flags = os.O_CREAT | os.O_WRONLY
        return [
            errno_of(lambda: os.chmod(target, 0o4755)),
            errno_of(lambda: os.chmod(target, 0o2755)),
            errno_of(lambda: os.close(os.open(tmp_path / "new", flags, 0o4755))),
            errno_of(lambda: os.chmod(target, 0o755)),
            errno_of(lambda: os.close(os.open(tmp_path / "plain", flags, 0o755))),
            errno_of(lambda: os.mkfifo(tmp_path / "fifo")),
            errno_of(lambda: os.mknod(tmp_path / "null", 0o020666, os.makedev(1, 3))),
        ]

    assert filtered(work) == ["EPERM", "EPERM", "EPERM", "", "", "", "EPERM"]
    assert not (tmp_path / "new").exists()


def test_sockets() -> None:
    def work() -> list[str]:
        def make(family: int, kind: int = socket.SOCK_STREAM, protocol: int = 0) -> str:
            return errno_of(lambda: socket.socket(family, kind, protocol).close())

        return [
            make(socket.AF_UNIX),
            make(socket.AF_INET),
            make(socket.AF_VSOCK),
            make(socket.AF_ALG, socket.SOCK_SEQPACKET),
            errno_of(socket.if_nameindex),
        ]

    assert filtered(work) == ["", "", "EAFNOSUPPORT", "EAFNOSUPPORT", ""]
    assert filtered(work, own_netns=False) == ["", "EACCES", "EAFNOSUPPORT", "EAFNOSUPPORT", "EAFNOSUPPORT"]


def test_name_lookup_survives_without_network_sockets() -> None:
    def work() -> list[Any]:
        return [entry[4][0] for entry in socket.getaddrinfo("127.0.0.1", 80, type=socket.SOCK_STREAM)]

    assert filtered(work, own_netns=False) == ["127.0.0.1"]


@pytest.mark.skipif(MACHINE != "x86_64", reason="x32 is an x86-64 matter")
def test_x32_kills() -> None:
    def work() -> None:
        no_new_privs()
        seccomp.install(build_filter(MACHINE))
        raw(0x40000000 | numbers("x86_64")["getpid"])

    assert exit_of_child(work) == -signal.SIGSYS


@requires(tools=["gcc"])
@pytest.mark.skipif(MACHINE != "x86_64", reason="int 0x80 is an x86-64 matter")
def test_i386_calls_kill(tmp_path: Path) -> None:
    source = tmp_path / "i386.c"
    source.write_text('int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20)); return r <= 0; }\n')
    program = tmp_path / "i386"
    subprocess.run(["gcc", "-o", program, source], check=True)

    def run() -> int:
        return subprocess.run([program], check=False).returncode

    if in_child(run) != 0:
        pytest.skip("this kernel has no i386 emulation")
    assert filtered(run) == -signal.SIGSYS


@requires("notify")
def test_a_nested_listener_is_refused_and_a_nested_filter_is_not() -> None:
    def work() -> list[str]:
        plain = bpf.instruction(bpf.RETURN, bpf.ALLOW)
        return [
            errno_of(lambda: seccomp.install(plain, seccomp.FLAG_NEW_LISTENER)),
            errno_of(lambda: seccomp.install(plain)),
        ]

    assert filtered(work) == ["EPERM", ""]


@requires("notify")
def test_the_listener_gets_the_calls_that_make_names(tmp_path: Path) -> None:
    def work() -> list[Any]:
        no_new_privs()
        (tmp_path / "there").write_text("")
        listener = seccomp.install(build_filter(MACHINE, notify=NOTIFY_CREATES), seccomp.FLAG_NEW_LISTENER)
        child = os.fork()
        if not child:
            os.close(listener)
            os.close(os.open(tmp_path / "there", os.O_RDONLY))  # not judged: nobody would answer yet
            os._exit(0 if errno_of(lambda: os.mkdir(tmp_path / "new")) == "ENOSYS" else 1)
        # Nobody judges: with the listener gone the kernel answers ENOSYS.
        os.close(listener)
        return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), (tmp_path / "new").exists()]

    assert in_child(work) == [0, False]


def test_installing_needs_no_new_privs() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may install filters without")
    assert in_child(lambda: errno_of(lambda: seccomp.install(build_filter(MACHINE)))) == "EACCES"


def test_a_program_the_kernel_refuses() -> None:
    def work() -> str:
        no_new_privs()
        return errno_of(lambda: seccomp.install(bpf.instruction(bpf.LOAD, 0)))

    assert in_child(work) == "EINVAL"


def test_the_older_way_in_where_seccomp_is_hidden() -> None:
    script = (
        "from sbx.kernel import bpf, seccomp; from sbx.kernel.process import no_new_privs; no_new_privs();"
        "seccomp.install(bpf.instruction(bpf.RETURN, bpf.ALLOW));"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp:')])"
    )
    done = run_denied({"seccomp": "ENOSYS"}, [sys.executable, "-c", script])
    assert (done.returncode, done.stdout, done.stderr) == (0, "['2']\n", "")


@requires(tools=["git"])
def test_ordinary_programs_run(tmp_path: Path) -> None:
    script = "git init -q r && cd r && echo x >f && git add f && tar cf ../t.tar . && ls -la >/dev/null && echo done"

    def work() -> tuple[int, str, str]:
        done = subprocess.run(["/bin/sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert shutil.which("git")
    assert filtered(work) == (0, "done\n", "")
