"""Random trees and rules, shared by the property tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

from hypothesis import strategies as st

from sbx.model.glob import escape

NAMES = ("a", "b", "c", "x.env", "y.env", ".h", "with space", "new\nline", os.fsdecode(b"\xff\xfe"))
TREES = st.recursive(
    st.sampled_from(["file", "link"]),
    lambda inner: st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=14,
).filter(lambda tree: isinstance(tree, dict))
INNER = {"a": "file", "b": {"a": "file", "x.env": "file"}, "x.env": "file", ".h": "link"}
FULL = {"a": {"a": INNER, "b": INNER, "c": "file"}, "b": INNER, "c": {}, "x.env": "file", "y.env": INNER, ".h": "link"}
COMPONENTS = st.one_of(
    st.sampled_from(["a", "b", "c", "x.env", "nowhere", ".h"]),
    st.sampled_from(["a", "b", "**", "**", "*", "*.env", "[!.]*", "?", "{a,b}", "[a-b]*"]),
    st.sampled_from([escape(name) for name in NAMES]),
)
RULES = st.builds(
    lambda negated, components, tail: ("!" if negated else "") + "/".join([".", *components, *tail]),
    st.booleans(),
    st.lists(COMPONENTS, min_size=0, max_size=2),
    st.sampled_from([["**"], ["**"], ["a"], ["*.env"], ["*"], ["b"]]),
)
LISTS = st.lists(st.one_of(RULES, st.sampled_from(["!**/x.env", "!**/*.env"])), max_size=4)


def grow(path: str, tree: object) -> None:
    if isinstance(tree, dict):
        os.mkdir(path)
        for name, inner in tree.items():
            grow(os.path.join(path, name), inner)
    elif tree == "link":
        os.symlink("../a", path)
    else:
        with open(path, "wb"):
            pass


def everything_below(path: str) -> Iterator[str]:
    yield path
    if os.path.isdir(path) and not os.path.islink(path):
        for name in sorted(os.listdir(path)):
            yield from everything_below(os.path.join(path, name))
