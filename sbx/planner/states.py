"""Where a walk stands in every rule at once: the rules' patterns as one lazily built automaton.

A `State` belongs to one location. It knows the verdict there, what a name that no rule spells out would get below, and
at which names below the verdict could differ. States are shared: a tree of 100,000 files meets a handful of them.

The verdicts are those of `sbx.model.verdict` (last match wins, no match is a denial); the property tests hold the two
against each other on every path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from sbx.model.glob import ANY_DEPTH, EVERYTHING, MANY, NOTHING, match_name, reach, states_below, step
from sbx.model.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from sbx.model.glob import Component, Pattern
    from sbx.model.verdict import CompiledRules

HIDDEN, READABLE, MODIFIABLE = 0, 1, 2

MAX_TELLING = 32  # alternatives of one search: each costs at every character
FEW_NAMES = 200  # which are told apart one by one: compiling a search costs more

# Stands for "a name that nobody wrote down": what `**`, `*` and `[!.]*` match, and `*.c`, `a*` and `??` do not.
ANY_NAME = "\0" * 64


@dataclass(frozen=True, slots=True)
class Continuation:
    """A rule that could change the verdict below: the component its next name has to match."""

    rule: int  # index in the profile's list of its access
    negated: bool
    component: Component

    @property
    def names(self) -> tuple[str, ...]:
        """The names it spells out; none for a wildcard."""
        return spelled(self.component)


@dataclass(frozen=True, slots=True)
class Below:
    """What one access gets below a directory: the verdict of the last rule that covers all of it, and who differs."""

    allowed: bool
    continuations: tuple[Continuation, ...]


Live = tuple[tuple[int, tuple[int, ...]], ...]  # of each pattern that may still match: its number, its positions


@dataclass(frozen=True, slots=True)
class _Tracked:
    access: int
    channel: int
    rule: int
    negated: bool
    pattern: Pattern


Known = dict[tuple[int, int, int], tuple["CompiledRules", list[_Tracked]]]  # the list is kept: its id stays its own


def _track(access: int, channel: int, rules: CompiledRules) -> list[_Tracked]:
    return [
        _Tracked(access, channel, index, negated, pattern)
        for index, (negated, patterns) in enumerate(rules)
        for pattern in patterns
    ]


class Automaton:
    """The rule lists of one region. An access may have several lists ("channels"): all of them must allow."""

    def __init__(
        self,
        read: Sequence[CompiledRules],
        modify: Sequence[CompiledRules],
        execute: Sequence[CompiledRules],
        known: Known | None = None,
    ) -> None:
        """`known`: what other automatons over some of the same lists have made of them already."""
        known = {} if known is None else known
        self.channels = (len(read), len(modify), len(execute))
        self.tracked: list[_Tracked] = []
        for access, lists in enumerate((read, modify, execute)):
            for channel, rules in enumerate(lists):
                key = (access, channel, id(rules))
                if key not in known:
                    known[key] = (rules, _track(access, channel, rules))
                self.tracked += known[key][1]
        self._states: dict[Live, State] = {}

    def at(self, names: Sequence[str]) -> State:
        live = ((number, states_below(each.pattern, names)) for number, each in enumerate(self.tracked))
        return self.intern(tuple(pair for pair in live if pair[1]))

    def intern(self, live: Live) -> State:
        state = self._states.get(live)
        if state is None:
            state = self._states[live] = State(self, live)
        return state


class State:
    """One location's standing. Everything is computed once per state, most of it on first use."""

    __slots__ = (
        "_automaton", "_below_all", "_generic", "_live", "_moves", "_names", "_spelling", "_steps", "exec", "verdict",
        "winners",
    )  # fmt: skip

    def __init__(self, automaton: Automaton, live: Live) -> None:
        self._automaton = automaton
        self._live = live
        self._steps: dict[object, State] = {}
        self._moves: _Moves | None = None
        self._names: _Names | None = None
        self._spelling: dict[str, list[tuple[int, Continuation]]] | None = None  # see spelling()
        self._generic: Generic | None = None
        # (access, channel) -> the index of the rule that decides here, or -1
        self.winners = self._winners()
        read, modify, execute = (self._allowed(access) for access in range(3))
        self.verdict = HIDDEN if not read else MODIFIABLE if modify else READABLE
        self.exec = read and execute
        self._below_all: tuple[Below, Below, Below] | None = None

    @property
    def below(self) -> tuple[Below, Below, Below]:
        """By access. On first use: of names that are not there only the verdict is asked."""
        if self._below_all is None:
            self._below_all = (self._below(0), self._below(1), self._below(2))
        return self._below_all

    def _winners(self) -> dict[tuple[int, int], tuple[int, bool]]:
        winners: dict[tuple[int, int], tuple[int, bool]] = {}
        for number, states in self._live:
            each = self._automaton.tracked[number]
            if len(each.pattern) in states:
                key = (each.access, each.channel)
                if each.rule >= winners.get(key, (-1, True))[0]:
                    winners[key] = (each.rule, not each.negated)
        return winners

    def _allowed(self, access: int) -> bool:
        count = self._automaton.channels[access]
        return all(self.winners.get((access, channel), (-1, False))[1] for channel in range(count))

    @property
    def listed(self) -> bool:
        """Does the profile's own read list allow this location, whatever a private region makes of it?"""
        return self.winners.get((0, 0), (-1, False))[1]

    def winner(self, access: int) -> int:
        """The index of the rule of the profile's own list that decides here, or -1."""
        return self.winners.get((access, 0), (-1, False))[0]

    def _below(self, access: int) -> Below:
        """All channels must allow. Where one denies everything but its own exceptions, only those can matter."""
        channels = [self._channel_below(access, channel) for channel in range(self._automaton.channels[access])]
        denying = [below for below in channels if not below.allowed]
        if denying:
            return min(denying, key=lambda below: (_has_wildcard(below), len(below.continuations)))
        return Below(True, tuple(each for below in channels for each in below.continuations))

    def _channel_below(self, access: int, channel: int) -> Below:
        cover, allowed = -1, False
        alive: list[tuple[_Tracked, tuple[int, ...]]] = []
        for number, states in self._live:
            each = self._automaton.tracked[number]
            if (each.access, each.channel) != (access, channel):
                continue
            extent = reach(each.pattern, states)
            if extent == EVERYTHING:
                if each.rule >= cover:
                    cover, allowed = each.rule, not each.negated
            elif extent != NOTHING:
                alive.append((each, states))
        continuations = [
            Continuation(each.rule, each.negated, each.pattern[state])
            for each, states in alive
            if each.rule > cover and each.negated == allowed
            for state in states
            if state < len(each.pattern)
        ]
        return Below(allowed, tuple(continuations))

    def continuations(self) -> Iterator[Continuation]:
        """The rules that could make a verdict below differ from what an unnamed child gets."""
        read, modify, execute = self.below
        yield from read.continuations
        if read.allowed:
            yield from modify.continuations
            yield from execute.continuations

    def spelling(self, name: str) -> list[tuple[int, Continuation]]:
        """The rules, with their access, that could change the verdict at just this name."""
        if self._spelling is None:
            self._spelling = {}
            for access, below in enumerate(self.below):
                for each in below.continuations:
                    for spelled_out in each.names:
                        self._spelling.setdefault(spelled_out, []).append((access, each))
        return self._spelling.get(name, [])

    def live(self, access: int) -> Iterator[tuple[int, Pattern]]:
        """The rules of one access, by index, that match here or may match below, with the pattern that does."""
        for number, _ in self._live:
            each = self._automaton.tracked[number]
            if (each.access, each.channel) == (access, 0):
                yield each.rule, each.pattern

    @property
    def names(self) -> _Names:
        if self._names is None:
            live = (
                self._automaton.tracked[number].pattern[state]
                for number, states in self._live
                for state in states
                if state < len(self._automaton.tracked[number].pattern)
            )
            self._names = _Names(tuple(self.continuations()), tuple(dict.fromkeys(live)))
        return self._names

    def step(self, name: str) -> State:
        """The state of the entry `name` of this directory."""
        key = self.names.key(name)
        state = self._steps.get(key)
        if state is None:
            state = self._steps[key] = self._automaton.intern(self._after(name))
        return state

    def _after(self, name: str) -> Live:
        """The positions after one more name. Of many rules few know it: the others move as they do for every name."""
        if self._moves is None:
            self._moves = _Moves(self._automaton.tracked, self._live)
        return self._moves.after(name)

    @property
    def writable(self) -> bool:
        """May this directory, and whatever could be made in it at any depth, be modified?"""
        return self.verdict == MODIFIABLE and self.generic.all_modifiable

    @property
    def generic(self) -> Generic:
        """What names that no rule spells out get, at every depth below."""
        if self._generic is None:
            child = state = self.step(ANY_NAME)
            seen: dict[int, State] = {}
            while id(state) not in seen:
                seen[id(state)] = state
                state = state.step(ANY_NAME)
            depths = seen.values()
            self._generic = Generic(
                child.verdict,
                child.exec,
                all(each.verdict != HIDDEN for each in depths),
                all(each.verdict == MODIFIABLE for each in depths),
                all(each.exec for each in depths),
            )
        return self._generic


@dataclass(frozen=True, slots=True)
class Generic:
    verdict: int  # of an unnamed child
    exec: bool
    all_readable: bool  # at every depth
    all_modifiable: bool
    all_exec: bool


class _Moves:
    """Where the patterns of a state are after one more name."""

    __slots__ = ("_always", "_by_name", "_live", "_tracked", "_usual")

    def __init__(self, tracked: list[_Tracked], live: Live) -> None:
        self._tracked, self._live = tracked, live
        self._always: list[int] = []  # places in `live` where every name has to be matched: wildcards
        self._by_name: dict[str, list[int]] = {}  # those that move otherwise at this name
        self._usual: dict[int, tuple[int, tuple[int, ...]]] = {}  # place -> after a name that is not spelled out
        for place, (number, states) in enumerate(live):
            pattern = tracked[number].pattern
            components = [pattern[state] for state in states if state < len(pattern)]
            names = [spelled(component) for component in components if component != ANY_DEPTH]
            if not all(names):
                self._always.append(place)
                continue
            for name in dict.fromkeys(name for each in names for name in each):
                self._by_name.setdefault(name, []).append(place)
            if len(names) < len(components):  # `**` stays where it is at every name, what is spelled out ends
                self._move(self._usual, place, ANY_NAME)

    def after(self, name: str) -> Live:
        others = [*self._always, *self._by_name.get(name, ())]
        if not others:
            return tuple(self._usual.values())
        moved = self._usual.copy()
        for place in others:
            moved.pop(place, None)
            self._move(moved, place, name)
        return tuple(moved[place] for place in sorted(moved))

    def _move(self, moved: dict[int, tuple[int, tuple[int, ...]]], place: int, name: str) -> None:
        number, states = self._live[place]
        after = step(self._tracked[number].pattern, states, name)
        if after:
            moved[place] = (number, tuple(sorted(after)))


class _Names:
    """Sorts names by which components they match, so that most names share one lookup."""

    __slots__ = ("_literals", "_others", "_prefixes", "_suffixes", "_telling", "_wild", "literals", "wildcard")

    def __init__(self, continuations: tuple[Continuation, ...], live: tuple[Component, ...]) -> None:
        self.literals = frozenset(name for each in continuations for name in each.names)
        self.wildcard = any(not each.names for each in continuations)
        self._literals = frozenset(name for component in live for name in spelled(component))
        wild = (component for component in live if isinstance(component, tuple) and not spelled(component))
        self._wild = tuple(component for component in wild if not _is_star(component))
        prefixes: list[str] = []
        suffixes: list[str] = []
        others: list[Component] = []
        for tokens in (tokens for component in self._wild for tokens in component):
            if len(tokens) == 2 and _is_many(tokens[0]) and isinstance(tokens[1], str):
                suffixes.append(tokens[1])
            elif len(tokens) == 2 and _is_many(tokens[1]) and isinstance(tokens[0], str):
                prefixes.append(tokens[0])
            else:
                others.append((tokens,))
        self._prefixes, self._suffixes, self._others = tuple(prefixes), tuple(suffixes), tuple(others)
        self._telling: re.Pattern[str] | None = None  # see all_common()

    def key(self, name: str) -> object:
        """Equal keys lead to equal states. None for the common name that only `**` and `*` match."""
        if self.is_common(name):
            return None
        matches = tuple(match_name(component, name) for component in self._wild)
        return (name if name in self._literals else None, matches)

    def all_common(self, joined: str) -> bool:
        """Are all these names (joined by "/") common? False may also mean that it takes a look at each."""
        if self._others or joined.count("/") < FEW_NAMES:
            return False
        if self._telling is None:
            self._telling = _telling(self._literals, self._prefixes, self._suffixes)
        return self._telling is not None and self._telling.search(f"/{joined}/") is None

    def is_common(self, name: str) -> bool:
        """Does no component match that tells names apart?"""
        return not (
            name in self._literals
            or name.endswith(self._suffixes)
            or name.startswith(self._prefixes)
            or (self._others and any(match_name(component, name) for component in self._others))
        )


def _telling(literals: Collection[str], prefixes: tuple[str, ...], suffixes: tuple[str, ...]) -> re.Pattern[str] | None:
    """Finds a name that is one of these, or starts or ends so, in "/name/name/"; None where that would be slow."""
    if len(literals) + len(prefixes) + len(suffixes) > MAX_TELLING:
        return None
    import re

    parts = [f"/{re.escape(text)}/" for text in sorted(literals)]
    parts += [f"/{re.escape(text)}" for text in prefixes]
    parts += [f"{re.escape(text)}/" for text in suffixes]
    return re.compile("|".join(parts) or "(?!)")


def _is_many(token: object) -> bool:
    return isinstance(token, int) and token == MANY


def _is_star(component: Component) -> bool:
    return isinstance(component, tuple) and any(len(tokens) == 1 and _is_many(tokens[0]) for tokens in component)


def _has_wildcard(below: Below) -> bool:
    return any(not each.names for each in below.continuations)


def spelled(component: Component) -> tuple[str, ...]:
    """The names a component stands for when it spells them out: `a`, or `{a,b}`."""
    if isinstance(component, str):
        return (component,)
    if isinstance(component, int):
        return ()
    names = tuple(tokens[0] for tokens in component if len(tokens) == 1 and isinstance(tokens[0], str))
    return names if len(names) == len(component) else ()
