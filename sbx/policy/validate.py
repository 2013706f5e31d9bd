"""Nodes against the schema: plain values out, or one PolicyError that says where, what and how instead.

One function for each `Type` of the table. Values come out as str, bool, numbers, `Written` and dicts of those;
`build.py` makes the policy from them.
"""

from __future__ import annotations

from sbx.errors import PolicyError
from sbx.model.glob import BadGlob
from sbx.model.profile import LEAST_NOFILE
from sbx.model.source import Source
from sbx.model.units import BadUnit, parse_count, parse_duration, parse_size
from sbx.policy.document import SYSTEM, USER, Written
from sbx.policy.nearest import did_you_mean, nearest
from sbx.policy.nodes import Kind, Node, shown
from sbx.policy.rule_text import check_rule, has_controls, remedy_of
from sbx.policy.schema import MIGRATION, OTHER_NAMES, SCHEMA_VERSION, Key, Type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
_LAYER_WORDS = {SYSTEM: "the system's policy", USER: "your own policy"}


def validate(node: Node, key: Key, where: str = "the policy") -> Any:
    """The value of `node` as `key` describes it."""
    return _VALIDATORS[key.type](node, key, where)


def refuse(source: Source, message: str, remedy: str) -> NoReturn:
    raise PolicyError(message, remedy=remedy, source=source)


def _wrong_type(node: Node, key: Key, where: str) -> NoReturn:
    got = node.kind.value if node.kind is not Kind.TEXT else f"the text {shown(node.text)}"
    refuse(node.source, f"{where} must be {key.type.value}, not {got}", f"write {key.name}: {key.example}")


def _fixed(node: Node, key: Key, where: str) -> dict[str, Any]:
    if node.kind is not Kind.MAP:
        _wrong_type(node, key, where)
    values: dict[str, Any] = {}
    for name, value in _entries(node, where):
        known = key.key(name.text)
        if known is None:
            _unknown_key(name, key, where)
        if known.layers and name.source.layer not in known.layers:
            _wrong_layer(name, known)
        inner = f"'{known.name}'" if not key.name else f"'{known.name}' of {where}"
        values[known.name] = validate(value, known, inner)
    for known in key.keys:
        if known.required and known.name not in values:
            _missing_key(node, known, where)
    return values


def _missing_key(node: Node, key: Key, where: str) -> NoReturn:
    if key.type is Type.VERSION:
        refuse(node.source, "schemaVersion is missing, so this is not a version 2 policy", f"to migrate: {MIGRATION}")
    refuse(node.source, f"{where} has no '{key.name}'", f"add {key.name}: {key.example}")


def _entries(node: Node, where: str) -> list[tuple[Node, Node]]:
    """The pairs of a map, with duplicate and non-text keys refused."""
    seen: dict[str, Source] = {}
    for name, _ in node.entries or ():
        if name.kind not in (Kind.TEXT, Kind.INT, Kind.BOOL):
            refuse(name.source, f"a key in {where} is {name.kind.value}", "write a key as a plain word")
        if name.text in seen:
            refuse(
                name.source,
                f"{shown(name.text)} is given twice in {where}, first at line {seen[name.text].line}",
                "keep one of the two",
            )
        seen[name.text] = name.source
    return node.entries or []


def _unknown_key(name: Node, key: Key, where: str) -> NoReturn:
    meant = OTHER_NAMES.get(name.text)
    shown_names = [each.name for each in key.keys if not each.layers or name.source.layer in each.layers]
    if meant is not None and any(part in shown_names for part in meant.split(" and ")):
        remedy = f"did you mean '{meant}'?"
    elif name.text == "<<":
        remedy = "merge keys are not supported; use 'extends' to share rules between profiles"
    else:
        remedy = did_you_mean(name.text, shown_names)
    refuse(name.source, f"{shown(name.text)} is not a key of {where}", remedy)


def _wrong_layer(name: Node, key: Key) -> NoReturn:
    allowed = " or ".join(_LAYER_WORDS[layer] for layer in key.layers if layer in _LAYER_WORDS)
    if allowed:
        refuse(name.source, f"'{key.name}' is not for a workspace's policy", f"only {allowed} may say it; remove it")
    refuse(name.source, f"'{key.name}' is for the profiles that come with sbx", "write read and modify rules instead")


def _named(node: Node, key: Key, where: str) -> dict[str, tuple[Source, dict[str, Any]]]:
    if node.kind is not Kind.MAP:
        _wrong_type(node, key, where)
    values: dict[str, tuple[Source, dict[str, Any]]] = {}
    for name, value in _entries(node, where):
        _check_name(name)
        if value.kind is not Kind.MAP:
            got = value.kind.value
            refuse(value.source, f"profile {shown(name.text)} must be a map of keys, not {got}", 'write read: ["./**"]')
        values[name.text] = (name.source, _fixed(value, key, f"profile {shown(name.text)}"))
    return values


def _check_name(name: Node) -> None:
    text = name.text
    if not text or len(text) > 64 or text[0] in "-." or not NAME_CHARACTERS.issuperset(text):
        refuse(
            name.source,
            f"{shown(text)} cannot name a profile",
            "use at most 64 letters, digits, '-', '_' and '.', starting with a letter or digit",
        )


def _version(node: Node, key: Key, where: str) -> int:
    if node.kind is Kind.INT and node.text == str(SCHEMA_VERSION):
        return SCHEMA_VERSION
    if node.kind in (Kind.INT, Kind.FLOAT) or (node.kind is Kind.TEXT and node.text.isdigit()):
        if node.text in ("1", "1.0"):
            refuse(node.source, "schemaVersion 1 is no longer read", f"to migrate: {MIGRATION}")
        refuse(
            node.source, f"schemaVersion {shown(node.text)} is unknown", "this sbx reads 'schemaVersion: 2', a number"
        )
    _wrong_type(node, key, where)


def _text(node: Node, key: Key, where: str) -> str:
    if node.kind is not Kind.TEXT:
        if node.kind in (Kind.INT, Kind.FLOAT, Kind.BOOL):
            refuse(node.source, f"{where} must be text, not {node.kind.value}", f'put it in quotes: "{node.text}"')
        _wrong_type(node, key, where)
    if key.name in ("description", "path") and has_controls(node.text.replace("\n", " ")):
        refuse(node.source, f"{where} has a control character", "write it as plain text")
    return node.text


def _flag(node: Node, key: Key, where: str) -> bool:
    if node.kind is not Kind.BOOL:
        _wrong_type(node, key, where)
    return node.text.lower() == "true"


def _choice(node: Node, key: Key, where: str) -> str:
    if node.kind is Kind.TEXT and node.text in key.choices:
        return node.text
    if node.kind in (Kind.MAP, Kind.LIST, Kind.NULL):
        _wrong_type(node, key, where)
    close = nearest(node.text, key.choices)
    meant = f"did you mean '{close}'?" if close else f"write {' or '.join(key.choices)}"
    refuse(node.source, f"{where} cannot be {shown(node.text)}", meant)


def _profile_name(node: Node, key: Key, where: str) -> Written:
    if node.kind is not Kind.TEXT:
        _wrong_type(node, key, where)
    _check_name(node)
    return Written(node.text, node.source)


def _texts(node: Node, key: Key, where: str) -> list[Node]:
    """The items of a list of texts; a lone text gets the remedy that shows it as a list."""
    if node.kind is Kind.TEXT:
        refuse(
            node.source,
            f"{where} must be {key.type.value}, not text",
            f'write {key.name}: ["{_one_line(node.text[:60])}"]',
        )
    if node.kind is not Kind.LIST:
        _wrong_type(node, key, where)
    for item in node.items or ():
        if item.kind in (Kind.INT, Kind.FLOAT, Kind.BOOL):
            refuse(item.source, f"an entry of {where} is {item.kind.value}", f'put it in quotes: "{item.text[:60]}"')
        if item.kind is Kind.NULL:
            refuse(item.source, f"an entry of {where} is empty", "remove it, or write a text in quotes")
        if item.kind is not Kind.TEXT:
            refuse(
                item.source, f"an entry of {where} is {item.kind.value}", "write a text, in quotes where it has {}[]*!&"
            )
    return node.items or []


def _rules(node: Node, key: Key, where: str) -> tuple[Written, ...]:
    rules = []
    for item in _texts(node, key, where):
        try:
            negated = check_rule(item.text)
        except BadGlob as bad:
            message, remedy = remedy_of(bad)
            raise PolicyError(f"rule {shown(item.text)}: {message}", remedy=remedy, source=item.source) from None
        if negated and key.type is Type.DENIES:
            remedy = f"write {shown(item.text[1:])} to deny it, or remove the rule"
            refuse(item.source, f"rule {shown(item.text)}: a deny cannot be negated or undone", remedy)
        rules.append(Written(item.text, item.source))
    return tuple(rules)


def _paths(node: Node, key: Key, where: str) -> tuple[str, ...]:
    items = _texts(node, key, where)
    for item in items:
        if not item.text.startswith("/"):
            refuse(item.source, f"{shown(item.text)} in {where} is not absolute", f"write it as in {key.example}")
    return tuple(item.text for item in items)


def _network(node: Node, key: Key, where: str) -> tuple[Source, str | dict[str, Any]]:
    if node.kind is Kind.MAP:
        return node.source, _fixed(node, key, where)
    if node.kind in (Kind.LIST, Kind.NULL):
        refuse(node.source, f"{where} must be {key.type.value}, not {node.kind.value}",
               'write network: {allow: ["api.example.com:443"]}')  # fmt: skip
    if ":" in node.text:
        refuse(
            node.source,
            f"{where} cannot be {shown(node.text)}",
            f'write network: {{allow: ["{_one_line(node.text[:60])}"]}}',
        )
    return node.source, _choice(node, key, where)


def _hosts(node: Node, key: Key, where: str) -> tuple[Written, ...]:
    return tuple(Written(check_host(item.text, item.source), item.source) for item in _texts(node, key, where))


def check_host(text: str, source: Source) -> str:
    """A `host:port` of an allow list in its one spelling."""
    from sbx.network.hosts import join_authority, parse_rule  # only a policy with an allow list pays for it

    try:
        rule = parse_rule(text, source)
    except ValueError as bad:
        remedy = "write HOST:PORT, as in api.example.com:443"
        raise PolicyError(_one_line(str(bad)), remedy=remedy, source=source) from None
    return ("*." if rule.wildcard else "") + join_authority(rule.host, rule.port)


def _one_line(text: str) -> str:
    return shown(text, limit=300)[1:-1]


def _names(node: Node, key: Key, where: str) -> tuple[str, ...]:
    items = _texts(node, key, where)
    for item in items:
        check_variable(item.text, item.source, globs=True)
    return tuple(item.text for item in items)


def check_variable(name: str, source: Source, *, globs: bool) -> None:
    allowed = "_*?" if globs else "_"
    if name and not name[0].isdigit() and all(char.isascii() and (char.isalnum() or char in allowed) for char in name):
        return
    if "=" in name:
        refuse(source, f"{shown(name)} gives a value where a name belongs", 'write it under set: {NAME: "value"}')
    refuse(source, f"{shown(name)} is not the name of a variable", "use letters, digits and '_', as in CC"
           + (' or "CARGO_*"' if globs else ""))  # fmt: skip


def _values(node: Node, key: Key, where: str) -> tuple[tuple[str, str], ...]:
    if node.kind is not Kind.MAP:
        _wrong_type(node, key, where)
    values = []
    for name, value in _entries(node, where):
        check_variable(name.text, name.source, globs=False)
        text = _text(value, Key(name.text, Type.TEXT, "", '"…"'), f"variable {name.text}")
        if "\0" in text:
            refuse(value.source, f"variable {name.text} has a NUL byte in its value", "remove it")
        values.append((name.text, text))
    return tuple(values)


def _duration(node: Node, key: Key, where: str) -> float:
    seconds = _unit(node, key, where, parse_duration)
    if not seconds and key.name != "grace":
        refuse(node.source, f"{where} is zero", f"leave it out for no limit, or write {key.name}: {key.example}")
    return float(seconds)


def _size(node: Node, key: Key, where: str) -> int:
    size = _unit(node, key, where, parse_size)
    if not size and key.name == "memory":
        refuse(node.source, f"{where} is zero", f"leave it out for no limit, or write {key.name}: {key.example}")
    return int(size)


def _count(node: Node, key: Key, where: str) -> int:
    count = _unit(node, key, where, parse_count)
    if not count:
        refuse(node.source, f"{where} is zero", f"leave it out for no limit, or write {key.name}: {key.example}")
    if key.name == "nofile" and count < LEAST_NOFILE:
        refuse(node.source, f"{where} is too small to start a command", f"give at least {LEAST_NOFILE}")
    return int(count)


def _unit(node: Node, key: Key, where: str, parse: Callable[[str], float]) -> float:
    if node.kind not in (Kind.TEXT, Kind.INT, Kind.FLOAT):
        _wrong_type(node, key, where)
    try:
        return parse(node.text)
    except BadUnit as bad:
        message, _, remedy = str(bad).partition("; ")
        raise PolicyError(f"{where}: {message}", remedy=remedy, source=node.source) from None


def _tests(node: Node, key: Key, where: str) -> tuple[tuple[Source, dict[str, Any]], ...]:
    if node.kind is not Kind.LIST:
        _wrong_type(node, key, where)
    tests = []
    for item in node.items or ():
        values = _fixed(item, key, "a test")
        if "read" not in values and "modify" not in values:
            refuse(item.source, "a test expects nothing", "add read: allow, read: deny, modify: allow or modify: deny")
        tests.append((item.source, values))
    return tuple(tests)


_VALIDATORS: dict[Type, Callable[[Node, Key, str], Any]] = {
    Type.VERSION: _version,
    Type.TEXT: _text,
    Type.FLAG: _flag,
    Type.CHOICE: _choice,
    Type.PROFILE_NAME: _profile_name,
    Type.RULES: _rules,
    Type.DENIES: _rules,
    Type.PATHS: _paths,
    Type.NETWORK: _network,
    Type.HOSTS: _hosts,
    Type.NAMES: _names,
    Type.VALUES: _values,
    Type.DURATION: _duration,
    Type.SIZE: _size,
    Type.COUNT: _count,
    Type.TESTS: _tests,
    Type.FIXED: _fixed,
    Type.NAMED: _named,
}
