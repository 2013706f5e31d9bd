"""Everything but the hot path: find the command, parse, call, and turn whatever is raised into words and a status."""

from __future__ import annotations

import os
import sys

from sbx.cli.commands import BY_NAME, COMMANDS
from sbx.errors import EXIT_INTERNAL, EXIT_USAGE, SbxError, UsageError
from sbx.launch.options import Unusual, parse_run, split_sh
from sbx.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from sbx.cli.commands import Command

EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE: what a shell says of a program whose reader went away
EXIT_INTERRUPTED = 130
RUNNERS = ("run", "sh")  # their exit status is the command's, so that a failure of sbx itself is 125


def main(arguments: list[str]) -> int:
    """The exit status. Raises nothing."""
    word = arguments[0] if arguments else ""
    open_streams()
    return guarded(lambda: dispatch(arguments), EXIT_INTERNAL if word in RUNNERS else EXIT_USAGE)


def open_streams() -> None:
    """Where the caller closed one of descriptors 0 to 2, the next file would take its place, and be written to."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))


def finish_run(done: dict[str, Any]) -> int:
    """What is left to do after the hot path ran the command: result, report, audit."""

    def finish() -> int:
        from sbx.cli.run_linux import finish_fast

        return finish_fast(done)

    return guarded(finish, EXIT_INTERNAL)


def guarded(call: Callable[[], int], failure: int) -> int:
    """Call it; whatever it raises becomes one line for people and an exit status."""
    try:
        # A file name may hold bytes that the terminal's encoding lacks: show them, whatever they are.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
        code = call()
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except SbxError as error:
        complain(error)
        # 126 and 127 speak of the command that was to be run; any other command of sbx has just one status for errors.
        return error.exit_code if failure == EXIT_INTERNAL else failure
    except BrokenPipeError:
        _drop_output()
        return EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(SbxError(f"{where}{error.strerror or error}", remedy="the system refused this"))
        _drop_output()
        return failure
    except Exception as error:
        return _bug(error, failure)


def complain(error: SbxError) -> None:
    """The error on standard error: one line with place, cause and remedy, then its details."""
    from sbx.report.words import visible

    lines = [f"sbx: {visible(str(error))}", *(f"  {visible(line)}" for line in error.details)]
    try:
        print("\n".join(lines), file=sys.stderr, flush=True)
    except (OSError, ValueError, AttributeError):
        pass  # nobody is left to tell


def _bug(error: Exception, failure: int) -> int:
    if os.environ.get("SBX_DEBUG"):
        import traceback

        traceback.print_exception(error)
        return failure
    frame, place = error.__traceback__, ""
    while frame is not None:
        code = frame.tb_frame.f_code
        place = f"{os.path.basename(code.co_filename)}:{frame.tb_lineno or code.co_name}"  # see launch.compile_side
        frame = frame.tb_next
    words = f"a mistake in sbx itself: {type(error).__name__}: {error} ({place})"
    complain(SbxError(words, remedy="please report it; with SBX_DEBUG=1 it shows where it comes from"))
    return failure


def _drop_output() -> None:
    """Keep the interpreter from writing to the broken stream once more at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError:
        pass


def dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(overview())
        return 0
    word, rest = arguments[0], arguments[1:]
    if word in ("--version", "-V"):
        print(f"sbx {VERSION}")
        return 0
    if word in ("--help", "-h", "help"):
        if not rest:
            print(overview())
            return 0
        word, rest = rest[0], ["--help"]
    row = BY_NAME.get(word)
    if row is None:
        raise unknown(word, rest)
    if word in RUNNERS:
        return _run(row, rest)
    parsed = _parsed(row, rest)
    return 0 if parsed is None else _call(row, *parsed)


def _parsed(row: Command, rest: list[str]) -> tuple[dict[str, Any], list[str]] | None:
    from sbx.cli.parse import parse

    try:
        return parse(row, rest)
    except Unusual:
        from sbx.cli.with_click import parse_with_click

        return parse_with_click(row, rest)


def _run(row: Command, rest: list[str]) -> int:
    head, command = (rest, []) if row.name == "run" else split_sh(rest)
    try:
        options, words = parse_run(head)
        parsed: tuple[dict[str, Any], list[str]] | None = (options, words)
    except Unusual:
        from sbx.cli.with_click import parse_with_click

        parsed = parse_with_click(row, head)
    if parsed is None:
        return 0
    if row.name == "sh" and len(command) < 2:
        raise UsageError("no script to run", remedy="sbx sh -c 'make && make test', or sbx sh FILE")
    return _call(row, parsed[0], [*parsed[1], *command])


def _call(row: Command, options: dict[str, Any], words: list[str]) -> int:
    module: Any = __import__(row.module, fromlist=["command"])  # importlib costs milliseconds that explain has not
    code: int = module.command(options, words)
    return code


def unknown(word: str, rest: list[str]) -> UsageError:
    """Not a command of sbx: a typo, or a program that should have been run."""
    from shutil import which

    from sbx.policy.nearest import nearest
    from sbx.report.words import visible

    shown = visible(word)
    if word == "--" and rest:
        import shlex

        line = visible(shlex.join(rest))
        return UsageError("no command of sbx before --", remedy=f"to run it in the sandbox: sbx run -- {line}")
    if word.startswith("-"):
        near = nearest(word, ("--version", "--help"))
        remedy = f"did you mean '{near}'?" if near and len(word) > 2 else "'sbx --help' lists the commands"
        if word.partition("=")[0].removeprefix("--") in {row[0] for row in BY_NAME["run"].options}:
            remedy = f"it is one of 'sbx run': sbx run {shown} …"
        return UsageError(f"there is no option {shown} before a command", remedy=remedy)
    close = nearest(word, BY_NAME)
    message = f"'{shown}' is not a command of sbx"
    if which(word) is not None:
        import shlex

        line = visible(shlex.join([word, *rest]))
        other = f" (or did you mean 'sbx {close}'?)" if close else ""
        return UsageError(message, remedy=f"to run it in the sandbox: sbx run -- {line}{other}")
    if word == "version":
        return UsageError(message, remedy="'sbx --version' says which one this is")
    if close:
        return UsageError(message, remedy=f"did you mean 'sbx {close}'?")
    return UsageError(message, remedy="'sbx' alone lists the commands")


def overview() -> str:
    width = max(len(row.name) for row in COMMANDS) + 2
    lines = [
        "sbx runs one command under a policy that the kernel enforces, and says what happened.",
        "",
        "  sbx run -- make -j4       this folder only, no network",
        "  sbx explain PATH          why is it allowed or denied?",
        "",
        "Commands:",
        *(f"  {row.name:<{width}}{row.summary}" for row in COMMANDS),
        "",
        "'sbx COMMAND --help' says more.",
    ]
    return "\n".join(lines)
