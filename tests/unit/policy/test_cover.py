"""covers() and may_meet() against match(): a proof must be one."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from sbx.model.glob import match, parse
from sbx.policy.cover import covered_by_any, covers, may_meet, split_alternatives

PIECES = st.sampled_from(["a", "b", "ab", "*", "**", "a*", "*b", "?", "[ab]", "{a,b}", "{ab,?}"])
PATTERNS = st.lists(PIECES, max_size=4).map(lambda pieces: parse("/" + "/".join(pieces)))
NAMES = ["a", "b", "ab", "c", "ba"]
PATHS = [names for size in range(4) for names in itertools.product(NAMES, repeat=size)]


@settings(max_examples=500)
@given(PATTERNS, PATTERNS)
def test_what_covers_matches_all_the_other_matches(wide, narrow) -> None:
    if covers(wide, narrow):
        assert all(match(wide, path) for path in PATHS if match(narrow, path))


@settings(max_examples=300)
@given(PATTERNS, st.lists(PATTERNS, max_size=3))
def test_a_cover_of_alternatives_is_one_too(narrow, wide) -> None:
    if covered_by_any(narrow, wide):
        assert all(any(match(each, path) for each in wide) for path in PATHS if match(narrow, path))


@settings(max_examples=500)
@given(PATTERNS, PATTERNS)
def test_what_cannot_meet_does_not(one, other) -> None:
    if not may_meet(one, other):
        assert not any(match(one, path) and match(other, path) for path in PATHS)


@settings(max_examples=200)
@given(PATTERNS)
def test_splitting_keeps_the_meaning(pattern) -> None:
    pieces = split_alternatives(pattern)
    for path in PATHS:
        assert match(pattern, path) == any(match(piece, path) for piece in pieces)


def test_every_pattern_covers_itself() -> None:
    for text in ("/a", "/a/**", "/*.o", "/{a,b}/c", "/**/x", "/[ab]*", "/", "/**"):
        assert covers(parse(text), parse(text)), text
