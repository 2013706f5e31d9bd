"""Globs against an independent model: the same pattern translated to a regular expression."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbx.model.glob import (
    ANY_DEPTH,
    EVERYTHING,
    NOTHING,
    BadGlob,
    escape,
    match,
    parse,
    reach,
    split_path,
    states_below,
)

NAMES = st.sampled_from(["a", "b", "ab", "abc", "c", "x.env", ".env", "a b", "é", "A", "-", "^", "a*"])
PATHS = st.lists(NAMES, max_size=6).map(lambda names: "/" + "/".join(names))
LITERALS = NAMES.map(escape)
WILD = st.sampled_from(
    ["*", "?", "a*", "*b", "*.env", "?b", "a?", "[ab]", "[!a]", "[a-c]", "[^b-z]*", "{a,b}", "{a,b}c", "x{,.env}",
     "{a*,?}", "a{b,bc}", "{a,{b,c}}", "[-]", "[]a]", "[a-]", "\\*", "\\a", "*a*", "**"]
)  # fmt: skip
PATTERNS = st.lists(st.one_of(LITERALS, WILD), min_size=1, max_size=6).map(lambda pieces: "/" + "/".join(pieces))


def as_regex(text: str) -> re.Pattern[str]:
    """The documented meaning of a glob, written down a second time and in another way."""
    source = ""
    for piece in text.split("/")[1:]:
        source += "(?:/[^/]+)*" if piece == "**" else "/" + piece_regex(piece)
    return re.compile(source, re.DOTALL)


def piece_regex(piece: str) -> str:
    out, rest = "", piece
    while rest:
        char, rest = rest[0], rest[1:]
        if char == "\\":
            out, rest = out + re.escape(rest[0]), rest[1:]
        elif char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[":
            end = rest.index("]", 2 if rest[0] in "!^" else 1)
            body, rest = rest[:end], rest[end + 1 :]
            negated, body = (True, body[1:]) if body[0] in "!^" else (False, body)
            inner = body.replace("]", "\\]").replace("^", "\\^")
            out += f"[^{inner}/]" if negated else f"[{inner}]"
        elif char == "{":
            depth, index = 1, 0
            while depth:
                depth += {"{": 1, "}": -1}.get(rest[index], 0)
                index += 1
            body, rest = rest[: index - 1], rest[index:]
            out += "(?:" + "|".join(piece_regex(part) for part in split_commas(body)) + ")"
        else:
            out += re.escape(char)
    return out


def split_commas(body: str) -> list[str]:
    parts, depth = [""], 0
    for char in body:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@settings(max_examples=3000)
@given(PATTERNS, PATHS)
def test_match_agrees_with_a_regular_expression(text: str, path: str) -> None:
    subject = "" if path == "/" else path
    assert match(parse(text), split_path(path)) == bool(as_regex(text).fullmatch(subject))


@settings(max_examples=1000)
@given(PATTERNS, PATHS, st.lists(NAMES, min_size=1, max_size=3))
def test_what_is_below_agrees_with_match(text: str, path: str, below: list[str]) -> None:
    """The planner's question, "can it still match below?", is never answered against match()."""
    pattern, names = parse(text), split_path(path)
    answer = reach(pattern, states_below(pattern, names))
    matches = match(pattern, (*names, *below))
    assert not (answer == NOTHING and matches)
    assert not (answer == EVERYTHING and not matches)


@given(st.text(alphabet="ab*?[]{}\\!,$~. -", min_size=1).filter(lambda name: name not in (".", "..")))
def test_an_escaped_name_matches_itself_and_nothing_near(name: str) -> None:
    pattern = parse("/" + escape(name))
    assert match(pattern, (name,))
    assert not match(pattern, (name + "x",))
    assert not match(pattern, ("x" + name,))
    assert not match(pattern, (name, name))


@settings(max_examples=500)
@given(st.text(alphabet="ab/*?[]{}\\!,-^.", max_size=12))
def test_any_text_is_a_pattern_or_a_clear_error(text: str) -> None:
    try:
        pattern = parse("/" + text)
    except BadGlob as bad:
        assert str(bad)
        assert "\n" not in str(bad)
        return
    match(pattern, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        ("/home/**", "/home", True),
        ("/home/**", "/homework", False),
        ("/home/**", "/home/a/b", True),
        ("/home", "/home/a", False),
        ("/home/*", "/home", False),
        ("/home/*", "/home/a/b", False),
        ("**/x", "/x", True),
        ("**/x", "/a/b/x", True),
        ("**/x", "/a/bx", False),
        ("/a/**/b/**/c", "/a/b/c", True),
        ("/a/**/b/**/c", "/a/1/b/2/3/c", True),
        ("/a/**/b/**/c", "/a/c/b", False),
        ("/**", "/", True),
        ("/", "/", True),
        ("/", "/a", False),
        ("/.*", "/.git", True),
        ("/*", "/.git", True),  # a leading dot is a character like any other
        ("/[a-c]x", "/bx", True),
        ("/[!a-c]x", "/bx", False),
        ("/{a,b}/c", "/b/c", True),
        ("/{a,b}/c", "/a,b/c", False),
        ("/a\\*", "/a*", True),
        ("/a\\*", "/ab", False),
    ],
)
def test_the_documented_examples(text: str, path: str, expected: bool) -> None:
    assert match(parse(text), split_path(path)) is expected


@pytest.mark.parametrize(
    "text",
    ["/a**", "/**a", "/a/***", "/[a", "/{a", "/a}", "/{a,}", "/\\", "/a\\/b", "/[z-a]", "/a/*/..", "/a\0b",
     "/" + "{a,b}" * 9, "/" + "{" * 40 + "a" + "}" * 40, "/" + "{a}" * 500]
)  # fmt: skip
def test_what_is_no_glob_is_refused_in_words(text: str) -> None:
    with pytest.raises(BadGlob) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_many_double_stars_cost_no_more_than_pattern_times_path() -> None:
    """Nested backtracking over these would not end in a lifetime."""
    pattern = parse("/" + "**/a/" * 30 + "b")
    assert not match(pattern, ("a",) * 200)
    assert pattern.count(ANY_DEPTH) == 30
