"""Run a piece of a test in a child of its own: what it does to itself (filters, rulesets) ends with it.

As a program, `python children.py CALL=ERRNO… -- COMMAND`: run COMMAND on a "host" where these calls fail. `clone` means
only clone with new namespaces, since nothing works without the call as such.
"""

from __future__ import annotations

import errno
import marshal
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import sbx
from sbx.kernel import bpf, seccomp
from sbx.kernel.process import no_new_privs
from sbx.kernel.seccomp_filter import CLONE_NEW
from sbx.kernel.syscalls_table import AUDIT_ARCH, numbers


def in_child(work: Callable[[], Any]) -> Any:
    """What `work` returned in a forked child (plain values only). Its exceptions fail the test."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.close(reading)
            result = (True, work())
            code = 0
        except BaseException:
            result = (False, traceback.format_exc())
        try:
            os.write(writing, marshal.dumps(result))
        finally:
            os._exit(code)
    os.close(writing)
    with open(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if not data:
        raise AssertionError(f"the child ended with {os.waitstatus_to_exitcode(status)} and said nothing")
    good, value = marshal.loads(data)
    if not good:
        raise AssertionError(f"in the child:\n{value}")
    return value


def exit_of_child(work: Callable[[], Any]) -> int:
    """The exit code of a child that does `work`; minus the signal if it died of one."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def errno_of(work: Callable[[], Any]) -> str:
    """The name of the errno that `work` fails with, or an empty text."""
    try:
        work()
    except OSError as error:
        number = error.errno or 0
        return "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode[number]
    return ""


def denying_filter(calls: dict[str, str], machine: str | None = None) -> bytes:
    """A filter under which each of these calls fails with the named errno."""
    table = numbers(machine or os.uname().machine)
    asm = bpf.Assembler()
    native = bpf.Label()
    asm.load(bpf.OFFSET_ARCH)
    asm.branch(bpf.JUMP_EQ, AUDIT_ARCH[machine or os.uname().machine], yes=native)
    asm.answer(bpf.ALLOW)
    asm.put(native)
    for call, name in calls.items():
        following = bpf.Label()
        asm.load(bpf.OFFSET_NR)
        asm.branch(bpf.JUMP_EQ, table[call], no=following)
        if call == "clone":
            asm.load(bpf.argument_low(0))
            asm.branch(bpf.JUMP_SET, CLONE_NEW, no=following)
        asm.answer(bpf.ERRNO | getattr(errno, name))
        asm.put(following)
    asm.answer(bpf.ALLOW)
    return asm.assemble()


def run_denied(calls: dict[str, str], command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `command` on a host where these calls fail. It finds the sbx under test, installed or not."""
    denied = [f"{call}={name}" for call, name in calls.items()]
    argv = [sys.executable, __file__, *denied, "--", *command]
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(sbx.__file__))}
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120, env=env)


if __name__ == "__main__":
    at = sys.argv.index("--")
    no_new_privs()
    seccomp.install(denying_filter(dict(pair.split("=") for pair in sys.argv[1:at])))
    os.execvp(sys.argv[at + 1], sys.argv[at + 1 :])
