"""The table of coding agents and what becomes of their arguments, with stand-ins for the programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sbx.errors import PolicyError, UsageError
from sbx.model.glob import escape
from sbx.policy.agents import Agent, SideRootForm, adapt, load_agents, parse_agents
from sbx.policy.document import Adapted
from sbx.policy.folders import shipped_folder

STAND_IN = """\
import os, pathlib, sys
print("\\n".join(sys.argv[1:]))
state = pathlib.Path(os.environ["HOME"], "." + os.path.basename(sys.argv[0]))
state.mkdir(exist_ok=True)
(state / "session").touch()
"""


@pytest.fixture(scope="module")
def table() -> dict[str, Agent]:
    return load_agents()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("work", "side one", "other", "home"):
        (tmp_path / name).mkdir()
    return tmp_path.resolve()


def adapted(table: dict[str, Agent], place: Path, *argv: str, keep_inner: bool = False) -> Adapted:
    return adapt(argv, table, keep_inner, cwd=str(place / "work"), home=str(place / "home"))


def subtree(path: Path) -> str:
    return escape(str(path)) + "/**"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("codex",), ("codex", "--sandbox", "danger-full-access")),
        (("/opt/bin/codex", "exec", "do it"), ("/opt/bin/codex", "--sandbox", "danger-full-access", "exec", "do it")),
        (("codex", "-s", "read-only", "x"), ("codex", "--sandbox", "danger-full-access", "x")),
        (("codex", "--sandbox=read-only", "x"), ("codex", "--sandbox", "danger-full-access", "x")),
        (("codex", "exec", "--full-auto"), ("codex", "--sandbox", "danger-full-access", "exec")),
        (("codex", "--", "-s", "x"), ("codex", "--sandbox", "danger-full-access", "--", "-s", "x")),
        (("claude", "-p", "hi"), ("claude", "--settings", '{"sandbox": {"enabled": false}}', "-p", "hi")),
        (("gemini", "-s", "-p", "hi"), ("gemini", "--sandbox=false", "-p", "hi")),
        (("gemini",), ("gemini", "--sandbox=false")),
    ],
)
def test_the_inner_sandbox_is_switched_off_and_that_is_said(
    table: dict[str, Agent], place: Path, argv: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    made = adapted(table, place, *argv)
    assert made.argv == expected
    assert len(made.notes) == 1
    assert "--keep-inner-sandbox" in made.notes[0]
    assert " ".join(table[Path(argv[0]).name].sandbox_off) in made.notes[0]


@pytest.mark.parametrize("name", ["codex", "claude", "gemini"])
def test_it_can_be_kept(table: dict[str, Agent], place: Path, name: str) -> None:
    assert adapted(table, place, name, "-s", "x", keep_inner=True) == Adapted((name, "-s", "x"), (), ())


@pytest.mark.parametrize(
    "argv",
    [("codex", "--dangerously-bypass-approvals-and-sandbox"), ("codex", "--yolo"), ("gemini", "--sandbox=false")],
)
def test_what_is_off_already_is_left_alone(table: dict[str, Agent], place: Path, argv: tuple[str, ...]) -> None:
    assert adapted(table, place, *argv) == Adapted(argv, (), ())


def test_settings_of_the_callers_own_are_respected_and_said(table: dict[str, Agent], place: Path) -> None:
    for given in (("--settings", "mine.json"), ("--settings=mine.json",)):
        made = adapted(table, place, "claude", *given)
        assert made.argv == ("claude", *given)
        assert "--settings decides" in made.notes[0]


def test_other_commands_are_not_touched(table: dict[str, Agent], place: Path) -> None:
    for argv in (("make", "--add-dir", "/"), ("my-codex",), ("codex.py",), ()):
        assert adapted(table, place, *argv) == Adapted(argv, (), ())


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("codex", "--add-dir", "../side one", "--add-dir=../other"), ["side one", "other"]),
        (("codex", "--add-dir", "../other", "../side one"), ["other"]),
        (("claude", "--add-dir", "../side one", "../other", "-p", "../work"), ["side one", "other"]),
        (("gemini", "--include-directories", "../side one,../other"), ["side one", "other"]),
        (("gemini", "--include-directories", "../other", "--include-directories=../other"), ["other"]),
        (("codex", "--", "--add-dir", "../other"), []),
        (("codex", "--add-dir"), []),
    ],
)
def test_side_roots_become_narrow_allowances(
    table: dict[str, Agent], place: Path, argv: tuple[str, ...], expected: list[str]
) -> None:
    made = adapted(table, place, *argv)
    assert list(made.modify_rules) == [subtree(place / name) for name in expected]
    for name in expected:
        assert any(str(place / name) in note for note in made.notes)
    kept = [each for each in made.argv if each not in table[argv[0]].sandbox_off]
    assert kept == list(argv), "the agent is told of them too"


def test_a_side_root_is_where_it_really_is(table: dict[str, Agent], place: Path) -> None:
    (place / "work" / "link").symlink_to(place / "other")
    assert adapted(table, place, "codex", "--add-dir", "link").modify_rules == (subtree(place / "other"),)


def test_a_prompt_is_no_side_root(table: dict[str, Agent], place: Path) -> None:
    made = adapted(table, place, "claude", "--add-dir", "../other", "fix the tests")
    assert made.modify_rules == (subtree(place / "other"),)
    assert any("'fix the tests' is no folder" in note for note in made.notes)


def test_special_characters_of_a_side_root_stay_literal(table: dict[str, Agent], place: Path) -> None:
    (place / "a*[b]").mkdir()
    assert adapted(table, place, "codex", "--add-dir", "../a*[b]").modify_rules == (subtree(place / "a*[b]"),)


@pytest.mark.parametrize("root", ["/", "..", "../home", "../link"])
def test_a_side_root_that_holds_the_home_folder_is_refused(table: dict[str, Agent], place: Path, root: str) -> None:
    (place / "link").symlink_to(place / "home")
    with pytest.raises(UsageError, match="holds your home folder") as caught:
        adapted(table, place, "codex", "--add-dir", root)
    assert caught.value.remedy


def test_the_table_agrees_with_the_agent_profile(table: dict[str, Agent]) -> None:
    """Two places name the state folders: the profile that grants them, and the table that says whose they are."""
    from sbx.policy.load import load_file

    (profile,) = (
        each for each in load_file(f"{shipped_folder()}/profiles.yaml", "shipped").profiles if each.name == "agent"
    )
    granted = {written.text for written in profile.state_folders if not written.text.startswith("!")}
    assert granted == {folder for agent in table.values() for folder in agent.state_folders}
    assert set(table) == {"codex", "claude", "gemini"}
    assert table["claude"].side_root_form is SideRootForm.SEVERAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schemaVersion: 1\nagents: {}", "must be 2"),
        ("schemaVersion: 2", "no key 'agents'"),
        ("schemaVersion: 2\nagents: {x: {stateFolder: []}}", "unknown key 'stateFolder'"),
        ("schemaVersion: 2\nagents: {x: {sideRoots: a}}", "must be a list"),
        ("schemaVersion: 2\nagents: {x: {sideRoots: [1]}}", "must be text"),
        ("schemaVersion: 2\nagents: {x: {sideRootForm: two}}", "none of one, several, commas"),
        ("schemaVersion: 2\nagents: {x: {}, x: {}}", "twice"),
        ("schemaVersion: 2\nagents: []", "must be a map"),
    ],
)
def test_a_bad_table_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words) as caught:
        parse_agents(text, "agents.yaml")
    assert caught.value.source is not None
    assert caught.value.source.line


@pytest.mark.parametrize("name", ["codex", "claude", "gemini"])
def test_a_stand_in_gets_the_arguments(table: dict[str, Agent], place: Path, name: str) -> None:
    program = place / name
    program.write_text(f"#!{sys.executable}\n{STAND_IN}")
    program.chmod(0o755)
    option = table[name].side_roots[0]
    made = adapted(table, place, str(program), option, "../other")
    done = subprocess.run(
        made.argv, env={"HOME": str(place / "home")}, cwd=place / "work", capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [*table[name].sandbox_off, option, "../other"]
    assert (place / "home" / f".{name}" / "session").exists(), "the stand-in touches its state folder"
