"""The annotated result on standard error: laid out on a terminal, one plain line for each fact elsewhere."""

from __future__ import annotations

import os
import sys

from sbx.model.result import Result, Status
from sbx.report.plain import BAD, GOOD, INFO, NEXT, WARN, facts, is_worth_telling, plain_lines, quoted
from sbx.report.words import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.report.plain import Fact
    from sbx.report.text import Line
    from sbx.supervise.execute import Done

OPEN_NETWORK = "--net HOST:PORT, for good 'network: {allow: [\"HOST:PORT\"]}' in the profile"


def report(result: Result, done: Done) -> None:
    """As `--report` asks: auto (anything but a plain exit 0), always, never."""
    when = done.options.get("report", "auto")
    if when == "never":
        if result.status is Status.INTERNAL_ERROR:  # not a result but a failure of sbx, which is always told
            print_facts(facts(result)[:1])
        return
    if when == "auto" and not is_worth_telling(result, done.notes):
        return
    print_facts(facts(result, done.notes, hints(result, done)))


def tell(notes: tuple[str, ...], options: dict[str, Any]) -> None:
    """What was done to a coding agent's command, before it starts."""
    if notes and options.get("report") != "never":
        print("".join(f"sbx: {visible(note)}\n" for note in notes), end="", file=sys.stderr, flush=True)


def print_facts(found: list[Fact]) -> None:
    from sbx.report.text import is_terminal, print_lines

    stream = sys.stderr
    if stream is None:
        return
    try:
        if is_terminal(stream):
            print_lines(terminal_lines(found), stream)
        else:
            # One write: the lines of concurrent runs that share a log do not mix.
            stream.write("".join(line + "\n" for line in plain_lines(found)))
        stream.flush()
    except (OSError, ValueError):
        pass  # nobody is left to tell


def terminal_lines(found: list[Fact]) -> list[Line]:
    styles = {GOOD: "green", BAD: "red", WARN: "yellow", INFO: "dim", NEXT: "cyan"}
    width = max((len(label) for label, _, _ in found[1:]), default=0)
    lines: list[Line] = []
    for position, (label, text, tone) in enumerate(found):
        if position == 0:
            lines.append([("sbx ", "dim"), (label, f"bold {styles[tone]}"), ("  ", ""), (visible(text), "")])
        else:
            if label == "denied":  # as explain has it: the place of what comes with sbx is of no interest to a person
                text = text.replace(f" at {_shipped()}/", " at ")
            body = "dim" if tone == INFO else ""
            lines.append([("  " + label.ljust(width) + "  ", styles[tone]), (visible(text), body)])
    return lines


def _shipped() -> str:
    from sbx.policy.folders import shipped_folder

    return shipped_folder()


def hints(result: Result, done: Done) -> list[str]:
    """What to do about a command that could not be started: the file system outside knows more than the sandbox."""
    if result.status is Status.INTERNAL_ERROR:
        return [_after_failure(done)]
    if result.status is Status.NOT_FOUND:
        return _not_found(result, done)
    if result.status is Status.NOT_EXECUTABLE:
        return _not_executable(result, done)
    return _after_exit(result, done) if result.status is Status.EXIT else []


def _after_exit(result: Result, done: Done) -> list[str]:
    """The command failed by itself: what the sandbox may have to do with it."""
    from sbx.report.said import is_worth_reading, may_be_denied, misses_network

    found = []
    closed = done.prepared["network"][0] == "none"
    closed = closed and not any(row[0] == "network" and not row[2] for row in done.prepared["enforced"])
    if closed and misses_network(done.said):
        found.append(f"profile {result.profile} has no network: for one run {OPEN_NETWORK}")
    if "trace" in done.options:
        return found
    if result.denials or (is_worth_reading(done.said) and may_be_denied(done.said, result.cwd)):
        found.append(f"'sbx {_word()} --trace …' tells for certain what was denied, if anything")
    elif not done.overheard and not done.notes and not any(each.get("verdict") == "deny" for each in result.network):
        # On a terminal and where both outputs are one pipe nobody looked at what the command said of itself.
        network = "; no host can be reached without --net HOST:PORT" if closed else ""
        found.append(f"'sbx {_word()} --trace …' tells for certain what was denied, if anything{network}")
    return found


def _word() -> str:
    """As whom sbx was called: `sh` where a Makefile names it as its shell."""
    return "sh" if sys.argv[1:2] == ["sh"] else "run"


def _after_failure(done: Done) -> str:
    """A step of the set-up failed, or what watches the run did: what to do about it."""
    from sbx.launch.exhausted import remedy_for

    failure = done.outcome["failure"]
    return remedy_for(failure[1] if failure is not None else done.outcome["exec_errno"] or 0)


def _explaining(result: Result, path: str) -> str:
    return f"'sbx explain --profile {result.profile} {quoted(path)}'"


def _candidates(done: Done) -> list[str]:
    return [os.fsdecode(path) for path in done.run["candidates"]]


def _not_found(result: Result, done: Done) -> list[str]:
    name = done.command[0]
    for path in _candidates(done):
        absolute = os.path.normpath(os.path.join(result.cwd, path))
        if os.path.isfile(absolute) and os.access(absolute, os.X_OK):
            interpreter = _interpreter(absolute)
            if interpreter and not os.path.exists(interpreter):
                return [f"{absolute} starts with #!{interpreter}, {_absence(interpreter)}"]
            what = f"{absolute} exists, but profile {result.profile} does not let it be read"
            if interpreter:
                what += f" (or not its interpreter {interpreter})"
            return [f"{what}: {_explaining(result, absolute)} says why; --read allows it"]
    if len(name.split()) > 1:
        return [
            f"it is one word with a space in it: write sbx run -- {visible(name)}"
            f" without quotes, or sbx sh -c {quoted(name)} for a line of shell"
        ]
    if "/" in name:
        return ["check the path: it is looked up inside the sandbox, from the working directory"]
    if done.command[1:2] == ["--"]:
        rest = " ".join(quoted(word) for word in done.command[1:])
        return [f"if '{name}' is a profile: sbx run --profile {quoted(name)} {rest}"]
    near = _near(name, done)
    return (
        [f"did you mean '{near}'?"] if near else ["it is in none of the folders of PATH: install it, or name its path"]
    )


def _absence(interpreter: str) -> str:
    """Only where every folder above can be searched does it show that something is not there."""
    try:
        os.stat(interpreter)
    except PermissionError:
        return "which you may not look at: name an interpreter that you can reach"
    except OSError:
        pass
    return "which does not exist: install it, or name another"


def _near(name: str, done: Done) -> str | None:
    from sbx.policy.nearest import nearest

    names: set[str] = set()
    for path in _candidates(done):
        try:
            names.update(os.listdir(os.path.dirname(path)))
        except OSError:
            continue
    return nearest(name, sorted(names))


def _interpreter(path: str) -> str:
    try:
        with open(path, "rb") as file:
            line = file.readline(256)
    except OSError:
        return ""
    return os.fsdecode(line[2:].split()[0]) if line.startswith(b"#!") and line[2:].split() else ""


def _not_executable(result: Result, done: Done) -> list[str]:
    for path in _candidates(done):
        absolute = os.path.normpath(os.path.join(result.cwd, path))
        if os.path.isdir(absolute):
            return [f"{absolute} is a directory"]
        if os.path.isfile(absolute):
            if not os.access(absolute, os.X_OK):
                return [f"{absolute} is not marked executable: chmod +x {quoted(absolute)}"]
            if os.stat(absolute).st_mode & 0o6000:
                return [f"run what needs the rights of {absolute} outside, or a copy of it without them"]
            return [f"{_explaining(result, absolute)} says whether the profile lets it be executed"]
    return []


def report_lines(result: Result, done: Any) -> list[str]:
    """The plain form, for whoever wants it as text."""
    return plain_lines(facts(result, done.notes, hints(result, done)))
