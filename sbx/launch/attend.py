"""pid 1's loop where calls are judged: notifications from the filter, children, signals from the supervisor.

The command is under the filter and this process must not be. So a thread of this process goes under the filter and
spawns the command (`UnderFilter`); or the command is forked, installs the filter itself, and the filter's listener
comes back over a socket (`spawn_listened`).

Who judges (`listener`, `names`, the rules' matcher) is loaded when the first notification arrives, out of this
process's own memory: by then it stands in the private root and imports nothing from a file (see `start`).
"""

from __future__ import annotations

import _socket
import _thread
import select
import sys

from sbx.kernel import process, seccomp, signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from sbx.launch.listener import Serving
    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

EIO, EAGAIN = 5, 11
RLIMIT_CORE = 4
ALL_SIGNALS = (*range(1, 32), *range(34, 65))  # but those of the C library


class UnderFilter:
    """A thread under the filter: what it spawns is under it as well. It serves one call, and stays: where the parent of
    a process is a thread that ends, the kernel sends the process its parent-death signal.

    A fork copies an interpreter's memory page by page, only to throw it away: a third of the price of a fresh sandbox.
    During the spawn nobody answers the filter (`posix_spawn` keeps the interpreter's lock), and nothing that it does
    needs to ask: not to be used where the filter hands over execve, as that of a trace does.
    """

    def __init__(self, launch: Launch, at_once: Callable[[], int] | None = None) -> None:
        """OSError where there can be no thread, or no filter. What is to be called `at_once` is called without this
        thread being woken up in between, which takes its time on a busy machine."""
        self._asked, self._answered = _thread.allocate_lock(), _thread.allocate_lock()
        self._asked.acquire()
        self._answered.acquire()
        self._result: int | Exception = 0
        self.result_at_once = 0

        def go_under() -> int:
            listener = _own(_go_under(launch))
            if at_once is not None:
                self.result_at_once = at_once()
            return listener

        self._function: Callable[[], int] = go_under
        try:
            _thread.start_new_thread(self._live, ())
        except RuntimeError as error:
            raise OSError(EAGAIN, str(error)) from None
        self.listener = self._outcome()

    def call(self, function: Callable[[], int]) -> int:
        self._function = function
        self._asked.release()
        return self._outcome()

    def _live(self) -> None:
        signals.pthread_sigmask(signals.SIG_BLOCK, ALL_SIGNALS)  # they are for the thread that waits for them
        self._perform()
        self._asked.acquire()
        self._perform()
        self._asked.acquire()  # until this process ends

    def _perform(self) -> None:
        try:
            self._result = self._function()
        except Exception as error:
            self._result = error
        self._answered.release()

    def _outcome(self) -> int:
        self._answered.acquire()
        if isinstance(self._result, Exception):
            raise self._result
        return self._result


def spawn_listened(
    launch: Launch,
    prepare: Callable[[], None],
    execute: Callable[[], None],
    tell_failure: Callable[[OSError], None],
) -> tuple[int, int]:
    """Fork; the child goes under the filter, hands its listener over and becomes the command. Returns its pid and the
    listener's descriptor."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)
    child = process.clone(0)
    if child == 0:
        try:
            ours.close()
            prepare()
            handed = _go_under(launch)
            rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handed.to_bytes(4, "little"))
            theirs.sendmsg([b"l"], [rights])
            os.close(handed)
            execute()
        except OSError as error:
            tell_failure(error)
        finally:
            os._exit(125)
    theirs.close()
    data, control, _flags, _address = ours.recvmsg(1, _socket.CMSG_SPACE(4))
    ours.close()
    if not data or not control:
        raise OSError(EIO, "the system call filter did not hand its listener over")
    return child, _own(int.from_bytes(control[0][2][:4], "little"))


def _go_under(launch: Launch) -> int:
    """This thread, and all that comes from it. Returns the listener's descriptor."""
    if launch["future"] is not None:
        forbid_core_files(launch["future"][0], launch.get("core_files"))
    return seccomp.install(launch["seccomp"], seccomp.FLAG_NEW_LISTENER | seccomp.FLAG_WAIT_KILLABLE_RECV)


def _own(listener: int) -> int:
    os.set_inheritable(listener, False)
    seccomp.wake_up_in_step(listener)
    return listener


def forbid_core_files(judge: Any, known: tuple[bytes, bytes, bool] | None) -> None:
    """For this process and all that comes from it, where a rule denies a name like theirs (see core_dumps). The answer
    for the host's setting at the time of the plan is `known`."""
    try:
        setting = core_file_setting()
        if known is not None and setting == known[:2]:
            denied = known[2]
        else:
            from sbx.launch.core_dumps import may_be_denied

            denied = may_be_denied(judge, *setting)
    except OSError:
        denied = True  # nothing is known about the name
    if denied:
        syscall("prlimit64", NUMBERS["prlimit64"], "llzl", 0, RLIMIT_CORE, bytes(16), 0)


def core_file_setting() -> tuple[bytes, bytes]:
    return _read(b"core_pattern"), _read(b"core_uses_pid")


def _read(name: bytes) -> bytes:
    descriptor = os.open(b"/proc/sys/kernel/" + name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096).strip()
    finally:
        os.close(descriptor)


def make_serving(listener: int, launch: Launch, run: Run | None) -> Serving:
    """Who judges and performs, for a plan that judges names. `run` has the hand outside, where there is one."""
    from sbx.kernel.notify import Listener
    from sbx.launch.listener import Serving
    from sbx.launch.names import Names

    assert launch["future"] is not None
    judge, calls = launch["future"]
    reach, hand = None, launch.get("hand")
    if hand is not None and run is not None:
        from sbx.launch.hand import Reach  # imported before, by start

        reach = Reach(run["hand"], hand[2])
    return Serving(Listener(listener), Names(judge, reach), calls)


def attend(
    listener: int, numbers: tuple[int, ...], on_signal: Callable[[int], None], serving: Callable[[], Serving]
) -> NoReturn:
    """The signals are blocked since before the fork; `on_signal` ends the process when the command is gone."""
    signal_fd = process.signalfd(numbers)
    poll = select.poll()
    poll.register(signal_fd, select.POLLIN)
    poll.register(listener, select.POLLIN)
    serve: Callable[[], None] | None = None
    while True:
        for descriptor, event in poll.poll():
            if descriptor == signal_fd:
                for number in read_signals(signal_fd):
                    on_signal(number)
            elif event & select.POLLIN:
                if serve is None:
                    serve = serving().serve
                serve()
            else:  # POLLHUP: nobody is under the filter any more
                poll.unregister(descriptor)


def read_signals(signal_fd: int) -> list[int]:
    try:
        data = os.read(signal_fd, 128 * 32)
    except BlockingIOError:
        return []
    return [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data), 128)]
