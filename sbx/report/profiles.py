"""The profiles in force, and the effective rules of one, in order, with origin and place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol

from sbx.launch.redact import MASK, is_sensitive
from sbx.model.profile import DEFAULT_GRACE_S, EffectiveProfile, Limits, NetworkMode
from sbx.model.rules import Access, Rule
from sbx.model.source import Source
from sbx.model.units import format_duration, format_size
from sbx.policy.document import Policy, ProfileSource
from sbx.report.text import BAD, DIM, PLACE, PLAIN, STRONG, Line, Span, columns, paragraph
from sbx.report.words import place_of, visible


class Shown(Protocol):
    def plain_lines(self, cwd: str) -> list[str]: ...
    def terminal_lines(self, cwd: str) -> list[Line]: ...
    def to_json(self) -> Any: ...


def listing(policy: Policy) -> Shown:
    return _Listing(tuple(sorted(policy.profiles.values(), key=lambda each: each.name)))


def showing(profile: EffectiveProfile) -> Shown:
    return _Showing(profile)


@dataclass(frozen=True, slots=True)
class _Listing:
    profiles: tuple[ProfileSource, ...]

    def plain_lines(self, cwd: str) -> list[str]:
        return [
            f"{each.name}: {each.layer} ({place_of(each.source.file, each.source.line, cwd)}): {_about(each)}"
            for each in self.profiles
        ]

    def terminal_lines(self, cwd: str) -> list[Line]:
        return columns(
            [
                [(each.name, STRONG), (each.layer, DIM), (_short(each.source, cwd), PLACE), (_about(each), PLAIN)]
                for each in self.profiles
            ]
        )

    def to_json(self) -> Any:
        return [
            {
                "name": each.name,
                "layer": each.layer,
                "file": each.source.file,
                "line": each.source.line,
                "description": each.description,
                "extends": None if each.extends is None else each.extends.text,
            }
            for each in self.profiles
        ]


def _about(profile: ProfileSource) -> str:
    extends = f"extends {profile.extends.text}" if profile.extends is not None else ""
    return visible(profile.description or extends or "no description")


def _short(source: Source, cwd: str) -> str:
    """For people: the place of a shipped file is of no interest beyond its name."""
    file = os.path.basename(source.file) if source.layer == "shipped" else source.file
    return place_of(file, source.line, cwd)


@dataclass(frozen=True, slots=True)
class _Showing:
    profile: EffectiveProfile

    def _lists(self) -> Iterator[tuple[Access, tuple[Rule, ...]]]:
        yield Access.READ, self.profile.read
        yield Access.MODIFY, self.profile.modify
        if self.profile.exec is not None:
            yield Access.EXEC, self.profile.exec

    def _facts(self) -> list[tuple[str, str]]:
        profile = self.profile
        facts = [("workspace", visible(profile.workspace)), ("network", _network(profile))]
        facts += [("environment", text) for text in _environment(profile)]
        facts += [("limits", _limits(profile.limits)), ("require", profile.require.value)]
        if profile.exec is None:
            facts.append(("exec", "whatever may be read"))
        return facts

    def plain_lines(self, cwd: str) -> list[str]:
        profile = self.profile
        where = "" if profile.source is None else f" ({place_of(profile.source.file, profile.source.line, cwd)})"
        lines = [f"profile: {profile.name}{where}"]
        if profile.description:
            lines.append(f"description: {visible(profile.description)}")
        lines += [f"{name}: {text}" for name, text in self._facts()]
        for access, rules in self._lists():
            for rule in rules:
                place = place_of(rule.source.file, rule.source.line, cwd)
                lines.append(f"{access.value}: {visible(str(rule))} ({place}, {rule.origin.value})")
        return lines

    def terminal_lines(self, cwd: str) -> list[Line]:
        profile = self.profile
        where = "" if profile.source is None else f"  {_short(profile.source, cwd)}"
        lines: list[Line] = [[(profile.name, STRONG), (where, PLACE)]]
        if profile.description:
            lines += paragraph("  ", visible(profile.description))
        for name, text in self._facts():
            lines += paragraph(f"  {name:<12}", text)
        for access, rules in self._lists():
            lines += [[], [(access.value, STRONG), ("  the last rule that matches decides", DIM)]]
            rows: list[list[Span]] = []
            for rule in rules:
                style = BAD if rule.negated else PLAIN
                rows.append([(visible(str(rule)), style), (_short(rule.source, cwd), PLACE), (rule.origin.value, DIM)])
            lines += columns(rows, indent="  ")
        return lines

    def to_json(self) -> Any:
        profile = self.profile
        return {
            "name": profile.name,
            "description": profile.description,
            "workspace": profile.workspace,
            "network": {"mode": profile.network.mode.value, "allow": [text for text, _ in profile.network.allow]},
            "environment": {
                "pass": list(profile.env.pass_names),
                "set": {name: _value(profile, name, value) for name, value in profile.env.set_values},
                "secret": list(profile.env.secret),
            },
            "limits": {field.name: getattr(profile.limits, field.name) for field in fields(Limits)},
            "require": profile.require.value,
            "policy_files": list(profile.policy_files),
            **{access.value: [_rule_json(rule) for rule in rules] for access, rules in self._lists()},
        }


def _rule_json(rule: Rule) -> dict[str, Any]:
    return {
        "rule": str(rule),
        "origin": rule.origin.value,
        "file": rule.source.file,
        "line": rule.source.line,
        "column": rule.source.column,
        "layer": rule.source.layer,
    }


def _network(profile: EffectiveProfile) -> str:
    network = profile.network
    if network.mode is NetworkMode.ALLOW:
        return visible(", ".join(text for text, _ in network.allow)) or "none"
    return network.mode.value


def _value(profile: EffectiveProfile, name: str, value: str) -> str:
    return MASK if is_sensitive(name) or name in profile.env.secret else value


def _environment(profile: EffectiveProfile) -> list[str]:
    env = profile.env
    texts = []
    if env.pass_names:
        texts.append(f"passes {visible(', '.join(env.pass_names))}")
    for name, value in env.set_values:
        texts.append(f"sets {visible(name)}={visible(_value(profile, name, value))}")
    if env.secret:
        texts.append(f"passes and masks {visible(', '.join(env.secret))}")
    return texts


def _limits(limits: Limits) -> str:
    texts = []
    for field in fields(Limits):
        value = getattr(limits, field.name)
        if value is None and field.name == "grace_s":
            value = DEFAULT_GRACE_S
        if value is None:
            continue
        name, _, unit = field.name.partition("_")
        text = format_duration(value) if unit == "s" else format_size(value) if unit == "bytes" else str(value)
        texts.append(f"{name} {text}")
    return ", ".join(texts)
