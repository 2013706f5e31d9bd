"""The JSON Schema, and the tables that stand in hand-written pages between two comments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from generators.facts import VARIABLES
from sbx.cli.commands import COMMANDS
from sbx.planner.exceptions import EXCEPTIONS
from sbx.policy.document import SHIPPED
from sbx.policy.schema import DOCUMENT, Key, Type, json_schema


def schema() -> str:
    return json.dumps(json_schema(), indent=2) + "\n"


def keys_table() -> str:
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *_rows(DOCUMENT, "")])


def _rows(parent: Key, path: str) -> Iterator[str]:
    for key in parent.keys:
        if SHIPPED in key.layers:
            continue
        where = f" Only in the policy of: {', '.join(key.layers)}." if key.layers else ""
        required = " Required." if key.required else ""
        value = _cell(key.type.value) + (f": `{_cell(key.example)}`" if not key.keys else "")
        default = f"`{_cell(key.default)}`" if key.default else ""
        yield f"| `{path}{key.name}` | {value} | {default} | {_cell(key.doc)}{where}{required} |"
        if key.keys:
            middle = {Type.NAMED: ".NAME.", Type.TESTS: "[]."}.get(key.type, ".")
            yield from _rows(key, f"{path}{key.name}{middle}")


def _cell(words: str) -> str:
    return words.replace("|", "\\|")


def commands_table() -> str:
    rows = []
    for command in COMMANDS:
        line = _cell(f"sbx {command.name} {command.words}".strip())
        rows.append(f"| `{line}` | {_cell(command.summary)} |")
    return "\n".join(["| command | does |", "|---|---|", *rows])


def variables_table() -> str:
    rows = [f"| `{name}` | {_cell(words)} |" for name, words in VARIABLES]
    return "\n".join(["| variable | meaning |", "|---|---|", *rows])


def exceptions_table() -> str:
    rows = [
        f"| {each.id} | {each.exactness.value} | {', '.join(each.backends)} | {_cell(each.sentence)} |"
        for each in EXCEPTIONS.values()
    ]
    return "\n".join(["| name | a rule is then | with | |", "|---|---|---|---|", *rows])


# Page -> name of a table in it -> how it is made.
TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "README.md": {"commands": commands_table},
    "docs/policy.md": {"keys": keys_table, "exceptions": exceptions_table},
    "docs/troubleshooting.md": {"variables": variables_table},
}


def filled(page: str, tables: dict[str, Callable[[], str]]) -> str:
    """The page with each table between its comments written anew."""
    for name, make in tables.items():
        begin, end = f"<!-- generated: {name} -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        if not found or not closed:
            raise ValueError(f"the comments around the table '{name}' are missing")
        page = f"{before}{begin}{make()}\n{end}{after}"
    return page
