"""In-process runs, sessions and batch against bwrap: `python bench/library.py [--quick] [--bwrap ARGV…]`.

Prints JSON in the form of harness/script.py. Every round measures each way once, so that what else the machine does
meets all of them alike. Started in the workspace to run in, with the Python that sbx is installed for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROFILE = "build"
TRUE = ["true"]
BWRAP = [
    "bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
    "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--ro-bind-try", "/etc", "/etc",
    "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", os.getcwd(), os.getcwd(),
]  # fmt: skip


def main(arguments: list[str]) -> None:
    quick = "--quick" in arguments
    bwrap = arguments[arguments.index("--bwrap") + 1 :] if "--bwrap" in arguments else BWRAP
    if shutil.which(bwrap[0]) is None:
        sys.exit(f"{bwrap[0]} is not installed")
    sections = [commands(bwrap, 40 if quick else 200), batches(bwrap, *((200, 2) if quick else (1000, 5)))]
    print(json.dumps({"sections": sections}))


def commands(bwrap: list[str], rounds: int) -> dict[str, Any]:
    """One `true` at a time, in milliseconds."""
    import sbx

    with sbx.Session(profile=PROFILE) as shared, sbx.Session(profile=PROFILE, shared=False) as fresh:
        ways: dict[str, Callable[[], object]] = {
            "bwrap": lambda: subprocess.run([*bwrap, *TRUE], check=True),
            "sbx.run": lambda: sbx.run(TRUE, profile=PROFILE, check=True),
            "Session, shared sandbox": lambda: shared.run(TRUE, check=True),
            "Session, fresh sandbox": lambda: fresh.run(TRUE, check=True),
            "subprocess.run, no sandbox": lambda: subprocess.run(TRUE, check=True),
        }
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for at in range(rounds + 3):
            for name, way in ways.items():
                began = time.perf_counter()
                way()
                if at >= 3:
                    samples[name].append((time.perf_counter() - began) * 1000)
    sbx.shutdown()
    return {
        "title": "One `true` from a running program",
        "unit": "ms",
        "samples": samples,
        "reference": "bwrap",
        "checks": [
            {"what": "in-process fresh sandbox", "way": "sbx.run", "reference": "bwrap", "at_most": 1.0},
            check("warm session, shared", "Session, shared sandbox", 0.25),
            check("warm session, fresh sandbox", "Session, fresh sandbox", 0.7),
        ],
        "notes": [
            "bwrap is started by `subprocess.run`, as a program would. A fresh sandbox is set up while the command "
            "before it runs: a program that does nothing else between two commands waits for the rest of that."
        ],
    }


def check(what: str, way: str, at_most: float) -> dict[str, Any]:
    return {"what": what, "way": way, "reference": "bwrap", "at_most": at_most}


def batches(bwrap: list[str], count: int, rounds: int) -> dict[str, Any]:
    """Many `true`, two at a time, in milliseconds for each."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder) / "jobs.jsonl"
        jobs.write_text('{"cmd": ["true"]}\n' * count)
        numbers = "\n".join(str(at) for at in range(count)).encode()
        samples: dict[str, list[float]] = {"xargs -P2 bwrap": [], "sbx batch --jobs 2": []}
        for at in range(rounds):
            out = os.path.join(folder, f"out.{at}")
            began = time.perf_counter()
            subprocess.run(["xargs", "-P2", "-I{}", *bwrap, *TRUE], input=numbers, check=True)
            middle = time.perf_counter()
            batch = [sys.executable, "-m", "sbx", "batch", "--jobs", "2", "--profile", PROFILE, "--out", out, str(jobs)]
            subprocess.run(batch, check=True)
            samples["xargs -P2 bwrap"].append((middle - began) * 1000 / count)
            samples["sbx batch --jobs 2"].append((time.perf_counter() - middle) * 1000 / count)
    return {
        "title": f"{count} `true`, two at a time, a fresh sandbox each",
        "unit": "ms",
        "samples": samples,
        "reference": "xargs -P2 bwrap",
        "checks": [
            {"what": "batch", "way": "sbx batch --jobs 2", "reference": "xargs -P2 bwrap", "at_most": 0.5},
        ],
    }


if __name__ == "__main__":
    main(sys.argv[1:])
