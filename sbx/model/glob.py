"""Globs over absolute paths: parsed once into plain tuples, matched component by component.

No `re`: the listener inside the sandbox matches with this same code, and the launch side pays for every import.
The parsed form is made of str, int and tuple only, so that `marshal` can store it.

A pattern is a tuple of components. A component is
    str              a literal name
    ANY_DEPTH        `**`: any number of components, also none
    tuple            alternatives (from `{a,b}`), each a tuple of tokens;
                     a token is a str (literal text), ONE (`?`), MANY (`*`) or a class (negated, ((low, high), ...)).
"""

from __future__ import annotations

ANY_DEPTH = 0
ONE = 1
MANY = 2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

    Class: TypeAlias = tuple[bool, tuple[tuple[str, str], ...]]
    Token: TypeAlias = str | int | Class
    Component: TypeAlias = str | int | tuple[tuple[Token, ...], ...]
    Pattern: TypeAlias = tuple[Component, ...]

SPECIAL = "*?[]{}\\!"
MAX_ALTERNATIVES = 256  # of one component: `{a,b}{a,b}…` doubles each time
MAX_BRACES = 16  # of one component: the expansion recurses into each
_SPECIAL = frozenset(SPECIAL)
LONE_STARS = "'**' must stand alone between slashes: write 'a/**/b', or '*' within a name"


class BadGlob(ValueError):
    """The text is not a glob; the message says what is wrong and how to write it."""


def escape(text: str) -> str:
    """`text` as a glob that matches just itself (what `${VAR}` and `~` expand to)."""
    return "".join("\\" + char if char in SPECIAL else char for char in text)


def parse(text: str) -> Pattern:
    """An absolute glob (`/…` or `**/…`) as components. Raises BadGlob."""
    if "\0" in text:
        raise BadGlob("a path cannot contain a NUL byte")
    components: list[Component] = []
    for piece in _split(text):
        if piece in ("", "."):
            continue
        component = ANY_DEPTH if piece == "**" else _component(piece)
        # After a name it is kept as a name: the caller resolves the fixed prefix against the file system, where `..`
        # after a symlink means the target's parent.
        if component == ".." and components and not isinstance(components[-1], str):
            raise BadGlob("'..' cannot follow a wildcard: write the path without it")
        if component == ANY_DEPTH and components and components[-1] == ANY_DEPTH:
            continue
        components.append(component)
    return tuple(components)


def _split(text: str) -> list[str]:
    """Split at slashes, but not at escaped ones or inside brackets (both are errors anyway)."""
    if "\\" not in text:
        return text.split("/")
    pieces: list[str] = []
    current: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "\\":
            if position + 1 >= len(text):
                raise BadGlob("the pattern ends with a lone backslash: write '\\\\' for a backslash")
            if text[position + 1] == "/":
                raise BadGlob("a slash cannot be escaped: it always separates names")
            current.append(text[position : position + 2])
            position += 2
        elif char == "/":
            pieces.append("".join(current))
            current = []
            position += 1
        else:
            current.append(char)
            position += 1
    pieces.append("".join(current))
    return pieces


def _component(piece: str) -> Component:
    if _SPECIAL.isdisjoint(piece):
        return piece
    if piece.count("{") > MAX_BRACES:
        raise BadGlob(f"more than {MAX_BRACES} braces in one name: split the rule")
    alternatives = _braces(piece)
    parsed = tuple(_tokens(alternative) for alternative in alternatives)
    if len(parsed) == 1:
        tokens = parsed[0]
        if not tokens:
            raise BadGlob("an empty name")
        if len(tokens) == 1 and isinstance(tokens[0], str):
            return tokens[0]
    for tokens in parsed:
        if not tokens:
            raise BadGlob("an empty alternative would match an empty name: write separate rules")
        if tokens in ((".",), ("..",)):
            raise BadGlob("'.' and '..' cannot be an alternative: write separate rules")
    return parsed


def _braces(piece: str) -> list[str]:
    """Expand `{a,b}`; alternatives stay within the component because the split came first."""
    if "{" not in piece and "}" not in piece:
        return [piece]
    if piece.count("{") == 1 and piece.count("}") == 1 and not ("\\" in piece or "[" in piece):
        before, _, rest = piece.partition("{")
        inside, closed, after = rest.partition("}")
        if closed and inside.count(",") < MAX_ALTERNATIVES:
            return [before + each + after for each in inside.split(",")]
    start = _find(piece, "{", 0)
    if start < 0:
        if _find(piece, "}", 0) >= 0:
            raise BadGlob("'}' without '{': write '\\}' for a plain one")
        return [piece]
    end, commas, depth, position = -1, [], 0, start
    while position < len(piece):
        char = piece[position]
        if char == "\\":
            position += 2
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                end = position
                break
        elif char == "," and depth == 1:
            commas.append(position)
        position += 1
    if end < 0:
        raise BadGlob("'{' is not closed: write {a,b} within one path component, or '\\{' for a plain one")
    edges = [start, *commas, end]
    expanded: list[str] = []
    for number in range(len(edges) - 1):
        for middle in _braces(piece[edges[number] + 1 : edges[number + 1]]):
            for tail in _braces(piece[end + 1 :]):
                expanded.append(piece[:start] + middle + tail)
                if len(expanded) > MAX_ALTERNATIVES:
                    raise BadGlob(f"more than {MAX_ALTERNATIVES} alternatives in one component: split the rule")
    return expanded


def _find(piece: str, wanted: str, start: int) -> int:
    if wanted not in piece:
        return -1
    position = start
    while position < len(piece):
        if piece[position] == "\\":
            position += 2
            continue
        if piece[position] == "[":
            close = _class_end(piece, position)
            if close > 0:
                position = close + 1
                continue
        if piece[position] == wanted:
            return position
        position += 1
    return -1


def _class_end(piece: str, start: int) -> int:
    """The position of the `]` that closes the class opened at `start`, or -1."""
    position = start + 1
    if position < len(piece) and piece[position] in "!^":
        position += 1
    first = position
    while position < len(piece):
        if piece[position] == "\\":
            position += 2
            continue
        if piece[position] == "]" and position > first:
            return position
        position += 1
    return -1


def _tokens(piece: str) -> tuple[Token, ...]:
    tokens: list[Token] = []
    if not ("\\" in piece or "?" in piece or "[" in piece):  # nearly all have nothing but stars
        for number, text in enumerate(piece.split("*")):
            if number:
                if tokens and tokens[-1] == MANY:
                    raise BadGlob(LONE_STARS)
                tokens.append(MANY)
            if text:
                tokens.append(text)
        return tuple(tokens)
    literal: list[str] = []

    def flush() -> None:
        if literal:
            tokens.append("".join(literal))
            literal.clear()

    position = 0
    while position < len(piece):
        char = piece[position]
        if char == "\\":
            literal.append(piece[position + 1])
            position += 2
            continue
        if char == "*":
            flush()
            if tokens and tokens[-1] == MANY:
                raise BadGlob(LONE_STARS)
            tokens.append(MANY)
        elif char == "?":
            flush()
            tokens.append(ONE)
        elif char == "[":
            end = _class_end(piece, position)
            if end < 0:
                raise BadGlob("'[' is not closed: write [abc], or '\\[' for a plain one")
            flush()
            tokens.append(_class(piece[position + 1 : end]))
            position = end
        else:
            literal.append(char)
        position += 1
    flush()
    return tuple(tokens)


def _class(body: str) -> Class:
    negated = body[:1] in ("!", "^")
    chars: list[tuple[str, bool]] = []  # (character, was it escaped)
    position = 1 if negated else 0
    while position < len(body):
        if body[position] == "\\" and position + 1 < len(body):
            chars.append((body[position + 1], True))
            position += 2
        else:
            chars.append((body[position], False))
            position += 1
    ranges: list[tuple[str, str]] = []
    index = 0
    while index < len(chars):
        low = chars[index][0]
        if index + 2 < len(chars) and chars[index + 1] == ("-", False):
            high = chars[index + 2][0]
            if high < low:
                raise BadGlob(f"the range {low}-{high} in [{body}] runs backwards")
            ranges.append((low, high))
            index += 3
        else:
            ranges.append((low, low))
            index += 1
    return (negated, tuple(ranges))


def split_path(path: str) -> tuple[str, ...]:
    """An absolute, resolved path as its names; `/` is the empty tuple."""
    return tuple(name for name in path.split("/") if name)


def fixed_prefix(pattern: Pattern) -> tuple[str, ...]:
    """The leading literal names: where the pattern starts to look at the file system."""
    size = 0
    for component in pattern:
        if not isinstance(component, str):
            break
        size += 1
    return pattern[:size]  # type: ignore[return-value]


def is_exact(pattern: Pattern) -> bool:
    return all(isinstance(component, str) for component in pattern)


def is_subtree(pattern: Pattern) -> bool:
    """`X/**` with nothing but literal names in X."""
    return len(pattern) > 0 and pattern[-1] == ANY_DEPTH and is_exact(pattern[:-1])


def match(pattern: Pattern, names: Sequence[str]) -> bool:
    """Does the pattern match the path whose names these are, whole?"""
    # Most rules miss at one of their leading literal names or at their last: look there before the general walk.
    index, count = 0, len(names)
    for component in pattern:
        if component.__class__ is not str:
            break
        if index >= count or component != names[index]:
            return False
        index += 1
    else:
        return index == count
    last = pattern[-1]
    if last != ANY_DEPTH and (index >= count or not match_name(last, names[-1])):
        return False
    return _match(pattern, index, names)


def _match(pattern: Pattern, start: int, names: Sequence[str]) -> bool:
    """Greedy with one backtrack point: what stands between two `**` may as well match as early as it can."""
    size, count = len(pattern), len(names)
    at = index = start
    resume_at, resume_index = -1, 0
    while index < count:
        if at < size:
            component = pattern[at]
            if component == ANY_DEPTH:
                at += 1
                if at == size:
                    return True
                resume_at, resume_index = at, index
                continue
            if match_name(component, names[index]):
                at += 1
                index += 1
                continue
        if resume_at < 0:
            return False
        resume_index += 1
        at, index = resume_at, resume_index
    while at < size and pattern[at] == ANY_DEPTH:
        at += 1
    return at == size


def match_name(component: Component, name: str) -> bool:
    """Does one component match one name? (`**` matches every name.)"""
    if isinstance(component, str):
        return component == name
    if isinstance(component, int):
        return True
    for tokens in component:
        first, last = tokens[0], tokens[-1]
        if isinstance(first, str) and not name.startswith(first):
            continue
        if isinstance(last, str) and not name.endswith(last):
            continue
        if _match_tokens(tokens, name):
            return True
    return False


def _match_tokens(tokens: tuple[Token, ...], name: str) -> bool:
    """Greedy with one backtrack point, which is enough for `*`: linear in practice, quadratic at worst."""
    at, index = 0, 0
    star_at, star_index = -1, 0
    size, length = len(tokens), len(name)
    while index < length or at < size:
        step = -1
        if at < size:
            token = tokens[at]
            if token == MANY and isinstance(token, int):
                star_at, star_index = at, index
                at += 1
                continue
            step = _consume(token, name, index)
        if step > 0:
            at += 1
            index += step
            continue
        if star_at >= 0 and star_index < length:
            star_index += 1
            at, index = star_at + 1, star_index
            continue
        return False
    return True


def _consume(token: Token, name: str, index: int) -> int:
    """How many characters `token` takes at `index`, or -1."""
    if isinstance(token, str):
        return len(token) if name.startswith(token, index) else -1
    if index >= len(name):
        return -1
    if isinstance(token, int):
        return 1
    negated, ranges = token
    char = name[index]
    inside = any(low <= char <= high for low, high in ranges)
    return 1 if inside != negated else -1


# What could a pattern still match below a directory? The planner asks this to walk only where a verdict can change.

NOTHING = 0  # it cannot match anything below
SOMETHING = 1  # it may match some paths below
EVERYTHING = 2  # it matches every path below


def states_below(pattern: Pattern, names: Sequence[str]) -> tuple[int, ...]:
    """The positions in the pattern that are reachable after consuming all of `names` (an NFA's state set)."""
    # Along the leading literal names there is one position only, and most patterns end there.
    index, size = 0, len(pattern)
    for name in names:
        component = pattern[index] if index < size else ""
        if component.__class__ is not str:
            break
        if component != name:
            return ()
        index += 1
    states = _close(pattern, {index})
    for name in names[index:]:
        states = step(pattern, states, name)
        if not states:
            break
    return tuple(sorted(states))


def _close(pattern: Pattern, states: set[int]) -> set[int]:
    size = len(pattern)
    for state in states:
        if state < size and pattern[state] == ANY_DEPTH:
            break
    else:
        return states
    closed = set(states)
    for state in states:
        at = state
        while at < size and pattern[at] == ANY_DEPTH:
            at += 1
            closed.add(at)
    return closed


def step(pattern: Pattern, states: Sequence[int] | set[int], name: str) -> set[int]:
    """The states after one more name."""
    following: set[int] = set()
    size = len(pattern)
    for state in states:
        if state >= size:
            continue
        component = pattern[state]
        if component.__class__ is str:
            if component == name:
                following.add(state + 1)
        elif component == ANY_DEPTH:
            following.add(state)
        elif match_name(component, name):
            following.add(state + 1)
    return _close(pattern, following)


def reach(pattern: Pattern, states: Sequence[int] | set[int]) -> int:
    """NOTHING, SOMETHING or EVERYTHING strictly below a directory in these states."""
    size = len(pattern)
    verdict = NOTHING
    for state in states:
        if state >= size:
            continue
        if state == size - 1 and pattern[state] == ANY_DEPTH:
            return EVERYTHING
        verdict = SOMETHING
    return verdict
