"""The steps of the set-up around the private root: identity, network, descriptors, limits, and what nothing can undo.

Runs as pid 1 inside, or as what stands in its place; a step that fails raises `SetupStep` with its words.
"""

from __future__ import annotations

import select
import sys

from sbx.kernel import landlock, process, seccomp
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import MACHINE, NUMBERS, syscall
from sbx.launch import turns
from sbx.launch.root import BIND_RW, NOEXEC, OPTIONAL, SetupStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.launch.root import LaunchOp
    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

GATE_OPEN = b"g"
SIGKILL = 9
READ_AND_WRITE = landlock.FS_RIGHTS["READ_FILE"][1] | landlock.FS_RIGHTS["WRITE_FILE"][1]
_SOCKET = 198 if MACHINE == "aarch64" else 41


def confine(launch: Launch, run: Run, status_fd: int) -> None:
    """The rest of the set-up, once this process stands in its private root: nothing can be gained back after it."""
    # From here on an import from a file could only find what the command put there.
    sys.path.clear()
    sys.meta_path[:] = bundles = open_bundles()
    step("enter the working directory", os.chdir, launch["cwd"])
    gate = (run["gate"],) if run["gate"] >= 0 else ()
    descriptors(run, (status_fd, *gate, *(bundle.open_file for bundle in bundles)))
    limits(run)
    process.drop_capabilities()
    process.no_new_privs()
    process.prctl(process.PR_SET_DUMPABLE, 0)
    process.prctl(process.PR_SET_PDEATHSIG, SIGKILL)  # again: a change of credentials clears it
    if launch["landlock"] is not None:
        landlock_rules(launch["landlock"], jobserver_rule(run))
    if launch["seccomp"] and not listens(launch):
        step("install the system call filter", seccomp.install, launch["seccomp"])


def open_bundles() -> list[Any]:
    """What finds modules in a file that this process keeps open (see console)."""
    return [finder for finder in sys.meta_path if hasattr(finder, "open_file")]


def in_open_bundle(name: str) -> bool:
    return any(name in finder.rows for finder in open_bundles())


def pass_gate(gate: int) -> None:
    """The plan was still being checked while this process carried it out. Without a word from there, nothing starts."""
    if os.read(gate, 1) != GATE_OPEN:
        os._exit(125)
    os.close(gate)


def die_with_parent(parent_fd: int) -> None:
    process.prctl(process.PR_SET_PDEATHSIG, SIGKILL)
    poll = select.poll()
    poll.register(parent_fd, select.POLLIN)
    if poll.poll(0):  # it died before the line above
        os._exit(125)


def step(words: str, function: Any, *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except OSError as error:
        # Only a path says something to a person: the system call filter is bytes, too.
        subject = arguments[0] if arguments and isinstance(arguments[0], bytes | str) else b""
        subject = subject if subject[:1] in ("/", b"/") else b""
        raise SetupStep(words, error.errno or 0, str(error), subject[:4096]) from None


def map_ids(launch: Launch) -> None:
    """Inside, the user is who they are outside; nobody else exists."""
    uid, gid = launch["uid"], launch["gid"]
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        step(f"write /proc/self/{name}", _write, f"/proc/self/{name}", text.encode())


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def loopback_up() -> None:
    try:
        probe = syscall("socket", _SOCKET, "lll", 2, 2 | os.O_CLOEXEC, 0)  # AF_INET, SOCK_DGRAM
        process.network_loopback_up(probe)
        os.close(probe)
    except OSError as error:
        raise SetupStep("bring the loopback interface up", error.errno or 0, str(error), b"lo") from None


def offer_listener(channel: int, port: int) -> None:
    """A listening socket of this network namespace, for the proxy outside."""
    import _socket  # imported before, by start: here it costs nothing

    try:
        listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", port))
        listener.listen(1024)
        with_rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, listener.fileno().to_bytes(4, "little"))]
        sender = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, channel)
        sender.sendmsg([b"p"], with_rights)
        sender.close()
        listener.close()
    except OSError as error:
        raise SetupStep("offer the proxy its socket", error.errno or 0, str(error), b"") from None


def descriptors(run: Run, ours: tuple[int, ...]) -> None:
    """0, 1 and 2 become the command's; beyond them only make's jobserver survives the exec."""
    for number, descriptor in enumerate(run["streams"]):
        if descriptor != number:
            os.dup2(descriptor, number, inheritable=True)
        else:
            os.set_inheritable(number, True)
    kept = tuple(descriptor for descriptor in run["keep"] if descriptor > 2)
    terminal = (run["terminal"],) if run["terminal"] >= 0 else ()
    hand = (run["hand"],) if "hand" in run else ()
    turns_lock = (turns.lock,) if turns.lock >= 0 else ()
    process.close_from(3, (*ours, *terminal, *hand, *turns_lock, *kept))
    for descriptor in kept:
        os.set_inheritable(descriptor, True)


def prepare_to_judge(launch: Launch) -> None:
    """Before the pivot, where names will be judged."""
    if launch["future"] is not None and launch.get("turns"):
        turns.open_lock(launch["turns"])


def show_jobserver(run: Run) -> tuple[LaunchOp, ...]:
    """make's fifo, alone, at its place: the command takes its tokens from there, and puts them back."""
    fifo = run.get("jobserver")
    return ((BIND_RW, fifo, b"", NOEXEC | OPTIONAL),) if fifo else ()


def check_jobserver(run: Run, staging: bytes) -> None:
    """What was bound is a fifo still: somebody could have put another file in its place since it was looked at."""
    fifo = run.get("jobserver")
    if fifo:
        try:
            mode = os.lstat(staging + fifo).st_mode
        except FileNotFoundError:
            return  # it is gone, and make with it
        if mode & 0o170000 != 0o010000:
            raise SetupStep("show make's jobserver", 0, "it is no fifo any more", fifo)


def jobserver_rule(run: Run) -> tuple[tuple[bytes, int, bool], ...]:
    fifo = run.get("jobserver")
    return ((fifo, READ_AND_WRITE, True),) if fifo else ()


def limits(run: Run) -> None:
    if not run["rlimits"]:
        return
    for limit, soft, hard in run["rlimits"]:
        pair = soft.to_bytes(8, "little") + hard.to_bytes(8, "little")
        try:
            syscall("prlimit64", NUMBERS["prlimit64"], "llzl", 0, limit, pair, 0)
        except OSError as error:
            raise SetupStep(f"set resource limit {limit}", error.errno or 0, str(error), b"") from None


def landlock_rules(
    plan: tuple[Any, ...], more: tuple[tuple[bytes, int, bool], ...] = (), more_ports: tuple[tuple[int, int], ...] = ()
) -> None:
    fs, net, scoped, flags, paths, ports = plan
    try:
        ruleset = landlock.create_ruleset(fs, net, scoped)
        for path, access, optional in (*paths, *more):
            try:
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                if optional:
                    continue
                raise
            try:
                is_dir = (os.fstat(place).st_mode & 0o170000) == 0o040000
                landlock.add_path(ruleset, place, access, is_dir=is_dir, subject=path)
            finally:
                os.close(place)
        for port, access in (*ports, *more_ports):
            landlock.add_port(ruleset, port, access)
        landlock.restrict_self(ruleset, flags)
        os.close(ruleset)
    except OSError as error:
        raise SetupStep("apply the Landlock rules", error.errno or 0, str(error), b"") from None


def listens(launch: Launch) -> bool:
    """Does the filter hand calls over to this process?"""
    return launch["future"] is not None or launch.get("trace") is not None
