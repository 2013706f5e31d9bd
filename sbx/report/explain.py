"""Why a path is allowed or denied: the answer as a value, and its plain and JSON forms.

Built-in modules only, as far as plain output needs them. The terminal form is in report/explain_terminal.py.
"""

from __future__ import annotations

import os

from sbx.model.glob import split_path
from sbx.model.location import real_location
from sbx.model.verdict import consult
from sbx.report.change import changes
from sbx.report.view import Row
from sbx.report.words import place_of, visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from sbx.report.view import Enforced, View

ACCESS_NAMES = ("read", "modify", "exec")
JSON_VERSION = 1
EXACT = "exact"  # model.guarantee.Exactness, without its import


class Listed:
    """What one rule list says: the rows that matched, in order, and the one that decides."""

    __slots__ = ("allowed", "matches", "name", "winner")

    def __init__(self, name: str, allowed: bool, winner: Row | None, matches: tuple[Row, ...]) -> None:
        self.name = name
        self.allowed = allowed
        self.winner = winner
        self.matches = matches


class Verdict:
    """The verdict on one path for one access: each list that was asked, and what would change the outcome."""

    __slots__ = ("access", "allowed", "changes", "enforced", "lists")

    def __init__(self, access: str, lists: tuple[Listed, ...], change: tuple[tuple[str, str], ...]) -> None:
        self.access = access
        self.lists = lists
        self.enforced: Enforced | None = None
        self.allowed = bool(lists) and all(each.allowed for each in lists)
        self.changes = change  # (kind, text) with kind policy | option | none

    @property
    def failed(self) -> Listed | None:
        return next((each for each in self.lists if not each.allowed), None)

    @property
    def deciding(self) -> Listed | None:
        """The list whose winner decided: the first that denied, else the access's own."""
        return self.failed or (self.lists[-1] if self.lists else None)


class Answer:
    """Everything explain says about one path."""

    __slots__ = ("location", "notes", "path", "verdicts")

    def __init__(self, path: str, location: str | None, verdicts: tuple[Verdict, ...], notes: tuple[str, ...]) -> None:
        self.path = path
        self.location = location
        self.verdicts = verdicts
        self.notes = notes

    @property
    def allowed(self) -> bool:
        return all(verdict.allowed for verdict in self.verdicts)


def explain(view: View, path: str, accesses: Sequence[int], cwd: str) -> Answer:
    """Relative paths start at `cwd`."""
    location = real_location(path, cwd)
    if location is None:
        loop = (("none", "its symlinks form a loop, which nothing can follow: remove the loop"),)
        return Answer(path, None, tuple(Verdict(ACCESS_NAMES[access], (), loop) for access in accesses), ())
    names = split_path(location)
    verdicts = tuple(_verdict(view, location, names, access) for access in accesses)
    return Answer(path, location, verdicts, _notes(view, location))


def _verdict(view: View, location: str, names: tuple[str, ...], access: int) -> Verdict:
    lists = []
    for position, allowed, winner, matched in consult(view.judge, access, names):
        rules = view.rows[position] or ()
        rows = {index: Row(rules[index]) for index in matched}
        lists.append(Listed(ACCESS_NAMES[position], allowed, rows.get(winner), tuple(rows.values())))
    denied = [(each.name, each.winner) for each in lists if not each.allowed]
    verdict = Verdict(ACCESS_NAMES[access], tuple(lists), changes(view, location, denied) if denied else ())
    deciding = verdict.deciding
    if deciding is not None and deciding.winner is not None:
        row = deciding.winner
        place = f"{row.file}:{row.line}" if row.line else row.file
        verdict.enforced = view.guarantees.get((deciding.name, row.text, place))
    return verdict


def _notes(view: View, location: str) -> tuple[str, ...]:
    names = split_path(location)
    workspace = split_path(view.workspace)
    if names[: len(workspace)] == workspace:
        return ()
    for folder in view.private:
        start = split_path(folder)
        if names[: len(start)] == start:
            return (f"the command sees a private, empty {folder}: not what is there outside",)
    return ()


def how(verdict: Verdict) -> str:
    """How this machine falls short of what decided, or goes beyond it; empty where it holds to it exactly."""
    if verdict.enforced is None or verdict.enforced[0] == EXACT:
        return ""
    exactness, mechanism, note = verdict.enforced
    return f"{exactness}: {mechanism}" + (f" ({note})" if note else "")


def plain_lines(view: View, answers: Iterable[Answer], cwd: str) -> list[str]:
    """One line per fact, each starting with the path, for logs and grep."""
    lines: list[str] = []
    for answer in answers:
        head = visible(answer.path)
        if answer.location is not None and answer.location != os.path.normpath(os.path.join(cwd, answer.path)):
            lines.append(f"{head}: is really {visible(answer.location)}")
        lines += [f"{head}: note: {note}" for note in answer.notes]
        for verdict in answer.verdicts:
            lines += [f"{head}: {verdict.access}: {fact}" for fact in _facts(verdict, cwd)]
    return lines


def _facts(verdict: Verdict, cwd: str) -> list[str]:
    word = "allowed" if verdict.allowed else "denied"
    failed = verdict.failed
    if failed is not None and failed.name != verdict.access:
        word += " (it may not be read)"
    facts = [word]
    for each in verdict.lists:
        own = "" if each.name == verdict.access else f" in the {each.name} list"
        facts += [f"{role(verdict, each, row)} {rule_words(row, cwd)}{own}" for row in each.matches]
        if each.winner is None:
            facts.append(f"no rule matched{own}, which is a denial")
    enforced = how(verdict)
    if enforced:
        facts.append(f"enforced {visible(enforced)}")
    facts += [f"change: {visible(text)}" for _, text in verdict.changes]
    return facts


def role(verdict: Verdict, listed: Listed, row: Row) -> str:
    """What a rule that matched did: decide, deny as well, or merely match."""
    if row is not listed.winner:
        return "matched"
    if listed is verdict.deciding:
        return "decided by"
    return "matched" if listed.allowed else "also denied by"


def rule_words(row: Row, cwd: str) -> str:
    return f"{visible(row.text)} ({place_of(row.file, row.line, cwd)}, {row.origin})"


def to_json(view: View, answers: Iterable[Answer]) -> dict[str, Any]:
    listed = list(answers)
    return {
        "version": JSON_VERSION,
        "profile": view.name,
        "workspace": view.workspace,
        "allowed": all(answer.allowed for answer in listed),
        "paths": [
            {
                "path": answer.path,
                "location": answer.location,
                "allowed": answer.allowed,
                "notes": list(answer.notes),
                "verdicts": [_verdict_json(verdict) for verdict in answer.verdicts],
            }
            for answer in listed
        ],
    }


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    deciding = verdict.deciding
    winner = None if deciding is None else deciding.winner
    return {
        "access": verdict.access,
        "allowed": verdict.allowed,
        "failed": None if verdict.failed is None else verdict.failed.name,
        "decided_by": None if winner is None else _row_json(winner),
        "lists": [
            {
                "name": each.name,
                "allowed": each.allowed,
                "matches": [{**_row_json(row), "decides": row is each.winner} for row in each.matches],
            }
            for each in verdict.lists
        ],
        "enforced": _enforced_json(verdict),
        "changes": [{"kind": kind, "text": text} for kind, text in verdict.changes],
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "rule": row.text,
        "negated": row.negated,
        "origin": row.origin,
        "file": row.file,
        "line": row.line,
        "column": row.column,
        "layer": row.layer,
    }


def _enforced_json(verdict: Verdict) -> dict[str, str] | None:
    if verdict.enforced is None:
        return None
    exactness, mechanism, note = verdict.enforced
    return {"exactness": exactness, "mechanism": mechanism, "note": note}
