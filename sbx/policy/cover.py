"""Does one glob match everything another one matches? Sound, not complete: True is a proof, False may be a miss.

The check walks both patterns side by side. `**` of the wide one absorbs any number of components of the narrow one;
a name or wildcard component must cover its opposite; `**` of the narrow one is covered by a `**` alone. What it does
not see is a cover made of several rules together, except for `{a,b}`, which is split first.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product
from typing import TYPE_CHECKING

from sbx.model.glob import ANY_DEPTH, MANY, match_name

if TYPE_CHECKING:
    from sbx.model.glob import Component, Pattern

MAX_SPLIT = 64


def covers(wide: Pattern, narrow: Pattern) -> bool:
    @cache
    def covered(at: int, index: int) -> bool:
        """Is everything that narrow[index:] matches also matched by wide[at:]?"""
        if index == len(narrow):
            return all(component == ANY_DEPTH for component in wide[at:])
        if at == len(wide):
            return False
        if wide[at] == ANY_DEPTH:
            return at == len(wide) - 1 or covered(at + 1, index) or covered(at, index + 1)
        if narrow[index] == ANY_DEPTH:
            return False
        return _component_covers(wide[at], narrow[index]) and covered(at + 1, index + 1)

    return covered(0, 0)


def _component_covers(wide: Component, narrow: Component) -> bool:
    if isinstance(narrow, str):
        return match_name(wide, narrow)
    if not isinstance(wide, tuple) or not isinstance(narrow, tuple):
        return False
    if (MANY,) in wide:
        return True
    for tokens in narrow:
        literal = tokens[0] if len(tokens) == 1 and isinstance(tokens[0], str) else None
        if tokens not in wide and (literal is None or not match_name(wide, literal)):
            return False
    return True


def covered_by_any(narrow: Pattern, wide: Iterable[Pattern]) -> bool:
    """Is each alternative of `narrow` covered by one of `wide`?"""
    candidates = list(wide)
    return all(any(covers(each, piece) for each in candidates) for piece in split_alternatives(narrow))


def split_alternatives(pattern: Pattern) -> list[Pattern]:
    """`x/{a,b}` as `x/a` and `x/b`; a pattern with too many of them stays whole."""
    choices: list[list[Component]] = []
    count = 1
    for component in pattern:
        if isinstance(component, tuple) and len(component) > 1:
            choices.append([_single(tokens) for tokens in component])
        else:
            choices.append([component])
        count *= len(choices[-1])
    if count > MAX_SPLIT:
        return [pattern]
    return [tuple(choice) for choice in product(*choices)]


def _single(tokens: tuple[object, ...]) -> Component:
    if len(tokens) == 1 and isinstance(tokens[0], str):
        return tokens[0]
    return (tokens,)  # type: ignore[return-value]
