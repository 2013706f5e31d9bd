"""One run of a prepared plan: descriptors, terminal, signals, start, wait, and everything put back afterwards.

Used by the hot path, by the compile side after it made a plan, and by nothing else. A `Prepared` entry is what the
store keeps; `perform` adds what differs from call to call.
"""

from __future__ import annotations

import sys

from sbx.kernel import signals
from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.environment import build_environment, jobserver, with_options
from sbx.launch.hearing import open_signal_fd, watched_signals
from sbx.launch.inside import KILL_EVERYTHING, SIGKILL
from sbx.launch.rlimits import clamp
from sbx.launch.setup import GATE_OPEN
from sbx.launch.start import start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NotRequired, TypedDict

    from sbx.errors import SetupFailed
    from sbx.launch.cgroup import Settings
    from sbx.launch.start import Launch, Run
    from sbx.launch.streams import Streams
    from sbx.launch.wait import Outcome

    class Prepared(TypedDict):
        """A plan as the store keeps it. `limits` are numbers by name, `env` the rules of `environment`."""

        launch: Launch
        env: tuple[Any, ...]
        limits: dict[str, Any]
        rlimits: tuple[tuple[int, int, int], ...]
        cgroup: Settings | None
        sample: tuple[str, ...]  # limits that only the supervisor's own sampling can hold
        profile: str
        workspace: str
        backend: str
        enforced: tuple[tuple[str, bool, bool, str], ...]
        network: tuple[str, tuple[str, ...]]
        view: NotRequired[dict[str, Any]]  # of a traced run: the rules with their places (report.view)
        adapted: tuple[str, ...]  # commands whose arguments change the plan: never served from the store

    class Request(TypedDict):
        """One call: the command and how it is connected."""

        command: list[str]
        environ: dict[bytes, bytes]
        extra_env: tuple[str, ...]
        env_all: bool
        use_terminal: bool


assert sys.platform == "linux"  # for type checkers on other platforms


class Outdated(Exception):
    """The plan is no longer what its sources say."""


DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"


def open_standard_descriptors() -> None:
    """Descriptors 0 to 2 exist from here on, so that no pipe of ours takes their numbers.

    A directory there would be a way around the private root: openat(0, "../..").
    """
    for number, name in ((0, "input"), (1, "output"), (2, "error")):
        try:
            mode = os.fstat(number).st_mode
        except OSError:
            opened = os.open("/dev/null", os.O_RDONLY if number == 0 else os.O_WRONLY)
            if opened != number:
                os.dup2(opened, number, inheritable=True)
                os.close(opened)
            continue
        if mode & 0o170000 == 0o040000:
            from sbx.errors import UsageError

            raise UsageError(
                f"standard {name} is a directory", remedy="redirect it from or to a file: a directory leads outside"
            )


def find_terminal() -> tuple[int, bool]:
    """(descriptor of the controlling terminal among 0 to 2 or -1, should the command get it at once).

    At once only when both ends of a conversation are the terminal: in `sbx run a | less` it is less that reads the
    keyboard. A command that asks for the terminal later (SIGTTIN) gets it then.
    """
    terminal = -1
    group = 0
    for number in (0, 1, 2):
        try:
            group = os.tcgetpgrp(number)
        except OSError:
            continue
        terminal = number
        break
    if terminal < 0:
        return -1, False
    return terminal, group == os.getpgrp() and os.isatty(0) and os.isatty(1)


def candidates(name: bytes, env: dict[bytes, bytes]) -> tuple[bytes, ...]:
    """Where the command may be, in the order of PATH. Relative entries of PATH are skipped: they mean nothing good."""
    if b"/" in name:
        return (name,)
    if not name:
        return ()  # not the folders themselves
    folders = (env.get(b"PATH") or DEFAULT_PATH).split(b":")
    return tuple(folder + b"/" + name for folder in folders if folder.startswith(b"/"))


def choose_private_tmp(environ: dict[bytes, bytes]) -> bytes:
    """The name of a directory to be made, where there is no mount namespace to have a /tmp of its own in."""
    for folder in (environ.get(b"TMPDIR", b""), b"/tmp", b"/var/tmp", b"/dev/shm"):
        if folder.startswith(b"/") and os.access(folder, os.W_OK | os.X_OK):
            return b"%s/sbx-%d-%s" % (folder, os.geteuid(), os.urandom(8).hex().encode())
    return b""


def name_of_directory(cwd: bytes, named: bytes) -> bytes:
    """The working directory as the caller's shell calls it (by way of a link), or else its real name."""
    if named == cwd or not named.startswith(b"/"):
        return cwd
    try:
        one, other = os.stat(named), os.stat(cwd)
    except OSError:
        return cwd
    return named if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) else cwd


def make_run(prepared: Prepared, request: Request) -> Run:
    inside = {b"PWD": name_of_directory(prepared["launch"]["cwd"], request["environ"].get(b"PWD", b""))}
    if prepared["launch"]["namespaces"]:
        inside[b"TMPDIR"] = b"/tmp"  # private, and there; the caller's may be neither
    private_tmp = choose_private_tmp(request["environ"]) if prepared["launch"]["private_tmp_access"] else b""
    if private_tmp:
        inside[b"TMPDIR"] = private_tmp
    rules = with_options(prepared["env"], request["extra_env"], request["env_all"])
    env = build_environment(rules, request["environ"], inside)
    argv = tuple(os.fsencode(word) for word in request["command"])
    terminal, foreground = find_terminal() if request["use_terminal"] else (-1, False)
    # The caller's own, unchanged: a policy that sets these variables names nothing that the command may reach.
    keep, fifo = jobserver({name: value for name, value in env.items() if request["environ"].get(name) == value})
    return {
        "argv": argv,
        "candidates": candidates(argv[0], env),
        "env": env,
        "streams": (0, 1, 2),
        "keep": keep,
        "jobserver": fifo,
        "rlimits": clamp(prepared["rlimits"]),
        "terminal": terminal,
        "foreground": foreground,
        "cgroup_fd": -1,
        "private_tmp": private_tmp,
        "channel": -1,
        "proxy_port": 0,
        "gate": -1,
    }


def perform(
    prepared: Prepared,
    run: Run,
    *,
    streams: Streams | None = None,
    watch: Any = None,
    proxy: Any = None,
    meanwhile: Any = None,
    is_valid: Callable[[], bool] | None = None,
    at_exit: Callable[[Outcome], None] | None = None,
) -> Outcome:
    """Start and supervise. Signals are blocked and read from a descriptor from before the start until after the end.

    `meanwhile` is called while the sandbox is being built, on the other processor, and so is `is_valid`: until it has
    said yes the command does not start. If it says no, `Outdated` is raised and nothing has happened. `at_exit` is
    called when the command has ended, while its sandbox is being taken apart.
    """
    limits = prepared["limits"]
    terminal = run["terminal"]
    if terminal >= 0:
        run["terminal"] = terminal = os.dup(terminal)  # close-on-exec, and not one of the command's own three
    signal_fd, mask = open_signal_fd(watched_signals())
    saved = _terminal_settings(terminal) if terminal >= 0 else None
    outcome: Outcome | None = None
    gate = -1
    try:
        if is_valid is not None:
            run["gate"], gate = os.pipe2(os.O_CLOEXEC)
        pid, status_fd = start(prepared["launch"], run)
        if is_valid is not None:
            open_gate(pid, status_fd, gate, is_valid)
        if streams is not None:
            streams.started()
        if proxy is not None:
            proxy.started()
        from sbx.launch import wait  # not before the start: pid 1 inside has no use for it

        if meanwhile is not None:
            meanwhile()
        supervisor = wait.Supervisor(
            pid,
            status_fd,
            wall_s=limits.get("wall_s"),
            grace_s=limits.get("grace_s", 5.0),
            terminal=terminal,
            foreground=run["foreground"],
            pumps=(*(() if streams is None else streams.pumps), *(() if proxy is None else proxy.pumps())),
            watch=watch,
            kill_signal=SIGKILL if prepared["launch"]["namespaces"] else KILL_EVERYTHING,
            at_exit=at_exit,
        )
        outcome = supervisor.run(signal_fd)
    finally:
        if terminal >= 0:
            succeeded = outcome is not None and outcome["status"] == 0
            _take_back(terminal, None if succeeded else saved)
            os.close(terminal)
        os.close(signal_fd)
        if gate >= 0:
            os.close(run["gate"])
            os.close(gate)
        if run.get("hand_pid"):
            end_hand(run["hand_pid"])
        signals.pthread_sigmask(signals.SIG_SETMASK, mask)
    return outcome


def end_hand(pid: int) -> None:
    """It ends with pid 1 inside; no zombie of it is left to whoever waits for orphans here, or does not."""
    try:
        os.kill(pid, SIGKILL)
        os.waitpid(pid, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # the caller ignores SIGCHLD


def open_gate(pid: int, status_fd: int, gate: int, is_valid: Callable[[], bool]) -> None:
    """Let the command start, or end the sandbox: also where the check itself fails, nothing stays behind."""
    valid = False
    try:
        valid = is_valid()
    finally:
        if not valid:
            os.kill(pid, SIGKILL)
            os.waitpid(pid, 0)
            os.close(status_fd)
    if not valid:
        raise Outdated
    os.write(gate, GATE_OPEN)


def _terminal_settings(terminal: int) -> Any:
    import termios

    try:
        return termios.tcgetattr(terminal)
    except termios.error:
        return None


def _take_back(terminal: int, saved: Any) -> None:
    """The caller's job is in the foreground again, if the command's dead group still is, and so are its settings: only
    a command that succeeded (stty) may leave others behind."""
    try:
        group = os.tcgetpgrp(terminal)
    except OSError:
        return  # hung up
    if group != os.getpgrp():
        try:
            if group:
                os.killpg(group, 0)
            return  # somebody lives there: the shell has moved on
        except OSError:
            pass
        from sbx.launch.wait import take_terminal

        take_terminal(terminal)
    if saved is not None:
        import termios

        blocked = signals.pthread_sigmask(signals.SIG_BLOCK, {22})  # SIGTTOU
        try:
            if termios.tcgetattr(terminal)[:4] != saved[:4]:
                termios.tcsetattr(terminal, termios.TCSADRAIN, saved)  # it died in raw mode
        except termios.error:
            pass
        finally:
            signals.pthread_sigmask(signals.SIG_SETMASK, blocked)


def failed_step(outcome: Outcome) -> SetupFailed | None:
    """The set-up step that failed, as an error with words."""
    if outcome["failure"] is None:
        return None
    step, code, words, subject = outcome["failure"]
    from sbx.errors import SetupFailed
    from sbx.launch.exhausted import remedy_for, words_of

    return SetupFailed(words_of(step, words, subject), remedy=remedy_for(code))
