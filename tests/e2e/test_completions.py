"""Completions in the real shells: what a person gets who presses Tab."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from capabilities import requires

COMPLETIONS = Path(__file__).parents[2] / "completions"

POLICY = """\
schemaVersion: 2
fsProfiles:
  compile: {read: ["./**"]}
  compress: {read: ["./**"]}
"""
OTHER = "schemaVersion: 2\nfsProfiles:\n  elsewhere: {read: ['./**']}\n"

# What is typed -> candidates that must be there, and some that must not.
CASES = [
    ("sbx ", {"run", "sh", "explain", "check", "profiles", "plan", "doctor", "init", "trust"}, {"--profile"}),
    ("sbx ex", {"explain"}, {"run"}),
    ("sbx run --pro", {"--profile"}, {"--policy"}),
    ("sbx run --profile com", {"compile", "compress"}, {"build"}),
    ("sbx run --timeout 5 --profile com", {"compile", "compress"}, {"build"}),
    ("sbx run --policy other.yaml --profile else", {"elsewhere"}, {"compile"}),
    ("sbx run --report a", {"auto", "always"}, {"never"}),
    ("sbx run --policy ", {"sbx.yaml", "other.yaml"}, {"notes.txt"}),
    ("sbx check ", {"sbx.yaml", "other.yaml"}, {"notes.txt"}),
    ("sbx explain no", {"notes.txt"}, {"sbx.yaml"}),
    ("sbx profiles ", {"list", "show"}, {"compile"}),
    ("sbx profiles show com", {"compile", "compress"}, {"list"}),
    ("sbx plan --format ", {"text", "json", "sbpl", "bwrap", "systemd"}, set()),
    ("sbx run -- only-her", {"only-here-1", "only-here-2"}, set()),
    ("sbx run --net h", {"host"}, {"none"}),
]


@pytest.fixture
def project(sbx: Any, workspace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A folder with policies, and a PATH that leads to sbx and to two commands of a telling name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, line in (("sbx", shlex.join(sbx.command)), ("only-here-1", "true"), ("only-here-2", "true")):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec {line} "$@"\n')
        script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv("SBX_TRUST_WORKSPACE", "1")
    workspace.policy(POLICY)
    workspace.write("other.yaml", OTHER)
    workspace.write("notes.txt")
    return workspace


def check(found: set[str], wanted: set[str], unwanted: set[str]) -> None:
    assert wanted <= found, found
    assert not unwanted & found, found


@requires(tools=["bash"])
@pytest.mark.parametrize(("typed", "wanted", "unwanted"), CASES, ids=[case[0] for case in CASES])
def test_bash(project: Any, typed: str, wanted: set[str], unwanted: set[str]) -> None:
    words = typed.split(" ")
    script = (
        f"source {shlex.quote(str(COMPLETIONS / 'sbx.bash'))}; COMP_WORDS=({shlex.join(words)}); "
        f'COMP_CWORD={len(words) - 1}; _sbx; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    check(set(done.stdout.split()), wanted, unwanted)


@requires(tools=["bash"])
def test_bash_with_an_equals_sign(project: Any) -> None:
    """bash makes three words of --profile=com."""
    script = (
        f"source {shlex.quote(str(COMPLETIONS / 'sbx.bash'))}; COMP_WORDS=(sbx run --profile = com); "
        'COMP_CWORD=4; _sbx; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["compile", "compress"]


@requires(tools=["fish"])
@pytest.mark.parametrize(("typed", "wanted", "unwanted"), CASES, ids=[case[0] for case in CASES])
def test_fish(project: Any, typed: str, wanted: set[str], unwanted: set[str]) -> None:
    if typed == "sbx run --policy " or typed == "sbx check ":
        unwanted = set()  # fish puts files with the suffix first, and lists the others after them
    script = f"source {shlex.quote(str(COMPLETIONS / 'sbx.fish'))}; complete -C {shlex.quote(typed)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    check({line.split("\t")[0] for line in done.stdout.splitlines()}, wanted, unwanted)


@requires(tools=["fish", "git"])
def test_fish_completes_the_command_inside(project: Any) -> None:
    script = f"source {shlex.quote(str(COMPLETIONS / 'sbx.fish'))}; complete -C 'sbx run --timeout 5 -- git comm'"
    done = subprocess.run(["fish", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "commit" in {line.split("\t")[0] for line in done.stdout.splitlines()}, done.stderr


class Terminal:
    """A shell on a terminal, to press Tab in."""

    def __init__(self, argv: list[str], prompt: str, setup: list[str]) -> None:
        environ = {**os.environ, "TERM": "vt100", "PS1": prompt}
        self.prompt = prompt
        self.child: pexpect.spawn[str] = pexpect.spawn(
            argv[0], argv[1:], env=environ, encoding="utf-8", timeout=60, dimensions=(60, 160)
        )
        for line in setup:
            self.child.sendline(line)
        self.child.sendline("echo rea''dy")
        self.child.expect("ready\r\n")
        self.child.expect_exact(prompt)

    def tab(self, typed: str, times: int = 1) -> str:
        """All that the shell shows after `typed` and Tab, up to an end mark that is typed after it."""
        self.child.send(typed + "\t" * times)
        self.child.send("\x01\x0becho en''d\r")  # to the start of the line, cut all of it, say that this was all
        self.child.expect("end\r\n")
        shown = str(self.child.before)
        self.child.expect_exact(self.prompt)
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00\x07\r]", "", shown)

    def close(self) -> None:
        self.child.sendline("exit")
        self.child.expect(pexpect.EOF)
        self.child.close(force=True)


@pytest.fixture
def zsh(project: Any) -> Iterator[Terminal]:
    setup = [
        f"fpath=({shlex.quote(str(COMPLETIONS))} $fpath)",
        f"autoload -Uz compinit; compinit -D -u -d {shlex.quote(str(project.home / 'zcompdump'))}",
        "zstyle ':completion:*' list-prompt ''; setopt no_beep list_rows_first; LISTMAX=0",
        "unsetopt prompt_cr list_ambiguous",
    ]
    terminal = Terminal(["zsh", "-f", "-i"], "zsh-here> ", setup)
    yield terminal
    terminal.close()


# What zsh completes to the one candidate, or lists, is on the screen either way.
ZSH_CASES = [case for case in CASES if case[0] != "sbx "]


@requires(tools=["zsh"])
def test_zsh(zsh: Terminal) -> None:
    for typed, wanted, unwanted in ZSH_CASES:
        shown = zsh.tab(typed)
        after = shown[shown.index(typed) :] if typed in shown else shown
        missing = {word for word in wanted if word not in after}
        assert not missing, f"{typed!r}: {missing} not in {after!r}"
        extra = {word for word in unwanted if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", after[len(typed) :])}
        assert not extra, f"{typed!r}: {extra} in {after!r}"


@requires(tools=["zsh"])
def test_zsh_says_what_the_commands_do(zsh: Terminal) -> None:
    shown = zsh.tab("sbx ")
    assert "explain" in shown
    assert "Say why a path is allowed or denied" in shown


@requires(tools=["bash"])
def test_bash_on_a_terminal(project: Any) -> None:
    source = f"source {shlex.quote(str(COMPLETIONS / 'sbx.bash'))}"
    terminal = Terminal(["bash", "--norc", "-i"], "bash-here> ", [source, "bind 'set enable-bracketed-paste off'"])
    try:
        assert "sbx explain " in terminal.tab("sbx exp")
        assert "compile" in terminal.tab("sbx run --profile com", times=3)  # to what they share, a beep, a list
    finally:
        terminal.close()
