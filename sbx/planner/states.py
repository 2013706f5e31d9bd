"""Where a walk stands in every rule at once: the rules' patterns as one lazily built automaton.

A `State` belongs to one location. It knows the verdict there, what a name that no rule spells out would get below, and
at which names below the verdict could differ. States are shared: a tree of 100,000 files meets a handful of them.

The verdicts are those of `sbx.model.verdict` (last match wins, no match is a denial); the property tests hold the two
against each other on every path.
"""

from __future__ import annotations

from sbx.model.glob import ANY_DEPTH, EVERYTHING, MANY, NOTHING, SOMETHING, match_name, reach, states_below, step
from sbx.model.records import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Collection, Iterator, Sequence

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


Live = tuple["Position", ...]  # of each pattern that may still match, in their order


@dataclass(frozen=True, slots=True)
class _Tracked:
    access: int
    channel: int
    rule: int
    negated: bool
    pattern: Pattern


class Position:
    """A pattern, and the places in it where a walk stands. Shared: `**/*.env` stands in one place nearly everywhere."""

    __slots__ = (
        "_automaton", "_continuations", "_number", "_states", "_usual", "components", "extent", "literals", "matches",
        "moving", "tracked", "wild",
    )  # fmt: skip

    extent: int  # what it can match below: NOTHING, SOMETHING or EVERYTHING
    # The next components; the names that they spell out; those of them that spell out none; does any name lead on?
    components: tuple[Component, ...]
    literals: tuple[str, ...]
    wild: tuple[Component, ...]
    moving: bool

    def __init__(self, automaton: Automaton, number: int, states: tuple[int, ...]) -> None:
        self._automaton, self._number, self._states = automaton, number, states
        self.tracked = automaton.tracked[number]
        self.matches = states[-1] == len(self.tracked.pattern)
        self._usual: Position | None = None
        self._continuations: tuple[Continuation, ...] | None = None
        pattern = self.tracked.pattern
        size = len(pattern)
        if len(states) == 1 and not self.matches and pattern[states[0]].__class__ is str:  # most stand at a name
            component = pattern[states[0]]
            self.extent, self.components, self.literals = SOMETHING, (component,), (component,)  # type: ignore[assignment]
            self.wild, self.moving = (), False
            return
        self.extent = reach(pattern, states)
        self.components = tuple([pattern[state] for state in self._states if state < size])
        literals: tuple[str, ...] = ()
        wild: tuple[Component, ...] = ()
        self.moving = False
        for component in self.components:
            if component == ANY_DEPTH:
                self.moving = True  # `**` stays where it is at every name; what is spelled out ends at any other
                continue
            names = spelled(component)
            literals += names
            if not names:
                wild += (component,)
        self.literals, self.wild = literals, wild
        self.moving = self.moving or bool(wild)

    @property
    def continuations(self) -> tuple[Continuation, ...]:
        if self._continuations is None:
            each = self.tracked
            made = [Continuation(each.rule, each.negated, component) for component in self.components]
            self._continuations = tuple(made)
        return self._continuations

    def after(self, name: str) -> Position | None:
        """Where it stands after one more name; None where it can match no longer."""
        pattern = self.tracked.pattern
        if len(self._states) == 1 and not self.matches:  # most stand in one place, at a name
            place = self._states[0]
            following = place + 1
            if pattern[place] == name and (following == len(pattern) or pattern[following] != ANY_DEPTH):
                return self._automaton.position(self._number, (following,))
        states = step(pattern, self._states, name)
        return self._automaton.position(self._number, tuple(sorted(states))) if states else None

    def after_any(self) -> Position | None:
        """The same for a name that no rule spells out."""
        if not self.moving:
            return None
        if self._usual is None:
            self._usual = self.after(ANY_NAME)
        return self._usual


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
        self._positions: dict[tuple[int, tuple[int, ...]], Position] = {}
        self._states: dict[Live, State] = {}

    def at(self, names: Sequence[str]) -> State:
        live: list[Position] = []
        first = names[0] if names else ""
        for number, each in enumerate(self.tracked):
            pattern = each.pattern
            if first and pattern and pattern[0].__class__ is str and pattern[0] != first:
                continue  # most rules are of other places
            states = states_below(pattern, names)
            if states:
                live.append(self.position(number, states))
        return self.intern(tuple(live))

    def position(self, number: int, states: tuple[int, ...]) -> Position:
        key = (number, states)
        found = self._positions.get(key)
        if found is None:
            found = self._positions[key] = Position(self, number, states)
        return found

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
    def positions(self) -> Live:
        return self._live

    @property
    def below(self) -> tuple[Below, Below, Below]:
        """By access. On first use: of names that are not there only the verdict is asked."""
        if self._below_all is None:
            channels = self._channels_below()
            self._below_all = (_together(channels[0]), _together(channels[1]), _together(channels[2]))
        return self._below_all

    def _winners(self) -> dict[tuple[int, int], tuple[int, bool]]:
        winners: dict[tuple[int, int], tuple[int, bool]] = {}
        for each in self._live:
            if each.matches:
                rule = each.tracked
                at = (rule.access, rule.channel)
                if rule.rule >= winners.get(at, (-1, True))[0]:
                    winners[at] = (rule.rule, not rule.negated)
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

    def _channels_below(self) -> tuple[list[Below], ...]:
        """By access, for each of its lists: the verdict of the last rule that covers everything, and who differs."""
        covers: dict[tuple[int, int], tuple[int, bool]] = {}
        alive: dict[tuple[int, int], list[Position]] = {}
        for each in self._live:
            extent = each.extent
            if extent == NOTHING:
                continue
            rule = each.tracked
            at = (rule.access, rule.channel)
            if extent != EVERYTHING:
                alive.setdefault(at, []).append(each)
            elif rule.rule >= covers.get(at, (-1, False))[0]:
                covers[at] = (rule.rule, not rule.negated)
        found: tuple[list[Below], ...] = ([], [], [])
        for access, count in enumerate(self._automaton.channels):
            for channel in range(count):
                cover, allowed = covers.get((access, channel), (-1, False))
                continuations: list[Continuation] = []
                for each in alive.get((access, channel), ()):
                    if each.tracked.rule > cover and each.tracked.negated == allowed:
                        continuations += each.continuations
                found[access].append(Below(allowed, tuple(continuations)))
        return found

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
        for each in self._live:
            rule = each.tracked
            if rule.access == access and rule.channel == 0:
                yield rule.rule, rule.pattern

    @property
    def names(self) -> _Names:
        if self._names is None:
            self._names = _Names(self)
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
            self._moves = _Moves(self._live)
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

    __slots__ = ("_always", "_by_name", "_live", "_usual")

    def __init__(self, live: Live) -> None:
        self._live = live
        self._always: list[int] = []  # places in `live` where every name has to be matched: wildcards
        self._by_name: dict[str, list[int]] = {}  # those that move otherwise at this name
        self._usual: dict[int, Position] = {}  # place -> after a name that is not spelled out
        for place, each in enumerate(live):
            if each.extent == NOTHING:
                continue
            if each.wild:
                self._always.append(place)
                continue
            for name in each.literals:
                places = self._by_name.setdefault(name, [])
                if not places or places[-1] != place:
                    places.append(place)
            after = each.after_any()
            if after is not None:
                self._usual[place] = after

    def after(self, name: str) -> Live:
        others = [*self._always, *self._by_name.get(name, ())]
        if not others:
            return tuple(self._usual.values())
        moved = self._usual.copy()
        for place in others:
            after = self._live[place].after_any() if name is ANY_NAME else self._live[place].after(name)
            if after is None:
                moved.pop(place, None)
            else:
                moved[place] = after
        return tuple([moved[place] for place in sorted(moved)])


class _Names:
    """Sorts names by which components they match, so that most names share one lookup."""

    __slots__ = ("_literals", "_names", "_others", "_prefixes", "_state", "_suffixes", "_telling", "_wild", "_wildcard")

    def __init__(self, state: State) -> None:
        self._state = state
        self._names: frozenset[str] | None = None
        self._wildcard: bool | None = None
        leading = [each for each in state.positions if each.extent != NOTHING]
        self._literals = frozenset([name for each in leading for name in each.literals])
        wild = dict.fromkeys([component for each in leading for component in each.wild])
        self._wild = tuple([component for component in wild if not _is_star(component)])
        prefixes: list[str] = []
        suffixes: list[str] = []
        others: list[Component] = []
        for tokens in (tokens for component in self._wild if isinstance(component, tuple) for tokens in component):
            if len(tokens) == 2 and _is_many(tokens[0]) and isinstance(tokens[1], str):
                suffixes.append(tokens[1])
            elif len(tokens) == 2 and _is_many(tokens[1]) and isinstance(tokens[0], str):
                prefixes.append(tokens[0])
            else:
                others.append((tokens,))
        self._prefixes, self._suffixes, self._others = tuple(prefixes), tuple(suffixes), tuple(others)
        self._telling: re.Pattern[str] | None = None  # see all_common()

    @property
    def literals(self) -> frozenset[str]:
        """The names at which the verdict could differ."""
        if self._names is None:
            self._names = frozenset([name for each in self._state.continuations() for name in each.names])
        return self._names

    @property
    def wildcard(self) -> bool:
        """Could it differ at names that no rule spells out?"""
        if self._wildcard is None:
            self._wildcard = any(not each.names for each in self._state.continuations())
        return self._wildcard

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


def _together(channels: list[Below]) -> Below:
    """All channels must allow. Where one denies everything but its own exceptions, only those can matter."""
    denying = [below for below in channels if not below.allowed]
    if denying:
        return min(denying, key=lambda below: (_has_wildcard(below), len(below.continuations)))
    if len(channels) == 1:
        return channels[0]
    return Below(True, tuple(each for below in channels for each in below.continuations))


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
