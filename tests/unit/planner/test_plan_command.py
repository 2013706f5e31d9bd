"""`sbx plan`, called as the command line calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbx.cli.plan import command
from sbx.errors import UsageError
from sbx.planner.plan_json import plan_from_json

POLICY = """\
schemaVersion: 2
denyRead: ["**/*.env"]
fsProfiles:
  build:
    read: ["./**"]
    modify: ["out/**"]
    env: {set: {API_TOKEN: hunter2, CI: "1"}}
"""


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "x.env").touch()
    (workspace / "sbx.yaml").write_text(POLICY)
    monkeypatch.chdir(workspace)
    return str(workspace / "sbx.yaml")


def test_json_is_the_plan_without_secrets(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"policy": policy, "profile": "build", "json": True, "platform": "linux"}
    assert command(options, ["make"]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert dict(plan_from_json(text).env.set_values)["CI"] == "1"
    masked = [each["path"] for each in json.loads(text)["operations"] if each["op"] == "mask"]
    assert any(path.endswith("/ws/x.env") for path in masked) or json.loads(text)["backend"] == "landlock"


def test_planning_makes_nothing(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command({"policy": policy, "profile": "build", "platform": "linux"}, []) == 0
    text = capsys.readouterr().out
    assert f"make-dir  {Path(policy).resolve().parent}/out" in text
    assert not (Path(policy).parent / "out").exists()
    assert "!**/*.env" in text
    assert "sbx.yaml:2" in text
    assert "hunter2" not in text


@pytest.mark.parametrize("platform", ["linux", "macos", "windows"])
def test_every_platform_can_be_planned_for(policy: str, platform: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command({"policy": policy, "profile": "build", "platform": platform}, []) == 0
    assert capsys.readouterr().out.startswith(f"platform: {platform}")


def test_the_macos_form(policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command({"policy": policy, "profile": "build", "format": "sbpl"}, []) == 0
    assert "(deny default)" in capsys.readouterr().out


@pytest.mark.parametrize("options", [{"platform": "plan9"}, {"format": "xml"}, {"format": "sbpl", "platform": "linux"}])
def test_choices_that_do_not_exist_are_refused(policy: str, options: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        command({"policy": policy, **options}, [])
