"""click, made from the table of commands: help, and the words for calls that are not well-formed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from sbx.cli.commands import MANY, Command
from sbx.errors import UsageError
from sbx.launch.options import FLAG, REPORT, REPORT_CHOICES
from sbx.policy.nearest import did_you_mean

if TYPE_CHECKING:
    from sbx.launch.options import Options

WIDTH = 100
# What hasty fingers call them; the nearest spelling alone would not find these.
SYNONYMS = {"write": "modify", "rw": "modify", "ro": "read", "network": "net", "wall": "timeout", "mem": "memory"}


class _Grouped(click.Command):
    """Options under the headings that the table gives them, then examples."""

    row: Command

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        dashes = "[--] " if self.row.name == "run" else ""
        formatter.write_usage(ctx.command_path, f"[OPTIONS] {dashes}{self.row.words}".strip())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        headings = {"--" + row[0]: row[5] for row in self.row.options}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and isinstance(parameter, click.Option):
                groups.setdefault(headings.get(parameter.opts[0], ""), []).append(record)
        for heading in sorted(groups, key=lambda name: (name == "", list(groups).index(name))):
            with formatter.section(heading or "Options"):
                formatter.write_dl(groups[heading])
        if self.row.examples:
            with formatter.section("Examples"):
                for example in self.row.examples:
                    formatter.write_text(example)


def _option(row: tuple[str, str, str, bool, str, str]) -> click.Option:
    name, kind, metavar, repeatable, words, _ = row
    identifier = name.replace("-", "_")
    if kind == FLAG:
        return click.Option([f"--{name}", identifier], is_flag=True, default=None, help=words)
    choice = click.Choice(REPORT_CHOICES) if kind == REPORT else None
    return click.Option(
        [f"--{name}", identifier], metavar=metavar, type=choice, multiple=repeatable, default=None, help=words
    )


def click_command(row: Command) -> click.Command:
    parameters: list[click.Parameter] = [_option(option) for option in row.options]
    if row.most:
        count = MANY if row.most == MANY or row.most > 1 else 1
        required = bool(row.least)
        parameters.append(
            click.Argument(["words"], nargs=count, required=required, metavar=row.words, type=click.UNPROCESSED)
        )
    takes_all = row.name in ("run", "sh")
    command = _Grouped(
        row.name,
        params=parameters,
        help=f"{row.summary}\n\n{row.about}".strip(),
        context_settings={
            "help_option_names": ["-h", "--help"],
            "allow_interspersed_args": not takes_all,
            "max_content_width": WIDTH,
        },
    )
    command.row = row
    return command


def parse_with_click(row: Command, arguments: Sequence[str]) -> tuple[Options, list[str]] | None:
    """Options and words; None after help was printed. Raises UsageError with click's findings in our words."""
    command = click_command(row)
    try:
        context = command.make_context(f"sbx {row.name}", list(arguments))
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        raise _in_our_words(error, row, arguments) from None
    with context:
        return _values(row, context.params)


def _values(row: Command, found: dict[str, Any]) -> tuple[Options, list[str]]:
    options: Options = {}
    for name, _, _, _, _, _ in row.options:
        value = found[name.replace("-", "_")]
        if value not in (None, (), False):
            options[name] = value
    words = found.get("words") or ()
    listed = [words] if isinstance(words, str) else list(words)
    if row.most != MANY and len(listed) > row.most:
        raise UsageError(f"{row.name}: too many arguments: {' '.join(listed[row.most :])}", remedy=_see_help(row))
    return options, listed


def _as_written(name: str, arguments: Sequence[str]) -> str:
    """click takes `-profile` for seven options of one letter, and complains of `-p`."""
    for word in arguments:
        if word.startswith(name) and not word.startswith("--") and len(word) > 2:
            return word.partition("=")[0]
    return name


def _see_help(row: Command) -> str:
    return f"'sbx {row.name} --help' says what it takes"


def _in_our_words(error: click.ClickException, row: Command, arguments: Sequence[str]) -> UsageError:
    if isinstance(error, click.NoSuchOption):
        written = _as_written(error.option_name, arguments)
        names = ["--" + option[0] for option in row.options]
        close = did_you_mean(written, names) if len(written) > 2 else ""
        meant = "--" + SYNONYMS.get(written.lstrip("-"), "")
        if meant in names:
            close = f"did you mean '{meant}'?"
        remedy = close if close.startswith("did you mean") else _see_help(row)
        return UsageError(f"{row.name}: there is no option {written}", remedy=remedy)
    if isinstance(error, click.MissingParameter):
        return UsageError(f"{row.name}: {row.words} is missing", remedy=_see_help(row))
    words = error.format_message().rstrip(".")
    return UsageError(f"{row.name}: {words[:1].lower()}{words[1:]}", remedy=_see_help(row))
