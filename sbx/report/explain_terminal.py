"""explain on a terminal: the verdict first, then why, then what would change it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sbx.report.explain import Answer, Verdict, how, role
from sbx.report.text import BAD, DIM, GOOD, PLACE, PLAIN, STRONG, Line, Span, columns, paragraph
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
    lines += columns(_rules(verdict, cwd), indent="      ")
    enforced = how(verdict)
    if enforced:
        lines += paragraph("      enforced     ", visible(enforced))
    for kind, text in verdict.changes:
        label = "no change   " if kind == "none" else "to allow it "
        lines += paragraph(f"      {label} ", visible(text))
    return lines


MARKS = {"decided by": "▸", "also denied by": "▹", "matched": " "}


def _rules(verdict: Verdict, cwd: str) -> list[list[Span]]:
    """Mark, rule, place, origin: the lists that speak for this access, the decider marked."""
    rows: list[list[Span]] = []
    for each in verdict.lists:
        if verdict.allowed and each is not verdict.deciding:
            continue  # an allowed modify needs the read list too, but what it says stands under read already
        name = "" if each.name == verdict.access else f", {each.name} list"
        for row in each.matches:
            did = role(verdict, each, row)
            style = PLAIN if did == "matched" else BAD if row.negated else GOOD
            file = os.path.basename(row.file) if row.layer == "shipped" else row.file
            place = place_of(file, row.line, cwd)
            rows.append([(MARKS[did], style), (visible(row.text), style), (place, PLACE), (row.origin + name, DIM)])
        if each.winner is None:
            rows.append([("▸" if each is verdict.deciding else "▹", BAD), ("no rule matched", BAD), (name[2:], DIM)])
    return rows
