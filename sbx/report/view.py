"""A profile as explain needs it: plain tuples that `marshal` can store, so that an unchanged policy explains fast.

Built once from the EffectiveProfile, then loaded again without dataclasses, enum or YAML. The verdict itself comes
from `model.verdict.consult`, as everywhere.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    from sbx.model.plan import Plan
    from sbx.model.profile import EffectiveProfile
    from sbx.model.rules import Rule
    from sbx.model.verdict import Judge
    from sbx.policy.document import Policy

    # text with its sign, negated, origin, file, line, column, layer
    Stored: TypeAlias = tuple[str, bool, str, str, int, int, str]
    # By a rule's access, text and place: how exactly it is enforced (model.guarantee.Exactness), by what, and a note.
    Enforced: TypeAlias = tuple[str, str, str]
    Guarantees: TypeAlias = dict[tuple[str, str, str], Enforced]

FORMAT = 2


class Row:
    """One rule with its place, made from the stored form when it matched something."""

    __slots__ = ("column", "file", "layer", "line", "negated", "origin", "text")

    def __init__(self, stored: Stored) -> None:
        self.text, self.negated, self.origin, self.file, self.line, self.column, self.layer = stored


class View:
    """The rule lists of one profile with their places, and what advice needs to know about the policy."""

    __slots__ = (
        "description",
        "guarantees",
        "home",
        "judge",
        "name",
        "private",
        "profile_place",
        "rows",
        "workspace",
        "workspace_file",
    )

    def __init__(
        self,
        name: str,
        description: str,
        workspace: str,
        home: str,
        profile_place: tuple[str, int, str],  # file, line, layer
        workspace_file: str,
        rows: tuple[tuple[Stored, ...], tuple[Stored, ...], tuple[Stored, ...] | None],
        judge: Judge,
        private: tuple[str, ...],  # folders that the command gets empty and for itself
        guarantees: Guarantees,  # of this machine; none for rules that come with sbx
    ) -> None:
        self.name = name
        self.description = description
        self.workspace = workspace
        self.home = home
        self.profile_place = profile_place
        self.workspace_file = workspace_file
        self.rows = rows
        self.judge = judge
        self.private = private
        self.guarantees = guarantees

    def entry(self) -> dict[str, Any]:
        return {"format": FORMAT, **{name: getattr(self, name) for name in self.__slots__}}


def from_entry(entry: dict[str, Any]) -> View | None:
    """The stored view, or None for one that another version wrote."""
    if entry.get("format") != FORMAT:
        return None
    return View(**{name: value for name, value in entry.items() if name != "format"})


def view_of(profile: EffectiveProfile, policy: Policy, plan: Plan | None = None) -> View:
    """With a plan, the view also knows how exactly each rule is enforced."""

    def row(rule: Rule) -> Stored:
        source = rule.source
        place = (source.file, source.line, source.column, source.layer)
        return (str(rule), rule.negated, rule.origin.value, *place)

    source = profile.source
    return View(
        name=profile.name,
        description=profile.description,
        workspace=profile.workspace,
        home=dict(profile.variables).get("HOME") or "",
        profile_place=("", 0, "") if source is None else (source.file, source.line, source.layer),
        workspace_file=policy.workspace_file or "",
        rows=(
            tuple(map(row, profile.read)),
            tuple(map(row, profile.modify)),
            None if profile.exec is None else tuple(map(row, profile.exec)),
        ),
        judge=profile.judge,
        private=policy.baseline_specials.tmpfs,
        guarantees={
            (each.access, each.rule, each.place): (each.exactness.value, each.mechanism, each.note)
            for each in (() if plan is None else plan.guarantees)
        },
    )
