"""The parts of ruamel.yaml say the same as the whole of it, of good texts and of bad ones."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbx.policy import yaml_parts
from sbx.policy.folders import shipped_folder

GOOD = [
    "",
    "# nothing\n",
    "a: 1",
    "a: [1, 2, {b: c}]\n? x\n: y\n",
    'read: ["./**", "!./x/**"]\nmodify:\n  - "a"\n  - b # comment\n\n# more\nlast: |\n  some\n  text\n',
    "text: >-\n  folded\n  lines\n\n  more\nquoted: 'it''s'\nescaped: \"a\\tb\\u00e9\\n\"\n",
    "%YAML 1.1\n---\na: yes\n",
    "%YAML 1.2\n%TAG !e! tag:example.com,2000:\n---\na: !e!x 1\n",
    "--- a\n--- b\n...\n",
    "a: &x 1\nb: *x\nc: !!str 3\n",
    "é: ü\U0001f600\n",
    "\ufeffa: 1\n",
    "{a: 1, b}: [c: d]\n",
    '{"a":1, "b":2}',
    "{a:1}",
]
BAD = [
    "a: [1, 2",
    "a: 'open",
    "a: b: c",
    "\ta: 1",
    "a:\n\t- b",
    "- a\nb: c",
    "a: @x",
    "a: %x",
    "a: *",
    "a: &",
    'a: "\\q"',
    "%YAML 2.0\n---\na: 1",
    "%YAML 1.1\n%YAML 1.1\n---\na: 1",
    "a: \x01",
    "a: é\x01",
    "a: !<x\n",
    "}",
    "a: |9x\n",
    "? a\nb\n: c\n- d",
]


def whole(text: str) -> Iterable[Any]:
    from ruamel.yaml import YAML

    return YAML(typ="safe", pure=True).parse(text)


def told(events: Iterable[Any]) -> list[Any]:
    """Everything that can be seen of the events, and of the error that ends them."""
    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for event in events:
                marks = [(mark.line, mark.column, mark.index) for mark in (event.start_mark, event.end_mark)]
                values = {name: str(getattr(event, name)) for name in ("anchor", "tag", "implicit", "value", "style",
                          "flow_style", "explicit", "version", "tags") if hasattr(event, name)}  # fmt: skip
                found.append((type(event).__name__, marks, values))
        except Exception as error:
            mark = getattr(error, "problem_mark", None)
            place = None if mark is None else (mark.line, mark.column)
            kinds = [kind.__name__ for kind in type(error).__mro__]
            found.append((kinds, str(error), getattr(error, "problem", None), getattr(error, "context", None), place))
    return found


@pytest.mark.parametrize("text", [*GOOD, *BAD])
def test_the_same_is_said(text: str) -> None:
    assert told(yaml_parts.events(text)) == told(whole(text))


@pytest.mark.parametrize("path", sorted(Path(shipped_folder()).glob("*.yaml")), ids=lambda path: str(path.name))
def test_the_same_is_said_of_what_is_shipped(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert told(yaml_parts.events(text)) == told(whole(text))


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="ab1 \n\t-:,[]{}\"'#&*!|>%?@\\é~./", max_size=60))
def test_the_same_is_said_of_any_text(text: str) -> None:
    assert told(yaml_parts.events(text)) == told(whole(text))


def test_nobody_else_meets_the_parts() -> None:
    """Neither before nor after: `import ruamel.yaml` is what it was."""
    code = (
        "import sys\nfrom sbx.policy import yaml_parts\nlist(yaml_parts.events('a: 1'))\n"
        "assert not [name for name in sys.modules if name.startswith('ruamel.')], sys.modules\n"
        "from ruamel.yaml import YAML\nimport ruamel.yaml.reader\n"
        "assert YAML(typ='safe', pure=True).load('a: [1, 2020-01-01]')['a'][0] == 1\n"
        "assert ruamel.yaml.reader is not yaml_parts.modules()['reader']\n"
        "list(yaml_parts.events('b: é\\u2028'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
