"""Random policies over a small universe of paths, for the tests that compare two opinions on them."""

from __future__ import annotations

from hypothesis import strategies as st

from sbx.model.glob import parse
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

NAMES = ("a", "b", "ab", ".env", "x.env", "c+(d)", 'q"\\')
ROOTS = ("w", "v")
SOURCE = Source("sbx.yaml", 1)

components = st.sampled_from(
    [
        *("a", "b", "ab", ".env", "x.env", "*", "*", "?", "a*", "*.env", "{a,b}", "{a*,x.env}", "[ab]", "[!a]"),
        *("**", "**", "c+(d)", 'q"\\\\', "[.-b]", "[]a]", "?env", "[^]^-]*"),
    ]
)
heads = st.sampled_from(("/w", "/w", "/w", "/v", "", "/*"))


@st.composite
def globs(draw: st.DrawFn) -> str:
    body = draw(st.lists(components, max_size=4))
    kept = [each for index, each in enumerate(body) if not (each == "**" and index and body[index - 1] == "**")]
    head = draw(heads)
    if not kept:
        return head or "/**"
    return f"{head}/{'/'.join(kept)}"


@st.composite
def rules(draw: st.DrawFn, access: Access) -> Rule:
    text = draw(globs())
    patterns = [parse(text)]
    if draw(st.integers(0, 9)) == 0:
        patterns.append(parse(draw(globs())))
    negated = draw(st.booleans())
    return Rule(text, negated, access, Origin.DENY if negated else Origin.PROFILE, SOURCE, tuple(patterns))


@st.composite
def profiles(draw: st.DrawFn) -> EffectiveProfile:
    subtree = Rule("/w/**", False, Access.READ, Origin.PROFILE, SOURCE, (parse("/w/**"),))
    read = draw(st.lists(rules(Access.READ), max_size=5))
    modify = draw(st.lists(rules(Access.MODIFY), max_size=5))
    if draw(st.booleans()):  # the ordinary shape: a workspace, and holes in it
        read.insert(0, subtree)
        modify.insert(0, Rule("/w/**", False, Access.MODIFY, Origin.PROFILE, SOURCE, (parse("/w/**"),)))
    execs = draw(st.none() | st.lists(rules(Access.EXEC), max_size=3).map(tuple))
    return EffectiveProfile("random", "/w", tuple(read), tuple(modify), exec=execs)


paths = st.builds(
    lambda root, names: "/" + "/".join((root, *names)),
    st.sampled_from(ROOTS),
    st.lists(st.sampled_from(NAMES), max_size=4),
)
