"""sbx run --trace, notes without it, explain --last and audit --denied: what was denied, by which rule, for whom."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pexpect
import pytest
from capabilities import requires

pytestmark = requires("userns", "seccomp", landlock=1)

POLICY = """\
schemaVersion: 2
denyRead: ["**/*.env"]
fsProfiles:
  t:
    read: ["./**"]
    modify: ["./out/**"]
"""
TRUSTED = {"SBX_TRUST_WORKSPACE": "1"}


@pytest.fixture
def project(workspace: Any) -> Any:
    workspace.policy(POLICY)
    workspace.write(".env", "KEY=1\n")
    workspace.write("a.txt", "a\n")
    workspace.write("src/b.txt", "b\n")
    (workspace.root / "out").mkdir()
    (workspace.root / "leads").symlink_to(".env")
    return workspace


def denials(sbx: Any, project: Any, script: str, *options: str) -> list[dict[str, Any]]:
    record = project.home / "record.json"
    done = sbx("run", "--profile", "t", "--trace", "--json", record, *options, "--", "sh", "-c", script, env=TRUSTED)
    result = json.loads(record.read_text())
    assert result["status"] in ("OK", "EXIT"), done.stderr
    return list(result["denials"])


def told(sbx: Any, project: Any, script: str) -> set[tuple[str, str]]:
    root = f"{project.root}/"
    found = denials(sbx, project, script)
    return {(each["operation"], each["path"].removeprefix(root)) for each in found if each["path"].startswith(root)}


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("cat .env", {("read", ".env")}),
        ("cat leads", {("read", ".env")}),
        ("cd src && cat ../.env", {("read", ".env")}),
        ("echo x > a.txt", {("write", "a.txt")}),
        ("echo x >> new.txt", {("create", "new.txt")}),
        ("mkdir src/new", {("mkdir", "src/new")}),
        ("mkdir -p src out/x", set()),
        ("rm a.txt", {("unlink", "a.txt")}),
        ("rm -f not-there", set()),
        ("mv a.txt out/a.txt", {("rename", "a.txt")}),
        ("ln a.txt out/a.txt", {("link", "a.txt")}),
        ("chmod 600 a.txt", {("chmod", "a.txt")}),
        ("touch out/f out/y.env", {("create", "out/y.env")}),
        ("cat a.txt src/b.txt; cat none.txt none/none.txt", set()),
        ("ls; ls src; test -e .env; test -f a.txt", set()),
        ("test -r .env", {("access", ".env")}),
    ],
)
def test_each_denial_is_told_and_nothing_else(
    sbx: Any, project: Any, script: str, expected: set[tuple[str, str]]
) -> None:
    assert told(sbx, project, f"{script}; true") == expected


def test_a_denial_says_program_count_rule_and_remedy(sbx: Any, project: Any) -> None:
    done = sbx("run", "--profile", "t", "--trace", "--", "sh", "-c", "cat .env; cat .env; echo x > a.txt", env=TRUSTED)
    assert f"sbx: denied: read {project.root}/.env by cat (2 times): rule !**/*.env at sbx.yaml:2" in done.stderr
    assert f"sbx: denied: write {project.root}/a.txt by sh: " in done.stderr
    assert 'add "./a.txt" at the end of modify of profile t in' in done.stderr
    assert done.stdout == ""


def test_hidden_places_are_told_if_they_exist(sbx: Any, project: Any) -> None:
    hidden = next(path for path in ("/var/log", "/srv", "/boot", "/opt") if os.path.isdir(path))
    found = denials(sbx, project, f"ls {hidden} {hidden}/nothing-there; true")
    assert [each["path"] for each in found if each["path"].startswith(hidden)] == [hidden]
    assert found[0]["rule"] == ""


@pytest.mark.parametrize("command", [["rm"], ["find"], ["stat"], ["ls", "-l"], ["mv", "-t", "out"]])
def test_a_look_by_path_that_follows_no_link_is_told(sbx: Any, project: Any, command: list[str]) -> None:
    hidden = project.home / "hidden.txt"
    hidden.write_text("x")
    done = sbx("run", "--profile", "t", "--trace", "--", *command, hidden, env=TRUSTED)
    assert done.rc != 0
    assert f"denied: stat {hidden} by {command[0]}" in done.stderr
    assert "probably" not in done.stderr
    assert hidden.exists()


def test_a_look_that_the_trace_does_not_see_is_known_from_what_the_command_says(sbx: Any, project: Any) -> None:
    hidden = project.home / "hidden.txt"
    hidden.write_text("x")
    done = sbx("run", "--profile", "t", "--trace", "--", "realpath", "-e", hidden, env=TRUSTED)
    assert done.rc == 1
    assert f"denied: probably read {hidden} by realpath" in done.stderr
    assert done.stderr.count("denied:") == 1


def test_looks_in_vain_are_not_worth_a_word(sbx: Any, project: Any) -> None:
    for _ in range(2):  # the second from the stored plan
        done = sbx("run", "--profile", "t", "--trace", "--", "sh", "-c", "cat /srv/none; exit 0", env=TRUSTED)
        assert (done.rc, done.stderr.count("sbx:")) == (0, 0), done.stderr


def test_the_change_that_is_named_is_the_smallest_that_works(sbx: Any, project: Any) -> None:
    folder = project.home / "kept"
    folder.mkdir()
    cases = (
        (["ls", "-d", folder], "--read", "~/kept"),  # a look, not at what is in it
        (["ls", folder], "--read", "~/kept"),
        (["sh", "-c", f"mkdir {project.home}/new; test -d {project.home}/new"], "--modify", "~/new/**"),
        (["mkdir", "-p", project.home], "--modify", "~"),
        (["touch", project.home / "file"], "--modify", "~/file"),
    )
    for command, option, rule in cases:
        (denial, *_) = [each for each in run_denials(sbx, project, command) if each["operation"] != "access"]
        assert f'["{rule}"]' in denial["remedy"] or f'"{rule}"' in denial["remedy"], denial
        if "create it before the run" in denial["remedy"]:
            (project.home / "file").write_text("")
        options = (option, rule) if option == "--read" else ("--read", rule, option, rule)
        assert run_denials(sbx, project, command, *options) == []


def run_denials(sbx: Any, project: Any, command: list[Any], *options: str) -> list[dict[str, Any]]:
    record = project.home / "record.json"
    done = sbx("run", "--profile", "t", *options, "--trace", "--json", record, "--", *command, env=TRUSTED)
    assert not options or done.rc == 0, done.stderr
    return list(json.loads(record.read_text())["denials"])


def test_a_second_run_from_the_stored_plan_tells_the_same(sbx: Any, project: Any) -> None:
    first = sbx("run", "--profile", "t", "--trace", "--", "cat", ".env", env=TRUSTED)
    second = sbx("run", "--profile", "t", "--trace", "--", "cat", ".env", env=TRUSTED)
    for done in (first, second):
        assert done.rc == 1
        assert "denied: read" in done.stderr
    quiet = sbx("run", "--profile", "t", "--trace", "--", "cat", "a.txt", env=TRUSTED)
    assert (quiet.rc, quiet.stdout, quiet.stderr) == (0, "a\n", "")


def test_a_traced_run_is_enforced_as_any_other(sbx: Any, project: Any) -> None:
    script = "cat .env; echo x > a.txt; echo x > out/y.env; mkdir src/new; echo ok > out/ok"
    sbx("run", "--profile", "t", "--trace", "--", "sh", "-c", script, env=TRUSTED)
    assert sorted(os.listdir(project.root / "out")) == ["ok"]
    assert (project.root / "a.txt").read_text() == "a\n"
    assert not (project.root / "src" / "new").exists()


def test_what_was_denied_before_a_timeout_is_told(sbx: Any, project: Any) -> None:
    script = "cat .env; sleep 60"
    done = sbx("run", "--profile", "t", "--trace", "--timeout", "1", "--", "sh", "-c", script, env=TRUSTED)
    assert done.rc == 124
    assert f"denied: read {project.root}/.env by cat" in done.stderr


def test_the_listener_can_neither_be_killed_nor_flooded(sbx: Any, project: Any) -> None:
    code = "import os\nfor i in range(6000):\n try: os.mkdir(f'src/{i}')\n except OSError: pass\n"
    script = f'kill -9 1; kill -STOP 1; /usr/bin/env python3 -c "{code}"; echo x > a.txt; cat .env'
    if shutil.which("python3", path="/usr/bin") is None:
        pytest.skip("no /usr/bin/python3")
    done = sbx("run", "--profile", "t", "--trace", "--", "sh", "-c", script, env={**TRUSTED, "PATH": "/usr/bin:/bin"})
    assert done.rc == 1
    assert "different denials" in done.stderr
    assert len(done.stderr.splitlines()) < 40
    assert not (project.root / "src" / "0").exists()


def test_the_environment_of_threads_and_children_is_seen(sbx: Any, project: Any) -> None:
    found = told(
        sbx, project, "(cd src && (cat ../.env & wait); sh -c 'cd .. && rm a.txt'); find . -name '*.txt' -delete"
    )
    assert {("read", ".env"), ("unlink", "a.txt"), ("unlink", "src/b.txt")} <= found


def test_explain_last_and_audit_denied(sbx: Any, project: Any) -> None:
    sbx("run", "--profile", "t", "--trace", "--", "sh", "-c", "cat .env; mkdir src/new", env=TRUSTED)
    explained = sbx("explain", "--last", env=TRUSTED)
    assert explained.rc == 1
    assert f"{project.root}/.env: read: decided by !**/*.env (sbx.yaml:2, deny)" in explained.stdout
    assert f"{project.root}/src/new: note: denied mkdir by mkdir" in explained.stdout
    assert json.loads(sbx("explain", "--last", "--json", env=TRUSTED).stdout)["allowed"] is False
    assert f"denied read {project.root}/.env: rule !**/*.env at sbx.yaml:2" in sbx("audit", "--denied").stdout
    sbx("run", "--profile", "t", "--", "cat", "a.txt", env=TRUSTED)
    assert "--trace" in sbx("explain", "--last", env=TRUSTED).stdout
    assert sbx("explain", "--last", "a.txt", env=TRUSTED).rc == 2
    assert sbx("explain", env=TRUSTED).rc == 2


def test_symlinks_that_lead_into_each_other_are_a_loop_and_nothing_worse(sbx: Any, project: Any) -> None:
    (project.root / "a").symlink_to("b/x")
    (project.root / "b").symlink_to("a/x")
    done = sbx("run", "--trace", "--", "cat", "a/file", env=TRUSTED)
    assert done.rc == 1
    assert "Too many levels of symbolic links" in done.stderr
    assert "INTERNAL_ERROR" not in done.stderr


def test_explain_last_tells_no_control_characters(sbx: Any, project: Any) -> None:
    assert sbx("run", "--", "true", "\x1b[2J\x07", env=TRUSTED).rc == 0
    told = sbx("explain", "--last", env=TRUSTED).stdout
    assert "\\x1b[2J" in told
    assert "\x1b" not in told and "\x07" not in told


def test_explain_last_knows_the_options_of_the_run(sbx: Any, project: Any) -> None:
    project.write("other/policy.yaml", "schemaVersion: 2\nfsProfiles:\n  p:\n    read: ['./src/**']\n")
    options = ("--policy", "other/policy.yaml", "--profile", "p", "--read", "./**", "--deny", "./a.txt", "--trace")
    sbx("run", *options, "--", "cat", "a.txt")
    explained = sbx("explain", "--last")
    assert explained.rc == 1, explained.stderr
    assert f"{project.root}/a.txt: read: decided by !./a.txt" in explained.stdout, explained.stdout


def test_notes_from_the_commands_own_lines(sbx: Any, project: Any) -> None:
    script = "cat .env; cat none.txt; echo x > a.txt; echo './a.txt: Permission denied' >&2; exit 3"
    for _ in range(2):  # the second from the stored plan
        done = sbx("run", "--profile", "t", "--", "sh", "-c", script, env=TRUSTED)
        assert done.rc == 3
        assert f"denied: probably read {project.root}/.env by cat: rule !**/*.env at sbx.yaml:2" in done.stderr
        assert f"denied: probably write {project.root}/a.txt" in done.stderr
        assert "none.txt: No such file" in done.stderr
        assert done.stderr.count("probably") == 2
        assert "--trace" in done.stderr


def test_notes_where_standard_error_is_a_file(sbx: Any, project: Any) -> None:
    log = project.home / "log"
    log.write_text("/etc/shadow: Permission denied\n")
    with log.open("a") as file:
        subprocess.run(
            [*sbx.command, "run", "--profile", "t", "--", "cat", ".env"],
            stderr=file, env={**os.environ, **TRUSTED}, check=False,
        )  # fmt: skip
    text = log.read_text()
    assert f"probably read {project.root}/.env" in text
    assert "probably read /etc/shadow" not in text


def test_order_and_bytes_are_kept_where_both_outputs_are_one_pipe(sbx: Any, project: Any) -> None:
    script = "i=0; while [ $i -lt 50 ]; do echo o$i; echo e$i >&2; i=$((i+1)); done"
    done = subprocess.run(
        [*sbx.command, "run", "--profile", "t", "--", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **TRUSTED}, check=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == [f"{kind}{number}" for number in range(50) for kind in "oe"]


def test_where_both_outputs_are_one_pipe_one_line_says_how_to_see_more(sbx: Any, project: Any) -> None:
    for command, lines in ((["cat", ".env"], 1), (["true"], 0)):
        for options in ((), ("--report", "never")):
            done = subprocess.run(
                [*sbx.command, "run", "--profile", "t", *options, "--", *command],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, **TRUSTED}, check=False, text=True,
            )  # fmt: skip
            assert done.stdout.count("sbx run --trace") == (0 if options else lines), done.stdout


def test_on_a_terminal_one_line_says_how_to_see_more(sbx: Any, project: Any) -> None:
    child = pexpect.spawn(
        sbx.command[0], [*sbx.command[1:], "run", "--profile", "t", "--", "cat", ".env"],
        env={**os.environ, **TRUSTED, "TERM": "xterm"}, timeout=60,
    )  # fmt: skip
    child.expect("sbx run --trace")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1


def make(workspace: Any) -> list[str]:
    workspace.write("f.c", "#include <stdio.h>\nint f(void) { return 0; }\n")
    workspace.write("Makefile", "out/f.o: f.c\n\t$(CC) -c -o $@ $<\n")
    return ["make"]


def wheel(workspace: Any) -> list[str]:
    with zipfile.ZipFile(workspace.root / "demo-1.0-py3-none-any.whl", "w") as file:
        file.writestr("demo/__init__.py", "value = 1\n")
        file.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        file.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("demo-1.0.dist-info/RECORD", "")
    words = ["-m", "pip", "install", "-q", "--no-index", "--no-cache-dir", "--target", "out/site"]
    return [sys.executable, *words, "demo-1.0-py3-none-any.whl"]


def clone(workspace: Any) -> list[str]:
    folder = workspace.root / "origin"
    folder.mkdir()
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main")
    (folder / "x").write_text("x")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "first")):
        subprocess.run(["git", *settings, *words], cwd=folder, check=True)
    return ["git", "clone", "-q", "--no-hardlinks", "origin", "out/copy"]


def script_of_npm(workspace: Any) -> list[str]:
    workspace.write("package.json", '{"name": "t", "version": "1.0.0", "scripts": {"hi": "cp a.txt out/b"}}')
    return ["npm", "run", "--silent", "hi"]


def python_suite(workspace: Any) -> list[str]:
    workspace.write("test_it.py", "def test_it(): open('out/seen', 'w').close()\n")
    return [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"]


@pytest.mark.parametrize(
    ("prepare", "made"),
    [
        pytest.param(make, "out/f.o", marks=requires(tools=["make", "cc"])),
        (wheel, "out/site"),
        pytest.param(clone, "out/copy", marks=requires(tools=["git"])),
        pytest.param(script_of_npm, "out/b", marks=requires(tools=["npm"])),
        (python_suite, "out/seen"),
    ],
)
def test_real_tools_run_traced_and_denials_in_the_workspace_are_none(
    sbx: Any, project: Any, prepare: Any, made: str
) -> None:
    command = prepare(project)
    record = project.home / "record.json"
    python = ("--read", sys.base_prefix + "/**", "--read", sys.prefix + "/**")
    options = ("--profile", "t", *python, "--trace", "--json", record)
    done = sbx("run", *options, "--", *command, env=TRUSTED)
    result = json.loads(record.read_text())
    assert result["status"] == "OK", done.stderr
    assert (project.root / made).exists()
    root = f"{project.root}/"
    assert [each for each in result["denials"] if each["path"].startswith(root)] == []


@pytest.mark.parametrize("fault", ["raise", "memory"])
@pytest.mark.parametrize("action", ["run", "learn"])
def test_a_tracer_that_breaks_ends_the_run_and_everything_in_it(fault: str, action: str, project: Any) -> None:
    """In the middle of a run: the command has started, and has a child in a session of its own."""
    options = ["--profile", "t", "--trace", "--json", "record.json"] if action == "run" else []
    marked = f"6{os.getpid()}"  # a duration that no other sleep has
    before = "echo started; setsid sleep $0 & cat a.txt"
    script = f"{before}; echo x > break-the-tracer; echo went on; echo x > out/later; sleep $0"
    words = [sys.executable, "-P", Path(__file__).with_name("broken_tracer.py"), fault, action, *options]
    for _ in range(2):  # the second from the stored plan
        done = subprocess.run(
            [*words, "--", "sh", "-c", script, marked],
            env={**os.environ, **TRUSTED}, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == (125 if action == "run" else 2), done.stderr
        assert "started" in done.stdout + done.stderr
        assert "went on" not in (done.stdout + done.stderr).splitlines()  # apart from the command as it is told
        assert "could not watch over the command: " in done.stderr
        assert "Traceback" not in done.stderr
        assert not (project.root / "out" / "later").exists()
        if action == "run":
            assert json.loads((project.root / "record.json").read_text())["status"] == "INTERNAL_ERROR"
        assert sleeping(marked) == []
    assert (project.root / "sbx.yaml").read_text() == POLICY
    done = subprocess.run([*words, "--", "cat", "a.txt"], env={**os.environ, **TRUSTED}, check=False, timeout=60)
    assert done.returncode == 0  # nothing but the look at that name breaks it


def sleeping(marked: str) -> list[str]:
    """The processes that have this argument."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if marked.encode() in (folder / "cmdline").read_bytes().split(b"\0"):
                found.append(folder.name)
    return found
