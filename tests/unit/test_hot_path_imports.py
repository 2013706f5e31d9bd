"""What `sbx run` may import when its plan is stored: every name here was weighed, and each costs a start.

A name that appears here by accident is a regression of every run that anybody types. The installed command starts
Python with -I -S, so that is how it is looked at.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

import sbx as package
from sbx.launch.bundle import LATER_MODULES, MODULES

CONSOLE = Path(package.__file__).parent / "launch" / "console.py"

# Built in, or loaded by the interpreter before the first line of ours.
CHEAP = {
    "_ctypes", "_imp", "_posixsubprocess", "_signal", "_socket", "errno", "fcntl", "gc", "marshal", "posix", "resource",
    "select", "time",
}  # fmt: skip

# Ours: the launch side, the kernel room, and the two model files that judge names.
OURS = {"sbx", "sbx.__main__", "sbx.errors", "sbx.version", "sbx.model", "sbx.model.glob", "sbx.model.verdict"}
OUR_ROOMS = ("sbx.launch", "sbx.kernel")

# In our rooms, but for other occasions: their code is not part of a plain run. (The streams are, where standard error
# is a pipe, as it is here: the command's complaints are looked at.)
NOT_OURS = {"sbx.launch.tracing", "sbx.kernel.seccomp_filter", "sbx.kernel.bpf", "sbx.kernel.syscalls_table"}


def imported(*arguments: str) -> set[str]:
    """The modules that a call of the command imports, beyond those that Python itself needs to start."""
    start = [sys.executable, "-I", "-S", "-X", "importtime"]
    bare = subprocess.run([*start, "-c", "import os, __future__"], capture_output=True, text=True, check=True)
    done = subprocess.run([*start, str(CONSOLE), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return _names(done.stderr) - _names(bare.stderr)


def _names(report: str) -> set[str]:
    lines = [line for line in report.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines} - {"imported package"}


def unexpected(names: set[str]) -> set[str]:
    ours = {
        name
        for name in names
        if name in OURS or name in OUR_ROOMS or name.startswith(tuple(f"{room}." for room in OUR_ROOMS))
    }
    return (names - CHEAP - ours) | (names & NOT_OURS)


@requires("userns")
def test_a_run_from_a_stored_plan_imports_only_what_is_cheap(workspace: Any) -> None:
    imported("run", "--", "true")  # makes the plan and the bundle
    names = imported("run", "--", "true")
    assert "sbx.cli.main" not in names, "the plan was not found again"
    assert "sbx.launch.main" not in names, "the bundle was not found again"
    assert unexpected(names) == set()


@requires("userns", "notify")
def test_who_judges_new_names_is_loaded_when_there_is_one_to_judge(workspace: Any) -> None:
    """And then from memory: the process that loads it stands in the private root, where no file of ours is."""
    (workspace.root / ".git").mkdir()
    imported("run", "--", "true")
    names = imported("run", "--", "true")
    assert not names & {"sbx.launch.listener", "sbx.launch.names", "sbx.model.verdict"}
    names = imported("run", "--", "sh", "-c", "echo a > made && ! mkdir .git/hooks 2> refusal")
    assert "sbx.launch.main" not in names, "the bundle was not used"
    assert (workspace.root / "made").read_text() == "a\n"
    assert "Permission denied" in (workspace.root / "refusal").read_text(), "nobody judged: this shows nothing"
    assert not (workspace.root / ".git/hooks").exists()


@requires("userns")
def test_the_bundle_holds_what_a_plain_run_imports(workspace: Any) -> None:
    """Started with the site module no bundle is used, so that every import shows."""
    imported("run", "--", "true")
    start = [
        sys.executable,
        "-I",
        "-X",
        "importtime",
        "-c",
        "from sbx.__main__ import main; main()",
        "run",
        "--",
        "true",
    ]
    done = subprocess.run(start, capture_output=True, text=True, check=True)
    names = {name for name in _names(done.stderr) if name == "sbx" or name.startswith("sbx.")}
    assert "sbx.launch.main" in names
    assert "sbx.cli.main" not in names, "the plan was not found again"
    assert names <= {*MODULES, *LATER_MODULES}
    assert {*MODULES} <= names


@requires("userns")
def test_no_bundle_is_taken_from_where_a_command_could_put_one(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that is named relatively lies wherever one stands: in the workspace, say."""
    imported("run", "--", "true")
    cache = workspace.home / ".cache" / "sbx"
    shutil.copytree(cache, workspace.root / "relative" / "sbx", copy_function=shutil.copy2)
    shutil.copytree(cache, workspace.root / ".cache" / "sbx", copy_function=shutil.copy2)
    monkeypatch.chdir(workspace.root)
    monkeypatch.setenv("XDG_CACHE_HOME", str(workspace.root / "relative"))
    assert "sbx.launch.main" not in imported("run", "--", "true"), "the copy is no bundle: this shows nothing"
    monkeypatch.setenv("XDG_CACHE_HOME", "nowhere")
    assert "sbx.launch.main" not in imported("run", "--", "true"), "HOME is asked instead"
    monkeypatch.setenv("HOME", ".")
    for cache_home in ("relative", ""):
        monkeypatch.setenv("XDG_CACHE_HOME", cache_home)
        assert "sbx.launch.main" in imported("run", "--", "true")


@requires("userns")
def test_sh_is_as_cheap_as_run(workspace: Any) -> None:
    imported("sh", "-c", "true")
    assert unexpected(imported("sh", "-c", "true")) == set()


def test_the_guard_sees_a_slow_import() -> None:
    assert unexpected({"json", "sbx.launch.main", "select"}) == {"json"}
    assert unexpected({"sbx.policy.load"}) == {"sbx.policy.load"}
