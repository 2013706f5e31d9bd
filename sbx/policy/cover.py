"""Does one glob match everything another one matches? Sound, not complete: True is a proof, False may be a miss.

The check walks both patterns side by side. `**` of the wide one absorbs any number of components of the narrow one;
a name or wildcard component must cover its opposite; `**` of the narrow one is covered by a `**` alone. What it does
not see is a cover made of several rules together, except for `{a,b}`, which is split first.
"""

from __future__ import annotations

from itertools import product

from sbx.model.glob import ANY_DEPTH, MANY, match_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sbx.model.glob import Component, Pattern

MAX_SPLIT = 64


def covers(wide: Pattern, narrow: Pattern) -> bool:
    if wide and narrow and isinstance(wide[0], str) and wide[0] != narrow[0]:
        return False  # most pairs differ in their first name
    return _covers(wide, 0, narrow, 0, {})


def _covers(wide: Pattern, at: int, narrow: Pattern, index: int, known: dict[tuple[int, int], bool]) -> bool:
    """Is everything that narrow[index:] matches also matched by wide[at:]?"""
    while at < len(wide) and index < len(narrow):
        if wide[at] == ANY_DEPTH:
            if at == len(wide) - 1:
                return True
            if (at, index) not in known:
                skipped = _covers(wide, at + 1, narrow, index, known)
                known[at, index] = skipped or _covers(wide, at, narrow, index + 1, known)
            return known[at, index]
        if narrow[index] == ANY_DEPTH or not _component_covers(wide[at], narrow[index]):
            return False
        at, index = at + 1, index + 1
    return index == len(narrow) and all(component == ANY_DEPTH for component in wide[at:])


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


def may_meet(one: Pattern, other: Pattern) -> bool:
    """Could some path match both? False is a proof, True may be a miss: two wildcard names are taken to meet."""
    return _may_meet(one, 0, other, 0, {})


def _may_meet(one: Pattern, at: int, other: Pattern, index: int, known: dict[tuple[int, int], bool]) -> bool:
    if at == len(one) or index == len(other):
        return all(component == ANY_DEPTH for component in (*one[at:], *other[index:]))
    if (at, index) not in known:
        left, right = one[at], other[index]
        if left == ANY_DEPTH or right == ANY_DEPTH:
            known[at, index] = _may_meet(one, at + 1, other, index, known) or _may_meet(
                one, at, other, index + 1, known
            )
        elif isinstance(left, str):
            known[at, index] = match_name(right, left) and _may_meet(one, at + 1, other, index + 1, known)
        elif isinstance(right, str):
            known[at, index] = match_name(left, right) and _may_meet(one, at + 1, other, index + 1, known)
        else:
            known[at, index] = _may_meet(one, at + 1, other, index + 1, known)
    return known[at, index]


def covered_by_any(narrow: Pattern, wide: Iterable[Pattern]) -> bool:
    """Is each alternative of `narrow` covered by one of `wide`?"""
    candidates = list(wide)
    for piece in split_alternatives(narrow):
        for each in candidates:
            if covers(each, piece):
                break
        else:
            return False
    return True


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
