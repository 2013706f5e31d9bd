"""The measure of what the tests reach: lines of processes that can write no file count too, and nobody sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from covered import measure

MEASURED = """
import os, sys
before = set(sys.modules), os.listdir("/proc/self/fd")
sys.path.insert(0, sys.argv[2])
import covered_lines
covered_lines.start(sys.argv[1])
del sys.modules["covered_lines"]
assert (set(sys.modules), os.listdir("/proc/self/fd")) == before
sys.path.append(sys.argv[3])
from sbx.model import units
if os.fork() == 0:
    units.parse_duration("5m")
    os.kill(os.getpid(), 9)
os.wait()
"""


@pytest.fixture
def reached(tmp_path: Path) -> dict[str, set[int]]:
    place = tmp_path / "map"
    measure.make_map(place)
    argv = [sys.executable, "-I", "-c", MEASURED, str(place), str(measure.HERE), str(measure.TOP)]
    env = {name: value for name, value in os.environ.items() if name != "COVERED_LINES"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return {os.path.relpath(name, measure.TOP): lines for name, lines in measure.executed(place).items()}


def test_a_killed_child_counts(reached: dict[str, set[int]]) -> None:
    text = (measure.TOP / "sbx/model/units.py").read_text().splitlines()
    inside = {number for number, line in enumerate(text, 1) if "def parse_duration" in line}
    after = min(number for number in reached["sbx/model/units.py"] if number > min(inside))
    assert text[after - 1].startswith("    "), "a line of the function's own"


def test_what_nobody_called_does_not(reached: dict[str, set[int]]) -> None:
    assert reached["sbx/launch/inside.py"] == set()
    text = (measure.TOP / "sbx/model/units.py").read_text().splitlines()
    start = next(number for number, line in enumerate(text, 1) if "def parse_size" in line)
    assert start in reached["sbx/model/units.py"], "the module was executed"
    body = [number for number in range(start + 1, start + 4) if text[number - 1].startswith("    ")]
    assert not set(body) & reached["sbx/model/units.py"]


def test_the_aims_are_those_of_the_house() -> None:
    assert [(name, aim) for name, _, aim in measure.AIMS] == [("overall", 85), ("enforcement", 90)]
