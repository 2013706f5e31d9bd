"""Where there is no pid namespace: a process that keeps the command's whole tree together, and ends it.

The keeper stands where pid 1 stands otherwise. It is the reaper of every orphan below it, so that no daemon slips
away, and it stays outside of the command's Landlock domain, so that the command can neither signal it (ABI 6) nor look
into it. It watches the supervisor: when that one is killed, the keeper kills the tree. The private directory for
temporary files is its work too, since nothing else is sure to outlive the tree.
"""

from __future__ import annotations

import os
import resource  # noqa: F401  # wait4 imports it at its first call, where nothing may be readable any more
import select
import sys

from sbx.kernel import landlock, process, seccomp, signals
from sbx.launch import inside, setup
from sbx.launch.root import SetupStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

SIGNALFD_SIZE = 128
CONNECT_TCP = landlock.NET_RIGHTS["CONNECT_TCP"][1]


def set_up(launch: Launch, run: Run, status_fd: int, parent_fd: int) -> None:
    """Everything that needs no sandbox yet. Not dying with the supervisor: the tree has to be killed first."""
    process.prctl(process.PR_SET_CHILD_SUBREAPER, 1)
    setup.step("hide the caller's arguments", process.hide_arguments)
    setup.step("enter the working directory", os.chdir, launch["cwd"])
    setup.descriptors(run, (status_fd, parent_fd))
    process.drop_capabilities()
    process.no_new_privs()
    # First: in a sandbox within another one, the outer one judges new names, and cannot look into who hides itself.
    if run["private_tmp"]:
        setup.step("make a private directory for temporary files", os.mkdir, run["private_tmp"], 0o700)
    process.prctl(process.PR_SET_DUMPABLE, 0)


class Keeper:
    def __init__(self, launch: Launch, run: Run, status_fd: int, parent_fd: int) -> None:
        self.launch = launch
        self.run = run
        self.status_fd = status_fd
        self.parent_fd = parent_fd
        self.command = 0
        self.ended: tuple[int, Any] | None = None  # the command's status and usage

    def live(self) -> NoReturn:
        # Blocked before the fork: a command that ends at once must not end unheard.
        heard = tuple(number for number in inside.FORWARDED if signals.getsignal(number) != signals.SIG_IGN)
        heard = (*heard, inside.SIGCHLD, inside.SIGCONT, inside.SIGTSTP)
        heard = (*heard, inside.CONTINUE_WITH_TERMINAL, inside.KILL_EVERYTHING)
        signals.pthread_sigmask(signals.SIG_BLOCK, {*heard, inside.SIGTTOU, inside.SIGTTIN})
        signal_fd = process.signalfd(heard)
        ready, started = os.pipe()
        self.command = os.fork()
        if self.command == 0:
            self._become(started)
        os.close(started)
        inside.let_go_of_streams()
        if not os.read(ready, 1):  # closed by the exec
            self._tell((inside.STARTED, self.command))
        os.close(ready)
        self._loop(signal_fd)

    def _become(self, started: int) -> NoReturn:
        """The command's side of the fork: into the sandbox, then exec."""
        try:
            # If somebody kills the keeper, at least the command itself goes with it.
            process.prctl(process.PR_SET_PDEATHSIG, inside.SIGKILL)
            inside.lead_group(self.run)
            setup.limits(self.run)
            if self.launch["landlock"] is not None:
                setup.landlock_rules(self.launch["landlock"], self._private_rule(), self._proxy_rule())
            if self.launch["seccomp"]:
                setup.step("install the system call filter", seccomp.install, self.launch["seccomp"])
            inside.execute(self.run, self.status_fd)
        except SetupStep as failed:
            inside.tell(self.status_fd, (inside.FAILED, *failed.args))
        except OSError as error:
            inside.tell(self.status_fd, (inside.FAILED, "set up the sandbox", error.errno or 0, str(error), b""))
        finally:
            os.write(started, b"n")
            os._exit(125)

    def _private_rule(self) -> tuple[tuple[bytes, int, bool], ...]:
        path = self.run["private_tmp"]
        rules = setup.jobserver_rule(self.run)
        return (*rules, (path, self.launch["private_tmp_access"], False)) if path else rules

    def _proxy_rule(self) -> tuple[tuple[int, int], ...]:
        """The proxy's port is the only one to connect to, where the ruleset holds ports."""
        rules = self.launch["landlock"]
        connect = 0 if rules is None else rules[1] & CONNECT_TCP
        return ((self.run["proxy_port"], connect),) if connect and self.run["proxy_port"] else ()

    def _loop(self, signal_fd: int) -> NoReturn:
        poll = select.poll()
        poll.register(signal_fd, select.POLLIN)
        poll.register(self.parent_fd, select.POLLIN)
        while True:
            for descriptor, _event in poll.poll():
                if descriptor == self.parent_fd:
                    self._end()
                data = os.read(signal_fd, SIGNALFD_SIZE * 32)
                for at in range(0, len(data), SIGNALFD_SIZE):
                    self._signal(int.from_bytes(data[at : at + 4], "little"))

    def _signal(self, number: int) -> None:
        if number == inside.SIGCHLD:
            self._reap()
        elif number == inside.KILL_EVERYTHING:
            self._end()
        elif number == inside.SIGTSTP:
            inside.send_group(self.command, inside.SIGSTOP)
        elif number == inside.CONTINUE_WITH_TERMINAL:
            if self.run["terminal"] >= 0:
                inside.give_terminal(self.run["terminal"], self.command)
            inside.send_group(self.command, inside.SIGCONT)
        else:
            inside.send_group(self.command, number)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, inside.WUNTRACED_WALL | os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.command:
                if os.WIFSTOPPED(status):
                    message = inside.command_stopped(self.command, self.run, os.WSTOPSIG(status))
                    if message is not None:
                        self._tell(message)
                else:
                    self.ended = (status, usage)
                    self._end()

    def _end(self) -> NoReturn:
        """Kill what is left of the tree, say how the command ended, leave nothing."""
        if self.ended is not None:
            self._say()
        kill_descendants(self._note)
        if self.run["private_tmp"]:
            remove_tree(self.run["private_tmp"])
        os._exit(0)

    def _tell(self, message: tuple[Any, ...]) -> None:
        try:
            inside.write_message(self.status_fd, message)
        except OSError:
            self._end()  # the supervisor is gone

    def _note(self, pid: int, status: int, usage: Any) -> None:
        if pid == self.command:
            self.ended = (status, usage)
            self._say()

    def _say(self) -> None:
        assert self.ended is not None
        status, usage = self.ended
        total = os.times()
        message = (inside.EXITED, status, total.children_user, total.children_system, usage.ru_maxrss)
        try:
            inside.write_message(self.status_fd, message)
        except OSError:
            pass  # the supervisor is gone: there is still work to do


def kill_descendants(reaped: Any) -> None:
    """Until there is none. An orphan becomes a child of this process before its parent's end can be waited for, so
    whatever forks while it is looked for is found in the next round."""
    while True:
        tree = descendants(os.getpid())
        for pid in tree:
            try:
                os.kill(pid, inside.SIGKILL)
            except OSError:
                pass  # gone by itself
        children = {pid for pid, parent in tree.items() if parent == os.getpid()}
        # Waiting is safe only while one of those that were just killed is still to be waited for.
        flags = inside.WALL if children else inside.WALL | os.WNOHANG
        try:
            pid, status, usage = os.wait4(-1, flags)
        except ChildProcessError:
            return
        if pid:
            reaped(pid, status, usage)


def descendants(ancestor: int) -> dict[int, int]:
    """pid -> parent, of every process below this one."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parents[int(name)] = _parent(name)
            except OSError:
                continue  # gone meanwhile
    found: dict[int, int] = {}
    below = {ancestor}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below and pid not in found}
        found.update((pid, parents[pid]) for pid in below)
    return found


def _parent(pid: str) -> int:
    descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
    return int(text[text.rindex(b")") + 2 :].split()[1])


def remove_tree(path: bytes) -> None:
    """Nobody is left to race with: the tree is dead, and the directory was the user's alone."""
    try:
        os.chmod(path, 0o700)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    remove_tree(entry.path)
                else:
                    os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        pass  # as far as it goes
