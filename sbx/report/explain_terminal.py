"""explain on a terminal: the verdict first, then why, then what would change it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sbx.report.explain import Answer, Verdict, how
from sbx.report.text import BAD, DIM, GOOD, PLACE, PLAIN, STRONG, Line, Span, columns
from sbx.report.view import View
from sbx.report.words import place_of, visible


def terminal_lines(view: View, answers: Iterable[Answer], cwd: str) -> list[Line]:
    lines: list[Line] = []
    for answer in answers:
        lines += _answer(answer, cwd)
        lines.append([])
    lines.append([("profile ", DIM), (view.name, STRONG), (f" in {visible(view.workspace)}", DIM)])
    return lines


def _answer(answer: Answer, cwd: str) -> list[Line]:
    head: list[Span] = [(visible(answer.path), STRONG)]
    if answer.location is not None and answer.location != os.path.normpath(os.path.join(cwd, answer.path)):
        head.append((f"  is really {visible(answer.location)}", DIM))
    lines: list[Line] = [head]
    for note in answer.notes:
        lines.append([("  note    ", DIM), (note, PLAIN)])
    for verdict in answer.verdicts:
        lines += _verdict(verdict, cwd)
    return lines


def _verdict(verdict: Verdict, cwd: str) -> list[Line]:
    style, sign, word = (GOOD, "✓", "allowed") if verdict.allowed else (BAD, "✗", "denied")
    first: list[Span] = [(f"  {sign} {verdict.access:<7} ", style), (word, f"{STRONG} {style}")]
    failed = verdict.failed
    if failed is not None and failed.name != verdict.access:
        first.append((", because it may not be read", PLAIN))
    lines: list[Line] = [first]
    rows: list[list[Span]] = []
    for each in verdict.lists:
        if each is not verdict.deciding and verdict.failed is None:
            continue  # an allowed modify needs the read list too, but what it says stands under read already
        name = "" if each.name == verdict.access else f"{each.name} list"
        for row in each.matches:
            wins = row is each.winner and each is verdict.deciding
            rule_style = (BAD if row.negated else GOOD) if wins else PLAIN
            rows.append(
                [
                    ("▸" if wins else " ", rule_style),
                    (visible(row.text), rule_style),
                    (place_of(row.file, row.line, cwd), PLACE),
                    (f"{row.origin}{', ' if name else ''}{name}", DIM),
                ]
            )
        if each.winner is None:
            where = name or "list"
            rows.append([("▸", BAD), ("no rule matched", BAD), ("", PLAIN), (where if name else "", DIM)])
    lines += columns(rows, indent="      ")
    deciding = verdict.deciding
    enforced = how(deciding.winner) if deciding is not None else ""
    if enforced:
        lines.append([("      enforced ", DIM), (visible(enforced), PLAIN)])
    for kind, text in verdict.changes:
        label = "no change  " if kind == "none" else "to allow it"
        lines.append([(f"      {label} ", DIM), (visible(text), PLAIN)])
    return lines
