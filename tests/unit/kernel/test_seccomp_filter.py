"""What the filter answers, on both machines, without a kernel: the interpreter runs the very program."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from sbx.errors import SandboxUnavailable
from sbx.kernel.bpf import ALLOW, DATA_MASK, ERRNO, KILL_PROCESS, MAX_INSTRUCTIONS, USER_NOTIF, simulate
from sbx.kernel.path_calls import watched
from sbx.kernel.seccomp_filter import NOTIFY_CREATES, REFUSED, build_filter, summary
from sbx.kernel.syscalls_table import AUDIT_ARCH, numbers

MACHINES = sorted(AUDIT_ARCH)
pytestmark = pytest.mark.parametrize("machine", MACHINES)

HIGH = 0xDEADBEEF_00000000  # what a register may hold above the 32 bits that the kernel looks at
O_CREAT, O_TMPFILE = 0o100, 0o20000000 | 0o200000

ORDINARY = (
    "read write close openat mmap mprotect brk futex execve wait4 exit_group getdents64 statx pipe2 dup3 fcntl"
    " rt_sigaction rt_sigreturn kill getrandom epoll_pwait connect bind sendmsg recvmsg memfd_create pidfd_open"
    " landlock_restrict_self name_to_handle_at mbind move_pages prctl rseq restart_syscall sched_setaffinity"
    " inotify_init1 mkdirat renameat2 unlinkat linkat symlinkat copy_file_range setxattr io_setup shmget semop"
)


class Filter:
    def __init__(self, machine: str, **options: Any) -> None:
        self.arch = AUDIT_ARCH[machine]
        self.table = numbers(machine)
        self.program = build_filter(machine, **options)

    def __call__(self, call: str | int, *args: int) -> str:
        number = self.table[call] if isinstance(call, str) else call
        action, _ = simulate(self.program, self.arch, number, args)
        if action == ALLOW:
            return "allow"
        if action == USER_NOTIF:
            return "notify"
        if action == KILL_PROCESS:
            return "kill"
        assert action & ERRNO == ERRNO
        code = action & DATA_MASK
        return "EOPNOTSUPP" if code == errno.EOPNOTSUPP else errno.errorcode[code]


def test_refused_calls_and_only_known_names(machine: str) -> None:
    judge = Filter(machine)
    everywhere = set(numbers("x86_64")) | set(numbers("aarch64"))
    for _, answer, names in REFUSED:
        for name in names.split():
            assert name in everywhere
            if name in judge.table:
                assert judge(name) == errno.errorcode[answer & DATA_MASK], name


def test_what_programs_live_on_is_allowed(machine: str) -> None:
    judge = Filter(machine)
    for name in ORDINARY.split():
        assert judge(name) == "allow", name


def test_every_known_call_is_answered_and_no_other(machine: str) -> None:
    judge = Filter(machine)
    known = set(judge.table.values())
    for number in range(max(known) + 200):
        if number not in known:
            assert judge(number) == "ENOSYS", number
    assert judge(0x3FFFFFFF) == "ENOSYS"
    assert judge(0xFFFFFFFF) == "ENOSYS"  # how a debugger outside skips a call


def test_foreign_architectures_kill(machine: str) -> None:
    judge = Filter(machine)
    for arch in (0x40000003, 0x40000028, *(each for each in AUDIT_ARCH.values() if each != judge.arch)):
        assert simulate(judge.program, arch, judge.table["read"])[0] == KILL_PROCESS
    if machine == "x86_64":
        assert judge(0x40000000 | judge.table["read"]) == "kill"  # x32


def test_new_namespaces(machine: str) -> None:
    judge = Filter(machine)
    assert judge("clone3") == "ENOSYS"
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge("clone", flag | 17) == "EPERM"
        assert judge("unshare", flag | HIGH) == "EPERM"
    assert judge("unshare", 0x80) == "EPERM"  # time namespace
    assert judge("clone", 0x3D0F00) == "allow"  # what pthread_create asks for
    assert judge("clone", 0x80 | 17) == "allow"  # in clone these bits are the exit signal
    assert judge("unshare", 0x400) == "allow"  # CLONE_FILES
    allowed = Filter(machine, deny_userns=False)
    assert [allowed("clone3"), allowed("unshare", 0x10000000)] == ["allow", "allow"]
    assert allowed("setns") == "EPERM"


@pytest.mark.parametrize("command", [0x5412, 0x541C, 0x541D, 0x5423])
def test_terminal_injection_with_whatever_is_in_the_high_word(machine: str, command: int) -> None:
    judge = Filter(machine)
    assert judge("ioctl", 0, command) == "EPERM"
    assert judge("ioctl", 0, command | HIGH) == "EPERM"
    assert judge("ioctl", 0, 0x5413) == "allow"  # TIOCGWINSZ


def test_set_id_bits_and_devices(machine: str) -> None:
    judge = Filter(machine)
    for bit in (0o4000, 0o2000, 0o6000):
        assert judge("fchmod", 3, bit | 0o755) == "EPERM"
        assert judge("fchmodat", -100, 0, bit | 0o755) == "EPERM"
        assert judge("fchmodat2", -100, 0, bit | 0o755) == "EPERM"
        assert judge("openat", -100, 0, O_CREAT, bit | 0o755) == "EPERM"
        assert judge("openat", -100, 0, O_TMPFILE, bit | 0o755) == "EPERM"
        assert judge("mknodat", -100, 0, 0o100000 | bit) == "EPERM"
    assert judge("openat", -100, 0, os.O_RDONLY, 0o6777) == "allow"  # the register holds anything without O_CREAT
    assert judge("openat", -100, 0, O_CREAT, 0o1644) == "allow"
    assert judge("fchmod", 3, 0o1777) == "allow"
    assert judge("mknodat", -100, 0, 0o020666) == "EPERM"
    assert judge("mknodat", -100, 0, 0o060666) == "EPERM"
    assert judge("mknodat", -100, 0, 0o010644) == "allow"  # fifo
    assert judge("openat2") == "ENOSYS"
    if "open" in judge.table:
        assert judge("open", 0, O_CREAT, 0o4755) == "EPERM"
        assert judge("creat", 0, 0o4755) == "EPERM"
        assert judge("chmod", 0, 0o4755) == "EPERM"


def test_memory_files_where_exec_rules_hold(machine: str) -> None:
    judge = Filter(machine, exec_memfd=False)
    assert judge("memfd_create", 0, 1) == "EACCES"
    assert judge("memfd_create", 0, 1 | 0x10) == "EACCES"  # MFD_EXEC
    assert judge("memfd_create", 0, 1 | 0x8) == "allow"
    assert "memfd_create" in "\n".join(summary(exec_memfd=False))
    assert Filter(machine)("memfd_create", 0, 1) == "allow"


def test_personality_and_nested_listeners(machine: str) -> None:
    judge = Filter(machine)
    assert [judge("personality", each) for each in (0, 0xFFFFFFFF, 0x8, 0x40000)] == ["allow"] * 4
    assert judge("personality", 0x0400000) == "EPERM"  # READ_IMPLIES_EXEC
    assert judge("seccomp", 1, 0) == "allow"
    assert judge("seccomp", 1, 8) == "EPERM"
    assert judge("seccomp", 1, 8 | 1 | HIGH) == "EPERM"
    assert judge("seccomp", 3, 0) == "allow"


UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK, KEY = 1, 2, 10, 16, 17, 38, 40, 15
STREAM, DGRAM, CLOEXEC = 1, 2, 0o2000000


@pytest.mark.parametrize("options", [{}, {"network": "allow"}, {"network": "host", "own_netns": False}])
def test_sockets_where_the_network_is_the_namespaces_matter(machine: str, options: dict[str, Any]) -> None:
    judge = Filter(machine, **options)
    for family in (UNIX, INET, INET6):
        assert judge("socket", family | HIGH, STREAM | CLOEXEC, 0) == "allow"
        assert judge("socket", family, DGRAM, 0) == "allow"
    assert judge("socket", NETLINK, 3 | CLOEXEC, 0) == "allow"  # getifaddrs
    assert judge("socket", NETLINK, 3, 9) == "EPROTONOSUPPORT"  # audit
    assert judge("socket", INET, STREAM, 132) == "EPROTONOSUPPORT"
    assert judge("socket", INET6, 5 | CLOEXEC, 0) == "EPROTONOSUPPORT"
    for family in (PACKET, ALG, VSOCK, KEY, 0, 0xFFFF):
        assert judge("socket", family, STREAM, 0) == "EAFNOSUPPORT"
    assert judge("socketpair", UNIX, STREAM, 0) == "allow"
    assert judge("socketpair", 30, STREAM, 0) == "EAFNOSUPPORT"
    assert judge("sendto", 3, 0, 0, 0x20000000) == "allow"


def test_sockets_without_a_network_namespace(machine: str) -> None:
    none = Filter(machine, own_netns=False)
    assert none("socket", UNIX, STREAM, 0) == "allow"
    assert none("socket", INET, STREAM, 0) == "EACCES"
    assert none("socket", INET6, DGRAM, 0) == "EACCES"
    assert none("socket", NETLINK, 3, 0) == "EAFNOSUPPORT"
    allow = Filter(machine, own_netns=False, network="allow")
    assert allow("socket", INET, STREAM | CLOEXEC, 0) == "allow"
    assert allow("socket", INET6, STREAM, 6) == "allow"
    assert allow("socket", INET, STREAM, 262) == "EACCES"  # MPTCP is not held to Landlock's ports
    assert allow("socket", INET, DGRAM, 0) == "EACCES"
    for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        args = [0] * 6
        args[flags] = 0x20000000
        assert allow(name, *args) == "EOPNOTSUPP"  # Fast Open
        assert allow(name) == "allow"
    assert Filter(machine, own_netns=False, unix_sockets=False)("socket", UNIX, STREAM, 0) == "EACCES"


def test_the_listener_is_asked_only_where_a_name_is_made(machine: str) -> None:
    judge = Filter(machine, notify=NOTIFY_CREATES)
    assert judge("openat", -100, 0, O_CREAT, 0o644) == "notify"
    assert judge("openat", -100, 0, O_TMPFILE, 0o644) == "notify"
    assert judge("openat", -100, 0, os.O_RDWR, 0) == "allow"
    assert judge("openat", -100, 0, O_CREAT, 0o4755) == "EPERM"  # refusals come first
    for name in ("mkdirat", "renameat2", "linkat", "symlinkat", "openat2"):
        assert judge(name) == "notify", name
    assert judge("mknodat", -100, 0, 0o020666) == "EPERM"
    assert judge("mknodat", -100, 0, 0o010666) == "notify"
    assert judge("read") == "allow"
    assert Filter(machine, notify=[("mount", -1, 0)])("mount") == "EPERM"
    assert Filter(machine, notify=[("no_such_call", -1, 0)])("read") == "allow"


def test_common_calls_take_few_instructions(machine: str) -> None:
    judge = Filter(machine, notify=NOTIFY_CREATES)
    assert len(judge.program) // 8 < MAX_INSTRUCTIONS // 4
    for name in ("read", "write", "mmap", "futex", "newfstatat", "close", "openat"):
        _, steps = simulate(judge.program, judge.arch, judge.table[name])
        assert steps <= 20, name


def test_equal_options_give_equal_bytes(machine: str) -> None:
    assert build_filter(machine, network="host") == build_filter(machine, network="host")
    assert build_filter(machine) != build_filter(machine, own_netns=False)


def test_the_summary_follows_the_options(machine: str) -> None:
    text = "\n".join(summary())
    assert "pivot_root" in text and "TIOCSTI" in text and "new namespaces" in text
    assert "new namespaces" not in "\n".join(summary(deny_userns=False))
    assert "every network family" in "\n".join(summary(own_netns=False))
    assert "listener: open, openat" in "\n".join(summary(notify=NOTIFY_CREATES))


def test_a_machine_without_a_table(machine: str) -> None:
    with pytest.raises(SandboxUnavailable, match="riscv64"):
        build_filter("riscv64")


HERE, FOLDER, NO_FOLLOW, EMPTY_PATH = -100 & 0xFFFFFFFF, 5, 0x100, 0x1000
# An address on the first thread's stack, on another thread's, in the heap.
ADDRESSES = {
    "x86_64": (0x7FFD_5A00_1000, 0x7F3C_2240_0D10, 0x5581_0000_2340),
    "aarch64": (0xFFFF_E5A0_0100, 0xFFFF_8240_0D10, 0xAAAA_D000_2340),
}


def test_a_trace_is_shown_looks_by_path_but_not_those_of_walkers(machine: str) -> None:
    judge = Filter(machine, watch=watched(machine, walking=False))
    first, other, heap = ADDRESSES[machine]
    for buffer in (first, other, heap):
        assert judge("newfstatat", HERE, 0, buffer, 0) == "notify"
        assert judge("newfstatat", FOLDER, 0, buffer, 0) == "notify"
        assert judge("newfstatat", FOLDER, 0, buffer, EMPTY_PATH) == "allow"
        assert judge("newfstatat", FOLDER, 0, buffer, NO_FOLLOW) == "allow"
        assert judge("statx", HERE, 0, EMPTY_PATH, 0, buffer) == "allow"
        assert judge("statx", HERE, 0, 0, 0, buffer) == "notify"
        seen = "allow" if buffer == other else "notify"
        assert judge("newfstatat", HERE, 0, buffer, NO_FOLLOW) == seen
        assert judge("statx", HERE, 0, NO_FOLLOW, 0, buffer) == seen
        if "lstat" in judge.table:
            assert judge("lstat", 0, buffer) == seen
    assert judge("readlinkat", HERE, 0, first, 1023) == "allow"
    assert judge("readlinkat", HERE, 0, first, 4096) == "notify"


def test_who_learns_is_shown_every_look(machine: str) -> None:
    judge = Filter(machine, watch=watched(machine, walking=True))
    for buffer in ADDRESSES[machine]:
        assert judge("newfstatat", FOLDER, 0, buffer, NO_FOLLOW) == "notify"
        assert judge("statx", HERE, 0, NO_FOLLOW, 0, buffer) == "notify"
        assert judge("statx", HERE, 0, EMPTY_PATH, 0, buffer) == "allow"
    assert judge("readlinkat", HERE, 0, ADDRESSES[machine][0], 1023) == "notify"
