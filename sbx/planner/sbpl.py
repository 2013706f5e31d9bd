"""The sandbox profile language: strings, and the model's globs as its filters.

A filter is text. Two questions decide how a glob is written:

`widen`  A rule that denies may match more than the glob, never less; a rule that allows may match less, never more.
         It matters only for names outside ASCII: whether the kernel's matcher counts bytes or characters is not
         documented, so `?` in a deny takes a whole character under either reading, and in an allow just one unit.
`fold`   On a case-insensitive volume `.ENV` opens `.env`. The kernel reports the name on disk for what exists, but the
         name as typed for what is created: denies are written so that every spelling of the case matches.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbx.errors import PolicyError
from sbx.model.glob import ANY_DEPTH, MANY, is_exact, is_subtree
from sbx.model.source import Source

if TYPE_CHECKING:
    from sbx.model.glob import Class, Component, Pattern, Token

_REGEX_SPECIAL = frozenset(".^$*+?()[]{}|\\")
_CLASS_SPECIAL = frozenset("[]^-\\")  # never at the edge of a range: dialects differ in how they are escaped there
_PRINTABLE = tuple(chr(code) for code in range(0x20, 0x7F))
_MAX_STRING = 200  # bytes
_OTHER = "[^ -~]"  # what is not printable ASCII: the bytes (or characters) of everything else


def quote(text: str, source: Source | None = None) -> str:
    """A Scheme string. Control characters are refused: no reader of the profile could be trusted with them.

    Readers of this family hold a string in a buffer of 256 bytes: a longer text is put together from pieces.
    """
    for char in text:
        if ord(char) < 0x20 or ord(char) == 0x7F:
            raise PolicyError(
                f"a path with the control character {char!r} cannot be written into a macOS sandbox profile",
                remedy="rename the file or folder, or take it out of the rule",
                source=source,
            )
        if 0xD800 <= ord(char) <= 0xDFFF:
            raise PolicyError(
                "a path that is not valid UTF-8 cannot be written into a macOS sandbox profile",
                remedy="rename the file or folder, or take it out of the rule",
                source=source,
            )
    pieces = [""]
    for char in text:
        escaped = "\\" + char if char in '\\"' else char
        if len((pieces[-1] + escaped).encode()) > _MAX_STRING:
            pieces.append("")
        pieces[-1] += escaped
    quoted = [f'"{piece}"' for piece in pieces]
    return quoted[0] if len(quoted) == 1 else f"(string-append {' '.join(quoted)})"


def literal(names: Sequence[str], source: Source | None = None) -> str:
    return f"(literal {quote('/' + '/'.join(names), source)})"


def subpath(names: Sequence[str], source: Source | None = None) -> str:
    return f"(subpath {quote('/' + '/'.join(names), source)})"


def filter_for(
    pattern: Pattern, *, widen: bool, fold: bool, source: Source | None = None, spelled: Sequence[str] = ()
) -> str:
    """The glob as one filter: literal or subpath where that says it all, a regular expression elsewhere.

    `spelled`: names at the start whose spelling is that on disk, so that they need no folding.
    """
    known = _common(pattern, spelled)
    plain = not fold or not any(_varies(component) for component in pattern[known:] if isinstance(component, str))
    if plain and is_exact(pattern):
        return literal([str(name) for name in pattern], source)
    if plain and is_subtree(pattern):
        return subpath([str(name) for name in pattern[:-1]], source)
    return f"(regex {quote(regex_text(pattern, widen=widen, fold=fold, known=known), source)})"


def _common(pattern: Pattern, names: Sequence[str]) -> int:
    """How many components at the start are these names."""
    count = 0
    while count < min(len(pattern), len(names)) and pattern[count] == names[count]:
        count += 1
    return count


def regex_text(pattern: Pattern, *, widen: bool, fold: bool, known: int = 0) -> str:
    """An anchored regular expression that matches the absolute paths which the glob matches."""
    if not pattern:
        return "^/$"
    # Never `.`: whether it matches a line break is not documented, and a name may contain one.
    pieces = [
        "(/[^/]+)*" if each == ANY_DEPTH else "/" + _component(each, widen, fold and index >= known)
        for index, each in enumerate(pattern)
    ]
    if all(each == ANY_DEPTH for each in pattern):
        return "^/"
    return "^" + "".join(pieces) + "$"


def all_of(*filters: str) -> str:
    return filters[0] if len(filters) == 1 else f"(require-all {' '.join(filters)})"


def any_of(filters: Sequence[str]) -> str:
    return filters[0] if len(filters) == 1 else f"(require-any {' '.join(filters)})"


def none_of(filters: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"(require-not {each})" for each in filters)


def _component(component: Component, widen: bool, fold: bool) -> str:
    if isinstance(component, str):
        return _text(component, fold)
    assert not isinstance(component, int)
    spelled = [_tokens(tokens, widen, fold) for tokens in component]
    return spelled[0] if len(spelled) == 1 else "(" + "|".join(spelled) + ")"


def _tokens(tokens: tuple[Token, ...], widen: bool, fold: bool) -> str:
    if tokens == (MANY,):
        return "[^/]+"  # a name is never empty, so `/*` does not match the root
    pieces = []
    for token in tokens:
        if isinstance(token, str):
            pieces.append(_text(token, fold))
        elif isinstance(token, int):
            pieces.append("[^/]*" if token == MANY else _one_character(widen))
        else:
            pieces.append(_class(token, widen, fold))
    return "".join(pieces)


def _one_character(widen: bool) -> str:
    return f"([^/]|{_OTHER}{_OTHER}{_OTHER}?{_OTHER}?)" if widen else "[^/]"


def _class(token: Class, widen: bool, fold: bool) -> str:
    """A class as a union of safe ranges and escaped single characters; a slash is never part of it."""
    negated, ranges = token

    def inside(char: str) -> bool:
        spellings = {char, char.lower(), char.upper()} if fold and not negated else {char}
        return any(low <= each <= high for low, high in ranges for each in spellings) != negated

    members = [char for char in _PRINTABLE if char != "/" and inside(char)]
    if fold and negated:  # a spelling outside the class is reason enough to match
        members = [char for char in _PRINTABLE if char != "/" and any(map(inside, (char, char.lower(), char.upper())))]
    choices = _ranges(members)
    choices.extend(_others(negated, ranges, widen, fold))
    if not choices:
        return "//"  # an empty class has no spelling; two slashes are in no path
    return choices[0] if len(choices) == 1 else "(" + "|".join(choices) + ")"


def _others(negated: bool, ranges: tuple[tuple[str, str], ...], widen: bool, fold: bool) -> list[str]:
    """The part of a class beyond printable ASCII."""
    foreign = [(low, high) for low, high in ranges if low < " " or high > "~"]
    if not negated:
        singles = [low for low, high in foreign if low == high and low > "~"]
        if widen and len(singles) < len(foreign):  # a range of such characters has no spelling in bytes
            return [f"{_OTHER}{_OTHER}?{_OTHER}?{_OTHER}?"]
        return [_text(char, fold) for char in singles]
    if widen:
        return [f"{_OTHER}{_OTHER}?{_OTHER}?{_OTHER}?"]
    return [] if foreign else [_OTHER]


def _ranges(members: list[str]) -> list[str]:
    """Consecutive characters as ranges of one bracket expression; those with a meaning there stand apart, escaped."""
    runs: list[list[str]] = []
    for char in members:
        if runs and ord(char) == ord(runs[-1][-1]) + 1:
            runs[-1].append(char)
        else:
            runs.append([char])
    bracket, apart = "", []
    for run in runs:
        while run and run[0] in _CLASS_SPECIAL:
            apart.append(run.pop(0))
        while run and run[-1] in _CLASS_SPECIAL:
            apart.append(run.pop())
        if run:
            bracket += run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}"
    return ([f"[{bracket}]"] if bracket else []) + [_escape(char) for char in apart]


def _text(text: str, fold: bool) -> str:
    return "".join(_spellings(char) if fold else _escape(char) for char in text)


def _spellings(char: str) -> str:
    spelled = _variants(char)
    if len(spelled) == 1:
        return _escape(char)
    if all(len(each) == 1 and each.isascii() for each in spelled):
        return "[" + "".join(spelled) + "]"
    return "(" + "|".join("".join(map(_escape, each)) for each in spelled) + ")"


def _variants(char: str) -> list[str]:
    """The spellings that a case- and normalization-insensitive volume takes for the same name."""
    spelled = [char]
    for cased in (char, char.lower(), char.upper()):
        for form in (cased, unicodedata.normalize("NFC", cased), unicodedata.normalize("NFD", cased)):
            if form not in spelled:
                spelled.append(form)
    return spelled


def _varies(name: str) -> bool:
    return any(len(_variants(char)) > 1 for char in name)


def _escape(char: str) -> str:
    return "\\" + char if char in _REGEX_SPECIAL else char
