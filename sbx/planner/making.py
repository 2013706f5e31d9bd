"""Directories that a modify rule names and that do not exist yet: they are made before the launch."""

from __future__ import annotations

import os

from sbx.model.glob import is_subtree
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Origin
from sbx.planner.states import State
from sbx.planner.walk import DirectoryReader


def join(parent: str, name: str) -> str:
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


class Making:
    """Collects what to make, parents first, and lets the reader treat it as if it were there."""

    def __init__(self, profile: EffectiveProfile, reader: DirectoryReader) -> None:
        self._profile = profile
        self._reader = reader
        self.made: list[str] = []

    def plan_for(self, parent: str, path: str, state: State) -> bool:
        """Plan to make the missing `path` and what leads from it to folders that rules name. False: leave it."""
        if not (parent in self.made or os.access(parent, os.W_OK | os.X_OK)):
            return False
        targets = self._targets(path, state)
        for rest, target in targets:
            self._make(path, rest)
            if target.names.literals or target.names.wildcard:
                # Once it is there, what is in it matters; a folder without exceptions in it needs no second look.
                self._reader.missing.add(path)
            else:
                self._reader.missing.discard(path)
        return bool(targets)

    def _targets(self, path: str, state: State) -> list[tuple[tuple[str, ...], State]]:
        """Folders X of positive modify rules `X/**` at or below `path`, as the names that lead there."""
        depth = len([name for name in path.split("/") if name])
        found: dict[tuple[str, ...], State] = {}
        for number, pattern in state.live(1):
            rule = self._profile.modify[number]
            if rule.negated or rule.origin is Origin.BASELINE or not is_subtree(pattern) or len(pattern) <= depth:
                continue
            rest = tuple(str(name) for name in pattern[depth:-1])
            target = state
            for name in rest:
                target = target.step(name)
            if target.writable:
                found[rest] = target
        return sorted(found.items(), key=lambda item: item[0])

    def _make(self, path: str, rest: tuple[str, ...]) -> None:
        if path not in self.made:
            self.made.append(path)
        self._reader.imagine(path, rest[:1])
        if rest:
            self._make(join(path, rest[0]), rest[1:])
