"""Effective profiles built by hand: rules as people write them, anchored at a workspace."""

from __future__ import annotations

from collections.abc import Sequence

from sbx.model.glob import escape, parse
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source


def rule(text: str, access: Access, workspace: str, line: int, origin: Origin = Origin.PROFILE) -> Rule:
    negated = text.startswith("!")
    body = text[1:] if negated else text
    absolute = body if body.startswith(("/", "**/")) else f"{escape(workspace)}/{body}"
    return Rule(body, negated, access, origin, Source("policy.yaml", line), (parse(absolute),))


def profile(
    workspace: str,
    read: Sequence[str],
    modify: Sequence[str] = (),
    execute: Sequence[str] | None = None,
    *,
    baseline: Sequence[str] = (),
    baseline_modify: Sequence[str] = (),
    resolved: tuple[tuple[str, str], ...] = (),
) -> EffectiveProfile:
    def rules(texts: Sequence[str], access: Access, first: int, origin: Origin = Origin.PROFILE) -> tuple[Rule, ...]:
        return tuple(rule(text, access, workspace, first + number, origin) for number, text in enumerate(texts))

    return EffectiveProfile(
        name="test",
        workspace=workspace,
        read=rules(baseline, Access.READ, 1, Origin.BASELINE) + rules(read, Access.READ, 100),
        modify=rules(baseline_modify, Access.MODIFY, 1, Origin.BASELINE) + rules(modify, Access.MODIFY, 200),
        exec=None if execute is None else rules(execute, Access.EXEC, 300),
        resolved=resolved,
    )
