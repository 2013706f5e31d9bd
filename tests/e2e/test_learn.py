"""sbx learn: a command is run once, a profile is proposed, and under that profile it runs without a denial."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

pytestmark = requires("userns", "seccomp", landlock=1)

PYTHON = sys.executable
C_FILE = '#include <stdio.h>\n#include <string.h>\nint f%d(void) { return (int)strlen("abc") + %d; }\n'


@dataclass(frozen=True)
class Workload:
    """Something people do all day: what it needs, how the folder is prepared, the command, what it leaves."""

    name: str
    tool: str
    prepare: Callable[[Any], None]
    command: tuple[str, ...]
    leaves: tuple[str, ...] = ()


def c_project(workspace: Any) -> None:
    for number in range(3):
        workspace.write(f"src/f{number}.c", C_FILE % (number, number))
    workspace.write(
        "Makefile",
        "all: build/all.a\nbuild/all.a: build/f0.o build/f1.o build/f2.o\n\tar rcs $@ $^\n"
        "build/%.o: src/%.c\n\tmkdir -p build\n\t$(CC) -O1 -c -o $@ $<\n",
    )


def one_c_file(workspace: Any) -> None:
    workspace.write("hello.c", '#include <stdio.h>\nint main(void) { puts("hello"); }\n')


def wheel(workspace: Any) -> None:
    with zipfile.ZipFile(workspace.root / "demo-1.0-py3-none-any.whl", "w") as file:
        file.writestr("demo/__init__.py", "value = 1\n")
        info = "demo-1.0.dist-info"
        file.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")


def repository(workspace: Any) -> None:
    folder = workspace.root / "origin"
    folder.mkdir()
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")
    (folder / "a.txt").write_text("a\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *settings, *words], cwd=folder, check=True)


def node_project(workspace: Any) -> None:
    workspace.write("package.json", json.dumps({"name": "t", "version": "1.0.0", "scripts": {"hi": "node write.js"}}))
    workspace.write(
        "write.js", "require('fs').mkdirSync('dist', {recursive: true}); require('fs').writeFileSync('dist/x', 'x')\n"
    )


def python_suite(workspace: Any) -> None:
    workspace.write("tests/test_it.py", "def test_it(tmp_path):\n    (tmp_path / 'x').write_text('x')\n")


def tree(workspace: Any) -> None:
    for number in range(20):
        workspace.write(f"data/{number % 4}/{number}.txt", f"needle {number}\n")


def nothing(workspace: Any) -> None:
    del workspace


MAKE_TABLE = "create table if not exists t (x); insert into t values (1); select count(*) from t;"
WORKLOADS = (
    Workload("make", "cc", c_project, ("make",), ("build",)),
    Workload("gcc", "gcc", one_c_file, ("gcc", "-o", "hello", "hello.c"), ("hello",)),
    Workload(
        "pip", PYTHON, wheel,
        (PYTHON, "-m", "pip", "install", "-q", "--no-index", "--target", "site", "demo-1.0-py3-none-any.whl"),
        ("site",),
    ),
    Workload("git-clone", "git", repository, ("git", "clone", "-q", "origin", "copy"), ("copy",)),
    Workload("npm", "npm", node_project, ("npm", "run", "--silent", "hi"), ("dist",)),
    Workload("pytest", PYTHON, python_suite, (PYTHON, "-m", "pytest", "-q", "tests"), (".pytest_cache",)),
    Workload("tar", "tar", tree, ("tar", "-czf", "out.tgz", "data"), ("out.tgz",)),
    Workload("sqlite", "sqlite3", nothing, ("sqlite3", "t.db", MAKE_TABLE), ("t.db",)),
    Workload("venv", PYTHON, nothing, (PYTHON, "-m", "venv", "--without-pip", "env"), ("env",)),
    Workload("grep", "grep", tree, ("sh", "-c", "find data -name '*.txt' | xargs grep -l needle > found"), ("found",)),
)  # fmt: skip


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("workload", WORKLOADS, ids=[each.name for each in WORKLOADS])
def test_learned_once_it_runs_without_a_denial(workload: Workload, sbx: Any, workspace: Any) -> None:
    if shutil.which(workload.tool) is None:
        pytest.skip(f"no {workload.tool} here")
    workload.prepare(workspace)
    learned = sbx("learn", "--write", "--", *workload.command)
    assert learned.rc == 0, learned.stderr
    assert "+++ b/sbx.yaml" in learned.stdout
    policy = (workspace.root / "sbx.yaml").read_text()
    assert sum(line.strip().startswith("- ") for line in policy.splitlines()) <= 20, policy
    for name in workload.leaves:
        assert os.path.lexists(workspace.root / name)
        remove(workspace.root / name)
    record = workspace.home / "record.json"
    done = sbx("run", "--profile", "learned", "--trace", "--json", record, "--", *workload.command)
    result = json.loads(record.read_text())
    assert (done.rc, result["status"], result["denials"]) == (0, "OK", []), (policy, done.stderr)
    for name in workload.leaves:
        assert os.path.lexists(workspace.root / name)


def test_nothing_is_written_unless_asked(sbx: Any, workspace: Any) -> None:
    workspace.write("a.txt", "a")
    done = sbx("learn", "--", "cat", "a.txt")
    assert done.rc == 0
    assert "--write" in done.stderr
    assert sorted(os.listdir(workspace.root)) == ["a.txt"]
    assert done.stdout.startswith("--- /dev/null\n+++ b/sbx.yaml\n")


def test_the_patch_applies_and_keeps_comments(sbx: Any, workspace: Any) -> None:
    workspace.write("a.txt", "a")
    before = (
        "schemaVersion: 2\n# about denies\ndenyRead: ['**/*.env']   # all of them\n"
        "fsProfiles:\n  other:\n    read: ['./**']\n"
    )
    workspace.policy(before)
    done = sbx("learn", "--write", "--", "cat", "a.txt", env={"SBX_TRUST_WORKSPACE": "1"})
    assert done.rc == 0, done.stderr
    after = (workspace.root / "sbx.yaml").read_text()
    assert after.startswith("schemaVersion: 2\n# about denies\ndenyRead: ['**/*.env']   # all of them\nfsProfiles:\n")
    removed = [line for line in done.stdout.splitlines() if line.startswith("-") and not line.startswith("---")]
    assert removed == []
    assert sbx("check").rc == 0, sbx("check").stdout


def test_a_profile_that_is_there_is_extended(sbx: Any, workspace: Any) -> None:
    workspace.write("a.txt", "a")
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  mine:\n    read: ['./a.txt']  # only this\n")
    done = sbx(
        "learn", "--profile", "mine", "--write", "--", "sh", "-c", "mkdir out && cp a.txt out/b",
        env={"SBX_TRUST_WORKSPACE": "1"},
    )  # fmt: skip
    assert done.rc == 0, done.stderr
    text = (workspace.root / "sbx.yaml").read_text()
    assert "'./a.txt'" in text
    assert "# only this" in text
    assert '"./out/**"' in text


def test_global_denies_and_secrets_are_left_out(sbx: Any, workspace: Any) -> None:
    workspace.policy("schemaVersion: 2\ndenyRead: ['./private/**']\n")
    workspace.write("private/x", "no")
    workspace.write("data/credentials.json", "{}")
    workspace.write("data/plain", "yes")
    script = "cat data/plain data/credentials.json; cat private/x; true"
    done = sbx("learn", "--write", "--", "sh", "-c", script, env={"SBX_TRUST_WORKSPACE": "1"})
    assert done.rc == 0, done.stderr
    assert f"looks secret, left to you: {workspace.root}/data/credentials.json" in done.stderr
    assert f"denied in every profile, and stays so: {workspace.root}/private/x" in done.stderr
    verdict = sbx("explain", "--profile", "learned", "--read", "data/credentials.json", "private/x")
    assert verdict.stdout.count("read: denied") == 2, (workspace.root / "sbx.yaml").read_text()
    assert sbx("explain", "--profile", "learned", "--read", "data/plain").rc == 0


def test_a_command_that_fails_teaches_nothing(sbx: Any, workspace: Any) -> None:
    workspace.write("a.txt", "a")
    done = sbx("learn", "--write", "--", "sh", "-c", "cat a.txt; exit 3")
    assert done.rc == 2
    assert "the command failed" in done.stderr
    assert not (workspace.root / "sbx.yaml").exists()


def test_the_output_is_the_proposal_alone(sbx: Any, workspace: Any) -> None:
    workspace.write("a.txt", "what the command says\n")
    done = sbx("learn", "--", "cat", "a.txt")
    assert "what the command says" in done.stderr
    assert "what the command says" not in done.stdout
