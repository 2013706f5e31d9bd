"""Coding agents under `--profile agent`, with stand-ins that print their arguments and touch their folders."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from capabilities import requires

if TYPE_CHECKING:
    from conftest import Workspace
    from runs import Host

pytestmark = requires("userns")

STAND_IN = """#!/bin/sh
for word in "$@"; do echo "argument $word"; done
for place in $TOUCH; do
    if touch "$place" 2>/dev/null; then echo "wrote $place"; else echo "no $place"; fi
done
exit 5
"""
OFF = {
    "codex": ["--sandbox", "danger-full-access"],
    "claude": ["--settings", '{"sandbox": {"enabled": false}}'],
    "gemini": ["--sandbox=false"],
}


@pytest.fixture(autouse=True)
def programs(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the workspace, which every profile shows."""
    folder = workspace.root / "bin"
    folder.mkdir()
    for name in (*OFF, "other"):
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


@pytest.fixture
def agents(here: Host, programs: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")  # `here` has set its own
    return here


def run(host: Host, *words: str, touch: str = "", profile: str = "agent") -> tuple[int, list[str], str]:
    done = host.run("--profile", profile, "--env", f"TOUCH={touch}", *words)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode()


def arguments(lines: list[str]) -> list[str]:
    return [line.removeprefix("argument ") for line in lines if line.startswith("argument ")]


@pytest.mark.parametrize("name", list(OFF))
def test_its_own_sandbox_is_switched_off_and_that_is_said(agents: Host, name: str) -> None:
    for _ in range(2):  # the second time there is a stored plan
        rc, lines, said = run(agents, "--", name, "do", "it")
        assert rc == 5
        assert arguments(lines) == [*OFF[name], "do", "it"]
        assert f"sbx: {name}: its own sandbox cannot run inside this one, so sbx adds {' '.join(OFF[name])}" in said


@pytest.mark.parametrize("name", list(OFF))
def test_it_can_be_kept(agents: Host, name: str) -> None:
    _, lines, said = run(agents, "--keep-inner-sandbox", "--", name, "do", "it")
    assert arguments(lines) == ["do", "it"]
    assert "its own sandbox" not in said


def test_other_commands_and_other_profiles_stay_as_they_are(agents: Host) -> None:
    assert arguments(run(agents, "--", "other", "-s", "x")[1]) == ["-s", "x"]
    assert arguments(run(agents, "--", "codex", "-s", "x", profile="build")[1]) == ["-s", "x"]


def test_a_stored_plan_of_another_command_does_not_hide_the_adaptation(agents: Host) -> None:
    for _ in range(2):
        run(agents, "--", "other")
    assert arguments(run(agents, "--", "codex")[1]) == OFF["codex"]


def test_a_profile_that_extends_agent(agents: Host, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  mine: {extends: agent, network: none}\n")
    monkeypatch.setenv("SBX_TRUST_WORKSPACE", "1")
    assert arguments(run(agents, "--", "gemini", profile="mine")[1]) == OFF["gemini"]


@pytest.mark.parametrize(("name", "folder"), [("codex", ".codex"), ("claude", ".claude"), ("gemini", ".gemini")])
def test_its_state_folder_may_be_written(agents: Host, workspace: Workspace, name: str, folder: str) -> None:
    state = workspace.home / folder
    state.mkdir()
    outside = workspace.home / "notes"
    _, lines, _ = run(agents, "--", name, touch=f"{state}/session {outside}")
    assert f"wrote {state}/session" in lines
    assert f"no {outside}" in lines
    assert (state / "session").exists()
    assert not outside.exists()


def test_a_state_folder_named_by_the_environment(
    agents: Host, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = workspace.home / "elsewhere"
    state.mkdir()
    monkeypatch.setenv("CODEX_HOME", str(state))
    assert f"wrote {state}/x" in run(agents, "--", "codex", touch=f"{state}/x")[1]


@pytest.mark.parametrize(
    ("name", "option"), [("codex", "--add-dir"), ("claude", "--add-dir"), ("gemini", "--include-directories")]
)
def test_side_roots_are_narrow_write_allowances(agents: Host, workspace: Workspace, name: str, option: str) -> None:
    side, other = workspace.home / "side", workspace.home / "other"
    side.mkdir()
    other.mkdir()
    for _ in range(2):
        _, lines, said = run(agents, "--", name, option, str(side), touch=f"{side}/x {other}/x")
        assert f"wrote {side}/x" in lines
        assert f"no {other}/x" in lines
        assert f"{name}: {option} lets it write below '{side}'" in said
    # The next run, without the option, has nothing of it.
    assert f"no {side}/x" in run(agents, "--", name, touch=f"{side}/x")[1]


def test_a_side_root_stands_after_the_shipped_denies_and_before_the_users(agents: Host, workspace: Workspace) -> None:
    side = workspace.home / "side"
    (side / ".git" / "hooks").mkdir(parents=True)
    (side / "secret").mkdir()
    touch = f"{side}/.git/hooks/x {side}/secret/x"
    _, lines, _ = run(agents, "--deny", f"{side}/secret/**", "--", "codex", "--add-dir", str(side), touch=touch)
    assert f"wrote {side}/.git/hooks/x" in lines
    assert f"no {side}/secret/x" in lines


def test_the_home_folder_is_no_side_root(agents: Host, workspace: Workspace) -> None:
    rc, lines, said = run(agents, "--", "codex", "--add-dir", os.path.dirname(workspace.home))
    assert (rc, lines) == (125, [])
    assert "holds your home folder" in said


def test_the_record_names_the_command_as_it_was_run(agents: Host, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    run(agents, "--json", str(file), "--", "codex", "x")
    assert json.loads(file.read_text())["cmd"] == ["codex", *OFF["codex"], "x"]


def test_the_plan_shows_the_side_root(agents: Host, workspace: Workspace) -> None:
    side = workspace.home / "side"
    side.mkdir()
    said = agents.run("--profile", "agent", "--", "codex", "--add-dir", str(side), word="plan")
    assert f"bind-rw   {side} # {side}/**  codex (side root)" in said.stdout.decode()
