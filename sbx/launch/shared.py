"""A sandbox that is used again: a launcher inside starts one command after the other, each by one spawn.

Commands never overlap in one sandbox. When one has ended, everything it left running is killed and reaped, what it left
in the temporary file systems is removed, and if it left its mark on anything else that the next one would meet
(resource limits or scheduling of the launcher, System V objects) the sandbox is given up. POSIX message queues would
survive unseen, so they are not available here.

Where names made during the run are judged (`listener`), pid 1 answers the questions and the launcher is its child,
under the same filter as the commands; otherwise pid 1 is the launcher.
"""

from __future__ import annotations

import _socket
import os
import resource  # imported before the pivot, with this module
import select
import sys

from sbx.kernel import process, seccomp, signals
from sbx.launch import inside, setup
from sbx.launch.passing import receive
from sbx.launch.root import TMPFS, SetupStep
from sbx.launch.template import contents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

SIGKILL, SIGCHLD = inside.SIGKILL, inside.SIGCHLD
SYSTEM_V = (b"/proc/sysvipc/shm", b"/proc/sysvipc/sem", b"/proc/sysvipc/msg")
RESOURCES = 16  # RLIMIT_CPU to RLIMIT_RTTIME
EVERYBODY = -1  # for kill(): all processes of this pid namespace but pid 1 and ourselves


def serve_once(launch: Launch, run: Run, control_fd: int) -> None:
    """A sandbox that is set up before its one command is known; then everything is as `sbx run` has it."""
    del run  # the launcher's own, empty
    inside.let_go_of_streams()
    under = None
    if launch["future"] is not None:
        from sbx.launch.attend import UnderFilter  # imported before, by the zygote

        try:
            under = setup.step("install the system call filter", UnderFilter, launch)
        except SetupStep as failed:
            inside.tell(control_fd, (inside.FAILED, *failed.args))
            os._exit(125)
    inside.tell(control_fd, (inside.STARTED, 0))
    message, descriptors = receive(_socket.socket(fileno=control_fd))
    if message is None:
        os._exit(0)
    command: Run = message[0]
    command["told_last"] = True
    if under is not None:
        command["under"] = under
    status_fd = descriptors[0]
    command["streams"] = (descriptors[1], descriptors[2], descriptors[3])
    try:
        setup.step("enter the working directory", os.chdir, command["cwd"])  # type: ignore[typeddict-item]
        setup.descriptors(command, (status_fd,) if under is None else (status_fd, under.listener))
        setup.limits(command)
    except SetupStep as failed:
        inside.tell(status_fd, (inside.FAILED, *failed.args))
        os._exit(125)
    inside.supervise_command(launch, command, status_fd)


def serve_commands(launch: Launch, run: Run, control_fd: int) -> None:
    """In place of the supervision of one command. `control_fd` is where requests come from."""
    keep_tmp = bool(run["keep_tmp"])  # type: ignore[typeddict-item]  # only the library's requests have these
    extra_filter: bytes = run["extra_filter"]  # type: ignore[typeddict-item]
    if extra_filter:
        setup.step("install the system call filter", seccomp.install, extra_filter)
    signals.pthread_sigmask(signals.SIG_SETMASK, {SIGCHLD})
    if launch["future"] is None:
        Commands(launch, control_fd, keep_tmp=keep_tmp).loop()
    from sbx.launch.attend import attend, make_serving, spawn_listened  # imported before, by the zygote

    def failed(error: OSError) -> None:
        inside.tell(control_fd, (inside.FAILED, "install the system call filter", error.errno or 0, str(error), b""))

    launcher, listener = spawn_listened(
        launch, lambda: None, lambda: Commands(launch, control_fd, keep_tmp=keep_tmp).loop(), failed
    )
    os.close(control_fd)  # the library must see its end when the launcher is gone

    def on_signal(_number: int) -> None:
        while True:
            pid, _status = os.waitpid(-1, os.WNOHANG)
            if pid == launcher:
                os._exit(0)
            if pid == 0:
                return

    attend(listener, (SIGCHLD,), on_signal, lambda: make_serving(listener, launch, None))


class Commands:
    def __init__(self, launch: Launch, control_fd: int, *, keep_tmp: bool) -> None:
        if os.getpid() > 2:
            os._exit(125)  # not in a pid namespace of its own: killing everybody would mean everybody
        self.control = _socket.socket(fileno=control_fd)
        if os.getpid() != 1:
            process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
        self.children = process.signalfd((SIGCHLD,))
        self.folders = () if keep_tmp else tuple(_temporary_folders(launch))
        self.marks = marks()
        self.spent = os.times()

    def loop(self) -> NoReturn:
        inside.let_go_of_streams()
        while True:
            inside.tell(self.control.fileno(), (inside.STARTED, 0))  # ready, and clean
            message, descriptors = receive(self.control)
            if message is None:
                os._exit(0)
            run: Run = message[0]
            status_fd, *streams = descriptors
            run["streams"] = (streams[0], streams[1], streams[2])
            command = self._start(run, status_fd)
            for descriptor in streams:
                os.close(descriptor)
            if command:
                inside.tell(status_fd, (inside.STARTED, command))
                self._tend(command, status_fd)
            os.close(status_fd)
            self._clean()

    def _start(self, run: Run, status_fd: int) -> int:
        """0 when it could not be started, and the library was told."""
        try:
            os.chdir(run["cwd"])  # type: ignore[typeddict-item]
        except OSError as error:
            inside.tell(status_fd, (inside.FAILED, "enter the working directory", error.errno or 0, str(error), b""))
            return 0
        if not run["rlimits"]:
            actions = [(os.POSIX_SPAWN_DUP2, given, number) for number, given in enumerate(run["streams"])]
            return inside.spawn(run, status_fd, actions)
        # Only a process of its own can lower its limits before it becomes the command.
        child = os.fork()
        if child:
            return child
        try:
            inside.lead_group(run)
            setup.descriptors(run, (status_fd,))
            setup.limits(run)
            inside.execute(run, status_fd)
        except SetupStep as failed:
            inside.tell(status_fd, (inside.FAILED, *failed.args))
        finally:
            os._exit(125)

    def _tend(self, command: int, status_fd: int) -> None:
        """Until it has ended and nothing of it is left. One byte from the library is one signal for its group."""
        poll = select.poll()
        poll.register(status_fd, select.POLLIN)
        poll.register(self.children, select.POLLIN)
        ended: tuple[int, Any] | None = None
        while ended is None:
            for descriptor, _event in poll.poll():
                if descriptor == self.children:
                    os.read(self.children, 128)
                    ended = self._reap(command) or ended
                    continue
                numbers = os.read(status_fd, 64)
                if not numbers or SIGKILL in numbers:
                    poll.unregister(status_fd)
                    _kill_everybody()
                    continue
                for number in numbers:
                    inside.send_group(command, number)
        _kill_everybody()
        while self._wait_for_any():
            pass
        before, self.spent = self.spent, os.times()
        user = self.spent.children_user - before.children_user
        system = self.spent.children_system - before.children_system
        inside.tell(status_fd, (inside.EXITED, ended[0], user, system, ended[1].ru_maxrss))

    def _reap(self, command: int) -> tuple[int, Any] | None:
        found = None
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | 0x40000000)  # __WALL
            except ChildProcessError:
                return found
            if pid == 0:
                return found
            if pid == command:
                found = (status, usage)

    @staticmethod
    def _wait_for_any() -> bool:
        try:
            os.waitpid(-1, 0x40000000)
        except ChildProcessError:
            return False
        return True

    def _clean(self) -> None:
        """Before the next command: as if the last one had never been."""
        for folder, mode, kept in self.folders:
            if os.stat(folder).st_mode & 0o7777 != mode:
                os.chmod(folder, mode)
            for name in os.listdir(folder):
                if name not in kept:
                    remove(folder + b"/" + name)
        if marks() != self.marks:
            os._exit(0)


def _kill_everybody() -> None:
    try:
        os.kill(EVERYBODY, SIGKILL)
    except ProcessLookupError:
        pass


def _temporary_folders(launch: Launch) -> list[tuple[bytes, int, frozenset[bytes]]]:
    """Each with its mode and the names in it that belong to the plan."""
    found = []
    for code, path, _source, _attributes in launch["operations"]:
        if code == TMPFS:
            inner = contents(launch["operations"], path)
            kept = frozenset(each[1][len(path) + 1 :].split(b"/")[0] for each in inner)
            found.append((path, os.stat(path).st_mode & 0o7777, kept))
    return found


def remove(path: bytes) -> None:
    """Whatever it is, with whatever modes the command gave it. Nobody else is running."""
    if os.lstat(path).st_mode & 0o170000 != 0o040000:
        os.unlink(path)
        return
    os.chmod(path, 0o700)
    for name in os.listdir(path):
        remove(path + b"/" + name)
    os.rmdir(path)


def marks() -> tuple[Any, ...]:
    """What a command can change about the launcher, and through it about the next command."""
    limits = tuple(resource.getrlimit(number) for number in range(RESOURCES))
    scheduling = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), frozenset(os.sched_getaffinity(0)))
    return (limits, scheduling, tuple(_lines(path) for path in SYSTEM_V))


def _lines(path: bytes) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0  # a kernel without them
    try:
        return os.read(descriptor, 4096).count(b"\n")
    finally:
        os.close(descriptor)
