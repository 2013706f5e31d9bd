"""Processes: namespaces, privileges, descriptors. One small function per call."""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import MACHINE, NUMBERS, Buffer, argument_area, copy, current_processor, fill, syscall

assert sys.platform == "linux"  # for type checkers on other platforms

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
CLONE_INTO_CGROUP = 0x200000000

SIGCHLD = 17

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NAME = 15
PR_CAPBSET_DROP = 24
PR_SET_SECUREBITS = 28
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

# NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE, each with its lock: uid 0 inside means nothing for capabilities.
# KEEP_CAPS (bit 4) stays as it is and unlocked: there is nothing to keep, and setpriv insists on setting it.
SECUREBITS_LOCKED_DOWN = 0xCF  # bits 0, 2, 6: set; 1, 3, 7: locked (see linux/securebits.h)

CLOSE_RANGE_CLOEXEC = 4


def clone(flags: int, cgroup_fd: int = -1) -> int:
    """fork() into new namespaces, and into a cgroup where one is given: 0 in the child. Only without other threads.

    The raw call, because a fork followed by unshare needs one more process to enter the pid namespace. Python's own
    after-fork work is skipped: it serves threads and the import lock, and there is one thread here.
    """
    if cgroup_fd < 0:
        return syscall("clone", NUMBERS["clone"], "lllll", flags | SIGCHLD, 0, 0, 0, 0)
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
    # set_tid_size, cgroup (Linux 5.7)
    values = (flags | CLONE_INTO_CGROUP, 0, 0, 0, SIGCHLD, 0, 0, 0, 0, 0, cgroup_fd)
    arguments = b"".join(value.to_bytes(8, "little") for value in values)
    return syscall("clone3", 435, "zl", arguments, len(arguments))


def send_elsewhere(child: int) -> None:
    """Let a process that was just cloned begin on another processor, if one is idle.

    The kernel queues it where its parent runs. There it would wait, seen for one to three milliseconds, until the
    parent sleeps or the next balancing comes. Where all processors are busy the kernel knows better.
    """
    allowed = os.sched_getaffinity(0)
    others = allowed - {current_processor()}
    if others and others != allowed and _runnable() <= len(allowed):
        try:
            os.sched_setaffinity(child, others)
            os.sched_setaffinity(child, allowed)
        except OSError:
            pass  # it is gone, or the processors are


def _runnable() -> int:
    """How many threads of the machine run or wait for a processor; too many where that is not known."""
    try:
        descriptor = os.open(b"/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 1 << 30
    try:
        return int(os.read(descriptor, 128).split()[3].partition(b"/")[0])
    finally:
        os.close(descriptor)


def unshare(flags: int) -> None:
    syscall("unshare", NUMBERS["unshare"], "l", flags)


def prctl(option: int, argument: int = 0, *more: int) -> int:
    rest = (*more, 0, 0, 0)[:3]
    return syscall(f"prctl({option})", NUMBERS["prctl"], "lllll", option, argument, *rest)


def no_new_privs() -> None:
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Nothing permitted, nothing to gain by exec, not even for uid 0."""
    try:
        prctl(PR_SET_SECUREBITS, SECUREBITS_LOCKED_DOWN)
    except OSError:
        pass  # without CAP_SETPCAP there is nothing to lock: the sets below are empty already
    if os.geteuid() == 0:
        # For anybody else the bounding set bounds nothing: without new privileges an exec gains none.
        for capability in range(64):
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError:
                break  # EINVAL: past the last one; EPERM: not ours to drop
    try:
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError:
        pass  # before Linux 4.3 there is no ambient set
    header = (0x20080522).to_bytes(4, "little") + bytes(4)  # _LINUX_CAPABILITY_VERSION_3, this process
    syscall("capset", NUMBERS["capset"], "zz", header, bytes(24))


def close_range(first: int, last: int, flags: int = 0) -> None:
    syscall("close_range", NUMBERS["close_range"], "lll", first, last, flags)


def close_from(first: int, keep: tuple[int, ...] = ()) -> None:
    """Close every descriptor from `first` on, except those in `keep`."""
    start = first
    try:
        for descriptor in sorted(keep):
            if descriptor > start:
                close_range(start, descriptor - 1)
            start = max(start, descriptor + 1)
        close_range(start, 0x7FFFFFFF)
    except OSError:  # before Linux 5.9
        kept = set(keep)
        for name in os.listdir("/proc/self/fd"):
            if int(name) >= first and int(name) not in kept:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself


def pidfd_open(pid: int) -> int:
    return syscall("pidfd_open", NUMBERS["pidfd_open"], "ll", pid, 0)


class Waiting:
    """wait4(2) for any child, without the module `resource`, which the interpreter's own wait4 loads at every start."""

    def __init__(self) -> None:
        self._buffer = Buffer(8 + 144)  # int status; struct rusage
        self._words = self._buffer.words()

    def __call__(self, options: int) -> tuple[int, int, int]:
        """(pid or 0, status, the most memory it had in KiB). Goes on waiting after a signal's handler ran."""
        status = self._buffer.address
        while True:
            try:
                pid = syscall("wait4", NUMBERS["wait4"], "llll", -1, status, options, status + 8)
            except InterruptedError:
                continue
            return pid, self._words[0] & 0xFFFFFFFF, self._words[5]


def signalfd(signals: tuple[int, ...]) -> int:
    mask = 0
    for number in signals:
        mask |= 1 << (number - 1)
    number = 74 if MACHINE == "aarch64" else 289  # signalfd4
    return syscall("signalfd4", number, "lzll", -1, mask.to_bytes(8, "little"), 8, os.O_CLOEXEC | os.O_NONBLOCK)


def network_loopback_up(socket_fd: int) -> None:
    """SIOCSIFFLAGS on `lo`: a fresh network namespace has it down."""
    request = b"lo".ljust(16, b"\0") + (0x1 | 0x40).to_bytes(2, "little") + bytes(22)  # struct ifreq: IFF_UP|RUNNING
    syscall("ioctl(SIOCSIFFLAGS)", NUMBERS["ioctl"], "llz", socket_fd, 0x8914, request)


def hide_arguments(title: bytes = b"sbx") -> None:
    """Overwrite this process's argument and environment strings: /proc/1/cmdline is readable for everybody inside.

    They lie next to each other at the top of the stack, from argv[0] on, before the name of the program file, which
    the auxiliary vector points to. Python has copied both at its start.
    """
    start, end = argument_area()
    if 0 < start < end:
        fill(start, end - start)
        copy(start, title[: end - start - 1])
