"""decide() against a naive last-match-wins model that shares no code with it."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from sbx.model.decide import decide_location
from sbx.model.glob import parse
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

NAMES = ["a", "b", "ab", "src", "x.env", ".git"]
PIECES = st.sampled_from([*NAMES, "*", "**", "a*", "*.env", "?", "[ab]", "{a,src}", "[!a]"])
TEXTS = st.lists(PIECES, min_size=1, max_size=4).map(lambda pieces: "/" + "/".join(pieces))
SIGNED = st.tuples(st.booleans(), TEXTS)
LISTS = st.lists(SIGNED, max_size=8)
PATHS = st.lists(st.sampled_from(NAMES), max_size=5).map(lambda names: "/" + "/".join(names))
FRAGMENTS = {"*": "[^/]*", "a*": "a[^/]*", "*.env": "[^/]*\\.env", "?": "[^/]", "[ab]": "[ab]",
             "{a,src}": "(?:a|src)", "[!a]": "[^a/]"}  # fmt: skip


def naive_verdict(rules: list[tuple[bool, str]], path: str) -> bool:
    """Read top to bottom and let every match overwrite the verdict."""
    verdict = False
    for negated, text in rules:
        source = ""
        for piece in text.split("/")[1:]:
            source += "(?:/[^/]+)*" if piece == "**" else "/" + FRAGMENTS.get(piece, re.escape(piece))
        if re.fullmatch(source, path.rstrip("/")):
            verdict = not negated
    return verdict


def rules(texts: list[tuple[bool, str]], access: Access) -> tuple[Rule, ...]:
    return tuple(
        Rule(text, negated, access, Origin.PROFILE, Source("policy.yaml", line + 1, 1), (parse(text),))
        for line, (negated, text) in enumerate(texts)
    )


def profile(
    read: list[tuple[bool, str]], modify: list[tuple[bool, str]], execute: list[tuple[bool, str]] | None
) -> EffectiveProfile:
    listed = None if execute is None else rules(execute, Access.EXEC)
    return EffectiveProfile("p", "/a", rules(read, Access.READ), rules(modify, Access.MODIFY), listed)


@settings(max_examples=2500)
@given(LISTS, LISTS, st.none() | LISTS, PATHS)
def test_no_disagreement_with_the_naive_model(
    read: list[tuple[bool, str]], modify: list[tuple[bool, str]], execute: list[tuple[bool, str]] | None, path: str
) -> None:
    subject = profile(read, modify, execute)
    readable = naive_verdict(read, path)
    assert decide_location(subject, path, Access.READ).allowed == readable
    assert decide_location(subject, path, Access.MODIFY).allowed == (readable and naive_verdict(modify, path))
    executable = readable and (execute is None or naive_verdict(execute, path))
    assert decide_location(subject, path, Access.EXEC).allowed == executable


@settings(max_examples=600)
@given(LISTS, LISTS, PATHS)
def test_the_explanation_fits_the_verdict(
    read: list[tuple[bool, str]], modify: list[tuple[bool, str]], path: str
) -> None:
    decision = decide_location(profile(read, modify, None), path, Access.MODIFY)
    assert [verdict.access for verdict in decision.lists] == [Access.READ, Access.MODIFY]
    for verdict in decision.lists:
        assert verdict.winner == (verdict.matches[-1] if verdict.matches else None)
        assert verdict.allowed == (verdict.winner is not None and not verdict.winner.negated)
    assert decision.allowed == all(verdict.allowed for verdict in decision.lists)
    assert decision.allowed == (decision.failed is None)


@settings(max_examples=600)
@given(LISTS, PATHS, TEXTS)
def test_a_deny_at_the_end_can_only_take_away(read: list[tuple[bool, str]], path: str, text: str) -> None:
    before = decide_location(profile(read, [], None), path, Access.READ).allowed
    after = decide_location(profile([*read, (True, text)], [], None), path, Access.READ).allowed
    assert before or not after
