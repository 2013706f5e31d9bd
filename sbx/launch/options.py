"""The option table of `run`, as data, and the small parser that the hot path uses.

The table is the only list of options: click's parser and help, the man page and the completions are made from it.
The parser here understands what is well-formed and hands everything else (help, typos, missing values) to the click
side by raising Unusual: errors may cost time, a plain run may not.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Value: TypeAlias = str | bool | tuple[str, ...]
    Options: TypeAlias = dict[str, Value]

# Kinds of values. TEXT kinds keep the text: durations and sizes are read on the compile side only.
FLAG = "flag"
RULE = "rule"
DURATION = "duration"
SIZE = "size"
COUNT = "count"
NAME = "profile"
FILE = "file"
DIRECTORY = "directory"
NET = "net"
ENV = "env"
REPORT = "report"

REPORT_CHOICES = ("auto", "always", "never")

# (name, kind, metavar, repeatable, help, group)
RUN_OPTIONS: tuple[tuple[str, str, str, bool, str, str], ...] = (
    ("profile", NAME, "NAME", False, "The profile to run under (default: unrestricted).", "Policy"),
    ("policy", FILE, "FILE", False, "Use FILE in place of the workspace's sbx.yaml; naming it is consent.", "Policy"),
    ("read", RULE, "RULE", True, "Also allow reading RULE, for this run.", "Policy"),
    ("modify", RULE, "RULE", True, "Also allow reading and modifying RULE, for this run.", "Policy"),
    ("deny", RULE, "RULE", True, "Deny reading and modifying RULE, for this run.", "Policy"),
    ("net", NET, "none|host|HOST:PORT", True, "What the command may reach (default: none).", "Policy"),
    ("partial", FLAG, "", False, "Run even if something cannot be enforced, and report what.", "Policy"),
    ("timeout", DURATION, "S", False, "Wall-clock limit (30, 30s, 5m, 1h30m, 500ms).", "Limits"),
    ("grace", DURATION, "S", False, "Time between the first signal and SIGKILL (default: 5s).", "Limits"),
    ("cpu", DURATION, "S", False, "CPU time of the whole tree.", "Limits"),
    ("memory", SIZE, "SIZE", False, "Memory of the whole tree (512MiB, 512M, 1GB).", "Limits"),
    ("pids", COUNT, "N", False, "Processes and threads at once.", "Limits"),
    ("nofile", COUNT, "N", False, "Open files of each process.", "Limits"),
    ("max-stdout", SIZE, "SIZE", False, "Cut standard output after SIZE.", "Limits"),
    ("max-stderr", SIZE, "SIZE", False, "Cut standard error after SIZE.", "Limits"),
    ("env", ENV, "NAME[=VALUE]", True, "Pass NAME on, or set it.", "Command"),
    ("env-all", FLAG, "", False, "Pass the whole environment on.", "Command"),
    ("cwd", DIRECTORY, "DIR", False, "Start in DIR.", "Command"),
    ("no-tty", FLAG, "", False, "Never give the command the terminal.", "Command"),
    ("keep-inner-sandbox", FLAG, "", False, "Leave a coding agent's own sandbox switched on.", "Command"),
    ("trace", FLAG, "", False, "Tell every denial, with the rule that decided.", "Report"),
    ("json", FILE, "FILE", False, "Write the result to FILE as JSON.", "Report"),
    ("report", REPORT, "auto|always|never", False, "When to print the annotated result (default: auto).", "Report"),
    ("no-audit", FLAG, "", False, "Write no audit record.", "Report"),
    ("verbose", FLAG, "", False, "Say what sbx does, on standard error.", "Report"),
)


class Unusual(Exception):
    """Not something the small parser handles; the click side takes over and finds the words."""


def _index() -> dict[str, tuple[str, bool]]:
    return {"--" + row[0]: (row[1], row[3]) for row in RUN_OPTIONS}


def parse_run(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Options and the command. After the first word that is not an option, everything belongs to the command."""
    known = _index()
    options: Options = {}
    position, count = 0, len(arguments)
    while position < count:
        word = arguments[position]
        if word == "--":
            position += 1
            break
        if word[:1] != "-" or word == "-":
            break
        name, equals, value = word.partition("=")
        entry = known.get(name)
        if entry is None:
            raise Unusual(word)
        kind, repeatable = entry
        key = name[2:]
        position += 1
        if kind == FLAG:
            if equals:
                raise Unusual(word)
            options[key] = True
            continue
        if not equals:
            if position >= count:
                raise Unusual(word)
            value = arguments[position]
            position += 1
        if kind == REPORT and value not in REPORT_CHOICES:
            raise Unusual(word)
        if repeatable:
            earlier = options.get(key, ())
            options[key] = (*earlier, value) if isinstance(earlier, tuple) else (value,)
        else:
            options[key] = value
    return options, list(arguments[position:])


def split_sh(arguments: list[str]) -> tuple[list[str], list[str]]:
    """`sh [OPTIONS] -c TEXT [ARGS…]` or `sh [OPTIONS] FILE [ARGS…]`: the options, and the command it stands for."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("--") and rest[0] != "--":
        word = rest.pop(0)
        options.append(word)
        if "=" not in word and takes_value(word) and rest:
            options.append(rest.pop(0))
    if rest and rest[0] == "--":
        rest.pop(0)
    return options, ["/bin/sh", *rest]


def takes_value(word: str) -> bool:
    return any(row[0] == word[2:] and row[1] != FLAG for row in RUN_OPTIONS)
