"""Which lines of sbx the tests execute, in all processes that they start (see covered_lines.py).

measure.py begin MAP    make the map; every test run with COVERED_LINES=MAP in its environment adds to it
measure.py end MAP      say what was reached; 1 where a figure is below its aim
"""

from __future__ import annotations

import io
import marshal
import os
import sys
import sysconfig
import tempfile
from pathlib import Path

import coverage

HERE = Path(__file__).resolve().parent
TOP = HERE.parent.parent
STARTER = Path(sysconfig.get_path("purelib")) / "covered_lines.pth"
START = (
    'import os, sys; "COVERED_LINES" in os.environ and '
    "(sys.path.insert(0, {0!r}), "
    '__import__("covered_lines").start(os.environ["COVERED_LINES"]), '
    'sys.path.remove({0!r}), sys.modules.pop("covered_lines"))\n'
)

# What has to hold against a command, and how much of it the tests must reach, in per cent.
ENFORCEMENT = ("launch", "kernel", "backends", "planner", "model")
AIMS = (("overall", ["sbx/*"], 85), ("enforcement", [f"sbx/{room}/*" for room in ENFORCEMENT], 90))


def places() -> tuple[dict[str, int], int]:
    """Where in the map the bytes of each file are, and where they all end."""
    bases, end = {}, 8
    for path in sorted((TOP / "sbx").rglob("*.py")):
        bases[str(path)] = end
        end += path.read_bytes().count(b"\n") + 2
    return bases, end


def make_map(path: Path) -> None:
    bases, end = places()
    path.write_bytes(end.to_bytes(8, "little") + bytes(end - 8) + marshal.dumps(bases))


def begin(path: Path) -> int:
    make_map(path)
    STARTER.write_text(START.format(str(HERE)))
    return 0


def executed(path: Path) -> dict[str, set[int]]:
    content = path.read_bytes()
    end = int.from_bytes(content[:8], "little")
    starts = sorted((base, name) for name, base in marshal.loads(content[end:]).items())
    ends = [base for base, _ in starts[1:]] + [end]
    return {
        name: {line for line in range(1, after - base) if content[base + line]}
        for (base, name), after in zip(starts, ends, strict=True)
    }


def finish(path: Path) -> int:
    STARTER.unlink(missing_ok=True)
    os.chdir(TOP)
    with tempfile.TemporaryDirectory() as folder:
        measured = coverage.Coverage(data_file=os.path.join(folder, "data"), config_file="pyproject.toml")
        measured.load()
        measured.get_data().add_lines(executed(path))
        measured.report(skip_covered=True, sort="-miss")
        failed = False
        for name, include, aim in AIMS:
            figure = measured.report(include=include, file=io.StringIO())
            print(f"{name}: {figure:.1f} % of the lines, {aim} wanted")
            failed = failed or figure < aim
    return int(failed)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("begin", "end"):
        sys.exit(__doc__)
    sys.exit({"begin": begin, "end": finish}[sys.argv[1]](Path(sys.argv[2]).resolve()))
