"""The files under docs/examples do what they say, with the tools they are for."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires, which

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SANDBOX = requires("userns", "landlock", "seccomp")


@pytest.fixture
def project(sbx: Any, workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A project with the examples' policy, and sbx on PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "sbx"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(sbx.command)} "$@"\n')
    script.chmod(0o755)
    for tool in ("tox", "nox", "pre-commit"):
        found = which(tool)
        if found is not None:
            (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", f"{folder}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("SBX_TRUST_WORKSPACE", "1")
    workspace.policy((EXAMPLES / "sbx.yaml").read_text())
    workspace.write("src/main.txt", "hello\n")
    workspace.write("test_it.py", "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): pass\n")
    return workspace


def run(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, **more)


def test_the_policy_passes_its_own_check(sbx: Any, project: Any) -> None:
    done = sbx("check")
    assert done.rc == 0, done.stdout + done.stderr


def test_every_example_is_in_the_list_and_in_a_test() -> None:
    page = (EXAMPLES / "README.md").read_text()
    here = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    for path in EXAMPLES.iterdir():
        if path.name not in ("README.md", "__pycache__"):
            assert f"({path.name})" in page
            assert path.name in here, f"no test speaks of {path.name}"


@SANDBOX
@requires(tools=["make"])
def test_makefile(project: Any) -> None:
    shutil.copy(EXAMPLES / "Makefile", project.root)
    done = run("make")
    assert done.returncode == 0, done.stderr
    assert (project.root / "build" / "program").read_text() == "hello\n"
    assert run("make", "meddle").returncode == 2
    assert (project.root / "src" / "main.txt").read_text() == "hello\n"


@SANDBOX
def test_ci_shell(project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a runner does with `shell:`: each step's text in a file, the file's name in place of {0}."""
    from ruamel.yaml import YAML

    temporary = tmp_path / "runner temp"
    temporary.mkdir()
    monkeypatch.setenv("RUNNER_TEMP", str(temporary))
    job = YAML(typ="safe").load(EXAMPLES / "ci-shell.yaml")["jobs"]["build"]
    assert job["env"] == {"SBX_TRUST_WORKSPACE": "1"}
    for number, step in enumerate(job["steps"]):
        file = temporary / f"step {number}.sh"
        file.write_text(step["run"])
        shell = shlex.split(step.get("shell", job["defaults"]["run"]["shell"]))
        done = run(*(str(file) if word == "{0}" else word for word in shell))
        assert done.returncode == 0, f"{step['name']}: {done.stderr}"
    assert (project.root / "build" / "program").read_text() == "hello\n"


CHECKS = "! grep -rq FIXME src || { echo 'a FIXME is left'; exit 1; }\necho seen > src/mark 2> /dev/null || true\n"


def repository(project: Any) -> None:
    project.write("checks.sh", CHECKS)
    for words in (["init", "-q"], ["config", "user.name", "x"], ["config", "user.email", "x@example.com"]):
        assert run("git", *words).returncode == 0
    assert run("git", "add", "-A").returncode == 0


@SANDBOX
@requires(tools=["git"])
def test_git_hook(project: Any) -> None:
    repository(project)
    hook = project.root / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    shutil.copy(EXAMPLES / "pre-commit-hook.sh", hook)
    assert os.access(hook, os.X_OK)
    done = run("git", "commit", "-q", "-m", "first")
    assert done.returncode == 0, done.stderr
    project.write("src/main.txt", "FIXME\n")
    done = run("git", "commit", "-q", "-a", "-m", "second")
    assert done.returncode != 0
    assert "a FIXME is left" in done.stdout + done.stderr
    assert not (project.root / "src" / "mark").exists()


@SANDBOX
@requires(tools=["git", "pre-commit"])
def test_pre_commit(project: Any) -> None:
    shutil.copy(EXAMPLES / "pre-commit-config.yaml", project.root / ".pre-commit-config.yaml")
    repository(project)
    done = run("pre-commit", "run", "--all-files", "--color", "never")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout
    project.write("src/main.txt", "FIXME\n")
    assert run("pre-commit", "run", "--all-files").returncode == 1
    assert not (project.root / "src" / "mark").exists()


@SANDBOX
@requires(tools=["tox"])
def test_tox(project: Any) -> None:
    shutil.copy(EXAMPLES / "tox.ini", project.root)
    done = run("tox", "-q")
    assert done.returncode == 0, done.stdout + done.stderr
    project.write("test_it.py", "raise SystemExit(3)\n")
    assert run("tox", "-q").returncode != 0


@SANDBOX
@requires(tools=["nox"])
def test_nox(project: Any) -> None:
    shutil.copy(EXAMPLES / "noxfile.py", project.root)
    done = run("nox", "--nocolor")
    assert done.returncode == 0, done.stdout + done.stderr
    project.write("test_it.py", "raise SystemExit(3)\n")
    assert run("nox", "--nocolor").returncode != 0


@requires(tools=["systemd-analyze"])
def test_systemd_unit(project: Any, tmp_path: Path) -> None:
    text = (EXAMPLES / "job.service").read_text()
    found = shutil.which("sbx")
    assert found is not None
    assert "%h/.local/bin/sbx run" in text
    unit = tmp_path / "job.service"
    unit.write_text(text.replace("%h/.local/bin/sbx", found).replace("%h/project", str(project.root)))
    done = run("systemd-analyze", "verify", str(unit))
    ours = [line for line in done.stderr.splitlines() if "job.service" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


@SANDBOX
def test_vs_code_task(project: Any) -> None:
    for task in json.loads((EXAMPLES / "tasks.json").read_text())["tasks"]:
        assert task["type"] == "process"
        words = [word.replace("${workspaceFolder}", str(project.root)) for word in [task["command"], *task["args"]]]
        done = run(*words, cwd="/")
        assert done.returncode == 0, done.stderr
    assert (project.root / "build" / "program").read_text() == "hello\n"


@pytest.mark.skipif(sys.platform == "win32", reason="bits of files")
def test_scripts_can_be_executed() -> None:
    for path in EXAMPLES.glob("*.sh"):
        if path.name == "pre-commit-hook.sh":
            assert os.access(path, os.X_OK)
