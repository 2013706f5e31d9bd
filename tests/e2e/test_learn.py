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
    modify: tuple[str, ...] = ()  # what it may at most get, spelled as it is proposed; of the home folder, anything
    later: Callable[[Any], None] | None = None  # what changes before the second run
    rc: int = 0  # of the second run


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


def makefile_in_the_root(workspace: Any) -> None:
    workspace.write("m.c", "int main(void) { return 0; }\n")
    workspace.write("Makefile", "m: m.c\n\tgcc -o m m.c\n")
    workspace.write("doc/page", "")


def objects_in_the_root(workspace: Any) -> None:
    for number in range(6):
        workspace.write(f"f{number}.c", f"int f{number}(void) {{ return {number}; }}\n")


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


def python_suite_that_ran(workspace: Any) -> None:
    python_suite(workspace)
    words = ["-m", "pytest", "-q", f"--basetemp={workspace.home}/pytest", "tests"]
    subprocess.run([PYTHON, *words], cwd=workspace.root, check=True, capture_output=True)


def failing_test(workspace: Any) -> None:
    workspace.write("tests/test_it.py", "def test_it():\n    assert 0\n")
    workspace.write("tests/deep/test_more.py", "def test_more():\n    pass\n")


def tree(workspace: Any) -> None:
    for number in range(20):
        workspace.write(f"data/{number % 4}/{number}.txt", f"needle {number}\n")


def nothing(workspace: Any) -> None:
    del workspace


MAKE_TABLE = "create table if not exists t (x); insert into t values (1); select count(*) from t;"
PYTEST = (PYTHON, "-m", "pytest", "-q", "tests")
PYTEST_RULES = ("./.pytest_cache/**", "./**/__pycache__/**")
COMPILE_ALL = "for i in 0 1 2 3 4 5; do gcc -c f$i.c; done; ar rcs all.a *.o"
# Replaced by way of a name that nobody can know before, as editors and package managers do.
REPLACE = """
import os, tempfile
for folder, prefix in ((".", "tmp"), ("data", "")):
    fd, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    os.close(fd)
    os.replace(name, folder + "/result.json")
"""
NAMELESS = "import os; name = './' + os.urandom(4).hex(); open(name, 'x').close(); os.replace(name, 'result')"
PASSING = "mkdir t && echo x > t/a && mv t/a out && rmdir t && mv data else && mv else data && ln -sf out latest"
WORKLOADS = (
    Workload("make", "cc", c_project, ("make",), ("build",), ("./build/**",)),
    Workload("make-root", "gcc", makefile_in_the_root, ("make", "-B"), ("m",), ("./m",)),
    Workload("make-again", "gcc", makefile_in_the_root, ("make", "-B"), (), ("./m",)),
    Workload("gcc", "gcc", one_c_file, ("gcc", "-o", "hello", "hello.c"), ("hello",), ("./hello",)),
    Workload(
        "objects", "gcc", objects_in_the_root, ("sh", "-c", COMPILE_ALL), ("all.a",),
        ("./*.o", "./all.a", "./st??????"),
    ),
    Workload(
        "pip", PYTHON, wheel,
        (PYTHON, "-m", "pip", "install", "-q", "--no-index", "--target", "site", "demo-1.0-py3-none-any.whl"),
        ("site",), ("./site/**",),
    ),
    Workload(
        "git-clone", "git", repository, ("git", "clone", "-q", "origin", "copy"), ("copy",),
        ("./copy/**", "./origin/.git/objects/**"),
    ),
    Workload("npm", "npm", node_project, ("npm", "run", "--silent", "hi"), ("dist",), ("./dist/**",)),
    Workload("pytest", PYTHON, python_suite, PYTEST, (".pytest_cache",), PYTEST_RULES),
    Workload("pytest-again", PYTHON, python_suite_that_ran, PYTEST, (), PYTEST_RULES),
    Workload("pytest-fails-later", PYTHON, python_suite, PYTEST, (), PYTEST_RULES, failing_test, 1),
    Workload("pytest-again-fails-later", PYTHON, python_suite_that_ran, PYTEST, (), PYTEST_RULES, failing_test, 1),
    Workload("tar", "tar", tree, ("tar", "-czf", "out.tgz", "data"), ("out.tgz",), ("./out.tgz",)),
    Workload(
        "sqlite", "sqlite3", nothing, ("sqlite3", "t.db", MAKE_TABLE), ("t.db",), ("./t.db", "./t.db-journal"),
    ),
    Workload("venv", PYTHON, nothing, (PYTHON, "-m", "venv", "--without-pip", "env"), ("env",), ("./env/**",)),
    Workload(
        "grep", "grep", tree, ("sh", "-c", "find data -name '*.txt' | xargs grep -l needle > found"), ("found",),
        ("./found",),
    ),
    Workload(
        "sed", "sed", tree, ("sed", "-i", "s/x/y/", "data/0/0.txt"), (), ("./data/0/0.txt", "./data/0/sed??????"),
    ),
    Workload(
        "replace", PYTHON, tree, (PYTHON, "-c", REPLACE), ("result.json",),
        ("./result.json", "./tmp????????", "./data/**", "./data/result.json"),
    ),
    Workload(
        "passing", "mv", tree, ("sh", "-c", PASSING), ("out",),
        ("./t", "./t/**/*", "./out", "./else", "./else/**/*", "./data/**", "./latest*", "./Cu??????"),
    ),
)  # fmt: skip


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def of_workload(workload: Workload) -> Any:
    tools = () if workload.tool == PYTHON else (workload.tool,)
    return pytest.param(workload, marks=requires(tools=tools) if tools else (), id=workload.name)


def granted(policy: str) -> list[str]:
    """What the profile `learned` lets be modified."""
    from ruamel.yaml import YAML

    profile = YAML(typ="safe", pure=True).load(policy)["fsProfiles"]["learned"]
    return [str(rule) for rule in profile.get("modify", [])]


def learn_and_run(workload: Workload, sbx: Any, workspace: Any) -> tuple[list[str], str]:
    """The rules, and what learning said; a second run is as it should be."""
    workload.prepare(workspace)
    learned = sbx("learn", "--write", "--", *workload.command)
    assert learned.rc == 0, learned.stderr
    assert "+++ b/sbx.yaml" in learned.stdout
    policy = (workspace.root / "sbx.yaml").read_text()
    assert sum(line.strip().startswith("- ") for line in policy.splitlines()) <= 20, policy
    for name in workload.leaves:
        assert os.path.lexists(workspace.root / name)
        remove(workspace.root / name)
    if workload.later is not None:
        workload.later(workspace)
    record = workspace.home / "record.json"
    done = sbx("run", "--profile", "learned", "--trace", "--json", record, "--", *workload.command)
    result = json.loads(record.read_text())
    assert (done.rc, result["denials"]) == (workload.rc, []), (policy, done.stderr)
    for name in workload.leaves:
        assert os.path.lexists(workspace.root / name)
    return granted(policy), learned.stderr


@pytest.mark.parametrize("workload", [of_workload(each) for each in WORKLOADS])
def test_learned_once_it_runs_without_a_denial_and_gets_little_else(
    workload: Workload, sbx: Any, workspace: Any
) -> None:
    rules, said = learn_and_run(workload, sbx, workspace)
    assert set(rules) - set(workload.modify) <= {rule for rule in rules if rule.startswith("~/")}
    assert "the whole workspace" not in said


def test_a_name_that_nobody_can_tell_needs_the_workspace_and_that_is_said(sbx: Any, workspace: Any) -> None:
    workload = Workload("nameless", PYTHON, tree, (PYTHON, "-c", NAMELESS), ("result",))
    rules, said = learn_and_run(workload, sbx, workspace)
    assert rules == ["./**", "!./data/**"]
    assert said.count("sbx: note: the whole workspace is proposed: the next name of ./") == 1


def test_what_is_there_already_is_not_said_to_be_made(sbx: Any, workspace: Any) -> None:
    repository(workspace)
    workspace.write("kept/a", "")
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    script = "cd origin && git $0 $1 $2 $3 commit -q --allow-empty -m second && mkdir -p ../kept ../fresh/deep"
    done = sbx("learn", "--", "sh", "-c", script, *settings)
    assert done.rc == 0, done.stderr
    assert '"./origin/.git/**"' in done.stdout
    notes = [line for line in done.stderr.splitlines() if "is made before the command starts" in line]
    assert [line.split()[2] for line in notes] == ["./fresh"]


def test_a_profile_with_exec_rules_gets_folders_since_it_has_no_hand(sbx: Any, workspace: Any) -> None:
    workspace.write("in/a", "a")
    workspace.policy(
        "schemaVersion: 2\nfsProfiles:\n  learned:\n    read: ['./**']\n    exec: ['/usr/**', '/bin/**']\n"
    )
    trusted = {"SBX_TRUST_WORKSPACE": "1"}
    done = sbx("learn", "--write", "--", "cp", "in/a", "in/b", env=trusted)
    assert done.rc == 0, done.stderr
    assert granted((workspace.root / "sbx.yaml").read_text()) == ["./in/**"]
    (workspace.root / "in" / "b").unlink()
    assert sbx("run", "--profile", "learned", "--", "cp", "in/a", "in/b", env=trusted).rc == 0


def test_what_the_profile_grants_already_is_not_taken_away(sbx: Any, workspace: Any) -> None:
    workspace.write("out/a", "a")
    workspace.write("left/a", "a")
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  learned:\n    read: ['./**']\n    modify: ['./out/**']\n")
    trusted = {"SBX_TRUST_WORKSPACE": "1"}
    script = f'{PYTHON} -c "{NAMELESS}" && touch out/b'
    done = sbx("learn", "--write", "--", "sh", "-c", script, env=trusted)
    assert done.rc == 0, done.stderr
    assert granted((workspace.root / "sbx.yaml").read_text()) == ["./out/**", "./**", "!./left/**"]
    assert sbx("run", "--profile", "learned", "--", "sh", "-c", script, env=trusted).rc == 0


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
