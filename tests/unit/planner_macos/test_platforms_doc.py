"""docs/platforms.md has a row for every capability of macOS and Windows, and agrees with what the backends report."""

from __future__ import annotations

from pathlib import Path

import pytest

import sbx
from sbx.backends import macos, windows
from sbx.model.guarantee import CAPABILITIES, Applied
from sbx.model.profile import EffectiveProfile, Limits
from sbx.planner.macos import plan

PAGE = Path(sbx.__file__).parent.parent / "docs" / "platforms.md"
STATES = ("enforced and tested", "compiled and not run", "refused")
EVERYTHING = EffectiveProfile(
    "p", "/w", (), (), exec=(),
    limits=Limits(wall_s=1, cpu_s=1, memory_bytes=1, pids=1, nofile=1, stdout_bytes=1, stderr_bytes=1),
)  # fmt: skip


def states(platform: str) -> dict[str, str]:
    section = PAGE.read_text().partition(f"## {platform}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {cells[0].strip(): cells[-1].strip() for cells in rows[2:]}


def reported(platform: str) -> dict[str, Applied]:
    if platform == "Windows":
        return windows.enforced(EVERYTHING)
    return macos.enforced(macos.Prepared(EVERYTHING, plan(EVERYTHING, "/w"), True))


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not part of an installed package")
@pytest.mark.parametrize("platform", ["macOS", "Windows"])
def test_the_page_says_what_the_backend_reports(platform: str) -> None:
    page, report = states(platform), reported(platform)
    assert list(page) == list(CAPABILITIES)
    for name, state in page.items():
        assert state.startswith(STATES), name
        assert report[name].applied is not state.startswith("refused"), name


@pytest.mark.skipif(not PAGE.exists(), reason="the pages are not part of an installed package")
def test_what_was_not_run_is_labelled() -> None:
    text = PAGE.read_text()
    assert "**Not run on macOS.**" in text
    assert "**Not run on Windows.**" in text
