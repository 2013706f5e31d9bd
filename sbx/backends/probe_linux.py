"""What can this Linux enforce? Every mechanism is tried for real, in children that are thrown away.

A child reports each step as it is done, so that one that is killed on the way (by an outer seccomp filter, say) still
tells how far it came. Nothing outside the children changes: mounts are made in their own namespaces.
"""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

import errno
import os
import select
from collections.abc import Callable
from functools import partial

from sbx.backends.capabilities import NAMESPACES, PRIVATE_ROOT, Capabilities, Reason
from sbx.backends.probe_cgroup import probe_cgroup
from sbx.backends.reasons import Facts, explain, needs
from sbx.kernel import bpf, landlock, mounts, process, seccomp
from sbx.kernel.call import NUMBERS, Buffer, supported_machine, syscall
from sbx.kernel.machine import SYSCTLS

Tell = Callable[[str, int | str], None]

_NAMESPACE_FLAGS = {
    "mount_ns": process.CLONE_NEWNS,
    "pid_ns": process.CLONE_NEWPID,
    "net_ns": process.CLONE_NEWNET,
    "ipc_ns": process.CLONE_NEWIPC,
    "uts_ns": process.CLONE_NEWUTS,
    "cgroup_ns": process.CLONE_NEWCGROUP,
}
_EXHAUSTED = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_PROOF = errno.EDOM  # an answer that only our own filter would give

# ioctls of a seccomp listener: _IOWR('!', 0, seccomp_notif) and so on
_NOTIF_RECV = 0xC0502100
_NOTIF_SEND = 0xC0182101
_NOTIF_ADDFD = 0x40182103
_NOTIF_SET_FLAGS = 0x40082104


def probe() -> Capabilities:
    """Try everything. A few milliseconds; see `capability_cache` for the stored answer."""
    system = os.uname()
    facts = gather_facts()
    found: dict[str, int] = {}
    if supported_machine():
        for attempt in (_try_namespaces, _try_landlock, _try_seccomp):
            found.update(_in_child(attempt))
    cgroup = probe_cgroup()
    works = {name: found.get(name) == 0 for name in (*NAMESPACES, *PRIVATE_ROOT, "mount_api")}
    return Capabilities(
        kernel=system.release,
        machine=system.machine,
        uid=os.geteuid(),
        in_container=facts.in_container,
        **works,
        landlock_abi=found.get("landlock_abi", 0) if found.get("landlock") == 0 else 0,
        seccomp=found.get("seccomp") == 0,
        user_notif=found.get("user_notif") == 0,
        notif_flags=tuple(
            flag for flag in ("addfd", "addfd_send", "sync_wake_up", "wait_killable") if found.get(flag) == 0
        ),
        cgroup_path=cgroup.path,
        cgroup_mechanism=cgroup.mechanism,
        cgroup_controllers=cgroup.controllers,
        pidfd=found.get("pidfd") == 0,
        close_range=found.get("close_range") == 0,
        reasons=(*_reasons(found, facts), *([cgroup.reason] if cgroup.reason else [])),
    )


def _reasons(found: dict[str, int], facts: Facts) -> list[Reason]:
    if not supported_machine():
        machine = os.uname().machine
        return [
            Reason("machine", "", f"no system call table for {machine}", "sbx supports x86_64 and aarch64 on Linux")
        ]
    reasons = []
    for name in (*NAMESPACES, *PRIVATE_ROOT, "mount_api", "landlock", "seccomp", "user_notif"):
        number = found.get(name)
        if number == 0:
            continue
        if number is None:
            reasons.append(_not_reached(name, found))
        elif number < 0:
            words = f"the attempt was killed by signal {-number}"
            reasons.append(Reason(name, "", words, "look for a seccomp filter or a limit around this process"))
        else:
            reasons.append(explain(name, number, facts))
    return reasons


def _not_reached(name: str, found: dict[str, int]) -> Reason:
    """The first of what comes before `name` that does not work."""
    if name == "user_notif":
        return needs(name, "seccomp")
    before = ("userns",) if name in NAMESPACES else ("userns", "mount_ns", "mounts", "pid_ns")
    return needs(name, next((each for each in before if found.get(each) != 0), "userns"))


def gather_facts() -> Facts:
    sysctls = {name: value for name in SYSCTLS if (value := _text("/proc/sys/" + name)) is not None}
    mode = 0
    for line in (_text("/proc/self/status") or "").splitlines():
        if line.startswith("Seccomp:"):
            mode = int(line.split()[1])
    lsm = _text("/sys/kernel/security/lsm") or ""
    in_sbx = mode == 2 and (_text("/proc/1/cmdline") or "").startswith("sbx\0")
    return Facts(sysctls, _in_container(), lsm, mode, os.uname().release, in_sbx)


def _in_container() -> bool:
    marks = ("/.dockerenv", "/run/.containerenv", "/run/systemd/container", "/var/run/secrets/kubernetes.io")
    if "container" in os.environ or any(map(os.path.exists, marks)):
        return True
    ids = (_text("/proc/self/uid_map") or "").split()
    return bool(ids) and ids != ["0", "0", "4294967295"]


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def _in_child(attempt: Callable[[Tell], None]) -> dict[str, int]:
    """Run `attempt` in a child; what it told, as name -> errno (0: it works). A killed step is minus the signal."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            attempt(lambda name, number: _report(writing, name, number))
        finally:
            os._exit(0)  # never back into the caller's code, whatever happened
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        told = [line.split() for line in pipe.read().splitlines()]
    _, status = os.waitpid(child, 0)
    found = {name: int(number) for name, number in told if number != "?"}
    for name in [name for name, number in told if number == "?"]:
        if found.get(name) in _EXHAUSTED:  # says nothing of the machine, and must not be remembered as if it did
            raise OSError(found[name], os.strerror(found[name]))
    if os.WIFSIGNALED(status):
        found.update({name: -os.WTERMSIG(status) for name, number in told if number == "?" and name not in found})
    return found


def _report(pipe: int, name: str, number: int | str) -> None:
    os.write(pipe, f"{name} {number}\n".encode())


def _step(tell: Tell, name: str, work: Callable[[], object]) -> bool:
    """Do one step and tell how it went."""
    tell(name, "?")  # being tried: stays the last word if the step kills the child
    try:
        work()
    except OSError as error:
        tell(name, error.errno or errno.EIO)
        return False
    tell(name, 0)
    return True


def _try_namespaces(tell: Tell) -> None:
    """By clone(), as a launch does it: all at once, and one by one only to find out which of them is refused."""
    flags = {"userns": process.CLONE_NEWUSER, **_NAMESPACE_FLAGS}
    ids = os.geteuid(), os.getegid()  # inside they are nobody until they are mapped

    def inside(made: dict[str, int]) -> None:
        for name in made:
            tell(name, 0)
        if _step(tell, "userns", partial(_map_ids, ids)):
            _try_mounts(tell, has_pid_ns="pid_ns" in made)

    try:
        _in_clone(sum(flags.values()), partial(inside, flags))
    except OSError:
        made: dict[str, int] = {}
        for name, flag in flags.items():
            if _step(tell, name, partial(_in_clone, process.CLONE_NEWUSER | flag, lambda: None)):
                made[name] = flag
            elif not made:
                return
        if "mount_ns" in made:
            _in_clone(sum(made.values()), partial(inside, made))


def _in_clone(flags: int, work: Callable[[], object]) -> None:
    child = process.clone(flags)
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _map_ids(ids: tuple[int, int]) -> None:
    uid, gid = ids
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(descriptor, text.encode())
        os.close(descriptor)


def _try_mounts(tell: Tell, *, has_pid_ns: bool) -> None:
    root = next(path for path in (b"/tmp", b"/var", b"/usr", b"/etc", b"/dev") if os.path.isdir(path))
    root = os.path.realpath(root)

    def tmpfs_and_bind() -> None:
        mounts.mount(None, b"/", None, mounts.MS_REC | mounts.MS_PRIVATE)
        mounts.mount(b"tmpfs", root, b"tmpfs", mounts.MS_NOSUID | mounts.MS_NODEV, b"mode=755")
        for name in (b"/from", b"/to", b"/proc", b"/old"):
            os.mkdir(root + name)
        mounts.mount(root + b"/from", root + b"/to", None, mounts.MS_BIND)
        read_only = mounts.MS_REMOUNT | mounts.MS_BIND | mounts.MS_RDONLY | mounts.MS_NOSUID | mounts.MS_NODEV
        mounts.mount(None, root + b"/to", None, read_only)
        _expect(errno.EROFS, lambda: os.mkdir(root + b"/to/x"))

    def new_interface() -> None:
        flags = mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC | mounts.AT_RECURSIVE
        tree = mounts.open_tree(mounts.AT_FDCWD, root + b"/from", flags)
        mounts.mount_setattr(tree, mounts.AT_RECURSIVE, mounts.MOUNT_ATTR_RDONLY)
        mounts.move_mount(tree, os.open(root + b"/from", mounts.O_PATH))
        _expect(errno.EROFS, lambda: os.mkdir(root + b"/from/x"))

    def pivot() -> None:
        mounts.pivot_root(root, root + b"/old")
        os.chdir("/")
        mounts.umount2(b"/old", mounts.MNT_DETACH)
        if os.path.exists("/old/usr"):
            raise OSError(errno.EBUSY, "the old root is still there")

    if not _step(tell, "mounts", tmpfs_and_bind):
        return
    _step(tell, "mount_api", new_interface)
    if has_pid_ns:
        flags = mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC
        _step(tell, "proc_mount", lambda: mounts.mount(b"proc", root + b"/proc", b"proc", flags))
    _step(tell, "pivot_root", pivot)


def _expect(number: int, work: Callable[[], object]) -> None:
    """`work` has to fail with this errno: a mechanism that lets it through does not enforce anything."""
    try:
        work()
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise OSError(errno.EIO, "was accepted, but does not hold")


def _try_landlock(tell: Tell) -> None:
    def restrict() -> None:
        abi = landlock.abi()
        tell("landlock_abi", abi)
        process.no_new_privs()
        landlock.restrict_self(landlock.create_ruleset(*landlock.handled(abi)))
        _expect(errno.EACCES, lambda: os.open("/", os.O_RDONLY | os.O_DIRECTORY))

    _step(tell, "pidfd", lambda: process.pidfd_open(os.getpid()))
    _step(tell, "close_range", lambda: process.close_range(1 << 20, 1 << 20))
    _step(tell, "landlock", restrict)


def _answering(name: str, action: int) -> bytes:
    """A filter that answers one call."""
    asm = bpf.Assembler()
    other = bpf.Label()
    asm.load(bpf.OFFSET_NR)
    asm.branch(bpf.JUMP_EQ, NUMBERS[name], no=other)
    asm.answer(action)
    asm.put(other)
    asm.answer(bpf.ALLOW)
    return asm.assemble()


def _sethostname() -> None:
    syscall("sethostname", NUMBERS["sethostname"], "zl", b"", -1)  # EINVAL or EPERM unless a filter answers


def _kcmp() -> None:
    syscall("kcmp", NUMBERS["kcmp"], "lllll", 0, 0, 0, 0, 0)


def _try_seccomp(tell: Tell) -> None:
    def refuse() -> None:
        process.no_new_privs()
        seccomp.install(_answering("sethostname", bpf.ERRNO | _PROOF))
        _expect(_PROOF, _sethostname)

    if _step(tell, "seccomp", refuse):
        _step(tell, "user_notif", lambda: _listen(tell))


def _listen(tell: Tell) -> None:
    program = _answering("kcmp", bpf.USER_NOTIF)
    try:
        listener = seccomp.install(program, seccomp.FLAG_NEW_LISTENER | seccomp.FLAG_WAIT_KILLABLE_RECV)
        tell("wait_killable", 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        listener = seccomp.install(program, seccomp.FLAG_NEW_LISTENER)
    # ENOENT says that the request was understood, and that no call with this id is waiting.
    nobody = (1).to_bytes(8, "little")
    for name, flags in (("addfd", 0), ("addfd_send", 2)):
        request = nobody + flags.to_bytes(4, "little") + bytes(12)
        tell(name, _errno_of(partial(_ioctl, listener, _NOTIF_ADDFD, request)) ^ errno.ENOENT)
    tell("sync_wake_up", _errno_of(lambda: syscall("ioctl", NUMBERS["ioctl"], "lll", listener, _NOTIF_SET_FLAGS, 1)))
    child = os.fork()
    if not child:
        os._exit(_errno_of(_kcmp))
    try:
        _answer_one(listener)
    finally:
        os.close(listener)  # whoever still waits for an answer gets ENOSYS
        _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status) != _PROOF:
        raise OSError(errno.EIO, "the listener's answer did not arrive")


def _answer_one(listener: int) -> None:
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    if not waiting.poll(2000):
        raise OSError(errno.ETIMEDOUT, "no notification came")
    received = Buffer(80)
    syscall("ioctl", NUMBERS["ioctl"], "lll", listener, _NOTIF_RECV, received.address)
    answer = received.read(8) + bytes(8) + (-_PROOF).to_bytes(4, "little", signed=True) + bytes(4)
    _ioctl(listener, _NOTIF_SEND, answer)


def _ioctl(descriptor: int, request: int, data: bytes) -> None:
    syscall("ioctl", NUMBERS["ioctl"], "llz", descriptor, request, data)


def _errno_of(work: Callable[[], object]) -> int:
    try:
        work()
    except OSError as error:
        return error.errno or errno.EIO
    return 0
