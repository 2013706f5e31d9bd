"""What a row hands back: samples per way, and the checks that compare them. Plain values: JSON can carry them."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

# Units in which more is better; their best sample is the largest.
RATES = ("GB/s", "MB/s", "/s")
# They end without waiting for all of their own processes, so that their CPU time is not known.
UNCOUNTED = ("bwrap", "firejail")


@dataclass(frozen=True, slots=True)
class Check:
    """One target: the median of `way`, divided by the median of `reference` unless that is empty, against a bound."""

    what: str
    way: str
    reference: str = ""
    at_most: float | None = None
    at_least: float | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One table of ways measured in turn, in the same rounds."""

    row: str
    title: str
    unit: str
    samples: dict[str, list[float]]
    checks: list[Check] = field(default_factory=list)
    reference: str = ""  # the way that the table's ratios divide by
    commands: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # each with its reason
    cpu_s: dict[str, list[float]] = field(default_factory=dict)
    load: float = 0.0  # of the machine when the section began
    measured: str = ""

    def median(self, way: str) -> float:
        return statistics.median(self.samples[way])

    def best(self, way: str) -> float:
        return max(self.samples[way]) if self.unit in RATES else min(self.samples[way])

    def ratio(self, way: str, reference: str, *, of_best: bool = False) -> float | None:
        if way not in self.samples or reference not in self.samples:
            return None
        value = self.best if of_best else self.median
        return value(way) / value(reference)

    def cpu(self, way: str) -> float | None:
        """The median of the command's CPU time, in seconds, where all of it is known."""
        if way.startswith(UNCOUNTED) or way not in self.cpu_s:
            return None
        return statistics.median(self.cpu_s[way])

    def cpu_ratio(self, way: str, reference: str) -> float | None:
        """Of medians, where both were commands."""
        ours, theirs = self.cpu(way), self.cpu(reference)
        return ours / theirs if ours is not None and theirs else None


def check_value(section: Section, check: Check, *, of_best: bool = False) -> float | None:
    """The number that the target speaks of, or None where a side of it was not measured."""
    if check.way not in section.samples:
        return None
    if not check.reference:
        return section.best(check.way) if of_best else section.median(check.way)
    return section.ratio(check.way, check.reference, of_best=of_best)


def verdict(section: Section, check: Check) -> str:
    value = check_value(section, check)
    if value is None:
        return "not measured"
    if check.at_most is not None and value > check.at_most:
        return "missed"
    if check.at_least is not None and value < check.at_least:
        return "missed"
    return "met"


def to_plain(section: Section) -> dict[str, Any]:
    return asdict(section)


def from_plain(values: dict[str, Any]) -> Section:
    return Section(**{**values, "checks": [Check(**check) for check in values["checks"]]})
