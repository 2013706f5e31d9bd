"""The measurement as Markdown: first what the targets ask, then every table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.record import Check, Section, check_value, verdict

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
LONG_COMMAND = 600


class NoMarkers(Exception):
    pass


def render(run: dict[str, Any], sections: list[Section]) -> str:
    parts = [_header(run), _targets(sections), *(_section(section) for section in sections)]
    if run["skipped"]:
        lines = (f"- {row}: {why}" for row, why in run["skipped"].items())
        parts.append("### Rows that were not measured\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def write_between_markers(document: Path, text: str) -> None:
    old = document.read_text(encoding="utf-8")
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise NoMarkers(f"{document} has no {BEGIN} … {END}")
    document.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{tail}", encoding="utf-8")


def _header(run: dict[str, Any]) -> str:
    lines = [
        f"Measured on {run['date']} (UTC) by `{run['command']}`, sbx at commit {run['commit']}.",
        "",
        f"- machine: {run['machine']['cpu']}, {run['machine']['memory']}, {run['machine']['system']}",
        f"- load average at the start: {run['load']:.1f}",
        f"- user: {run['user']}",
        f"- enforcement: {run['enforcement']}",
        "- versions: " + "; ".join(f"{name}: {text}" for name, text in run["versions"].items()),
    ]
    return "\n".join(lines)


def _targets(sections: list[Section]) -> str:
    rows = [
        (
            check.what,
            _number(section, check),
            check.reference or "(absolute)",
            _factor(section, check),
            _factor(section, check, of_best=True),
            _times(section.cpu_ratio(check.way, check.reference)),
            _target(section, check),
            verdict(section, check),
        )
        for section in sections
        for check in section.checks
    ]
    head = ("what", "median", "against", "ratio of medians", "of best rounds", "of CPU time", "target", "verdict")
    return "### Targets\n\n" + _table(head, rows)


def _number(section: Section, check: Check) -> str:
    return _value(section.median(check.way), section.unit) if check.way in section.samples else "-"


def _factor(section: Section, check: Check, *, of_best: bool = False) -> str:
    value = check_value(section, check, of_best=of_best)
    if value is None:
        return "-"
    return f"{value:.2f}x" if check.reference else _value(value, section.unit)


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _target(section: Section, check: Check) -> str:
    unit = "x" if check.reference else f" {section.unit}"
    if check.at_most is not None:
        return f"<= {check.at_most:g}{unit}"
    return f">= {check.at_least:g}{unit}"


def _section(section: Section) -> str:
    head = ["", "median", "best"] + ([f"of {section.reference}"] if section.reference else [])
    head += ["CPU time"] if section.cpu_s else []
    rows = []
    for way in section.samples:
        cells = [way, _value(section.median(way), section.unit), _value(section.best(way), section.unit)]
        if section.reference:
            cells.append(_times(section.ratio(way, section.reference)))
        if section.cpu_s:
            used = section.cpu(way)
            cells.append("-" if used is None else _value(used * 1e3, "ms"))
        rows.append(tuple(cells))
    rounds = max((len(values) for values in section.samples.values()), default=0)
    parts = [f"### {section.title}", _table(tuple(head), rows) if rows else "Nothing was measured."]
    parts.append(f"{rounds} rounds at {section.measured}, load average {section.load:.1f}.")
    parts += section.notes
    if section.skipped:
        parts.append("Not measured:\n\n" + "\n".join(f"- {reason}" for reason in section.skipped))
    if section.commands:
        shown = "\n".join(f"{way + ':':<28} {_cut(text)}" for way, text in section.commands.items())
        parts.append(f"<details><summary>commands</summary>\n\n```text\n{shown}\n```\n\n</details>")
    return "\n\n".join(parts)


def _cut(command: str) -> str:
    command = command.replace("\n", "; ")
    return command if len(command) <= LONG_COMMAND else command[:LONG_COMMAND] + f" … ({len(command.split())} words)"


def _value(number: float, unit: str) -> str:
    digits = 0 if number >= 1000 else 1 if number >= 100 else 2
    return f"{number:.{digits}f} {unit}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) + ("---:",) * (len(head) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
