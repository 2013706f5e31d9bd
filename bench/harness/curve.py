"""Growth: a curve in the table, and a check that it is linear or better."""

from __future__ import annotations

import dataclasses
import math
import re

from harness.record import Check, Section

GROWTH = "growth: exponent from first to last"
# 1 is linear. A little more is what caches that no longer fit do to any program.
LINEAR = 1.1


def point(count: int, what: str) -> str:
    return f"{count} {what}"


def growth_check(section: Section, what: str) -> Section:
    """Adds the exponent e of time ~ n^e between the first and the last point, as a way of its own section's notes."""
    ways = list(section.samples)
    first, last = (int(re.sub(r"\D.*", "", way)) for way in (ways[0], ways[-1]))
    exponent = math.log(section.best(ways[-1]) / section.best(ways[0])) / math.log(last / first)
    note = f"Time grows as n^{exponent:.2f} from {ways[0]} to {ways[-1]} (by the minima; 1 is linear)."
    times = (last / first) ** LINEAR
    return dataclasses.replace(
        section,
        checks=[Check(f"{what}: linear or better", ways[-1], ways[0], at_most=round(times))],
        notes=[*section.notes, note],
    )
