"""The text of a rule: its sign, its anchor, its variables. What can be said without looking at the machine.

!rule        negates            ~/x        the invoking user's home
/x           absolute           **/x       anywhere
x, ./x       at the workspace   ${V}, ${V:-dflt}   a variable, literally: its characters are no wildcards
"""

from __future__ import annotations

from sbx.model.glob import BadGlob, fixed_prefix, parse
from sbx.model.records import dataclass
from sbx.model.str_enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from sbx.model.glob import Pattern

    Lookup = Callable[[str, str | None], str]  # (name, default) -> glob text

MAX_RULE = 4096  # characters: a longer one could not name a path
MAX_NAMES = 128


class Anchor(StrEnum):
    ROOT = "/"
    HOME = "~"
    WORKSPACE = "."


@dataclass(frozen=True, slots=True)
class RuleText:
    """A rule taken apart: `pattern` is relative to the anchor and still has its `..`."""

    negated: bool
    anchor: Anchor
    pattern: Pattern


def read_rule(text: str, lookup: Lookup) -> RuleText:
    """Take a rule apart, with its variables replaced by what `lookup` says. Raises BadGlob."""
    negated, body = _sign(text)
    body = _substitute(body, lookup)
    anchor, body = _anchor(body)
    if body.endswith("/") and body.strip("/"):
        shown = body.rstrip("/")[-40:]
        raise BadGlob(f"a rule cannot end with a slash: write '{shown}/**' for it and all below it, or '{shown}'")
    pattern = parse(body)
    if ".." in pattern[len(fixed_prefix(pattern)) :]:
        raise BadGlob("'..' cannot follow a wildcard: write the path without it")
    if len(pattern) > MAX_NAMES:
        raise BadGlob(f"more than {MAX_NAMES} names: use '**' for what lies between")
    return RuleText(negated, anchor, pattern)


def check_rule(text: str) -> bool:
    """Is the text a rule, whatever the variables hold? Returns whether it is negated. Raises BadGlob."""
    return read_rule(text, lambda name, default: "x" if default is None else default).negated


def remedy_of(bad: ValueError) -> tuple[str, str]:
    """The message of a BadGlob or the like as (what, remedy)."""
    what, _, remedy = str(bad).partition(": ")
    return what, remedy or "see 'Rules' in the manual"


def variables_of(text: str) -> tuple[str, ...]:
    """The variables a rule's text names."""
    names: list[str] = []

    def note(name: str, default: str | None) -> str:
        names.append(name)
        return "x"

    _substitute(text, note)
    return tuple(names)


def has_controls(text: str) -> bool:
    """Characters that act on a terminal or turn the text around: what people read would not be what counts."""
    return not text.isprintable() and any(
        char < " " or "\x7f" <= char <= "\x9f" or "\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069"
        for char in text
    )


def _sign(text: str) -> tuple[bool, str]:
    if len(text) > MAX_RULE:
        raise BadGlob(f"longer than {MAX_RULE} characters: no path is; split it into several rules")
    if has_controls(text):
        raise BadGlob("a rule cannot hold control characters: write '?' in their place")
    negated = text.startswith("!")
    body = text[1:] if negated else text
    if body.startswith("!"):
        raise BadGlob("negated twice: write one '!', or '\\!' for a name that starts with it")
    if not body.strip():
        raise BadGlob("the rule is empty: write './**' for the workspace and all below it")
    return negated, body


def _substitute(body: str, lookup: Lookup) -> str:
    if body[:1] == "$" and body[1:2] not in ("{", ""):
        raise BadGlob("'$' needs braces: write '${NAME}', or '\\$' for a plain one")
    if "${" not in body:
        return body
    pieces: list[str] = []
    position = 0
    while position < len(body):
        if body[position] == "\\":
            pieces.append(body[position : position + 2])
            position += 2
        elif body.startswith("${", position):
            end = body.find("}", position)
            if end < 0:
                raise BadGlob("'${' is not closed: write '${NAME}' or '${NAME:-default}'")
            pieces.append(_variable(body[position + 2 : end], lookup))
            position = end + 1
        else:
            pieces.append(body[position])
            position += 1
    return "".join(pieces)


def _variable(inner: str, lookup: Lookup) -> str:
    name, has_default, default = inner.partition(":-")
    if not (name.isascii() and name.isidentifier()):
        raise BadGlob("not a variable's name in '${…}': write '${NAME}' or '${NAME:-default}'")
    if "${" in default:
        raise BadGlob("a default cannot hold another variable: write it out, as in '${NAME:-~/dir}'")
    return lookup(name, default if has_default else None)


def _anchor(body: str) -> tuple[Anchor, str]:
    if body.startswith("~"):
        user, _, rest = body[1:].partition("/")
        if user:
            raise BadGlob("'~' is only your own home: write '~/…', an absolute path, or '\\~' for a plain one")
        return Anchor.HOME, rest
    if body == "**" or body.startswith(("/", "**/")):
        return Anchor.ROOT, body
    return Anchor.WORKSPACE, body
