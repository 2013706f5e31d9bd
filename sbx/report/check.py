"""What `sbx check` found: findings and failed tests, each with its place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sbx.model.records import dataclass
from sbx.model.source import Source
from sbx.policy.document import Policy
from sbx.policy.lint import Finding, Severity, TestOutcome
from sbx.report.text import BAD, DIM, GOOD, PLACE, PLAIN, WARN, Line
from sbx.report.words import place_of, visible

STYLES = {Severity.ERROR: BAD, Severity.WARNING: WARN, Severity.NOTE: DIM}


@dataclass(frozen=True, slots=True)
class Checked:
    """One policy with what was found about it."""

    policy: Policy
    findings: tuple[Finding, ...]
    outcomes: tuple[TestOutcome, ...]

    @property
    def failed(self) -> bool:
        """Notes are for information: they alone are no failure."""
        return any(each.severity is not Severity.NOTE for each in self.findings) or bool(self.failures)

    @property
    def failures(self) -> tuple[TestOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if not outcome.passed)

    @property
    def summary(self) -> str:
        files = [file for file in self.policy.files if file.layer != "shipped"]
        where = visible(files[-1].path) if files else "no policy file here, the shipped profiles"
        parts = [_count(len(self.policy.profiles), "profile")]
        for severity in Severity:
            found = sum(each.severity is severity for each in self.findings)
            if found:
                parts.append(_count(found, severity.value))
        if self.outcomes:
            passed = len(self.outcomes) - len(self.failures)
            parts.append(f"{passed} of {_count(len(self.outcomes), 'test')} passed")
        if not self.findings and not self.failures:
            parts.append("nothing found")
        return f"{where}: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def failure_words(outcome: TestOutcome, cwd: str) -> str:
    test = outcome.test
    expected = "allowed" if outcome.expected else "denied"
    asked = f"profile {visible(test.profile)}: {outcome.access.value} of {visible(test.path)} should be {expected}"
    if outcome.decision is None:
        return f"{asked}; it could not be asked: {visible(outcome.problem)}"
    winner = outcome.decision.winner
    if winner is None:
        return f"{asked}; no rule grants it"
    verb = "allows" if outcome.decision.allowed else "denies"
    return f"{asked}; {visible(str(winner))} ({place_of(winner.source.file, winner.source.line, cwd)}) {verb} it"


def _unique(checked: Iterable[Checked]) -> tuple[list[Finding], list[TestOutcome]]:
    """Several files share the layers below them: what was found there is said once."""
    listed = list(checked)
    findings = dict.fromkeys(finding for each in listed for finding in each.findings)
    failures: dict[tuple[Source, str], TestOutcome] = {}
    for each in listed:
        for outcome in each.failures:
            failures.setdefault((outcome.test.source, outcome.access.value), outcome)
    return list(findings), list(failures.values())


def plain_lines(checked: Sequence[Checked], cwd: str) -> list[str]:
    findings, failures = _unique(checked)
    lines = [visible(str(finding)) for finding in findings]
    lines += [f"{outcome.test.source}: test failed: {failure_words(outcome, cwd)}" for outcome in failures]
    return lines + [each.summary for each in checked]


def terminal_lines(checked: Sequence[Checked], cwd: str) -> list[Line]:
    findings, failures = _unique(checked)
    lines: list[Line] = []
    for finding in findings:
        place = "" if finding.source is None else place_of(finding.source.file, finding.source.line, cwd) + "  "
        style = STYLES[finding.severity]
        lines.append([(place, PLACE), (finding.severity.value, style), (f"  {visible(finding.message)}", PLAIN)])
        lines.append([(f"    {visible(finding.remedy)}", DIM)])
    for outcome in failures:
        source = outcome.test.source
        words = failure_words(outcome, cwd)
        lines.append([(place_of(source.file, source.line, cwd), PLACE), ("  test failed  ", BAD), (words, PLAIN)])
    for each in checked:
        lines.append([("✗ " if each.failed else "✓ ", BAD if each.failed else GOOD), (each.summary, PLAIN)])
    return lines


def to_json(checked: Sequence[Checked], unusable: int) -> dict[str, Any]:
    findings, failures = _unique(checked)
    return {
        "version": 1,
        "ok": not unusable and not any(each.failed for each in checked),
        "unusable": unusable,
        "findings": [
            {
                "severity": finding.severity.value,
                "message": finding.message,
                "remedy": finding.remedy,
                "file": None if finding.source is None else finding.source.file,
                "line": None if finding.source is None else finding.source.line,
                "column": None if finding.source is None else finding.source.column,
            }
            for finding in findings
        ],
        "tests": {
            "run": sum(len(each.outcomes) for each in checked),
            "failed": [
                {
                    "profile": outcome.test.profile,
                    "path": outcome.test.path,
                    "access": outcome.access.value,
                    "expected": "allow" if outcome.expected else "deny",
                    "file": outcome.test.source.file,
                    "line": outcome.test.source.line,
                    "problem": outcome.problem,
                }
                for outcome in failures
            ],
        },
    }
