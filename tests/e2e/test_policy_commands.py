"""explain, check, profiles, init, trust: the installed command, as people and scripts call it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pexpect
import pytest

POLICY = """\
schemaVersion: 2
denyRead:   ["~/.ssh/**", "**/*.env"]
denyModify: [".git/hooks/**", ".git/config"]
fsProfiles:
  base:
    read: ["./**"]
  build:
    description: Compile inside the workspace
    extends: base
    read:   ["./**"]
    modify: ["./build/**"]
    exec:   ["/usr/bin/**", "./build/**"]
    network: none
    env:     {pass: [CC, "CARGO_*"], set: {CI: "1", MY_TOKEN: "hunter2"}, secret: [API_TOKEN]}
    limits:  {wall: 10m, cpu: 5m, memory: 2GiB, pids: 256, nofile: 1024, stdout: 1MiB, stderr: 256KiB, grace: 5s}
    require: full
"""

TRUSTED = {"SBX_TRUST_WORKSPACE": "1"}


@pytest.fixture
def project(workspace: Any) -> Any:
    workspace.policy(POLICY)
    workspace.write(".env", "KEY=1")
    return workspace


def facts(text: str, path: str) -> list[str]:
    return [line.removeprefix(f"{path}: ") for line in text.splitlines() if line.startswith(f"{path}: ")]


def test_explain_says_verdict_rules_winner_and_remedy(sbx: Any, project: Any) -> None:
    key = str(project.home / ".ssh" / "id_rsa")
    done = sbx("explain", "--profile", "build", ".env", "build/x.o", key, env=TRUSTED)
    assert (done.rc, done.stderr) == (1, "")
    env = facts(done.stdout, ".env")
    assert "read: denied" in env
    assert "read: matched ./** (sbx.yaml:10, profile)" in env
    assert "read: decided by !**/*.env (sbx.yaml:2, deny)" in env
    assert "modify: denied (it may not be read)" in env
    assert any(fact.startswith("read: change: cannot be undone") and "sbx.yaml:2" in fact for fact in env)
    output = facts(done.stdout, "build/x.o")
    assert "read: allowed" in output
    assert "modify: allowed" in output
    assert "modify: decided by ./build/** (sbx.yaml:11, profile)" in output
    secret = facts(done.stdout, key)
    assert "read: denied" in secret
    assert "read: decided by !~/.ssh/** (sbx.yaml:2, deny)" in secret
    assert any(
        re.fullmatch(r"read: matched !~/\.ssh/\*\* \(.*denies\.yaml:\d+, shipped deny\)", fact) for fact in secret
    )


def test_explain_exit_codes(sbx: Any, project: Any) -> None:
    assert sbx("explain", "--profile", "build", "build/x.o", env=TRUSTED).rc == 0
    assert sbx("explain", "--profile", "build", "--read", "README", env=TRUSTED).rc == 0
    assert sbx("explain", "--profile", "build", "--modify", "README", env=TRUSTED).rc == 1
    assert sbx("explain", "--profile", "biuld", "README", env=TRUSTED).rc == 2
    assert sbx("explain", env=TRUSTED).rc == 2
    assert sbx("explain", "", env=TRUSTED).rc == 2


def test_explain_json(sbx: Any, project: Any) -> None:
    done = sbx("explain", "--json", "--read", "--profile", "build", ".env", "README", env=TRUSTED)
    found = json.loads(done.stdout)
    assert done.rc == 1
    assert (found["profile"], found["workspace"], found["allowed"]) == ("build", str(project.root), False)
    denied, allowed = found["paths"]
    assert [verdict["access"] for verdict in denied["verdicts"]] == ["read"]
    decided = denied["verdicts"][0]["decided_by"]
    assert (decided["file"], decided["line"], decided["rule"]) == (str(project.root / "sbx.yaml"), 2, "!**/*.env")
    assert [match["decides"] for match in denied["verdicts"][0]["lists"][0]["matches"]][-1] is True
    assert allowed["allowed"] is True


def test_explain_paths_are_relative_to_the_working_directory(sbx: Any, project: Any) -> None:
    project.write("build/sub/x")
    done = sbx("explain", "--profile", "build", "--modify", "x", cwd=project.root / "build" / "sub", env=TRUSTED)
    assert done.rc == 0
    assert sbx("explain", "--profile", "build", "--modify", "../../x", cwd=project.root / "build" / "sub").rc == 2
    assert (
        sbx("explain", "--profile", "build", "--modify", "../../x", cwd=project.root / "build" / "sub", env=TRUSTED).rc
        == 1
    )


def test_explain_notices_every_change_of_the_policy(sbx: Any, project: Any) -> None:
    ask = ("explain", "--profile", "build", "--modify", "out/x")
    assert sbx(*ask, env=TRUSTED).rc == 1
    assert sbx(*ask, env=TRUSTED).rc == 1
    project.policy(POLICY.replace('"./build/**"]\n    exec', '"./build/**", "./out/**"]\n    exec'))
    assert sbx(*ask, env=TRUSTED).rc == 0
    project.user_policy('schemaVersion: 2\ndenyModify: ["./out/**"]\n')
    assert sbx(*ask, env=TRUSTED).rc == 1
    (project.root / "sbx.yaml").unlink()
    assert sbx(*ask, env=TRUSTED).rc == 1


def test_explain_notices_a_folder_that_became_a_symlink(sbx: Any, project: Any) -> None:
    (project.root / "build").mkdir()
    ask = ("explain", "--profile", "build", "--modify", "build/x")
    assert sbx(*ask, env=TRUSTED).rc == 0
    assert sbx(*ask, env=TRUSTED).rc == 0
    (project.root / "build").rmdir()
    (project.root / "build").symlink_to(project.home)
    assert sbx(*ask, env=TRUSTED).rc != 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux stores views")
def test_explain_of_an_unchanged_policy_imports_nothing_slow(sbx: Any, project: Any) -> None:
    os.utime(project.root / "sbx.yaml", (1_000_000_000, 1_000_000_000))  # a file changed just now is never stored
    ask = ("explain", "--profile", "build", ".env")
    first = sbx(*ask, env=TRUSTED)
    command = [sys.executable, "-X", "importtime", "-m", "sbx", *ask]
    environ = {**os.environ, **TRUSTED}
    for _ in range(2):  # the first of these may still have to store, where the command is not this Python's
        done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.stdout == first.stdout
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert "sbx.report.explain" in imported
    slow = {"ruamel.yaml", "rich", "click", "dataclasses", "enum", "re", "json", "typing", "pathlib", "subprocess"}
    assert not slow & {name for name in imported if not _of_the_interpreter(name)}


def _of_the_interpreter(name: str) -> bool:
    """What Python imports before any of ours (site packages' .pth files may import nearly anything)."""
    done = subprocess.run(
        [sys.executable, "-c", "import runpy, sys; print(*sys.modules)"], capture_output=True, text=True
    )
    return name in done.stdout.split()


def test_explain_on_a_terminal(sbx: Any, project: Any) -> None:
    environ = {**os.environ, **TRUSTED, "TERM": "xterm-256color", "COLUMNS": "100"}
    command = " ".join([*sbx.command, "explain", "--profile", "build", ".env", "build/x.o"])
    coloured = pexpect.run(command, env=environ, encoding="utf-8", timeout=60)
    assert "\x1b[" in coloured
    plain = pexpect.run(command, env={**environ, "NO_COLOR": "1"}, encoding="utf-8", timeout=60)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", plain), "NO_COLOR means no colour"
    words = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert re.search(r"✗ read +denied", words)
    assert re.search(r"✓ modify +allowed", words)
    assert re.search(r"▸ +!\*\*/\*\.env +sbx\.yaml:2 +deny", words)


def test_a_reader_that_goes_away_is_no_drama(sbx: Any, project: Any) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*sbx.command, "profiles", "show", "build"],
        stdout=writer,
        stderr=subprocess.PIPE,
        env={**os.environ, **TRUSTED},
        check=False,
    )
    os.close(writer)
    assert done.stderr == b""
    assert done.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_output_that_cannot_be_written_is_an_error(sbx: Any, project: Any) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run([*sbx.command, "--help"], stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr
    assert b"space" in done.stderr.lower()


def test_an_unapproved_policy_is_refused_and_shown(sbx: Any, project: Any) -> None:
    done = sbx("explain", "README")
    assert done.rc == 2
    assert "sbx trust" in done.stderr
    assert "may modify ./build/**" in done.stderr
    assert done.stdout == ""


def test_trust_approves_content_not_names(sbx: Any, project: Any) -> None:
    done = sbx("trust")
    assert (done.rc, done.stderr) == (0, "")
    assert "may modify ./build/**" in done.stdout
    assert sbx("explain", "README").rc == 0
    assert str(project.root / "sbx.yaml") in sbx("trust", "--list").stdout
    project.policy(POLICY + "# changed\n")
    assert sbx("explain", "README").rc == 2
    assert "(changed since)" in sbx("trust", "--list").stdout
    assert sbx("trust", "sbx.yaml").rc == 0
    assert sbx("explain", "README").rc == 0
    assert "withdrawn" in sbx("trust", "--forget").stdout
    assert sbx("explain", "README").rc == 2
    assert sbx("trust", "--list").stdout == ""


def test_trust_without_a_policy_says_what_to_do(sbx: Any, workspace: Any) -> None:
    done = sbx("trust")
    assert done.rc == 2
    assert "sbx init" in done.stderr


def test_naming_the_file_is_consent(sbx: Any, project: Any) -> None:
    assert sbx("explain", "--policy", "sbx.yaml", "--profile", "build", "README", "--read").rc == 0


def test_check_finds_nothing_in_a_good_policy(sbx: Any, project: Any) -> None:
    project.policy(POLICY + "tests:\n  - {profile: build, path: build/x, modify: allow}\n")
    done = sbx("check")
    assert (done.rc, done.stderr) == (0, ""), done.stdout
    assert "1 of 1 test passed" in done.stdout


def test_check_runs_the_policys_tests(sbx: Any, project: Any) -> None:
    project.policy(POLICY + "tests:\n  - {profile: build, path: .env, read: allow}\n")
    done = sbx("check")
    assert done.rc == 1
    assert f"{project.root}/sbx.yaml:18:" in done.stdout
    assert "read of .env should be allowed; !**/*.env (sbx.yaml:2) denies it" in done.stdout
    assert sbx("check", "--no-tests").rc == 0
    found = json.loads(sbx("check", "--json").stdout)
    assert found["ok"] is False
    assert found["tests"]["failed"][0]["path"] == ".env"


def test_check_lints(sbx: Any, workspace: Any) -> None:
    workspace.write("src/x")
    workspace.policy('schemaVersion: 2\nfsProfiles:\n  p:\n    read: ["/**", "./src"]\n')
    done = sbx("check")
    assert done.rc == 1
    assert re.search(r"sbx\.yaml:4:\d+: warning: .*", done.stdout)


def test_check_of_several_files_reports_each(sbx: Any, workspace: Any) -> None:
    workspace.write("good.yaml", POLICY)
    workspace.write("bad.yaml", "schemaVersion: 2\ndenyRaed: []\n")
    workspace.write("old.yaml", "schemaVersion: 1\n")
    done = sbx("check", "bad.yaml", "good.yaml", "old.yaml", "missing.yaml")
    assert done.rc == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    assert f"{workspace.root}/bad.yaml:2:1: " in lines[0]
    assert "denyRead" in lines[0]
    assert f"{workspace.root}/old.yaml:1:" in lines[1]
    assert "missing.yaml" in lines[2]
    assert "good.yaml: " in done.stdout


def test_profiles_list_with_layer_and_place(sbx: Any, project: Any) -> None:
    done = sbx("profiles", env=TRUSTED)
    assert (done.rc, done.stderr) == (0, "")
    lines = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    assert lines["build"] == "workspace (sbx.yaml:7): Compile inside the workspace"
    assert lines["lint"].startswith("shipped (")
    assert {"build", "test", "lint", "offline", "install", "agent", "unrestricted"} <= set(lines)
    listed = json.loads(sbx("profiles", "--json", env=TRUSTED).stdout)
    assert [each["name"] for each in listed] == sorted(lines)


def test_profiles_show_the_effective_rules_in_order(sbx: Any, project: Any) -> None:
    done = sbx("profiles", "show", "build", env=TRUSTED)
    assert done.rc == 0
    reads = [line for line in done.stdout.splitlines() if line.startswith("read: ")]
    origins = [re.search(r", ([a-z ]+)\)$", line)[1] for line in reads]  # type: ignore[index]
    order = ["baseline", "extends", "profile", "option", "shipped deny", "allowance", "deny", "always"]
    assert origins == sorted(origins, key=order.index)
    assert "read: ./** (sbx.yaml:6, extends)" in reads
    assert "read: !**/*.env (sbx.yaml:2, deny)" in reads
    assert "limits: wall 10m, cpu 5m, memory 2GiB" in done.stdout
    assert "hunter2" not in done.stdout, "the value of a sensitive name is never printed"
    assert "hunter2" not in sbx("profiles", "show", "build", "--json", env=TRUSTED).stdout


def test_profiles_did_you_mean(sbx: Any, project: Any) -> None:
    done = sbx("profiles", "show", "biuld", env=TRUSTED)
    assert done.rc == 2
    assert "did you mean 'build'?" in done.stderr


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], "sbx run --profile build -- COMMAND"),
        (["Makefile"], "make -j4"),
        (["pyproject.toml"], "pytest"),
        (["package.json"], "npm"),
        (["Cargo.toml", "src/main.rs"], "cargo"),
        (["go.mod"], "go build"),
        (["CMakeLists.txt"], "cmake --build"),
    ],
)
def test_init_writes_a_policy_that_fits_and_passes_its_own_check(
    sbx: Any, workspace: Any, files: list[str], expected: str
) -> None:
    for name in files:
        workspace.write(name)
    printed = sbx("init", "--print").stdout
    assert not (workspace.root / "sbx.yaml").exists()
    assert sbx("init").rc == 0
    written = (workspace.root / "sbx.yaml").read_text()
    assert written == printed
    assert expected in written
    checked = sbx("check")
    assert checked.rc == 0, checked.stdout + checked.stderr
    assert "tests passed" in checked.stdout
    assert sbx("explain", "--profile", "build", "--modify", "out/x.o").rc == 0, "what init writes is approved"
    for name in files:
        assert sbx("explain", "--profile", "build", "--modify", name).rc == 1


def test_init_refuses_to_overwrite(sbx: Any, workspace: Any) -> None:
    workspace.policy("schemaVersion: 2\n")
    done = sbx("init")
    assert done.rc == 2
    assert "there already" in done.stderr
    assert (workspace.root / "sbx.yaml").read_text() == "schemaVersion: 2\n"


def test_init_does_not_follow_a_dangling_symlink(sbx: Any, workspace: Any) -> None:
    (workspace.root / "sbx.yaml").symlink_to(workspace.home / "elsewhere")
    assert sbx("init").rc == 2
    assert not (workspace.home / "elsewhere").exists()


def test_the_working_directory_may_be_gone(sbx: Any, workspace: Any) -> None:
    script = 'mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    for command in (["explain", "x"], ["check"], ["profiles"], ["init"], ["trust"]):
        done = subprocess.run(["sh", "-c", script, "sh", *sbx.command, *command], capture_output=True, text=True)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1] == "sbx: the working directory is gone; cd to one that exists"
