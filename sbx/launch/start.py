"""Start one sandbox: the supervisor's side of the clone.

A `Launch` is the stored plan: what to build. A `Run` is what differs from call to call: command, environment,
descriptors, limits. Both are plain dicts of plain values.
"""

from __future__ import annotations

import sys

from sbx.kernel import process, signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.inside import FORWARDED, SIGTSTP, live_inside
from sbx.launch.root import make_directories
from sbx.launch.setup import in_open_bundle, listens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NotRequired, TypedDict

    from sbx.launch.attend import UnderFilter
    from sbx.launch.hand import HandPlan

    class Launch(TypedDict):
        namespaces: int  # CLONE_NEW* flags; 0 without user namespaces
        uid: int
        gid: int
        loopback: bool
        staging: bytes  # where the private root is built
        restrict_proc: bool
        operations: tuple[tuple[int, bytes, bytes, int], ...]
        cwd: bytes
        landlock: (
            tuple[Any, ...] | None
        )  # (fs, net, scopes, flags, ((path, access, optional), ...), ((port, access), ...))
        seccomp: bytes
        private_tmp_access: int  # Landlock rights on a directory made for this run; 0 where /tmp is private anyway
        proxy_port: int  # where the command finds the proxy, in a network namespace of its own
        future: tuple[Any, dict[int, str]] | None  # judge and calls, where names made during the run are judged
        hand: NotRequired[HandPlan | None]  # see hand: for names in read-only folders
        turns: NotRequired[bytes]  # the lock of all sandboxes that judge names (see turns)
        core_files: NotRequired[tuple[bytes, bytes, bool] | None]  # the host's setting, and whether they are denied
        trace: NotRequired[tuple[Any, ...] | None]  # see tracing: what a traced run looks at
        private: NotRequired[tuple[Any, ...]]  # see template: what each sandbox makes anew

    class Run(TypedDict):
        argv: tuple[bytes, ...]
        candidates: tuple[bytes, ...]  # where to look for argv[0], in order
        env: dict[bytes, bytes]
        streams: tuple[int, int, int]
        keep: tuple[int, ...]  # descriptors of make's jobserver
        jobserver: NotRequired[bytes]  # its fifo (make 4.4), or empty
        rlimits: tuple[tuple[int, int, int], ...]
        terminal: int  # the descriptor of the terminal the command shares with the caller's session, or -1
        foreground: bool  # hand it the terminal at once
        cgroup_fd: int  # the directory of the cgroup to be born in, or -1
        private_tmp: bytes  # the directory to make for temporary files, or empty
        channel: int  # the socket to hand the proxy's listening socket over, or -1
        proxy_port: int  # without a network namespace: the one port that TCP may connect to, or 0
        hand_pid: NotRequired[int]  # to be waited for at the end, or 0
        hand: NotRequired[int]  # the socket to ask the hand outside; only where the launch has one
        gate: int  # where the word comes from that the command may start, or -1
        told_last: NotRequired[bool]  # there: the end is told when nothing of the command is left
        under: NotRequired[UnderFilter]  # who spawns the command, where it is there before the command is known


assert sys.platform == "linux"  # for type checkers on other platforms


def start(launch: Launch, run: Run) -> tuple[int, int]:
    """Clone pid 1 of the sandbox. Returns its pid out here and the descriptor its messages come from."""
    make_directories(launch["operations"])
    if launch.get("trace") is not None:
        import sbx.launch.tracing
    if listens(launch):
        import sbx.launch.attend

        if not in_open_bundle("sbx.launch.listener"):
            import sbx.launch.core_dumps  # pid 1 inside can import nothing from a file after the pivot
            import sbx.launch.listener  # noqa: F401
    hand = offer_hand(launch, run, waited_for=True)
    if run["channel"] >= 0:
        import _socket  # noqa: F401  # likewise

    status_read, status_write = os.pipe2(os.O_CLOEXEC)
    parent = process.pidfd_open(os.getpid())
    # Blocked until pid 1 has its own handlers, so that no signal finds it half-made.
    blocked = signals.pthread_sigmask(signals.SIG_BLOCK, {*FORWARDED, SIGTSTP})
    try:
        pid = process.clone(launch["namespaces"], run["cgroup_fd"])
    except OSError:
        for descriptor in (status_read, status_write, parent, *hand):
            os.close(descriptor)
        signals.pthread_sigmask(signals.SIG_SETMASK, blocked)
        raise
    if pid == 0:
        live_inside(launch, run, status_write, parent)
    process.send_elsewhere(pid)
    for descriptor in (status_write, parent, *hand):
        os.close(descriptor)
    signals.pthread_sigmask(signals.SIG_SETMASK, blocked)
    return pid, status_read


def offer_hand(launch: Launch, run: Run, *, waited_for: bool) -> tuple[int, ...]:
    """Before the clone, where the plan asks for it. What is returned is to be closed after the clone."""
    plan = launch.get("hand")
    if plan is None:
        return ()
    from sbx.launch.hand import fork_hand

    run["hand"], run["hand_pid"] = fork_hand(plan, waited_for=waited_for)
    return (run["hand"],)
