"""A YAML document as plain nodes: every scalar and every key knows its place."""

from __future__ import annotations

from sbx.errors import PolicyError
from sbx.model.records import dataclass
from sbx.model.source import Source
from sbx.model.str_enum import StrEnum


class Kind(StrEnum):
    """What a node is, in the words of an error message."""

    MAP = "a map"
    LIST = "a list"
    TEXT = "text"
    INT = "a number"
    FLOAT = "a fraction"
    BOOL = "true or false"
    NULL = "nothing"


@dataclass(slots=True)
class Node:
    kind: Kind
    source: Source
    text: str = ""  # scalars: as written, without quotes
    items: list[Node] | None = None  # LIST
    entries: list[tuple[Node, Node]] | None = None  # MAP: (key, value) in the file's order


def plain_kind(text: str) -> Kind:
    """What an unquoted scalar is in YAML 1.2 (core schema): `yes` and `on` are text there."""
    if text in ("", "~", "null", "Null", "NULL"):
        return Kind.NULL
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return Kind.BOOL
    body = text[1:] if text[0] in "+-" else text
    if body.isascii():
        if body.isdigit():
            return Kind.INT
        if body[:2] in ("0x", "0o") and len(body) > 2 and body[2:].isalnum():
            return Kind.INT
        if body[:1] in ".0123456789" and _is_float(body):
            return Kind.FLOAT
    return Kind.TEXT


def _is_float(text: str) -> bool:
    if "_" in text or not any(char.isdigit() for char in text):
        return text in (".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN")
    try:
        float(text)
    except ValueError:
        return False
    return True


def shown(text: str, limit: int = 60) -> str:
    """`text` in quotes for a one-line message: a policy from anybody's repository cannot paint on the terminal."""
    safe = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
    return f"'{safe[: limit - 1]}…'" if len(safe) > limit else f"'{safe}'"


def entries_of(node: Node, known: tuple[str, ...] | None) -> dict[str, Node]:
    """A map by its keys, which are to be among the known ones."""
    if node.kind is not Kind.MAP or node.entries is None:
        raise PolicyError(f"must be a map, not {node.kind.value}", source=node.source)
    found: dict[str, Node] = {}
    for key, value in node.entries:
        if known is not None and key.text not in known:
            raise PolicyError(f"unknown key {shown(key.text)}", remedy=f"one of {', '.join(known)}", source=key.source)
        if key.text in found:
            raise PolicyError(f"the key {shown(key.text)} is there twice", source=key.source)
        found[key.text] = value
    return found


def texts_of(node: Node) -> tuple[str, ...]:
    """A list of texts."""
    if node.kind is not Kind.LIST or node.items is None:
        raise PolicyError(f"must be a list, not {node.kind.value}", source=node.source)
    for item in node.items:
        if item.kind is not Kind.TEXT or not item.text:
            raise PolicyError(f"must be text, not {item.kind.value}", source=item.source)
    return tuple(item.text for item in node.items)
