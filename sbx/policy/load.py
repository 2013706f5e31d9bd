"""YAML text -> PolicyFile.

Nodes are made from the parser's events, not from its constructor: every scalar keeps its place, nothing is ever
built from a tag, and an alias is refused before it could multiply.
"""

from __future__ import annotations

from sbx.errors import PolicyError
from sbx.model.source import Source
from sbx.policy import yaml_parts
from sbx.policy.build import build_file
from sbx.policy.digest import sha256_hex
from sbx.policy.document import PolicyFile
from sbx.policy.nodes import Kind, Node, plain_kind, shown
from sbx.policy.read_file import read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ruamel.yaml.error import MarkedYAMLError

MAX_DEPTH = 12  # the schema needs six
_BOM = b"\xef\xbb\xbf"
_START = "start it with 'schemaVersion: 2'"


def load_file(path: str, layer: str) -> PolicyFile:
    """Read and validate one file. Raises PolicyError with file, line and column."""
    whole = Source(path, 0, 0, layer)
    content, stamp, racy = read_bytes(path, whole)
    root = parse_text(_decode(content, path, layer), path, layer)
    return build_file(root, path=path, layer=layer, sha256=sha256_hex(content), stamp=stamp, racy=racy)


def _decode(content: bytes, path: str, layer: str) -> str:
    body = content.removeprefix(_BOM)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        before = body[: error.start]
        line = before.count(b"\n") + 1
        column = len(before.rpartition(b"\n")[2].decode("utf-8", "replace")) + 1
        where = Source(path, line, column, layer)
        raise PolicyError("is not UTF-8 text", remedy="save it as UTF-8", source=where) from None
    for position, char in enumerate(text):
        if (char < " " and char not in "\t\n\r") or char == "\x7f":
            line = text.count("\n", 0, position) + 1
            column = position - (text.rfind("\n", 0, position) + 1) + 1
            where = Source(path, line, column, layer)
            message = f"has the control character {shown(char)}, so it is not a text file"
            raise PolicyError(message, remedy="write the policy as plain text", source=where)
    return text


def parse_text(text: str, path: str, layer: str) -> Node:
    """The one document in `text` as nodes."""
    import warnings

    errors: Any = yaml_parts.modules()["error"]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ruamel warns of oddities in the text; the schema judges them
            return _document(_Marked(yaml_parts.events(text), path, layer))
    except errors.MarkedYAMLError as error:
        raise _syntax_error(error, text, path, layer) from None
    except (errors.YAMLError, ValueError, RecursionError) as error:
        # Whatever else the parser stumbles over is a mistake in the text as well.
        message = f"is not YAML: {shown(str(error).splitlines()[0] if str(error) else type(error).__name__)}"
        raise PolicyError(message, remedy="check the text near its end", source=Source(path, 1, 1, layer)) from None


class _Marked:
    """The parser's events with their places."""

    def __init__(self, events: Iterator[Any], path: str, layer: str) -> None:
        self._events = events
        self.path = path
        self.layer = layer

    def next(self) -> tuple[str, Any, Source]:
        event = next(self._events)
        mark = event.start_mark
        source = Source(self.path, mark.line + 1, mark.column + 1, self.layer)
        return type(event).__name__.removesuffix("Event"), event, source


def _document(marked: _Marked) -> Node:
    name, _, source = marked.next()  # StreamStart
    name, _, source = marked.next()
    if name == "StreamEnd":
        raise PolicyError("is empty", remedy=_START, source=Source(marked.path, 1, 1, marked.layer))
    root = _node(marked, *marked.next(), depth=0)
    marked.next()  # DocumentEnd
    name, _, source = marked.next()
    if name != "StreamEnd":
        raise PolicyError("has a second document", remedy="one file is one policy: remove the '---'", source=source)
    if root.kind is Kind.NULL:
        raise PolicyError("is empty", remedy=_START, source=root.source)
    if root.kind is not Kind.MAP:
        raise PolicyError(f"a policy is a map of keys, not {root.kind.value}", remedy=_START, source=root.source)
    return root


def _node(marked: _Marked, name: str, event: Any, source: Source, *, depth: int) -> Node:
    _refuse_machinery(name, event, source)
    if depth > MAX_DEPTH:
        raise PolicyError("is nested too deeply", remedy="a policy needs six levels: check the indentation",
                          source=source)  # fmt: skip
    if name == "Scalar":
        kind = plain_kind(event.value) if event.style is None else Kind.TEXT
        return Node(kind, source, text=event.value)
    if name == "SequenceStart":
        items: list[Node] = []
        while (following := marked.next())[0] != "SequenceEnd":
            items.append(_node(marked, *following, depth=depth + 1))
        return Node(Kind.LIST, source, items=items)
    entries: list[tuple[Node, Node]] = []
    while (following := marked.next())[0] != "MappingEnd":
        key = _node(marked, *following, depth=depth + 1)
        value = _node(marked, *marked.next(), depth=depth + 1)
        if value.kind is Kind.NULL and not value.text:
            value.source = key.source  # the parser places what is not there at the next token, lines below
        entries.append((key, value))
    return Node(Kind.MAP, source, entries=entries)


def _refuse_machinery(name: str, event: Any, source: Source) -> None:
    """Aliases, anchors and tags: a policy needs none, and most of them are rules that lack their quotes."""
    if name == "Alias":
        raise PolicyError(
            f"an unquoted '*' makes {shown('*' + str(event.anchor))} a YAML alias, which a policy cannot have",
            remedy='put a rule in quotes, as in "**/*.env"; use extends to share rules',
            source=source,
        )
    if event.anchor is not None:
        raise PolicyError(
            f"{shown('&' + str(event.anchor))} is a YAML anchor, which a policy cannot have",
            remedy="write the value out, or use extends to share rules; quote a text that starts with '&'",
            source=source,
        )
    if event.tag is not None:
        raise PolicyError(
            f"an unquoted '!' makes {shown(str(event.tag))} a YAML tag, which a policy cannot have",
            remedy='put a rule in quotes, as in "!./secret/**"',
            source=source,
        )


def _syntax_error(error: MarkedYAMLError, text: str, path: str, layer: str) -> PolicyError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    problem = " ".join(str(error.problem or error.context or "is not YAML").split())
    return PolicyError(
        f"is not YAML: {shown(problem, 160)[1:-1]}",
        remedy=_syntax_remedy(problem, str(error.context or ""), text, line),
        source=Source(path, line, column, layer),
    )


def _syntax_remedy(problem: str, context: str, text: str, line: int) -> str:
    lines = text.split("\n")
    before_tab = lines[line - 1].lstrip(" ") if line <= len(lines) else ""
    if before_tab.startswith("\t") or "\\t" in problem:
        return "indent with spaces, not tabs"
    if "alias" in context or "anchor" in context or "tag" in context:
        return 'put a rule in quotes, as in "**/*.env"'
    if "cannot start any token" in problem or "escape" in problem:
        return "put the text in single quotes"
    if "flow" in context:
        return "close the bracket, separate entries with commas, and put rules in quotes"
    if "quoted scalar" in context:
        return "close the quote"
    if "mapping values" in problem:
        return "check the indentation, and put a text with ': ' in quotes"
    return "check the indentation and the quotes of this line and the one before"
