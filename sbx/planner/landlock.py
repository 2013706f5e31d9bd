"""Landlock alone (first cut below)."""

from __future__ import annotations

from sbx.model.plan import Op, Plan
from sbx.model.profile import EffectiveProfile
from sbx.planner.walk import DirectoryReader


def plan_landlock(
    profile: EffectiveProfile, cwd: str, reader: DirectoryReader, specials: tuple[tuple[str, Op], ...]
) -> Plan:
    raise NotImplementedError
