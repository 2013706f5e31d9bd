"""What somebody meets who has never heard of sbx: short words, each with a next step."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from runs import LANDLOCK, with_command

CHILDREN = str(Path(__file__).parents[1] / "children.py")
SANDBOX = requires("userns", "landlock", "seccomp")


def one_line(text: str) -> str:
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def test_alone_it_says_what_it_is(sbx: Any, workspace: Any) -> None:
    done = sbx()
    assert (done.rc, done.stderr) == (0, "")
    assert "sbx run -- make" in done.stdout
    assert "'sbx COMMAND --help' says more." in done.stdout


@requires(tools=["make"])
def test_a_program_instead_of_a_command(sbx: Any, workspace: Any) -> None:
    done = sbx("make", "-j4", "all targets")
    assert (done.rc, done.stdout) == (2, "")
    assert one_line(done.stderr) == (
        "sbx: 'make' is not a command of sbx; to run it in the sandbox: sbx run -- make -j4 'all targets'"
    )


def test_an_option_of_run_before_run(sbx: Any, workspace: Any) -> None:
    done = sbx("--profile", "build", "--", "make")
    assert (done.rc, done.stdout) == (2, "")
    assert one_line(done.stderr).endswith("; it is one of 'sbx run': sbx run --profile …")
    assert one_line(sbx("--nothing").stderr).endswith("; 'sbx --help' lists the commands")


@requires(root=False)
def test_a_folder_that_may_not_be_entered(sbx: Any, workspace: Any) -> None:
    sealed = workspace.root / "sealed"
    sealed.mkdir(mode=0)
    done = sbx("run", "--cwd", "sealed", "--", "true")
    sealed.chmod(stat.S_IRWXU)
    assert (done.rc, done.stdout) == (125, "")
    assert one_line(done.stderr) == "sbx: sealed: you may not enter this directory; name one of yours with --cwd"


def test_help_in_every_spelling(sbx: Any, workspace: Any) -> None:
    for words in (["--help"], ["help"], ["-h"]):
        assert sbx(*words).stdout == sbx().stdout
    assert sbx("help", "run").stdout == sbx("run", "--help").stdout
    assert "--profile" in sbx("run", "-h").stdout


@SANDBOX
def test_a_run_in_an_empty_folder_just_works(sbx: Any, workspace: Any) -> None:
    done = sbx("run", "--", "sh", "-c", "echo here > file && cat file")
    assert (done.rc, done.stdout, done.stderr) == (0, "here\n", "")
    assert sorted(path.name for path in workspace.root.iterdir()) == ["file"], "sbx leaves nothing of its own"
    done = sbx("run", "--profile", "build", "--", "true")
    assert (done.rc, done.stderr) == (0, ""), "the shipped profiles need no policy"


def test_a_profile_of_another_name(sbx: Any, workspace: Any) -> None:
    done = sbx("run", "--profile", "bild", "--", "true")
    assert (done.rc, done.stdout) == (125, "")
    assert one_line(done.stderr) == "sbx: there is no profile 'bild'; did you mean 'build'? ('sbx profiles' lists them)"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--profle", "x", "true"), "did you mean '--profile'?"),
        (("run", "--timeout"), "'sbx run --help' says what it takes"),
        (("run", "--timeout", "soon", "--", "true"), "write"),
        (("run", "--cwd", "nowhere", "--", "true"), "name a directory that exists"),
        (("run", "--policy", "nowhere.yaml", "--", "true"), "nowhere.yaml"),
        (("run",), "sbx run -- make -j4"),
        (("sh",), "sbx sh -c"),
    ],
)
def test_a_wrong_call(sbx: Any, workspace: Any, words: tuple[str, ...], said: str) -> None:
    done = sbx(*words)
    assert (done.rc, done.stdout) == (125, "")
    assert said in one_line(done.stderr)


@SANDBOX
def test_a_command_that_is_not_there(sbx: Any, workspace: Any) -> None:
    done = sbx("run", "--", "gitt-no-such-thing")
    assert (done.rc, done.stdout) == (127, "")
    assert done.stderr.startswith("sbx: NOT_FOUND: command not found")
    workspace.write("script", "#!/bin/sh\necho hi\n").chmod(0o644)
    done = sbx("run", "--", "./script")
    assert (done.rc, done.stdout) == (126, "")
    assert "chmod +x" in done.stderr


@requires(root=False)
def test_files_without_permission(sbx: Any, workspace: Any) -> None:
    policy = workspace.policy("schemaVersion: 2\n")
    policy.chmod(0)
    done = sbx("run", "--", "true")
    assert (done.rc, done.stdout) == (125, "")
    assert "sbx.yaml" in one_line(done.stderr)
    assert "chmod u+r" in done.stderr


@SANDBOX
def test_a_home_that_cannot_be_written(sbx: Any, workspace: Any, home: Path) -> None:
    """Nothing can be stored: it costs time, and nothing else."""
    folder = home / "sealed"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    env = {"HOME": str(folder)} | {f"XDG_{name}_HOME": "" for name in ("CACHE", "STATE", "CONFIG", "DATA")}
    done = sbx("run", "--no-audit", "--", "echo", "works", env=env)
    assert (done.rc, done.stdout) == (0, "works\n"), done.stderr
    folder.chmod(stat.S_IRWXU)


@requires("seccomp", landlock=3)
def test_in_a_container_that_refuses_namespaces(sbx: Any, workspace: Any) -> None:
    host = with_command(LANDLOCK, sbx.command)
    refused = subprocess.run(
        [*host.prefix, *sbx.command, "run", "--", "true"], capture_output=True, text=True, timeout=120, check=False
    )
    assert (refused.returncode, refused.stdout) == (125, "")
    first = refused.stderr.splitlines()[0]
    assert "cannot enforce all that profile 'unrestricted' asks for" in first
    assert "--partial" in first
    done = host.run("--", "echo", "works")
    assert (done.returncode, done.stdout) == (0, b"works\n"), done.stderr
    doctor = subprocess.run(
        [*host.prefix, *sbx.command, "doctor"], capture_output=True, text=True, timeout=120, check=False
    )
    assert doctor.returncode == 1
    assert "to do:" in doctor.stdout


@SANDBOX
@requires(root=True)
def test_under_sudo(sbx: Any, workspace: Any) -> None:
    env = {"SUDO_USER": "somebody", "SUDO_UID": "1000", "SUDO_GID": "1000", "SUDO_COMMAND": "sbx"}
    done = sbx(
        "run", "--", "sh", "-c", "id -u; echo ${SUDO_USER-unset}; chown 1 . 2> /dev/null || echo refused", env=env
    )
    assert (done.rc, done.stdout.split()) == (0, ["0", "unset", "refused"]), done.stderr


@SANDBOX
def test_in_a_pipe(sbx: Any, workspace: Any) -> None:
    command = " ".join(f"'{word}'" for word in sbx.command)
    script = f"{command} run -- seq 100000 | head -n 1; echo a | {command} run -- cat; {command} --help | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.splitlines()[:2] == ["1", "a"]
    assert len(done.stdout.splitlines()) == 3
    assert "Traceback" not in done.stderr
    assert "\x1b[" not in sbx("run", "--", "false").stderr, "no colours in a log"


@SANDBOX
def test_where_the_folder_is_gone(sbx: Any, workspace: Any) -> None:
    folder = workspace.root / "gone"
    folder.mkdir()
    script = 'cd gone && rmdir ../gone && exec "$@" run -- true'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *sbx.command], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (125, "")
    assert "cd to one that exists" in done.stderr


@pytest.mark.parametrize("command", ["run", "explain", "check", "profiles", "plan", "init", "trust", "audit", "doctor"])
def test_every_command_says_how_it_is_called(sbx: Any, workspace: Any, command: str) -> None:
    done = sbx(command, "--help")
    assert (done.rc, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: sbx {command}")
    done = sbx(command, "--no-such-option")
    assert done.rc == (125 if command == "run" else 2)
    assert f"{command}: there is no option --no-such-option" in one_line(done.stderr)
    assert os.environ["HOME"] not in done.stderr


@SANDBOX
def test_verbose_says_what_a_run_is_made_from(sbx: Any, workspace: Any) -> None:
    workspace.write("sbx.yaml", "schemaVersion: 2\nfsProfiles:\n  own: {extends: build, network: none}\n")
    assert sbx("trust").rc == 0
    for state in ("kept for the next run", "kept for the next run"):
        done = sbx("run", "--verbose", "--profile", "own", "--", "echo", "out")
        assert (done.rc, done.stdout) == (0, "out\n")
        assert f"{workspace.root}/sbx.yaml (workspace)" in done.stderr
        assert "sbx: profile: own, " in done.stderr
        assert "sbx: network: none\n" in done.stderr
        assert "sbx: enforced: filesystem: " in done.stderr
        assert state in done.stderr


@SANDBOX
def test_a_home_folder_as_the_workspace_is_told_every_time(sbx: Any, workspace: Any) -> None:
    told = "sbx: the workspace is your whole home folder, and profile unrestricted lets a command read it"
    for _ in range(2):
        done = sbx("run", "--", "true", cwd=workspace.home)
        assert done.rc == 0
        assert one_line(done.stderr).startswith(told)
    project = workspace.home / "project"
    project.mkdir()
    assert sbx("run", "--", "true", cwd=project).stderr == ""


def test_init_makes_no_policy_for_a_whole_home(sbx: Any, workspace: Any) -> None:
    done = sbx("init", cwd=workspace.home)
    assert done.rc == 2
    assert "this folder is your whole home folder" in one_line(done.stderr)
    assert not (workspace.home / "sbx.yaml").exists()


def test_check_warns_of_a_policy_for_a_whole_home(sbx: Any, workspace: Any) -> None:
    policy = workspace.home / "sbx.yaml"
    policy.write_text("schemaVersion: 2\nfsProfiles:\n  own: {extends: build}\n")
    done = sbx("check", cwd=workspace.home)
    assert "warning: the workspace is your whole home folder" in done.stdout + done.stderr


@SANDBOX
def test_what_was_probed_is_forgotten_when_it_did_not_hold(sbx: Any, workspace: Any) -> None:
    """Another filter around sbx shows in nothing that the stored probe is compared with."""
    harmless = [sys.executable, CHILDREN, "swapon=EPERM", "--"]
    narrow = [sys.executable, CHILDREN, "mount=EPERM", "--"]
    assert sbx("run", "--", "true", prefix=harmless).rc == 0
    failed = sbx("run", "--", "true", prefix=narrow)
    assert (failed.rc, "INTERNAL_ERROR" in failed.stderr) == (125, True)
    known = sbx("run", "--", "true", prefix=narrow)
    assert (known.rc, "cannot enforce all" in known.stderr) == (125, True)
