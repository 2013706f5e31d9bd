"""Which folders must not be renamed, so that no denied path changes its name: pure questions about patterns."""

from __future__ import annotations

from sbx.model.glob import ANY_DEPTH, MANY, is_exact, match, match_name
from sbx.model.records import dataclass
from sbx.model.rules import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sbx.model.glob import Component, Pattern

_ANY_NAME: Component = ((MANY,),)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A folder, or a set of folders, above a denied path."""

    pattern: Pattern
    named: bool  # literal names only: what matches can be nothing but that folder
    region: bool  # everything below a fixed part, because the rule goes on with `**`

    @property
    def guard_creation(self) -> bool:
        """May its creation be denied? Only for a fixed last name: a wildcard would forbid every new folder."""
        return not self.region and isinstance(self.pattern[-1], str)


def ancestors(rule: Rule, modifiable: Sequence[Pattern], *, fold: bool) -> Iterable[Ancestor]:
    """The folders above what `rule` denies, as far as one of the `modifiable` patterns could reach them."""
    for pattern in rule.patterns:
        for size in range(1, len(pattern)):
            prefix = pattern[:size]
            if prefix == (ANY_DEPTH,):
                continue  # a rule for names anywhere holds wherever the folder goes
            region = prefix[-1] == ANY_DEPTH
            named = is_exact(prefix)
            if any(_reaches(other, prefix, named, fold) for other in modifiable):
                yield Ancestor(prefix, named, region)
            if region and prefix[0] != ANY_DEPTH:
                break  # all folders below are in it


def may_overlap(one: Pattern, other: Pattern, *, fold: bool) -> bool:
    """Could some path match both? Errs on the side of yes; compares names up to the first `**`."""
    for mine, its in zip(one, other, strict=False):
        if mine == ANY_DEPTH or its == ANY_DEPTH:
            return True
        if not _names_meet(mine, its, fold):
            return False
    longer = one if len(one) > len(other) else other
    return all(component == ANY_DEPTH for component in longer[min(len(one), len(other)) :])


def _names_meet(one: Component, other: Component, fold: bool) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return one.lower() == other.lower() if fold else one == other
    if fold:
        return True  # a class or a star that knows only one spelling: no need to be clever
    if isinstance(one, str):
        return match_name(other, one)
    return match_name(one, other) if isinstance(other, str) else True


def covered(pattern: Pattern, by: Sequence[Pattern]) -> bool:
    """Is everything that `pattern` matches surely matched by one of `by`? Errs on the side of no."""
    return any(
        pattern == other or (other[-1:] == (ANY_DEPTH,) and pattern[: len(other) - 1] == other[:-1]) for other in by
    )


def needs_renaming_guard(modify: Sequence[Rule], rules: Sequence[Rule]) -> bool:
    """Could a modifiable folder hold paths that `rules` deny by default? Not if a subtree rule allows all below it."""
    whole = [p for rule in rules if not rule.negated for p in rule.patterns if p[-1:] == (ANY_DEPTH,)]
    asked = [p for rule in modify if not rule.negated for p in rule.patterns if p[:1] != ("dev",)]  # nodes, no folders
    return not all(covered(pattern, whole) for pattern in asked)


def _reaches(modifiable: Pattern, prefix: Pattern, named: bool, fold: bool) -> bool:
    if not named:
        return may_overlap(modifiable, prefix, fold=fold)
    names = [str(name) for name in prefix]
    if not fold:
        return match(modifiable, names)
    folded = tuple(
        each.lower() if isinstance(each, str) else (each if each == ANY_DEPTH else _ANY_NAME) for each in modifiable
    )
    return match(folded, [name.lower() for name in names])
