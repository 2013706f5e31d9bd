"""A command dressed for its sandbox: what to execute, what to add to its environment, what to remove afterwards."""

from __future__ import annotations

from sbx.model.records import dataclass


@dataclass(frozen=True, slots=True)
class WrappedCommand:
    argv: tuple[str, ...]
    env_additions: tuple[tuple[str, str], ...] = ()
    cleanup: tuple[str, ...] = ()  # folders that belong to this run alone
