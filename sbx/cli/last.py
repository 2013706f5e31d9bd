"""`sbx explain --last`: what the last run here was denied, from the audit log, explained as any other path."""

from __future__ import annotations

import os
import shlex
from typing import Any

from sbx.audit import records
from sbx.errors import SbxError, UsageError
from sbx.model.glob import split_path
from sbx.policy.document import RunRules
from sbx.policy.folders import find_workspace_file
from sbx.report.denials import access_of
from sbx.report.explain import Answer, explain
from sbx.report.view import View
from sbx.report.words import visible


class NothingToExplain(SbxError):
    """There is no run in the log to speak of."""

    slug = "nothing_to_explain"


def last_run(cwd: str) -> dict[str, Any]:
    """The newest record of a run in this workspace."""
    here = split_path(_workspace(cwd))
    found = None
    for record in records():
        where = record.get("cwd")
        if record.get("event") == "run" and isinstance(where, str) and split_path(where)[: len(here)] == here:
            found = record
    if found is None:
        raise NothingToExplain(
            "the audit log knows no run in this workspace", remedy="run something first; --no-audit leaves no record"
        )
    return found


def _workspace(cwd: str) -> str:
    file = find_workspace_file(os.path.realpath(cwd))
    return os.path.realpath(cwd) if file is None else os.path.dirname(file)


def rules_of(record: dict[str, Any]) -> tuple[str | None, RunRules]:
    """The policy file that was named for the run, and the rules of its command line."""
    options = record.get("options")
    if not isinstance(options, dict):
        return None, RunRules()
    policy = options.get("policy")

    def listed(name: str) -> tuple[str, ...]:
        rules = options.get(name)
        return tuple(str(rule) for rule in rules) if isinstance(rules, list) else ()

    rules = RunRules(read=listed("read"), modify=listed("modify"), deny=listed("deny"))
    return policy if isinstance(policy, str) else None, rules


def answers_for(view: View, record: dict[str, Any]) -> list[Answer]:
    """One answer for each path, about what was tried, with who tried it as a note."""
    grouped: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for denial in record.get("denials", ()):
        if isinstance(denial, dict) and isinstance(denial.get("path"), str):
            key = (denial["path"], access_of(str(denial.get("operation", ""))))
            grouped.setdefault(key, []).append(denial)
    answers = []
    for (path, access), denials in grouped.items():
        answer = explain(view, path, (access,), str(record.get("cwd") or "/"))
        answer.notes = (*answer.notes, *(_words(each) for each in denials))
        answers.append(answer)
    return answers


def _words(denial: dict[str, Any]) -> str:
    program = f" by {visible(str(denial['program']))}" if denial.get("program") else ""
    count = denial.get("count", 1)
    times = f", {count} times" if isinstance(count, int) and count > 1 else ""
    likely = "probably " if denial.get("likely") else ""
    return f"{likely}denied {visible(str(denial.get('operation', 'access')))}{program}{times}"


def no_denials(record: dict[str, Any]) -> str:
    """What to say of a run that was denied nothing that is known."""
    argv = [visible(str(word)) for word in record.get("argv", ())]
    again = shlex.join(["sbx", "run", "--profile", str(record.get("profile", "unrestricted")), "--trace", "--", *argv])
    return f"the last run here was denied nothing that is known; to see every denial: {again}"


def check_options(options: dict[str, Any], paths: list[str]) -> None:
    if paths or options.get("read") or options.get("modify"):
        raise UsageError("--last stands alone", remedy="name paths, or write --last without any")
