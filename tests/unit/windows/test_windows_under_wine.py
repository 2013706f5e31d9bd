"""The Windows backend by a Windows Python under Wine: the life of a job, exit codes, streams.

SBX_WINDOWS_PYTHON names a python.exe (the embeddable distribution is enough). Wine accepts limits and tokens without
enforcing them, so nothing here speaks of those: docs/platforms.md marks them unverified.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

import sbx

PYTHON = os.environ.get("SBX_WINDOWS_PYTHON", "")
ROOT = Path(sbx.__file__).parent.parent

pytestmark = [
    pytest.mark.skipif(not PYTHON, reason="SBX_WINDOWS_PYTHON does not name a Windows python.exe"),
    requires(tools=["wine", "wineserver"]),
]


def windows_path(path: Path) -> str:
    return "Z:" + str(path.resolve()).replace("/", "\\")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases in one Wine: starting it takes longer than any of them. Ended before the first test begins."""
    folder = tmp_path_factory.mktemp("wine")
    env = {**os.environ, "WINEPREFIX": str(folder / "prefix"), "WINEDEBUG": "-all", "HOME": str(folder)}
    env.pop("DISPLAY", None)
    driver = Path(__file__).with_name("wine_driver.py")
    command = ["wine", PYTHON, "-X", "utf8", "-B", windows_path(driver), windows_path(ROOT)]
    try:
        subprocess.run(["wine", "wineboot", "-i"], env=env, input=b"", capture_output=True, timeout=200, check=True)
        done = subprocess.run(command, env=env, cwd=folder, input=b"", capture_output=True, timeout=250, check=False)
    finally:
        subprocess.run(["wineserver", "-k", "-w"], env=env, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    loaded: dict[str, Any] = json.loads(done.stdout)
    return loaded


def test_no_case_failed_by_itself(answers: dict[str, Any]) -> None:
    assert {name: each["error"] for name, each in answers.items() if "error" in each} == {}
    assert len(answers) == 8


def test_exit_codes(answers: dict[str, Any]) -> None:
    found = {int(code): (each["status"], each["rc"]) for code, each in answers["exit_codes"].items()}
    assert found == {
        0: ("OK", 0),
        3: ("EXIT", 3),
        259: ("EXIT", 259),
        0xC0000005: ("KILLED_SIGNAL", 139),
        0xC000013A: ("KILLED_SIGNAL", 130),
    }
    assert "STATUS_ACCESS_VIOLATION 0xC0000005" in answers["exit_codes"][str(0xC0000005)]["reason"]


def test_streams_and_environment(answers: dict[str, Any]) -> None:
    assert answers["streams"]["plain"]["stdout"].strip() == r"'m\xe4rk'"
    assert answers["streams"]["plain"]["stderr"] == "''", "standard input is empty"
    assert answers["streams"]["capped"]["stdout"] == "x" * 10
    assert answers["streams"]["capped"]["dropped"] == {"stdout": 992}


def test_the_temporary_folder_is_the_runs_own(answers: dict[str, Any]) -> None:
    assert "LocalLow" in answers["temporary_folder"]["folder"]
    assert answers["temporary_folder"]["removed"]


def test_the_wall_clock_ends_the_job(answers: dict[str, Any]) -> None:
    assert (answers["timeout"]["status"], answers["timeout"]["rc"]) == ("TIMEOUT", 124)


def test_nothing_survives(answers: dict[str, Any]) -> None:
    assert answers["left_behind"]["processes"] == 2, "the grandchild was in the job"
    assert answers["left_behind"]["gone"]
    assert answers["killed_supervisor"]["gone"], "kill on close"


def test_nothing_breaks_away(answers: dict[str, Any]) -> None:
    assert answers["breakaway"] == {"said": ["refused", "5"], "gone": True}


def test_failures_to_start(answers: dict[str, Any]) -> None:
    assert answers["failures"] == {
        "no-such-program.exe": "command_not_found",
        "text.exe": "command_not_executable",
    }
