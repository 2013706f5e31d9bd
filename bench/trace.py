"""What `sbx run --trace` costs: a compile of 60 C files, `git status`, and one call, beside strace.

    python bench/trace.py [--rounds N] [--json FILE]

Rounds are interleaved, so that a busy machine disturbs all alike, and the fastest of each counts. `bare` is the command
by itself, `sbx` the same run without a trace. Ratios are of whole runs; `added` compares what tracing adds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

SBX = str(Path(sys.executable).parent / "sbx")
FILES = 60
TRACKED = 2000
CALLS = 20_000
STRACE = ["strace", "-f", "--seccomp-bpf", "-e", "trace=%file", "-o", "/dev/null"]

C_FILE = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n" + "".join(
    f'int f%d_{number}(int a) {{ char b[64]; snprintf(b, 64, "%%d", a * {number}); return (int)strlen(b); }}\n'
    for number in range(20)
)
MAKEFILE = "OBJ := $(patsubst %.c,%.o,$(wildcard *.c))\nall: $(OBJ)\n%.o: %.c\n\t@$(CC) -O1 -c -o $@ $<\n"
ONE_CALL = f"import os\nfor _ in range({CALLS}): os.stat('f0.c')\n"


def compile_project(folder: Path) -> None:
    for number in range(FILES):
        (folder / f"f{number}.c").write_text(C_FILE.replace("%d_", f"{number}_").replace("%%", "%"))
    (folder / "Makefile").write_text(MAKEFILE)


def clean(folder: Path) -> None:
    for path in folder.glob("*.o"):
        path.unlink()


def repository(folder: Path) -> None:
    for number in range(TRACKED):
        path = folder / f"d{number % 40}" / f"{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    settings = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*settings, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def measure(folder: Path, command: list[str], rounds: int, between: Callable[[Path], None]) -> dict[str, float]:
    kinds = {
        "bare": command,
        "sbx": [SBX, "run", "--no-audit", "--", *command],
        "trace": [SBX, "run", "--no-audit", "--trace", "--", *command],
    }
    if shutil.which("strace"):
        kinds["strace"] = [*STRACE, *command]
    best: dict[str, float] = {}
    for _ in range(rounds + 1):  # the first makes the stored plans
        for kind, argv in kinds.items():
            between(folder)
            start = time.perf_counter()
            done = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
            seconds = time.perf_counter() - start
            if done.returncode:
                raise SystemExit(f"{argv} failed: {done.stderr.decode(errors='replace')}")
            best[kind] = min(best.get(kind, seconds), seconds)
    return best


def ratios(best: dict[str, float]) -> dict[str, float]:
    found = {
        "trace/bare": best["trace"] / best["bare"],
        "trace/sbx": best["trace"] / best["sbx"],
    }
    if "strace" in best:
        found["strace/trace"] = best["strace"] / best["trace"]
        found["strace/bare"] = best["strace"] / best["bare"]
        found["added strace/trace"] = (best["strace"] - best["bare"]) / max(best["trace"] - best["sbx"], 1e-6)
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as top:
        project, tracked = Path(top, "project"), Path(top, "tracked")
        project.mkdir()
        tracked.mkdir()
        compile_project(project)
        repository(tracked)
        rows = (
            (f"make, {FILES} C files", project, ["make", "-j2"], clean),
            (f"git status, {TRACKED} files", tracked, ["git", "status", "--short"], lambda _: None),
            (f"stat, {CALLS} times", project, ["/usr/bin/env", "python3", "-S", "-c", ONE_CALL], lambda _: None),
        )
        for name, folder, command, between in rows:
            best = measure(folder, command, chosen.rounds, between)
            results[name] = {"seconds": {kind: round(value, 4) for kind, value in best.items()}, **ratios(best)}
    text = json.dumps(results, indent=2)
    print(text)
    if chosen.json:
        chosen.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
