"""A sandbox that serves one command after the other (see sbx.launch.shared), from this side."""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING, Any

from sbx.errors import SetupFailed
from sbx.kernel import bpf
from sbx.kernel.syscalls_table import numbers
from sbx.launch import inside, passing
from sbx.launch.warm import ONCE, SHARED
from sbx.library.launcher import Template, refused

assert sys.platform == "linux"  # for type checkers on other platforms

if TYPE_CHECKING:
    from sbx.launch.start import Run
    from sbx.library.plans import ReadyPlan


MAX_SPARES = 4  # making one waits for the kernel now and then: others go on meanwhile


class SharedSandbox:
    """Asked for at once, there a little later: `ensure_ready` waits for it."""

    def __init__(self, plan: ReadyPlan, template: Template, *, keep_tmp: bool = False, once: bool = False) -> None:
        self.template = template  # as long as this sandbox lives, so must that
        self.pidfd = -1
        self._ready = False
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            run = _launcher_run(keep_tmp=keep_tmp, once=once)
            descriptors = [theirs.fileno(), nowhere, nowhere, nowhere]
            template.send((ONCE if once else SHARED, plan.prepared["launch"]["cwd"], run), descriptors)
        except OSError as error:
            self.control.close()
            raise SetupFailed(f"the launcher is gone: {error}", remedy="try again") from None
        finally:
            theirs.close()
            os.close(nowhere)

    def ensure_ready(self) -> None:
        """Raises SetupFailed, and then it is closed."""
        try:
            while not self._ready or self.pidfd < 0:
                self._first_words()
        except BaseException:
            self.close()
            raise

    def _first_words(self) -> None:
        data, control, _flags, _address = self.control.recvmsg(65536, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        for descriptor in passing.unpack(control):
            self.pidfd = descriptor
        if not data:
            raise refused(())
        message = marshal.loads(data[4:])
        if message[0] == inside.FAILED:
            raise refused(message)
        self._ready = self._ready or message[0] == inside.STARTED

    def send(self, message: tuple[Any, ...], descriptors: list[int]) -> None:
        self._ready = False
        passing.send(self.control, message, descriptors)

    def usable(self) -> bool:
        """Clean, and ready for another command? Where the last one left its mark it has ended instead."""
        try:
            self.ensure_ready()
        except (SetupFailed, OSError):
            return False
        return True

    def hand_over(self) -> int:
        """The pidfd now belongs to whoever supervises the one command of this sandbox."""
        pidfd, self.pidfd = self.pidfd, -1
        return pidfd

    def kill(self) -> None:
        if self.pidfd >= 0:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass

    def close(self, *, wait: bool = True) -> None:
        """End it. Without `wait` nothing runs in it any more, and it may take its time to go."""
        self.control.close()
        if self.pidfd >= 0:
            if wait:
                self.kill()
                poll = select.poll()
                poll.register(self.pidfd, select.POLLIN)
                poll.poll()
            os.close(self.pidfd)
            self.pidfd = -1

    def __del__(self) -> None:
        if getattr(self, "control", None) is not None:
            self.close(wait=False)


class Spares:
    """Fresh sandboxes of one plan, set up before they are asked for; each serves one command and ends."""

    def __init__(self) -> None:
        self._waiting: list[SharedSandbox] = []
        self._closed = False
        self._lock = threading.Lock()

    def take(self, plan: ReadyPlan, template: Template) -> SharedSandbox:
        with self._lock:
            found = self._waiting.pop(0) if self._waiting else None
        if found is None or found.template is not template:
            found = SharedSandbox(plan, template, once=True)
        found.ensure_ready()
        return found

    def refill(self, plan: ReadyPlan, template: Template) -> None:
        """In the background: built while the command that took one runs. Two for each that was taken, up to a few:
        who runs one command does not pay for many."""
        with self._lock:
            for _ in range(2):
                if len(self._waiting) < MAX_SPARES and not self._closed:
                    self._waiting.append(SharedSandbox(plan, template, once=True))

    def close(self) -> None:
        """No more of them. Those that were taken live on until their command has ended."""
        with self._lock:
            self._closed = True
            waiting, self._waiting = self._waiting, []
        for sandbox in waiting:
            sandbox.close(wait=False)


def without_queues(machine: str) -> bytes:
    """A filter under which POSIX message queues do not exist: they would outlive the command that made them."""
    asm = bpf.Assembler()
    refuse = bpf.Label()
    asm.load(bpf.OFFSET_NR)
    asm.branch(bpf.JUMP_EQ, numbers(machine)["mq_open"], yes=refuse)
    asm.answer(bpf.ALLOW)
    asm.put(refuse)
    asm.answer(bpf.ERRNO | errno.ENOSYS)
    return asm.assemble()


def _launcher_run(*, keep_tmp: bool, once: bool) -> Run:
    """The launcher inside is set up like a command; it is none, so most of this is empty."""
    return {
        "argv": (),
        "candidates": (),
        "env": {},
        "streams": (0, 1, 2),
        "keep": (),
        "rlimits": (),
        "terminal": -1,
        "foreground": False,
        "cgroup_fd": -1,
        "private_tmp": b"",
        "channel": -1,
        "proxy_port": 0,
        "gate": -1,
        "keep_tmp": keep_tmp,
        "extra_filter": b"" if once else without_queues(os.uname().machine),
    }  # type: ignore[typeddict-unknown-key]
