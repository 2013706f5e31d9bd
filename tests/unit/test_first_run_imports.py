"""What the first run of a new policy does without: each of these once cost it more than reading the policy does.

Unlike the hot path's (test_hot_path_imports) this is a list of what is too dear, not of all that is allowed: the site
module of some interpreters brings modules of its own.
"""

from __future__ import annotations

import os
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


POLICY = "schemaVersion: 2\nfsProfiles:\n  {name}:\n    extends: build\n    modify: ['./out/**']\n"


def imported(arguments: list[str], **environ: str) -> set[str]:
    start = [sys.executable, "-I", "-S", "-X", "importtime", str(CONSOLE)]
    done = subprocess.run(
        [*start, *arguments], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **environ}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def first_run(workspace: Any, name: str, **environ: str) -> set[str]:
    workspace.policy(POLICY.format(name=name))
    return imported(["run", "--policy", str(workspace.root / "sbx.yaml"), "--profile", name, "--", "true"], **environ)


@requires("userns")
def test_a_first_run_does_without_what_is_dear(workspace: Any) -> None:
    imported(["run", "--", "true"])  # the machine's abilities are looked at once, and remembered
    names = first_run(workspace, "one", SBX_DEBUG="1")  # nothing is taken from where it is kept: every import shows
    assert "sbx.planner.linux" in names, "this was not a first run"
    assert "sbx.policy.yaml_parts" in names, "no YAML was read"
    assert not names & TOO_DEAR
    assert not names & ONLY_FOR_A_REPORT, "it ran well, and there was nothing to tell"
    names = first_run(workspace, "two")
    assert "sbx.planner.linux" not in names, "it was not taken from where it is kept"
    assert not names & TOO_DEAR


@requires("userns")
def test_what_is_kept_is_what_a_first_run_imports(workspace: Any) -> None:
    imported(["run", "--", "true"])
    names = first_run(workspace, "one", SBX_DEBUG="1")
    ours = {name for name in names if name.partition(".")[0] == "sbx"}
    assert ours <= {*bundle.MODULES, *bundle.LATER_MODULES, *compile_side.MODULES}
    assert {*compile_side.MODULES} <= ours


@requires("userns")
def test_the_list_names_modules_as_the_interpreter_does(workspace: Any) -> None:
    """What another command imports shows that the names of the list can be met at all."""
    assert imported(["profiles"]) & TOO_DEAR
