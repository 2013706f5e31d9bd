"""Nonsense gets words: what was wrong and what to write instead, and a status that is not the command's."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from runs import Host

if TYPE_CHECKING:
    from conftest import Workspace

# (what is written after `sbx`, exit status, words on standard error). One line each, and nothing is run.
NONSENSE = [
    ("run", 125, "no command to run; write it after the options: sbx run -- make -j4"),
    ("run --", 125, "no command to run"),
    ("sh", 125, "no script to run; sbx sh -c 'make && make test', or sbx sh FILE"),
    ("run --profile bild -- true", 125, "there is no profile 'bild'; did you mean 'build'?"),
    ("run --profile zzzz -- true", 125, "there is no profile 'zzzz'"),
    ("run --memory lots -- true", 125, "--memory: 'lots' does not start with a number; write one like"),
    ("run --memory 5XB -- true", 125, "--memory: '5XB' is not a size; write bytes or K, M, G"),
    ("run --memory -5 -- true", 125, "--memory: '-5' is negative"),
    ("run --memory 0 -- true", 125, "--memory 0 would let nothing run"),
    ("run --max-stdout big -- true", 125, "--max-stdout: 'big' does not start with a number"),
    ("run --timeout 5x -- true", 125, "--timeout: 'x' is not a unit of time; write ms, s, m, h or d"),
    ("run --timeout 1m30 -- true", 125, "--timeout: '1m30' is not a duration"),
    ("run --grace soon -- true", 125, "--grace: 'soon' does not start with a number"),
    ("run --cpu -1 -- true", 125, "--cpu: '-1' is negative"),
    ("run --pids many -- true", 125, "--pids: 'many' is not a count; write a whole number, as in 256"),
    ("run --nofile 1.5 -- true", 125, "--nofile: '1.5' is not a count"),
    ("run --report sometimes -- true", 125, "'sometimes' is not one of"),
    ("run --net nonsense -- true", 125, "write HOST:PORT, none or host"),
    ("run --net nonee -- true", 125, "--net nonee names no port; did you mean 'none'?"),
    ("run --nofile 5 -- true", 125, "--nofile 5 is too small to start a command; give at least 16, or leave it out"),
    ("run --cwd /etc/passwd -- true", 125, "--cwd /etc/passwd is a file, not a directory; name the directory"),
    ("run --env -- true", 125, "write --env NAME or --env NAME=VALUE"),
    ("-- ls -l", 2, "to run it in the sandbox: sbx run -- ls -l"),
    ("explain --write x", 2, "there is no option --write; did you mean '--modify'?"),
    ("run --env =x -- true", 125, "write --env NAME or --env NAME=VALUE"),
]


@pytest.mark.parametrize(("line", "code", "words"), NONSENSE, ids=[row[0] for row in NONSENSE])
def test_nonsense_gets_words(here: Host, workspace: Workspace, line: str, code: int, words: str) -> None:
    word, *arguments = line.split(" ")
    done = here.run(*arguments, word=word)
    said = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b"")
    assert said.startswith("sbx: ") and said.count("\n") == 1
    assert words in said
    assert os.listdir(workspace.root) == []


def test_commands_that_cannot_be_run(host: Host, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with the next step."""
    root = workspace.root
    workspace.write("data", "x\n").chmod(0o644)
    workspace.write("script", "#!/no/such/interpreter\n").chmod(0o755)
    workspace.write("bin/compile", "#!/bin/sh\n").chmod(0o755)
    shutil.copy("/bin/true", root / "setuid")
    (root / "setuid").chmod(0o4755)
    hidden = root.parent / "elsewhere"
    hidden.mkdir()
    shutil.copy("/bin/true", hidden / "hidden")
    monkeypatch.setenv("PATH", f"{root}/bin:{hidden}:/usr/bin:/bin")
    cases = [
        ("comiple", 127, "NOT_FOUND", "did you mean 'compile'?"),
        ("zzzz-no-such-thing", 127, "NOT_FOUND", "install it, or name its path"),
        ("", 127, "NOT_FOUND", ""),
        ("ls -la", 127, "NOT_FOUND", "it is one word with a space in it: write sbx run -- ls -la without quotes"),
        ("./missing", 127, "NOT_FOUND", "check the path"),
        ("./script", 127, "NOT_FOUND", "starts with #!/no/such/interpreter, which does not exist"),
        ("./data", 126, "NOT_EXECUTABLE", f"chmod +x '{root}/data'"),
        ("./bin", 126, "NOT_EXECUTABLE", f"{root}/bin is a directory"),
        ("./setuid", 126, "NOT_EXECUTABLE", "a set-user-ID or set-group-ID program"),
    ]
    for name, code, status, words in cases:
        done = host.run("--", name)
        said = done.stderr.decode()
        assert (done.returncode, done.stdout) == (code, b""), said
        assert f"sbx: {status}: " in said and words in said
    # There, but not for this profile: not found where it cannot be seen, not executable where it can.
    said = host.run("--", "hidden").stderr.decode()
    assert f"{hidden}/hidden" in said and "sbx explain --profile unrestricted" in said


def test_the_least_number_of_open_files_is_enough(here: Host, workspace: Workspace) -> None:
    done = here.run("--nofile", "16", "--trace", "--", "sh", "-c", "cat /etc/passwd | head -1")
    assert done.returncode == 0, done.stderr


def test_no_network_is_named_as_the_cause(here: Host, workspace: Workspace) -> None:
    """Where the command's error lines were looked at; and the trace is no answer to it."""
    said = here.run("--", "sh", "-c", "echo 'curl: (6) Could not resolve host: x.org' >&2; exit 6").stderr.decode()
    assert "sbx: next: profile unrestricted has no network: for one run --net HOST:PORT" in said
    assert "--trace" not in said
    said = here.run("--net", "x.org:443", "--", "sh", "-c", "echo 'Could not resolve host' >&2; exit 6").stderr.decode()
    assert "has no network" not in said


def test_the_trace_is_named_only_where_it_can_tell(here: Host, workspace: Workspace) -> None:
    def hint(line: str, word: str = "run") -> bool:
        before = ("--", "sh", "-c") if word == "run" else ("-c",)
        return f"'sbx {word} --trace" in here.run(*before, f"echo '{line}' >&2; exit 2", word=word).stderr.decode()

    assert not hint("make: *** No rule to make target x.  Stop.")
    assert not hint("sh: 1: Cannot fork")
    assert not hint('python3: cannot open file x.py: [Errno 2] No such file or directory: "x.py"')
    assert hint("cp: Permission denied")
    assert hint("cp: Permission denied", word="sh")
