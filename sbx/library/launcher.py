"""The one launcher of this process: started on first use, shared by all threads and loops, gone with its owner.

Started by exec, because the caller may have threads. After a fork the child has none and starts its own.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from typing import Any

from sbx.errors import SandboxUnavailable, SetupFailed
from sbx.launch import inside, passing
from sbx.launch.warm import TEMPLATE

assert sys.platform == "linux"  # for type checkers on other platforms

SCRIPT = os.path.join(os.path.dirname(passing.__file__), "zygote.py")
CONTROL_FD = 3


class Launcher:
    """A running zygote (see sbx.launch.warm)."""

    def __init__(self) -> None:
        python = sys.executable
        if not python:
            raise SandboxUnavailable(
                "this program does not know its own Python interpreter",
                remedy="set sys.executable",
                platform=sys.platform,
            )
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nowhere = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
        try:
            self.pid = os.posix_spawn(
                python,
                [python, "-IS", SCRIPT, str(CONTROL_FD), str(os.getpid())],
                {},
                file_actions=[*nowhere, (os.POSIX_SPAWN_DUP2, theirs.fileno(), CONTROL_FD)],
                setsid=True,  # a Ctrl-C is the caller's to answer
                setsigmask=(),
            )
        except OSError as error:
            self.control.close()
            raise SetupFailed(
                f"could not start {python}: {error.strerror}", remedy="reinstall sbx for a Python that works"
            ) from None
        finally:
            theirs.close()

    def send(self, message: tuple[Any, ...], descriptors: list[int]) -> None:
        passing.send(self.control, message, descriptors)

    def alive(self) -> bool:
        """Still listening? The only thing it ever says is that it is gone."""
        try:
            return bool(self.control.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Ends every sandbox that it started."""
        self.control.close()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # somebody else waits for all children of this process


_lock = threading.Lock()
_launcher: Launcher | None = None


def launcher() -> Launcher:
    """The one of this process, started if need be."""
    global _launcher
    with _lock:
        if _launcher is not None and not _launcher.alive():
            _launcher.close()
            _launcher = None
        if _launcher is None:
            _launcher = Launcher()
        return _launcher


def shutdown() -> None:
    """End the launcher and with it every sandbox of this process. The next run starts a new one."""
    global _launcher
    with _lock:
        if _launcher is not None:
            _launcher.close()
        _launcher = None


def _forget_after_fork() -> None:
    """The parent's launcher serves the parent alone; a copy of its socket would keep it alive."""
    global _launcher, _lock
    _lock = threading.Lock()
    if _launcher is not None:
        _launcher.control.close()
    _launcher = None


os.register_at_fork(after_in_child=_forget_after_fork)


class Template:
    """A private root that was built once; sandboxes are made on copies of it (see sbx.launch.template)."""

    def __init__(self, launch: dict[str, Any]) -> None:
        self.owner = os.getpid()
        self.launcher = launcher()
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours, status = socket.socketpair()
        try:
            self.launcher.send((TEMPLATE, launch), [status.fileno(), theirs.fileno()])
            status.close()
            first = read_message(ours)
        except OSError as error:
            self.control.close()
            raise SetupFailed(f"the launcher is gone: {error}", remedy="make a new session") from None
        finally:
            for end in (theirs, ours, status):
                end.close()
        if first[:1] != (inside.STARTED,):
            self.control.close()
            raise refused(first)

    def send(self, message: tuple[Any, ...], descriptors: list[int]) -> None:
        passing.send(self.control, message, descriptors)

    def alive(self) -> bool:
        if self.owner != os.getpid():
            return False
        try:
            return bool(self.control.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        """Ends the sandboxes made from it."""
        self.control.close()

    def __del__(self) -> None:
        control = getattr(self, "control", None)
        if control is not None:
            control.close()


def read_message(status: socket.socket) -> tuple[Any, ...]:
    """One message of `inside`; empty when there is none any more."""
    import marshal

    head = _exactly(status, 4)
    return marshal.loads(_exactly(status, int.from_bytes(head, "little"))) if head else ()


def _exactly(status: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = status.recv(count - len(data))
        if not piece:
            return b""
        data += piece
    return data


def refused(message: tuple[Any, ...]) -> SetupFailed:
    """The words for a sandbox that could not be set up."""
    if not message:
        return SetupFailed("the launcher ended while the sandbox was set up", remedy="try again")
    from sbx.launch.exhausted import remedy_for, words_of

    _kind, step, number, words, subject = message
    return SetupFailed(words_of(step, words, subject), remedy=remedy_for(number))
