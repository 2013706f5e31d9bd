"""What the first run of a new policy does without: each of these once cost it more than reading the policy does.

Unlike the hot path's (test_hot_path_imports) this is a list of what is too dear, not of all that is allowed: the site
module of some interpreters brings modules of its own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from capabilities import requires

import sbx as package
from sbx.launch import bundle, compile_side

CONSOLE = Path(package.__file__).parent / "launch" / "console.py"

TOO_DEAR = {
    "argparse", "asyncio", "click", "collections", "dataclasses", "datetime", "enum", "functools", "h11", "hashlib",
    "inspect", "json", "logging", "pathlib", "psutil", "random", "re", "rich", "ruamel.yaml", "shutil", "socket",
    "subprocess", "tempfile", "tokenize", "typing", "urllib", "urllib.parse",
}  # fmt: skip

ONLY_FOR_A_REPORT = {"sbx.audit", "sbx.cli.finish", "sbx.report.run", "sbx.supervise.execute", "sbx.supervise.result"}


def imported(arguments: list[str]) -> set[str]:
    start = [sys.executable, "-I", "-S", "-X", "importtime", str(CONSOLE)]
    done = subprocess.run([*start, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


@requires("userns")
def test_a_first_run_does_without_what_is_dear(workspace: Any) -> None:
    imported(["run", "--", "true"])  # the machine's abilities are looked at once, and remembered
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  new:\n    read: ['./**']\n    modify: ['./out/**']\n")
    names = imported(["run", "--policy", str(workspace.root / "sbx.yaml"), "--profile", "new", "--", "true"])
    assert "sbx.planner.linux" in names, "this was not a first run"
    assert "sbx.policy.yaml_parts" in names, "no YAML was read"
    assert not names & TOO_DEAR
    assert not names & ONLY_FOR_A_REPORT, "it ran well, and there was nothing to tell"
    ours = {name for name in names if name.partition(".")[0] == "sbx"}
    assert ours <= {*bundle.MODULES, *bundle.LATER_MODULES, *compile_side.MODULES}, "it is read from the disk each time"


@requires("userns")
def test_the_list_names_modules_as_the_interpreter_does(workspace: Any) -> None:
    """What another command imports shows that the names of the list can be met at all."""
    assert imported(["profiles"]) & TOO_DEAR
