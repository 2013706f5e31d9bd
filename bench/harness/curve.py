"""Growth: a curve in the table, and a check that it is linear or better."""

from __future__ import annotations

import dataclasses
import math
import re

from harness.record import Check, Section

# 1 is linear. A little more is what caches that no longer fit do to any program.
LINEAR = 1.1


def point(count: int, what: str) -> str:
    return f"{count} {what}"


def growth_check(section: Section, what: str) -> Section:
    """Checks the whole curve and its last step: a large constant at the start hides a steep end from the former."""
    ways = list(section.samples)
    spans = [(ways[0], ways[-1])] + ([(ways[-2], ways[-1])] if len(ways) > 2 else [])
    checks, notes = [], []
    for first, last in spans:
        growth = count(last) / count(first)
        exponent = math.log(section.best(last) / section.best(first)) / math.log(growth)
        notes.append(f"Time grows as n^{exponent:.2f} from {first} to {last} (by the best rounds; 1 is linear).")
        checks.append(Check(f"{what}: linear or better", last, first, at_most=round(growth**LINEAR, 1)))
    return dataclasses.replace(section, checks=checks, notes=[*section.notes, *notes])


def count(way: str) -> int:
    return int(re.sub(r"\D.*", "", way))
