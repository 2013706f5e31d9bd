"""Completions for bash, zsh and fish, made from the table of commands. The shells' own code is in the templates."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from sbx.cli.commands import COMMANDS, Command
from sbx.launch.options import DIRECTORY, ENV, FILE, FLAG, NAME, RULE

TEMPLATES = Path(__file__).parent / "templates"
NOTE = "# Made by docs/generate.py from the tables in the code: change those."

# Kinds of values and of words, by what completes them.
COMMAND, FILES, FOLDERS, POLICIES, PROFILES, VARIABLES, VERBS, NOTHING = (
    "command", "files", "folders", "policies", "profiles", "variables", "verbs", "nothing",
)  # fmt: skip
KINDS = {NAME: PROFILES, DIRECTORY: FOLDERS, RULE: FILES, ENV: VARIABLES}


def completions() -> dict[str, str]:
    """File name below completions/ -> text."""
    return {"sbx.bash": _bash(), "_sbx": _zsh(), "sbx.fish": _fish()}


@dataclass(frozen=True)
class Option:
    name: str  # with its dashes
    about: str
    takes_value: bool
    kind: str
    choices: tuple[str, ...]
    metavar: str


def options_of(command: Command) -> list[Option]:
    found = []
    for name, kind, metavar, _, about, _ in command.options:
        choices = tuple(word for word in metavar.split("|") if word.islower()) if "|" in metavar else ()
        completes = KINDS.get(kind, POLICIES if name == "policy" else FILES if kind == FILE else NOTHING)
        found.append(Option(f"--{name}", about.rstrip("."), kind != FLAG, completes, choices, metavar))
    found.append(Option("--help", "Print help and exit", False, NOTHING, (), ""))
    return found


def words_of(command: Command) -> str:
    """What the arguments that are not options are."""
    if "show NAME" in command.words:
        return VERBS
    if "COMMAND" in command.words or command.name == "sh":
        return COMMAND
    if "PATH" in command.words:
        return FILES
    return POLICIES if "FILE" in command.words else NOTHING


def _template(name: str, **values: str) -> str:
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    for key, value in {"note": NOTE, **values}.items():
        text = text.replace(f"@{key}@", value)
    return text


def _bash() -> str:
    tables = []
    values: list[str] = []
    for command in COMMANDS:
        options = options_of(command)
        names = " ".join(option.name for option in options)
        valued = " ".join(option.name for option in options if option.takes_value)
        tables.append(f"    {command.name}) options='{names}' valued=' {valued} ' words={words_of(command)} ;;")
        for option in options:
            if not option.takes_value:
                continue
            what = f"'{' '.join(option.choices)}'" if option.choices else option.kind
            row = f"    {command.name}:{option.name}) value={what} ;;"
            values.append(row)
    return _template("sbx.bash", commands=" ".join(each.name for each in COMMANDS), tables="\n".join(tables),
                     values="\n".join(values))  # fmt: skip


ZSH_ACTIONS = {
    FILES: "_files",
    FOLDERS: "_files -/",
    POLICIES: "_files -g '*.(yaml|yml)(-.)'",
    PROFILES: "_sbx_profiles",
    VARIABLES: "_parameters -g '*export*'",
    NOTHING: " ",
}


def _zsh_text(words: str) -> str:
    return words.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")


def _zsh() -> str:
    described = [f"{each.name}:{_zsh_text(each.summary.rstrip('.'))}" for each in COMMANDS]
    listed = "\n".join(f"    {shlex.quote(each)}" for each in described)
    cases = []
    for command in COMMANDS:
        specs = []
        for row, option in zip([*command.options, None], options_of(command), strict=True):
            often = "*" if row is not None and row[3] else ""
            about = _zsh_text(option.about)
            if not option.takes_value:
                specs.append(f"{often}{option.name}[{about}]")
                continue
            action = f"({' '.join(option.choices)})" if option.choices else ZSH_ACTIONS[option.kind]
            specs.append(f"{often}{option.name}=[{about}]:{_zsh_text(option.metavar)}:{action}")
        words = words_of(command)
        if words == COMMAND:
            specs += ["(-)1:command:_command_names -e", "*::arguments:_normal"]
        elif words == VERBS:
            specs += ["1:verb:(list show)", "2:profile:_sbx_profiles"]
        elif words != NOTHING:
            specs.append(f"*:path:{ZSH_ACTIONS[words]}")
        lines = " \\\n".join(f"        {shlex.quote(spec)}" for spec in specs)
        cases.append(f"    {command.name})\n      _arguments -S \\\n{lines}\n      ;;")
    return _template("_sbx", commands=listed, cases="\n".join(cases))


FISH_VALUES = {
    FILES: "-r -F",
    FOLDERS: "-x -a '(__fish_complete_directories)'",
    POLICIES: "-x -a '(__fish_complete_suffix .yaml)'",
    PROFILES: "-x -a '(__sbx_profiles)'",
    VARIABLES: "-x -a '(set -nx)'",
    NOTHING: "-x",
}


def _fish_quoted(words: str) -> str:
    return "'" + words.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _fish() -> str:
    lines = []
    valued = []
    for command in COMMANDS:
        about = _fish_quoted(command.summary.rstrip("."))
        lines.append(f"complete -c sbx -n __sbx_first -x -a {command.name} -d {about}")
        names = " ".join(option.name for option in options_of(command) if option.takes_value)
        valued.append(f"        case {command.name}\n            set valued {names}")
        here = f"'__sbx_at {command.name} options'"
        for option in options_of(command):
            value = ""
            if option.takes_value:
                value = f" -x -a '{' '.join(option.choices)}'" if option.choices else f" {FISH_VALUES[option.kind]}"
            lines.append(f"complete -c sbx -n {here} -l {option.name[2:]}{value} -d {_fish_quoted(option.about)}")
        lines += _fish_words(command, here)
    takes_all = " ".join(command.name for command in COMMANDS if words_of(command) == COMMAND)
    return _template("sbx.fish", valued="\n".join(valued), takes_all=takes_all, completions="\n".join(lines))


def _fish_words(command: Command, here: str) -> list[str]:
    match words_of(command):
        case "command":
            inside = f"'__sbx_at {command.name} command'"
            return [
                f"complete -c sbx -n {here} -x -a '(__fish_complete_command)'",
                f"complete -c sbx -n {inside} -x -a '(__sbx_rest)'",
            ]
        case "files":
            return [f"complete -c sbx -n {here} -F"]
        case "policies":
            return [f"complete -c sbx -n {here} -x -a '(__fish_complete_suffix .yaml)'"]
        case "verbs":
            not_yet = f"'__sbx_at {command.name} options; and not __fish_seen_subcommand_from list show'"
            return [
                f"complete -c sbx -n {not_yet} -x -a 'list show'",
                "complete -c sbx -n '__fish_seen_subcommand_from show' -x -a '(__sbx_profiles)'",
            ]
    return []
