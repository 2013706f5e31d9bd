"""What a command was probably denied, from its own error lines: only where a path named there is really denied.

A guess, and marked as one: the line may speak of another file of that name. What is certain takes `--trace`.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from sbx.model.glob import split_path
from sbx.model.location import real_location
from sbx.model.verdict import MODIFY, READ, consult
from sbx.report.denials import denial_of

if TYPE_CHECKING:
    from sbx.model.result import Denial
    from sbx.report.view import View

MISSING = "No such file or directory"
WRITING = "Read-only file system"
REFUSED = ("Permission denied", "Operation not permitted")
MESSAGES = (MISSING, WRITING, *REFUSED)
NO_NETWORK = (
    "could not resolve",
    "temporary failure in name resolution",
    "name or service not known",
    "enotfound",
    "eai_again",
    "network is unreachable",
    "getaddrinfo",
)
# What stands before a colon, where no program does.
_TROUBLE = "error fatal warning warn note info hint panic failed failure traceback exception e w n"
NO_PROGRAMS = frozenset(_TROUBLE.split())
MAX_LINES = 400
MAX_NOTES = 20

_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|‘([^’]+)’|`([^'`]+)['`]")
_VERB = re.compile(r"(cannot|can't|could not|couldn't|failed to|unable to) \w+ ")
_WRITES = re.compile(r"creat|touch|remov|mkdir|renam|mov(e|ing)|writ|unlink|delet|open .* for|install|chmod|link")


def is_worth_reading(text: bytes) -> bool:
    """Before anything is loaded: does it complain of files at all?"""
    return any(message.encode() in text for message in MESSAGES)


def misses_network(text: bytes) -> bool:
    """Does it complain that no host can be found or reached?"""
    lower = text.lower()
    return any(message.encode() in lower for message in NO_NETWORK)


def may_be_denied(text: bytes, cwd: str) -> bool:
    """Is there a line that a denial could explain? Not where what it misses is missing outside as well."""
    lines = [line for line in os.fsdecode(text).splitlines() if any(message in line for message in MESSAGES)]
    return any(MISSING not in line or not _is_missing_outside(line, cwd) for line in lines[:MAX_LINES])


def _is_missing_outside(line: str, cwd: str) -> bool:
    location = next((real_location(name, cwd) for name in candidates(line)), None)
    return location is not None and not os.path.lexists(location) and os.path.isdir(os.path.dirname(location))


def program_of(line: str) -> str:
    """Who speaks, as far as the line says: the word before its first colon, unless that names a kind of trouble."""
    word, colon, rest = line.partition(":")
    if not colon or "/" in word or " " in word or len(word) >= 40:
        return ""
    if word.lower() in NO_PROGRAMS or word.endswith(("Error", "Exception")):
        return ""
    return "" if "." in word and rest[:1].isdigit() else word  # x.c:1:10: a place in a file


def likely_denials(view: View, text: bytes, cwd: str) -> list[Denial]:
    """Each path once, in the order they are named."""
    found: dict[tuple[str, int], Denial] = {}
    lines = os.fsdecode(text).splitlines()
    for line in [line for line in lines if any(message in line for message in MESSAGES)][:MAX_LINES]:
        for path in candidates(line):
            denial = _judged(view, line, path, cwd)
            if denial is not None:
                found.setdefault((denial.path, len(denial.operation)), denial)
                break
        if len(found) >= MAX_NOTES:
            break
    return list(found.values())


def candidates(line: str) -> list[str]:
    """What could be the path in an error line, likeliest first."""
    names = [next(filter(None, groups)) for groups in _QUOTED.findall(line)]
    head, _, tail = line.partition(next(message for message in MESSAGES if message in line))
    before = head.rstrip().rstrip(":([").rstrip().rpartition(": ")[2].strip()
    if _VERB.match(before):
        before = before.split(" ", 2)[-1]
    after = tail.lstrip(": ").strip()
    names += [before, before.rpartition(" ")[2], after, after.partition(":")[0]]
    return [name for name in dict.fromkeys(names) if name and len(name) < 4096 and "\0" not in name]


def _judged(view: View, line: str, path: str, cwd: str) -> Denial | None:
    program = program_of(line)
    program = "" if program == path else program
    location = real_location(path, cwd)
    if location is None:
        return None
    there = os.path.lexists(location)
    if there and WRITING not in line and _denied(view, location, READ):
        return denial_of(view, "read", READ, location, cwd, program=program, likely=True)
    writes = WRITING in line or (MISSING not in line and _WRITES.search(line) is not None)
    possible = there or os.path.isdir(os.path.dirname(location))
    if writes and possible and _denied(view, location, MODIFY):
        return denial_of(view, "write", MODIFY, location, cwd, program=program, likely=True)
    return None


def _denied(view: View, location: str, access: int) -> bool:
    return any(not allowed for _, allowed, _, _ in consult(view.judge, access, split_path(location)))
