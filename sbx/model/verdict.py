"""The evaluator's core on plain tuples: last match wins, no match is a denial, modify needs read too.

Everything that asks "may it?" ends here: `decide()` with its explanation, the planner's walk, the listener inside the
sandbox. A compiled rule is `(negated, patterns)`, a rule list a tuple of those, and a *judge* is
`(read_rules, modify_rules, exec_rules or None)`: values that `marshal` can store.
"""

from __future__ import annotations

from sbx.model.glob import ANY_DEPTH, EVERYTHING, SOMETHING, match, match_name, reach, states_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    from sbx.model.glob import Pattern

    CompiledRule: TypeAlias = tuple[bool, tuple[Pattern, ...]]
    CompiledRules: TypeAlias = tuple[CompiledRule, ...]
    Judge: TypeAlias = tuple[CompiledRules, CompiledRules, CompiledRules | None]
    ListAnswer: TypeAlias = tuple[int, bool, int, tuple[int, ...]]

READ, MODIFY, EXEC = 0, 1, 2  # positions in a judge


def last_match(rules: CompiledRules, names: Sequence[str]) -> int:
    """The index of the rule that decides, or -1."""
    for index in range(len(rules) - 1, -1, -1):
        for pattern in rules[index][1]:
            if match(pattern, names):
                return index
    return -1


def allows(rules: CompiledRules, names: Sequence[str]) -> bool:
    index = last_match(rules, names)
    return index >= 0 and not rules[index][0]


def may_read(judge: Judge, names: Sequence[str]) -> bool:
    return allows(judge[0], names)


def may_modify(judge: Judge, names: Sequence[str]) -> bool:
    return allows(judge[1], names) and allows(judge[0], names)


def may_exec(judge: Judge, names: Sequence[str]) -> bool:
    return allows(judge[0], names) and (judge[2] is None or allows(judge[2], names))


def _all_matches(rules: CompiledRules, names: Sequence[str]) -> tuple[int, ...]:
    found = []
    for index, (_, patterns) in enumerate(rules):
        for pattern in patterns:
            if match(pattern, names):
                found.append(index)
                break
    return tuple(found)


def consult(judge: Judge, access: int, names: Sequence[str]) -> tuple[ListAnswer, ...]:
    """The verdict with its reasons: for each rule list that is asked (read always, then the access's own) its position
    in the judge, whether it allows, the index of the rule that decided (-1: none matched) and of all that matched."""
    answers: list[ListAnswer] = []
    for position in (READ,) if access == READ else (READ, access):
        rules = judge[position]
        if rules is None:  # no exec rules: whatever may be read may be executed
            continue
        matched = _all_matches(rules, names)
        winner = matched[-1] if matched else -1
        answers.append((position, winner >= 0 and not rules[winner][0], winner, matched))
    return tuple(answers)


# The same verdict for many names of one directory: the rules' derivative by that directory, made once.

if TYPE_CHECKING:
    from sbx.model.glob import Component

    Residue: TypeAlias = tuple[tuple[Component | None, bool], ...]  # (what the name must match, is it allowed)


def residue(rules: CompiledRules, folder: Sequence[str]) -> Residue:
    """What is left of the rules for names directly inside `folder`, strongest first; None matches every name."""
    left: list[tuple[Component | None, bool]] = []
    for negated, patterns in reversed(rules):
        for pattern in patterns:
            states = states_below(pattern, folder)
            size = len(pattern)
            if any(state == size - 1 and pattern[state] == ANY_DEPTH for state in states):
                left.append((None, not negated))
                return tuple(left)
            for state in states:
                if state < size and pattern[state] != ANY_DEPTH and _ends_after(pattern, state):
                    left.append((pattern[state], not negated))
    return tuple(left)


def _ends_after(pattern: Pattern, state: int) -> bool:
    """Does the pattern match a path that ends with the name which `state` matches?"""
    return all(component == ANY_DEPTH for component in pattern[state + 1 :])


def residue_allows(left: Residue, name: str) -> bool:
    return next((allowed for component, allowed in left if component is None or match_name(component, name)), False)


def reaching(rules: CompiledRules, folder: Sequence[str]) -> CompiledRules:
    """The rules that decide anything below `folder`: for whoever asks about many folders in there."""
    kept: list[CompiledRule] = []
    for rule in reversed(rules):
        extents = [reach(pattern, states_below(pattern, folder)) for pattern in rule[1]]
        if any(extents):
            kept.append(rule)
        if EVERYTHING in extents:
            break
    return tuple(reversed(kept))


def uniform_below(rules: CompiledRules, folder: Sequence[str]) -> bool | None:
    """The one verdict for everything below `folder`, or None where it differs from path to path."""
    verdicts = set()
    for negated, patterns in reversed(rules):
        for pattern in patterns:
            extent = reach(pattern, states_below(pattern, folder))
            if extent == EVERYTHING:
                verdicts.add(not negated)
                return verdicts.pop() if len(verdicts) == 1 else None
            if extent == SOMETHING:
                verdicts.add(not negated)
    return None if True in verdicts else False
