"""The launcher behind the library: one small process, started by exec, that starts sandboxes on demand.

A program that uses the library may have threads, and a process with threads must not clone itself into a sandbox. So
the library executes this once (`zygote`), and sends it messages with descriptors (`passing`):

    library --RUN------> zygote --clone--> pid 1 of a sandbox, as `sbx run` makes it
    library --TEMPLATE-> zygote --clone--> template: the private root, built once and kept
    library --RUN------> template --clone--> pid 1 of a fresh sandbox on a copy of that root
    library --ONCE-----> template --clone--> the same, ready before its command is known (`shared`)
    library --SHARED---> template --clone--> pid 1 that starts one command after the other (`shared`)

Whoever clones sends a pidfd of the new sandbox back over the run's status socket; the library supervises from there.
Nothing here outlives its owner: the zygote ends with the process that started it, the template with the zygote, every
sandbox with whoever cloned it.
"""

from __future__ import annotations

import _socket
import marshal
import os
import select
import sys

from sbx.kernel import process, signals
from sbx.launch import inside, setup
from sbx.launch.passing import receive
from sbx.launch.root import Root, SetupStep, make_directories
from sbx.launch.start import offer_hand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

# What the library asks for.
RUN, TEMPLATE, SHARED, ONCE = 1, 2, 3, 4

# A message next to those of `inside`: it comes with the sandbox's pidfd.
BORN = 20

# A template needs these for itself; the rest is new for each sandbox made from it.
TEMPLATE_NAMESPACES = process.CLONE_NEWUSER | process.CLONE_NEWNS | process.CLONE_NEWPID


def main(control_fd: int, owner: int) -> NoReturn:
    """The zygote. `owner` is the process that started it."""
    try:
        process.close_from(3, (control_fd,))
        os.chdir("/")
        owner_fd = process.pidfd_open(owner)
        if os.getppid() != owner:
            os._exit(0)  # it died before the line above
        _import_for_later()
        Server(control_fd, _from_zygote, owner_fd).loop()
    finally:
        os._exit(1)


def _import_for_later() -> None:
    """A sandbox can import nothing after the pivot, and what is here once is shared by all."""
    import gc
    import resource  # noqa: F401

    import sbx.launch.attend
    import sbx.launch.core_dumps
    import sbx.launch.hand
    import sbx.launch.keeper
    import sbx.launch.listener
    import sbx.launch.shared
    import sbx.launch.template  # noqa: F401

    gc.disable()  # a collection would touch, and so copy, every page
    gc.freeze()


class Server:
    """Waits for requests, children and the end of its owner."""

    def __init__(
        self, control_fd: int, handle: Callable[[tuple[Any, ...], list[int], int], None], owner_fd: int
    ) -> None:
        os.set_inheritable(control_fd, False)
        self.control = _socket.socket(fileno=control_fd)
        self.handle = handle
        self.owner_fd = owner_fd
        self.parent_fd = process.pidfd_open(os.getpid())

    def loop(self) -> NoReturn:
        signals.pthread_sigmask(signals.SIG_BLOCK, {inside.SIGCHLD})
        children = process.signalfd((inside.SIGCHLD,))
        poll = select.poll()
        for descriptor in (self.control.fileno(), children, self.owner_fd):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        while True:
            for descriptor, _event in poll.poll():
                if descriptor == children:
                    os.read(children, 128 * 16)
                    reap()
                elif descriptor == self.owner_fd:
                    os._exit(0)
                else:
                    self._request()

    def _request(self) -> None:
        message, descriptors = receive(self.control)
        if message is None:
            os._exit(0)
        try:
            self.handle(message, descriptors, self.parent_fd)
        except SetupStep as failed:
            _refuse(descriptors[0], failed.args)
        except OSError as error:
            _refuse(descriptors[0], ("start the sandbox", error.errno or 0, str(error), b""))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)


def reap() -> None:
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return
        except ChildProcessError:
            return


def _refuse(status_fd: int, why: tuple[Any, ...]) -> None:
    try:
        inside.write_message(status_fd, (inside.FAILED, *why))
    except OSError:
        pass  # whoever asked is gone


def _from_zygote(message: tuple[Any, ...], descriptors: list[int], parent_fd: int) -> None:
    launch: Launch = message[1]
    make_directories(launch["operations"])
    if message[0] == TEMPLATE:
        start_template(launch, descriptors, parent_fd)
        return
    run = connect(message[2], descriptors)
    hand = offer_hand(launch, run, waited_for=False)
    try:
        pid = process.clone(launch["namespaces"], run["cgroup_fd"])
        if pid == 0:
            _ready_for_life()
            inside.live_inside(launch, run, descriptors[0], parent_fd)
    finally:
        for descriptor in hand:
            os.close(descriptor)
    announce(pid, descriptors[0])


def connect(run: Run, descriptors: list[int]) -> Run:
    """The run's descriptors, as numbers of this process: status, 0, 1, 2, then what the run says is there."""
    numbers = iter(descriptors[4:])
    run["streams"] = (descriptors[1], descriptors[2], descriptors[3])
    for name in ("cgroup_fd", "channel"):
        if run[name] >= 0:
            run[name] = next(numbers)
    return run


def announce(pid: int, status_fd: int) -> None:
    """Tell the library who was born, in a way that no other process can take the place of."""
    handle = process.pidfd_open(pid)
    try:
        data = marshal.dumps((BORN,))
        rights = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, handle.to_bytes(4, sys.byteorder))
        sender = _socket.socket(fileno=os.dup(status_fd))
        try:
            sender.sendmsg([len(data).to_bytes(4, "little") + data], [rights])
        except OSError:
            os.kill(pid, inside.SIGKILL)  # whoever asked is gone
        finally:
            sender.close()
    finally:
        os.close(handle)


def _ready_for_life() -> None:
    """In the new process: signals as pid 1 expects them."""
    signals.pthread_sigmask(signals.SIG_SETMASK, {*inside.FORWARDED, inside.SIGTSTP})


def start_template(launch: Launch, descriptors: list[int], parent_fd: int) -> None:
    """`descriptors` are its status, where it says that it is ready or why not, and its control socket."""
    pid = process.clone(launch["namespaces"] & TEMPLATE_NAMESPACES)
    if pid:
        return
    status_fd, control_fd = descriptors
    try:
        inside.forget_handlers()
        try:
            process.close_from(3, (status_fd, control_fd, parent_fd))
            setup.die_with_parent(parent_fd)
            setup.step("hide the caller's arguments", process.hide_arguments)
            setup.map_ids(launch)
            process.prctl(process.PR_SET_DUMPABLE, 0)
            process.prctl(process.PR_SET_PDEATHSIG, inside.SIGKILL)
            setup.prepare_to_judge(launch)
            root = Root(launch["staging"], restrict_proc=launch["restrict_proc"])
            root.build(launch["operations"])
            root.enter()
        except SetupStep as failed:
            inside.tell(status_fd, (inside.FAILED, *failed.args))
            os._exit(125)
        os.close(parent_fd)
        _prepare_for_all(launch)
        inside.tell(status_fd, (inside.STARTED, 0))
        os.close(status_fd)

        def handle(message: tuple[Any, ...], passed: list[int], parent: int) -> None:
            _from_template(launch, message, passed, parent)

        Server(control_fd, handle, -1).loop()
    finally:
        os._exit(125)


def _prepare_for_all(launch: Launch) -> None:
    """What would be the same work in each sandbox."""
    from sbx.launch.template import private_parts  # imported before

    launch["private"] = private_parts(launch["operations"])


def _from_template(launch: Launch, message: tuple[Any, ...], descriptors: list[int], parent_fd: int) -> None:
    kind, cwd, run = message
    run = connect(run, descriptors)
    # The network's is left to the new process: making one waits for those that are being taken apart, and here
    # everybody else would wait, too.
    pid = process.clone(launch["namespaces"] & ~(process.CLONE_NEWUSER | process.CLONE_NEWNET), run["cgroup_fd"])
    if pid == 0:
        from sbx.launch.shared import serve_commands, serve_once  # imported before
        from sbx.launch.template import set_up_again

        _ready_for_life()
        supervise = {RUN: None, SHARED: serve_commands, ONCE: serve_once}[kind]
        inside.live_inside({**launch, "cwd": cwd}, run, descriptors[0], parent_fd, set_up_again, supervise)
    announce(pid, descriptors[0])
