"""Which system calls a sandboxed command is refused, and the filter that refuses them. Pure: no kernel needed.

Only the compile side imports this: its product, a program as bytes, is stored in the launch plan.

Two answers, chosen so that programs carry on well: ENOSYS where kernels without the call exist and programs have
another way (clone3, io_uring, the new mount interface); EPERM where it is a privilege. A number that the table does not
know is answered ENOSYS too, so that a call of a kernel newer than this file is not let through unjudged. A foreign
architecture (i386 on x86-64, x32) kills: its numbers mean other calls.

Calls that are judged by number alone are cached by the kernel as "always allowed" (since 5.11) and then cost nothing;
so arguments are looked at only where they decide. Pointers cannot be followed, so openat2 (whose mode is in memory) is
ENOSYS unless a listener judges it. Arguments that the kernel takes as 32 bits are compared as 32 bits.
"""

from __future__ import annotations

from sbx.errors import SandboxUnavailable
from sbx.kernel.bpf import (
    ALLOW,
    ERRNO,
    JUMP_EQ,
    JUMP_GE,
    JUMP_SET,
    KILL_PROCESS,
    OFFSET_ARCH,
    OFFSET_NR,
    USER_NOTIF,
    Assembler,
    Label,
    argument_high,
    argument_low,
)
from sbx.kernel.syscalls_table import AUDIT_ARCH, numbers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    # (argument index, mask, value): (argument & mask) == value, or any bit of mask set when value is None; of the lower
    # half of the argument, or of the upper one with UPPER added to the index
    Condition: TypeAlias = tuple[int, int, int | None]
    # all conditions hold -> this answer; the first such rule decides, else the check's own answer
    Check: TypeAlias = tuple[tuple[tuple[tuple[Condition, ...], int], ...], int]
    Notify: TypeAlias = tuple[str, int, int]
    # call; all conditions hold -> is it shown?, the first such decides; is it shown otherwise?
    Watch: TypeAlias = tuple[str, tuple[tuple[tuple[Condition, ...], bool], ...], bool]

EPERM, EACCES, ENOSYS, EPROTONOSUPPORT, EOPNOTSUPP, EAFNOSUPPORT = (
    ERRNO | number for number in (1, 13, 38, 93, 95, 97)
)

# (title for people, answer, names)
REFUSED: tuple[tuple[str, int, str], ...] = (
    ("mounting", EPERM, "mount umount2 pivot_root chroot"),
    (
        "mounting (new interface)",
        ENOSYS,
        "open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr",
    ),
    ("joining namespaces", EPERM, "setns"),
    ("looking into other processes", EPERM, "ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd"),
    ("comparing and listing kernel objects", ENOSYS, "kcmp listns"),
    ("files by handle", EPERM, "open_by_handle_at"),
    ("kernel programs and performance counters", EPERM, "bpf perf_event_open"),
    ("kernel keyrings", ENOSYS, "keyctl add_key request_key"),
    ("io_uring", ENOSYS, "io_uring_setup io_uring_enter io_uring_register"),
    ("page faults and memory out of the kernel's sight", ENOSYS, "userfaultfd memfd_secret"),
    ("kernel images and modules", EPERM, "kexec_load kexec_file_load init_module finit_module delete_module"),
    (
        "administration of the machine",
        EPERM,
        "reboot swapon swapoff acct quotactl quotactl_fd syslog sethostname setdomainname vhangup iopl ioperm",
    ),
    ("setting the clock", EPERM, "settimeofday clock_settime adjtimex clock_adjtime"),
    ("watching whole file systems", EPERM, "fanotify_init fanotify_mark"),
    (
        "obsolete calls",
        ENOSYS,
        "modify_ldt uselib _sysctl sysfs lookup_dcookie nfsservctl create_module get_kernel_syms query_module"
        " getpmsg putpmsg afs_syscall tuxcall security vserver epoll_ctl_old epoll_wait_old",
    ),
    ("opening with the mode in memory", ENOSYS, "openat2"),
)

WORD = 0xFFFFFFFF
UPPER = 8
SET_ID_BITS = 0o6000
S_IFMT, S_IFCHR, S_IFBLK = 0o170000, 0o020000, 0o060000
O_PATH = 0o10000000
O_CREATES = 0o100 | 0o20000000  # O_CREAT and the bit of O_TMPFILE that is its own; alike on both machines
CLONE_NEW = 0x7E020000  # user, mount, pid, net, ipc, uts, cgroup
CLONE_NEWTIME = 0x80  # unshare only: in clone() these bits are the exit signal
NEW_LISTENER = 1 << 3
MSG_FASTOPEN = 0x20000000
MFD_NOEXEC_SEAL = 0x8
REFUSED_IOCTLS = (
    *(0x5412, 0x541C, 0x541D, 0x5423),  # TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD
    *(0x50009401, 0x5000940E, 0x5000940F, 0x50009417, 0x50009418),  # BTRFS_IOC_SNAP_*, SUBVOL_*: names out of sight
    0x5000943F,  # BTRFS_IOC_SNAP_DESTROY_V2
)
# the default, a query, linux32 and uname-2.6, each with and without ADDR_NO_RANDOMIZE where that is in use
PERSONALITIES = (0x0, 0xFFFFFFFF, 0x8, 0x20000, 0x20008, 0x40000, 0x40008)
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT = 0, 15
SOCK_STREAM, SOCK_SEQPACKET, SOCK_DCCP, SOCK_TYPE_MASK = 1, 5, 6, 0xF
IPPROTO_TCP, IPPROTO_DCCP, IPPROTO_SCTP = 6, 33, 132

LANDLOCK_CALLS = ("landlock_create_ruleset", "landlock_restrict_self")

# The calls by which a name comes into being, for a listener that judges names made during the run.
_CREATING = "creat openat2 mkdir mkdirat mknod mknodat link linkat symlink symlinkat rename renameat renameat2 bind"
NOTIFY_CREATES: tuple[Notify, ...] = (
    ("open", 1, O_CREATES),
    ("openat", 2, O_CREATES),
    *((name, -1, 0) for name in _CREATING.split()),
)

# Where some names are granted in folders that are mounted read-only, also those that change or remove what is there.
_CHANGING = "unlink unlinkat rmdir chmod fchmodat fchmodat2 truncate utimensat utimes utime"
O_CHANGES = 0o3 | 0o1000  # the access modes that write, and O_TRUNC
NOTIFY_CHANGES: tuple[Notify, ...] = (
    ("open", 1, O_CREATES | O_CHANGES),
    ("openat", 2, O_CREATES | O_CHANGES),
    *NOTIFY_CREATES[2:],
    *((name, -1, 0) for name in _CHANGING.split()),
)


def build_filter(
    machine: str,
    *,
    network: str = "none",
    own_netns: bool = True,
    deny_userns: bool = True,
    unix_sockets: bool = True,
    exec_memfd: bool = True,
    notify: Sequence[Notify] = (),
    watch: Sequence[Watch] = (),
) -> bytes:
    """The program for `machine` (as `os.uname()` spells it), as `struct sock_filter[]`.

    network       none | allow | host, of the profile
    own_netns     False where there is no network namespace, so that the filter has to refuse network sockets itself
                  (`allow` is then TCP only; which ports is for Landlock to say)
    deny_userns   refuse every new namespace
    unix_sockets  False refuses socket(AF_UNIX): for hosts where nothing else keeps host services' sockets out of reach
    exec_memfd    False refuses memory files that could be executed: for profiles with `exec` rules, which neither
                  Landlock nor a noexec mount can apply to them
    notify        (call, argument index, mask): hand these to the listener when a bit of the mask is set in the
                  argument; index -1 is always. Refusals come first, but for openat2: there the listener has to look
                  at the mode for setuid bits itself.
    watch         likewise for a listener that only looks on: (call, ((conditions, is it shown), ...), otherwise)
    """
    if machine not in AUDIT_ARCH:
        raise SandboxUnavailable(
            f"no system call table for {machine}",
            remedy="sbx supports x86_64 and aarch64 on Linux",
            platform="linux",
            reason=f"machine {machine}",
        )
    checks = {
        **_mode_checks(),
        **_other_checks(deny_userns, exec_memfd),
        **_socket_checks(network, own_netns, unix_sockets),
    }
    answers = _answers(machine, checks, deny_userns)
    _add_notifications(answers, numbers(machine), notify)
    if notify:
        # The listener makes names on the callers' behalf, and cannot know of a Landlock domain of their own: such a
        # domain would hold nothing. Rather none than that; programs take this answer for "switched off".
        answers.update(dict.fromkeys((numbers(machine)[name] for name in LANDLOCK_CALLS), EOPNOTSUPP))
    _add_watched(answers, numbers(machine), watch)
    asm = Assembler()
    native = Label()
    asm.load(OFFSET_ARCH)
    asm.branch(JUMP_EQ, AUDIT_ARCH[machine], yes=native)
    asm.answer(KILL_PROCESS)
    asm.put(native)
    asm.load(OFFSET_NR)
    _search(asm, _segments(answers, machine))
    return asm.assemble()


def _answers(machine: str, checks: dict[str, Check], deny_userns: bool) -> dict[int, int | Check]:
    """number -> what is answered. All known calls are in here; those that are not do not exist for the command."""
    table = numbers(machine)
    answers: dict[int, int | Check] = dict.fromkeys(table.values(), ALLOW)
    for _, answer, names in REFUSED:
        answers.update((table[name], answer) for name in names.split() if name in table)
    answers.update((table[name], check) for name, check in checks.items() if name in table)
    if deny_userns:
        answers[table["clone3"]] = ENOSYS  # its flags are in memory; the C library falls back to clone
    return answers


def _mode_checks() -> dict[str, Check]:
    """No file that gives its owner's rights to whoever runs it later, outside; no device node."""

    def set_id(argument: int) -> tuple[Condition, ...]:
        return ((argument, SET_ID_BITS, None),)

    checks: dict[str, Check] = {
        name: (((set_id(argument), EPERM),), ALLOW)
        for name, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2), ("creat", 1))
    }
    for name, flags in (("open", 1), ("openat", 2)):
        # Without these flags the mode's register holds anything.
        checks[name] = ((((flags, O_CREATES, None), *set_id(flags + 1)), EPERM),), ALLOW
    for name, mode in (("mknod", 1), ("mknodat", 2)):
        devices = tuple((((mode, S_IFMT, kind),), EPERM) for kind in (S_IFCHR, S_IFBLK))
        checks[name] = ((set_id(mode), EPERM), *devices), ALLOW
    return checks


def _other_checks(deny_userns: bool, exec_memfd: bool) -> dict[str, Check]:
    checks: dict[str, Check] = {
        "ioctl": (tuple((((1, WORD, command),), EPERM) for command in REFUSED_IOCTLS), ALLOW),
        "personality": (tuple((((0, WORD, value),), ALLOW) for value in PERSONALITIES), EPERM),
        # A newer listener would be asked instead of ours. Plain nested filters can only refuse more.
        "seccomp": (((((0, WORD, 1), (1, NEW_LISTENER, None)), EPERM),), ALLOW),
    }
    if deny_userns:
        checks["clone"] = ((((0, CLONE_NEW, None),), EPERM),), ALLOW
        checks["unshare"] = ((((0, CLONE_NEW | CLONE_NEWTIME, None),), EPERM),), ALLOW
    if not exec_memfd:
        checks["memfd_create"] = ((((1, MFD_NOEXEC_SEAL, None),), ALLOW),), EACCES
    return checks


def _socket_checks(network: str, own_netns: bool, unix_sockets: bool) -> dict[str, Check]:
    rules: list[tuple[tuple[Condition, ...], int]] = []
    checks: dict[str, Check] = {"socketpair": (((((0, WORD, AF_UNIX),), ALLOW),), EAFNOSUPPORT)}
    if unix_sockets:
        rules.append((((0, WORD, AF_UNIX),), ALLOW))
    else:
        rules.append((((0, WORD, AF_UNIX),), EACCES))
    for family in (AF_INET, AF_INET6):
        of_family = (0, WORD, family)
        if own_netns or network == "host":
            # SCTP and DCCP: kernel code that a build never needs, loaded on demand by this very call.
            rules += [((of_family, (1, SOCK_TYPE_MASK, kind)), EPROTONOSUPPORT) for kind in (SOCK_SEQPACKET, SOCK_DCCP)]
            rules += [((of_family, (2, WORD, kind)), EPROTONOSUPPORT) for kind in (IPPROTO_DCCP, IPPROTO_SCTP)]
            rules.append(((of_family,), ALLOW))
        elif network == "allow":
            # Landlock restricts the ports of plain TCP only: not those of UDP, MPTCP or SCTP.
            stream = (1, SOCK_TYPE_MASK, SOCK_STREAM)
            rules += [((of_family, stream, (2, WORD, protocol)), ALLOW) for protocol in (0, IPPROTO_TCP)]
            rules.append(((of_family,), EACCES))
        else:
            rules.append(((of_family,), EACCES))
    if own_netns or network == "host":
        netlink = (0, WORD, AF_NETLINK)
        rules += [((netlink, (2, WORD, kind)), ALLOW) for kind in (NETLINK_ROUTE, NETLINK_KOBJECT_UEVENT)]
        rules.append(((netlink,), EPROTONOSUPPORT))
    elif network == "allow":
        # Fast Open connects while sending, past Landlock's check of connect().
        for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
            checks[name] = ((((flags, MSG_FASTOPEN, None),), EOPNOTSUPP),), ALLOW
    checks["socket"] = (tuple(rules), EAFNOSUPPORT)
    return checks


def _add_notifications(answers: dict[int, int | Check], table: dict[str, int], notify: Sequence[Notify]) -> None:
    for name, argument, mask in notify:
        if name not in table:
            continue
        before = answers[table[name]]
        if name == "openat2":
            before = ALLOW  # refused for what a filter cannot see in it; a listener can
        elif isinstance(before, int) and before != ALLOW:
            continue
        rules, otherwise = ((), before) if isinstance(before, int) else before
        if argument < 0:
            answers[table[name]] = (rules, USER_NOTIF) if rules else USER_NOTIF
        else:
            # With O_PATH nothing is made, whatever else is set; and a listener cannot hand such a descriptor over.
            only_path = (((argument, O_PATH, None),), ALLOW)
            answers[table[name]] = ((*rules, only_path, (((argument, mask, None),), USER_NOTIF)), otherwise)


def _add_watched(answers: dict[int, int | Check], table: dict[str, int], watch: Sequence[Watch]) -> None:
    """What would be allowed is shown to the listener first; a refusal stays one."""
    for name, shown, otherwise in watch:
        before = answers[table[name]]
        if isinstance(before, int):
            rules: tuple[tuple[tuple[Condition, ...], int], ...] = ()
            if before != ALLOW:
                continue
        else:
            rules = tuple((conditions, USER_NOTIF if answer == ALLOW else answer) for conditions, answer in before[0])
            if before[1] not in (ALLOW, USER_NOTIF):
                answers[table[name]] = (rules, before[1])
                continue
        rules = (*rules, *((conditions, USER_NOTIF if seen else ALLOW) for conditions, seen in shown))
        answer = USER_NOTIF if otherwise else ALLOW
        answers[table[name]] = (rules, answer) if rules else answer


def _segments(answers: dict[int, int | Check], machine: str) -> list[tuple[int, int | Check]]:
    """(first number, answer), ascending: the answer holds up to the next segment's first number."""
    segments: list[tuple[int, int | Check]] = []
    for number in range(max(answers) + 2):
        answer = answers.get(number, ENOSYS)
        if not segments or segments[-1][1] != answer:
            segments.append((number, answer))
    if machine == "x86_64":
        # x32 counts from here. All ones is what a debugger outside writes to have a call skipped.
        segments += [(0x40000000, KILL_PROCESS), (0xFFFFFFFF, ENOSYS)]
    return segments


def _search(asm: Assembler, segments: list[tuple[int, int | Check]]) -> None:
    """Binary search: the accumulator holds the number."""
    if len(segments) == 1:
        _answer(asm, segments[0][1])
        return
    middle = len(segments) // 2
    upper = Label()
    asm.branch(JUMP_GE, segments[middle][0], yes=upper)
    _search(asm, segments[:middle])
    asm.put(upper)
    _search(asm, segments[middle:])


def _answer(asm: Assembler, answer: int | Check) -> None:
    if isinstance(answer, int):
        asm.answer(answer)
        return
    rules, otherwise = answer
    for conditions, action in rules:
        following = Label()
        for argument, mask, value in conditions:
            asm.load(argument_low(argument) if argument < UPPER else argument_high(argument - UPPER))
            if value is None:
                asm.branch(JUMP_SET, mask, no=following)
                continue
            if mask != WORD:
                asm.mask(mask)
            asm.branch(JUMP_EQ, value, no=following)
        asm.answer(action)
        asm.put(following)
    asm.answer(otherwise)


def summary(
    *,
    network: str = "none",
    own_netns: bool = True,
    deny_userns: bool = True,
    unix_sockets: bool = True,
    exec_memfd: bool = True,
    notify: Sequence[Notify] = (),
) -> tuple[str, ...]:
    """What the filter of the same arguments refuses, one line per fact."""
    lines = [f"{title}: {', '.join(names.split())}" for title, _, names in REFUSED]
    if deny_userns:
        lines.append("new namespaces: clone, unshare with CLONE_NEW*, clone3")
    lines.append("files with setuid or setgid bits, device nodes: chmod, open, creat, mknod and their kin")
    lines.append("terminal injection: ioctl TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD; btrfs subvolumes")
    lines.append("personality other than linux32, uname-2.6 and fixed addresses; nested seccomp listeners")
    if own_netns or network == "host":
        lines.append("socket families other than unix, inet, inet6 and netlink (route, uevent); SCTP, DCCP")
    elif network == "allow":
        lines.append("sockets other than TCP and unix; TCP Fast Open")
    else:
        lines.append("sockets of every network family")
    if not exec_memfd:
        lines.append("memory files that could be executed: memfd_create without MFD_NOEXEC_SEAL")
    if not unix_sockets:
        lines.append("unix sockets other than socketpair")
    lines.append("calls of other architectures (kills), calls newer than this version of sbx")
    if notify:
        lines.append("Landlock domains of the command's own: " + ", ".join(LANDLOCK_CALLS))
        lines.append("judged by the listener: " + ", ".join(dict.fromkeys(name for name, _, _ in notify)))
    return tuple(lines)
