"""The life of pid 1 inside: set the sandbox up, start the command, reap, forward signals, report how it ended.

Everything here runs in the process that `start` cloned into the new namespaces. It talks to the supervisor through
one pipe of marshalled tuples (see `wait`), imports nothing after it was born, and is out of the command's reach: not
dumpable, under the same Landlock domain and system call filter as the command itself, immune to signals from inside
that it has no handler for.
"""

from __future__ import annotations

import marshal
import sys

from sbx.kernel import process, signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import MACHINE, syscall
from sbx.launch import setup
from sbx.launch.root import Root, SetupStep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from sbx.launch.start import Launch, Run

assert sys.platform == "linux"  # for type checkers on other platforms

# Messages from inside, each a marshalled tuple behind its length in four bytes.
STARTED, FAILED, EXEC_FAILED, STOPPED, EXITED, DENIED, COUNTED = 1, 2, 3, 4, 5, 6, 7

# From the supervisor: continue the command, and let it have the terminal.
CONTINUE_WITH_TERMINAL = 40  # a real-time signal that nobody else uses
KILL_EVERYTHING = 41  # to a keeper; pid 1 of a namespace gets SIGKILL

FORWARDED = (1, 2, 3, 10, 12, 15, 28)  # HUP INT QUIT USR1 USR2 TERM WINCH
SIGHUP, SIGINT, SIGKILL, SIGPIPE, SIGTERM, SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ = (
    1, 2, 9, 13, 15, 17, 18, 19, 20, 21, 22, 25,
)  # fmt: skip

FATAL = (4, 6, 7, 8, 11)  # ILL ABRT BUS FPE SEGV: faulthandler's are not to be seen from Python
ENOEXEC = 8
SETUID_REFUSED = 10_000  # beyond every errno: the command is a set-user-ID program
WALL = 0x40000000
WUNTRACED_WALL = os.WUNTRACED | WALL
SS_DISABLE = 2
_SIGALTSTACK = 132 if MACHINE == "aarch64" else 131


def live_inside(
    launch: Launch, run: Run, status_fd: int, parent_fd: int, set_up: Any = None, supervise: Any = None
) -> NoReturn:
    """Never returns: the process ends here, whatever happens. The library's launcher brings its own `set_up` and
    `supervise` (see template), and forgot all handlers before."""
    step = "set up the sandbox"
    try:
        if set_up is None:
            forget_handlers()
        # A group of its own: what the terminal or the shell sends to sbx's group arrives once, through the supervisor.
        # And a session of its own unless the command shares the terminal: what is opened on its behalf (see `names`)
        # must not find the caller's as /dev/tty.
        if run["terminal"] >= 0:
            os.setpgid(0, 0)
        else:
            os.setsid()
        try:
            if not launch["namespaces"]:
                _keep(launch, run, status_fd, parent_fd)
            (set_up or _set_up)(launch, run, status_fd, parent_fd)
        except SetupStep as failed:
            tell(status_fd, (FAILED, *failed.args))
        except OSError as error:
            tell(status_fd, (FAILED, step, error.errno or 0, str(error), b""))
        else:
            step = "watch over the command"
            (supervise or supervise_command)(launch, run, status_fd)
    except BaseException as error:  # a bug must not become a hanging or a running child
        if launch["namespaces"] and os.getpid() == 1:
            _end_the_rest()  # at once: when this process ends, its listener is closed before everybody is killed
        words = f"{type(error).__name__}: {error}".removesuffix(": ")
        tell(status_fd, (FAILED, step, 0, words, b""))
    finally:
        os._exit(125)


def forget_handlers() -> None:
    """A program that uses the library has handlers of its own: here they would run for whoever signals this process."""
    for number in range(1, 65):
        if number in FATAL or callable(signals.getsignal(number)):
            signals.signal(number, signals.SIG_DFL)
    # Nor their stack, which is faulthandler's too: it is small, and many signals at once would overflow it.
    disabled = bytes(8) + SS_DISABLE.to_bytes(8, "little") + bytes(8)  # struct sigaltstack
    syscall("sigaltstack", _SIGALTSTACK, "zl", disabled, 0)


def _keep(launch: Launch, run: Run, status_fd: int, parent_fd: int) -> NoReturn:
    from sbx.launch import keeper

    keeper.set_up(launch, run, status_fd, parent_fd)
    keeper.Keeper(launch, run, status_fd, parent_fd).live()


def _set_up(launch: Launch, run: Run, status_fd: int, parent_fd: int) -> None:
    setup.die_with_parent(parent_fd)
    setup.step("hide the caller's arguments", process.hide_arguments)
    setup.map_ids(launch)
    if launch["loopback"]:
        setup.loopback_up()
    if run["channel"] >= 0:
        setup.offer_listener(run["channel"], launch["proxy_port"])
    setup.prepare_to_judge(launch)
    root = Root(launch["staging"], restrict_proc=launch["restrict_proc"])
    root.build((*launch["operations"], *setup.show_jobserver(run)))
    setup.check_jobserver(run, launch["staging"])
    root.enter()
    setup.confine(launch, run, status_fd)
    if run["gate"] >= 0:
        setup.pass_gate(run["gate"])


def supervise_command(launch: Launch, run: Run, status_fd: int) -> None:
    if setup.listens(launch):
        _supervise_listening(launch, run, status_fd)
        return
    command = spawn(run, status_fd)
    if command == 0:
        return
    _forward_signals(command, run["terminal"])
    if run["terminal"] >= 0 and run["foreground"]:
        give_terminal(run["terminal"], command)
    let_go_of_streams()
    tell(status_fd, (STARTED, command))
    wait = process.Waiting()
    while True:
        pid, status, max_rss = wait(WUNTRACED_WALL)
        if pid == command:
            _command_changed(command, run, status, max_rss, status_fd)


def _command_changed(command: int, run: Run, status: int, max_rss: int, status_fd: int) -> None:
    if os.WIFSTOPPED(status):
        message = command_stopped(command, run, os.WSTOPSIG(status))
        if message is not None:
            tell(status_fd, message)
        return
    # What it waited for counts as its own; what outlived it is killed with this process and not counted.
    total = os.times()
    if "told_last" in run:
        _end_the_rest()
    tell(status_fd, (EXITED, status, total.children_user, total.children_system, max_rss))
    os._exit(0)


def _end_the_rest() -> None:
    """What the command left running, before its end is told: then nobody has to wait until the kernel has taken the
    sandbox apart."""
    try:
        os.kill(-1, SIGKILL)  # everybody in this pid namespace but pid 1
        wait = process.Waiting()
        while True:
            wait(WALL)
    except (ProcessLookupError, ChildProcessError):
        return


def command_stopped(command: int, run: Run, number: int) -> tuple[Any, ...] | None:
    """Quicker to ask for the terminal than we were to hand it over; or else what to tell, for the caller to decide."""
    try:
        has_terminal = run["terminal"] >= 0 and os.tcgetpgrp(run["terminal"]) == command
    except OSError:
        has_terminal = False
    if number in (SIGTTIN, SIGTTOU) and has_terminal:
        send_group(command, SIGCONT)
        return None
    return (STOPPED, number, has_terminal)


def _supervise_listening(launch: Launch, run: Run, status_fd: int) -> None:
    """The same, with a filter that hands calls over to this process (see `names`)."""
    from sbx.launch.attend import attend, make_serving  # imported before, by start

    # Blocked before the fork: a command that ends at once must not end unheard.
    heard = tuple(number for number in FORWARDED if signals.getsignal(number) != signals.SIG_IGN)
    heard = (*heard, SIGCHLD, SIGCONT, SIGTSTP, CONTINUE_WITH_TERMINAL)
    signals.pthread_sigmask(signals.SIG_BLOCK, {*heard, SIGTTOU, SIGTTIN})
    command, listener = _start_listened(launch, run, status_fd)
    if command == 0:
        return
    let_go_of_streams()
    tell(status_fd, (STARTED, command))

    def on_signal(number: int) -> None:
        if number == SIGCHLD:
            _reap(command, run, status_fd)
        elif number == SIGTSTP:
            send_group(command, SIGSTOP)
        elif number == CONTINUE_WITH_TERMINAL:
            if run["terminal"] >= 0:
                give_terminal(run["terminal"], command)
            send_group(command, SIGCONT)
        else:
            send_group(command, number)

    trace = launch.get("trace")
    if trace is None:
        attend(listener, heard, on_signal, lambda: make_serving(listener, launch, run))
    else:
        serving = None if launch["future"] is None else make_serving(listener, launch, run)
        from sbx.launch.tracing import Tracing  # imported before, as the rest

        Tracing(listener, trace, serving, lambda message: tell(status_fd, message)).loop(heard, on_signal)


def _start_listened(launch: Launch, run: Run, status_fd: int) -> tuple[int, int]:
    """The command, or 0 when it could not be executed and the supervisor was told; and the filter's listener."""
    from sbx.launch.attend import UnderFilter, spawn_listened  # imported before, as above

    under = run.get("under")
    # By a fork, which costs a millisecond more, where the command is to have the terminal before its first line runs,
    # where a thread could take the command's share of a limit, and where the exec itself is handed over.
    by_fork = run["foreground"] or run["rlimits"] or run["cgroup_fd"] >= 0 or "trace" in launch
    if under is None and not by_fork:
        try:
            under = UnderFilter(launch, at_once=lambda: spawn(run, status_fd))
            return under.result_at_once, under.listener
        except OSError:
            pass  # perhaps there is no memory for a thread; if it was the filter, the fork meets it again
    if under is not None:
        return under.call(lambda: spawn(run, status_fd)), under.listener

    def failed(error: OSError) -> None:
        tell(status_fd, (FAILED, "install the system call filter", error.errno or 0, str(error), b""))

    return spawn_listened(launch, lambda: lead_group(run), lambda: execute(run, status_fd), failed)


def _reap(command: int, run: Run, status_fd: int) -> None:
    wait = process.Waiting()
    while True:
        try:
            pid, status, max_rss = wait(WUNTRACED_WALL | os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == command:
            _command_changed(command, run, status, max_rss, status_fd)


def send_group(command: int, number: int) -> None:
    try:
        os.killpg(command, number)
    except OSError:
        pass  # the group is gone; the status follows


def lead_group(run: Run) -> None:
    """The forked child: its own process group, and its own session unless it shares the terminal; signals as at the
    start of any program. Python's handler for SIGINT would make an exit of what must be a death by signal."""
    if run["terminal"] >= 0:
        os.setpgid(0, 0)
        if run["foreground"]:
            give_terminal(run["terminal"], os.getpid())  # before the exec: what is typed then is for the command
    else:
        os.setsid()
    for number in (SIGPIPE, SIGXFSZ, SIGINT):
        if number != SIGINT or signals.getsignal(number) != signals.SIG_IGN:
            signals.signal(number, signals.SIG_DFL)
    signals.pthread_sigmask(signals.SIG_SETMASK, ())


def execute(run: Run, status_fd: int) -> None:
    """Become the command; comes back only after it told why not, and then its caller ends the process."""
    failure = OSError(2, "not found")
    for path in run["candidates"]:
        try:
            refuse_setuid(path)
            try:
                os.execve(path, run["argv"], run["env"])
            except OSError as error:
                if error.errno != ENOEXEC:
                    raise
            # A script without a #! line: the shell runs it, as execvp would have it.
            os.execve(b"/bin/sh", (b"sh", path, *run["argv"][1:]), run["env"])
        except OSError as error:
            if failure.errno in (2, 20) or error.errno not in (2, 20):
                failure = error
            if error.errno not in (2, 13, 20):
                break
    tell(status_fd, (EXEC_FAILED, failure.errno or 0, failure.strerror or ""))


def spawn(run: Run, status_fd: int, file_actions: list[tuple[int, int, int]] | None = None) -> int:
    """Start the command: its own process group, and its own session unless it shares the terminal."""
    options: dict[str, Any] = {"setsigmask": (), "setsigdef": (SIGPIPE, SIGXFSZ), "file_actions": file_actions or ()}
    if run["terminal"] >= 0:
        options["setpgroup"] = 0
    else:
        options["setsid"] = True
    failure: OSError | None = None
    for path in run["candidates"]:
        try:
            return _spawn_one(path, run["argv"], run["env"], options)
        except OSError as error:
            # As execvp: a name that is there but may not be run is remembered, the search goes on.
            if failure is None or error.errno not in (2, 20):
                failure = error
            if error.errno not in (2, 13, 20):
                break
    code = failure.errno if failure is not None else 2
    tell(status_fd, (EXEC_FAILED, code or 0, failure.strerror if failure is not None else ""))
    return 0


def refuse_setuid(path: bytes) -> None:
    mode = os.stat(path).st_mode
    if mode & 0o6000 and mode & 0o170000 == 0o100000:
        raise OSError(SETUID_REFUSED, "set-user-ID or set-group-ID program", path)


def _spawn_one(path: bytes, argv: tuple[bytes, ...], env: dict[bytes, bytes], options: dict[str, Any]) -> int:
    refuse_setuid(path)
    try:
        return os.posix_spawn(path, argv, env, **options)
    except OSError as error:
        if error.errno != ENOEXEC:
            raise
    # A script without a #! line: the shell runs it, as execvp would have it.
    return os.posix_spawn(b"/bin/sh", (b"sh", path, *argv[1:]), env, **options)


def _forward_signals(command: int, terminal: int) -> None:
    def forward(number: int, _frame: object) -> None:
        send_group(command, number)

    def stop(_number: int, _frame: object) -> None:
        # Not SIGTSTP: a process group without a parent in its session ignores it.
        forward(SIGSTOP, None)

    def resume(_number: int, _frame: object) -> None:
        if terminal >= 0:
            give_terminal(terminal, command)
        forward(SIGCONT, None)

    for number in FORWARDED:
        if signals.getsignal(number) != signals.SIG_IGN:
            signals.signal(number, forward)
    signals.signal(SIGCONT, forward)
    signals.signal(SIGTSTP, stop)
    signals.signal(CONTINUE_WITH_TERMINAL, resume)
    signals.pthread_sigmask(signals.SIG_SETMASK, {SIGTTOU, SIGTTIN})


def give_terminal(terminal: int, command: int) -> None:
    try:
        os.tcsetpgrp(terminal, command)
    except OSError:
        pass  # the terminal is gone, or no longer ours: the command will find out by itself


def let_go_of_streams() -> None:
    """Whoever reads the command's output must see its end when the command closes it, not when this process ends."""
    nowhere = os.open(b"/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for number in (0, 1, 2):
        os.dup2(nowhere, number, inheritable=False)
    os.close(nowhere)


def write_message(status_fd: int, message: tuple[Any, ...]) -> None:
    data = marshal.dumps(message)
    os.write(status_fd, len(data).to_bytes(4, "little") + data)


def tell(status_fd: int, message: tuple[Any, ...]) -> None:
    try:
        write_message(status_fd, message)
    except OSError:
        os._exit(125)  # nobody listens any more: the supervisor is gone, and so must be everything here
