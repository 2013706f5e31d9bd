"""The dispatcher: every outcome is a status and at most a few lines, never a traceback."""

from __future__ import annotations

import errno

import pytest

from sbx.cli import main as cli
from sbx.cli.commands import COMMANDS
from sbx.errors import CommandNotFound, PolicyError, SbxError
from sbx.model.source import Source
from sbx.version import VERSION


def test_alone_it_introduces_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(f"  {row.name} " in text for row in COMMANDS)
    assert len(text.splitlines()) <= 24, "an overview fits on a small terminal"


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([word]) == 0
    assert capsys.readouterr().out == f"sbx {VERSION}\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["exlain", "x"], "did you mean 'sbx explain'?"),
        (["chek"], "did you mean 'sbx check'?"),
        (["sh-not-a-thing-at-all"], "'sbx' alone lists the commands"),
        (["cat", "a b", "-n"], "sbx run -- cat 'a b' -n"),
        (["--profile", "build"], "there is no option --profile before a command"),
        (["--verison"], "there is no option --verison before a command; did you mean '--version'?"),
        (["-v"], "'sbx --help' lists the commands"),
        (["version"], "'sbx --version' says which one this is"),
        (["bad\nname"], "'bad\\nname' is not a command of sbx"),
    ],
)
def test_unknown_commands(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert words in found.err
    assert len(found.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("raised", "run", "other"),
    [
        (SbxError("broken", remedy="mend it"), 125, 2),
        (PolicyError("bad", source=Source("x.yaml", 3, 4)), 125, 2),
        (CommandNotFound("no such thing"), 127, 2),
        (OSError(errno.ENOSPC, "No space left on device", "/some/file"), 125, 2),
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), 141, 141),
        (KeyboardInterrupt(), 130, 130),
        (RuntimeError("a bug"), 125, 2),
        (RecursionError("too deep"), 125, 2),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_whatever_is_raised_becomes_a_status(
    raised: BaseException, run: int, other: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise raised

    monkeypatch.setattr(cli, "_call", fail)
    monkeypatch.setattr(cli, "_drop_output", lambda: None)
    assert cli.main(["run", "--", "true"]) == run
    assert cli.main(["check"]) == other
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert all(line.startswith("sbx: ") for line in err.splitlines())


def test_details_follow_the_message(capsys: pytest.CaptureFixture[str]) -> None:
    cli.complain(SbxError("no", remedy="do", source=Source("a.yaml", 1, 2), details=("one", "two\x1b[0m")))
    assert capsys.readouterr().err == "sbx: a.yaml:1:2: no; do\n  one\n  two\\x1b[0m\n"


def test_a_traceback_on_request_only(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise ZeroDivisionError("oops")

    assert cli.guarded(fail, 2) == 2
    assert "ZeroDivisionError: oops (test_main.py:" in capsys.readouterr().err
    monkeypatch.setenv("SBX_DEBUG", "1")
    assert cli.guarded(fail, 2) == 2
    assert "Traceback" in capsys.readouterr().err


def test_no_script_for_sh(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sh"]) == 125
    assert "sbx sh -c" in capsys.readouterr().err


def test_no_command_for_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run"]) == 125
    assert "sbx run -- make" in capsys.readouterr().err
