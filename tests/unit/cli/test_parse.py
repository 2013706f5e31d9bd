"""The small parser and click read the same table: where both answer, they answer alike."""

from __future__ import annotations

import pytest

from sbx.cli.commands import COMMANDS, Command
from sbx.cli.parse import parse
from sbx.cli.with_click import click_command, parse_with_click
from sbx.errors import UsageError
from sbx.launch.options import FLAG, Unusual, parse_run

ROWS = {row.name: row for row in COMMANDS}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explain", ["a"]),
        ("explain", ["--profile", "build", "a", "b"]),
        ("explain", ["a", "--profile=build", "--json"]),
        ("explain", ["--read", "--", "--modify"]),
        ("explain", ["-"]),
        ("check", []),
        ("check", ["one.yaml", "two.yaml"]),
        ("profiles", ["show", "build"]),
        ("trust", ["--forget", "x"]),
        ("init", ["--print"]),
    ],
)
def test_both_parsers_agree(name: str, arguments: list[str]) -> None:
    assert parse(ROWS[name], arguments) == parse_with_click(ROWS[name], arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--profile", "build", "--", "make", "-j4"],
        ["make", "--profile", "x"],
        ["--read", "a", "--read=b", "--modify", "c", "--env-all", "true"],
        ["--report", "never", "--timeout=5m", "--", "--odd"],
        ["--net", "example.com:443", "--net=none", "-"],
    ],
)
def test_both_parsers_of_run_agree(arguments: list[str]) -> None:
    assert parse_run(arguments) == parse_with_click(ROWS["run"], arguments)


@pytest.mark.parametrize("arguments", [["--nope"], ["--json=x", "a"], ["--profile"], ["--help"], ["-h"]])
def test_what_is_not_well_formed_goes_to_click(arguments: list[str]) -> None:
    with pytest.raises(Unusual):
        parse(ROWS["explain"], arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("explain", ["--jsn", "a"], "explain: there is no option --jsn; did you mean '--json'?"),
        ("explain", ["--zzzzzz", "a"], "'sbx explain --help' says what it takes"),
        ("learn", [], "learn: COMMAND [ARGS]... is missing"),
        ("explain", ["--profile"], "--profile"),
        ("trust", ["a", "b"], "trust: "),
        ("profiles", ["show", "a", "b"], "profiles: too many arguments: b"),
        ("init", ["here"], "init: "),
        ("run", ["--timeot", "5", "make"], "run: there is no option --timeot; did you mean '--timeout'?"),
        ("run", ["-profile", "x", "make"], "run: there is no option -profile; did you mean '--profile'?"),
        ("run", ["-profile=x", "make"], "run: there is no option -profile; did you mean '--profile'?"),
        ("run", ["-p", "x", "make"], "run: there is no option -p; 'sbx run --help' says what it takes"),
        ("run", ["--report", "sometimes", "make"], "sometimes"),
    ],
)
def test_usage_errors_say_what_to_write(name: str, arguments: list[str], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_with_click(ROWS[name], arguments)
    assert words in str(caught.value)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_help_names_every_option(row: Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert parse_with_click(row, ["--help"]) is None
    text = capsys.readouterr().out
    assert text.startswith(f"Usage: sbx {row.name} ")
    assert row.summary.split()[0] in text
    for option in row.options:
        assert f"--{option[0]}" in text
    for example in row.examples:
        assert " ".join(example.split()) in " ".join(text.split())


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_the_table_is_well_formed(row: Command) -> None:
    names = [option[0] for option in row.options]
    assert len(names) == len(set(names))
    for name, kind, metavar, _, words, _ in row.options:
        assert name == name.lower()
        assert bool(metavar) == (kind != FLAG), name
        assert words.endswith("."), name
    module = __import__(row.module, fromlist=["command"])
    assert callable(module.command)
    assert click_command(row).name == row.name
