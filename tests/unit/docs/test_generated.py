"""What is generated is what the code says now, and the manual pages are clean."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import generate
import pytest
from capabilities import requires
from generators import facts, manual, shells

import sbx
from sbx.cli.commands import COMMANDS
from sbx.model.result import Status
from sbx.policy.document import SHIPPED
from sbx.policy.schema import DOCUMENT, Key

TOP = Path(__file__).parents[3]
SET_BY_SBX = ("SBX_PYTHON", "SBX_PYTEST_INSIDE")
GENERATED = generate.generated(TOP)


@pytest.mark.parametrize("name", GENERATED)
def test_it_is_up_to_date(name: str) -> None:
    assert (TOP / name).read_text(encoding="utf-8") == GENERATED[name], "run 'make docs'"


def test_no_page_is_left_of_a_command_that_is_gone() -> None:
    assert generate.stale(TOP) == []


def test_a_change_is_noticed(tmp_path: Path) -> None:
    for name, text in GENERATED.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert generate.differing(tmp_path) == {}
    page = tmp_path / "man/man1/sbx-run.1"
    page.write_text(page.read_text().replace("timeout", "time-out"))
    (tmp_path / "man/man1/sbx-gone.1").write_text("")
    assert list(generate.differing(tmp_path)) == ["man/man1/sbx-run.1"]
    assert generate.stale(tmp_path) == ["man/man1/sbx-gone.1"]


@requires(tools=["mandoc"])
@pytest.mark.parametrize("name", [name for name in GENERATED if name.startswith("man/")])
def test_manual_pages_are_clean(name: str) -> None:
    done = subprocess.run(["mandoc", "-T", "lint", str(TOP / name)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_every_option_is_in_its_page_and_its_completions() -> None:
    bash, zsh, fish = shells.completions().values()
    for command in COMMANDS:
        page = manual.pages()[f"sbx-{command.name}.1"]
        for row in command.options:
            assert f"\\fB{manual.literal('--' + row[0])}\\fR" in page
            assert f"--{row[0]}" in bash
            assert f"--{row[0]}" in zsh
            assert f"'__sbx_at {command.name} options' -l {row[0]} " in fish


def keys_of(parent: Key) -> set[str]:
    shown = [key for key in parent.keys if SHIPPED not in key.layers]
    return {key.name for key in shown}.union(*(keys_of(key) for key in shown))


def test_every_key_is_in_the_manual_the_reference_and_the_schema() -> None:
    schema = json.loads(GENERATED["docs/policy.schema.json"])
    listed = json.dumps(schema)
    for name in keys_of(DOCUMENT):
        assert f"\\fB{name}\\fR:" in GENERATED["man/man5/sbx-policy.5"]
        assert f"{name}` |" in GENERATED["docs/policy.md"]
        assert f'"{name}": ' in listed
    assert "stateFolders" not in listed, "a key for shipped policies alone is nothing for editors"


def test_every_status_is_explained() -> None:
    assert {status for status, _, _ in facts.STATUSES} == set(Status)


def test_every_variable_is_explained() -> None:
    """What the code reads under a name of sbx's own, but for those that it sets itself."""
    found: set[str] = set()
    for path in Path(sbx.__file__).parent.rglob("*.py"):
        found |= set(re.findall(r"\"(SBX_[A-Z_]+)\"", path.read_text(encoding="utf-8")))
    explained = {name for names, _ in facts.VARIABLES for name in names.split(", ")}
    assert {name for name in found if not name.startswith(SET_BY_SBX)} <= explained
