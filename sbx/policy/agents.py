"""Coding agents under sbx: one authority over files, so their own sandboxes are switched off, and that is said.

The table is data (`profiles/agents.yaml`). What a command's arguments mean is read from it by `adapt()`, which asks the
file system only where a folder really is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum

from sbx.errors import PolicyError, UsageError
from sbx.model.glob import escape, split_path
from sbx.model.location import real_location
from sbx.model.records import dataclass
from sbx.model.source import Source
from sbx.policy.document import Adapted
from sbx.policy.folders import shipped_folder
from sbx.policy.nodes import Node, entries_of, shown, texts_of

AGENTS_FILE = "agents.yaml"


class SideRootForm(StrEnum):
    ONE = "one"
    SEVERAL = "several"
    COMMAS = "commas"


@dataclass(frozen=True, slots=True)
class Agent:
    """One row of the table."""

    name: str
    source: Source
    state_folders: tuple[str, ...] = ()
    side_roots: tuple[str, ...] = ()
    side_root_form: SideRootForm = SideRootForm.ONE
    sandbox_off: tuple[str, ...] = ()
    sandbox_modes: tuple[str, ...] = ()
    sandbox_on: tuple[str, ...] = ()
    sandbox_already_off: tuple[str, ...] = ()
    sandbox_left: tuple[str, ...] = ()


_LISTS = {
    "stateFolders": "state_folders",
    "sideRoots": "side_roots",
    "sandboxOff": "sandbox_off",
    "sandboxModes": "sandbox_modes",
    "sandboxOn": "sandbox_on",
    "sandboxAlreadyOff": "sandbox_already_off",
    "sandboxLeft": "sandbox_left",
}


def load_agents(path: str | None = None) -> dict[str, Agent]:
    """The shipped table by command name. Raises PolicyError with file, line and column."""
    file = os.path.join(shipped_folder(), AGENTS_FILE) if path is None else path
    with open(file, encoding="utf-8") as stream:
        return parse_agents(stream.read(), file)


def parse_agents(text: str, path: str) -> dict[str, Agent]:
    from sbx.policy.load import parse_text  # only the profile of the agents pays for it

    root = parse_text(text, path, "shipped")
    keys = entries_of(root, ("schemaVersion", "agents"))
    version = keys.get("schemaVersion")
    if version is None or version.text != "2":
        raise PolicyError("schemaVersion must be 2", source=root.source)
    if "agents" not in keys:
        raise PolicyError("has no key 'agents'", source=root.source)
    return {name: _agent(name, node) for name, node in entries_of(keys["agents"], None).items()}


def adapt(argv: Sequence[str], table: Mapping[str, Agent], keep_inner: bool, *, cwd: str, home: str) -> Adapted:
    """The command with its own sandbox switched off, and its side roots as rules. Other commands stay as they are."""
    agent = table.get(_command_name(argv[0])) if argv else None
    if agent is None:
        return Adapted(tuple(argv), (), ())
    end = argv.index("--") if "--" in argv else len(argv)
    options, rest = list(argv[1:end]), tuple(argv[end:])
    rules, notes = _side_roots(agent, options, cwd, home)
    if agent.sandbox_off and not keep_inner:
        options, said = _without_inner_sandbox(agent, options)
        notes += said
    return Adapted((argv[0], *options, *rest), rules, notes)


def _without_inner_sandbox(agent: Agent, options: list[str]) -> tuple[list[str], tuple[str, ...]]:
    if any(each in agent.sandbox_already_off for each in options):
        return options, ()
    left = next((name for name in agent.sandbox_left if _given(name, options)), None)
    if left is not None:
        said = f"{agent.name}: {left} decides about its own sandbox, which cannot run inside this one"
        return options, (said,)
    kept, dropped = _without(options, agent.sandbox_modes, agent.sandbox_on)
    added = " ".join(agent.sandbox_off)
    instead = f" in place of {' '.join(dropped)}" if dropped else ""
    said = (
        f"{agent.name}: its own sandbox cannot run inside this one, so sbx adds {added}{instead} "
        "(--keep-inner-sandbox leaves it)"
    )
    return [*agent.sandbox_off, *kept], (said,)


def _without(options: list[str], valued: tuple[str, ...], flags: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The options without those that take a value and those that do not, and what was taken out."""
    kept: list[str] = []
    dropped: list[str] = []
    position = 0
    while position < len(options):
        option = options[position]
        size = 0
        if option in valued:
            size = 2
        elif option in flags or any(_joined(name, option) is not None for name in (*valued, *flags)):
            size = 1
        (dropped if size else kept).extend(options[position : position + max(1, size)])
        position += max(1, size)
    return kept, dropped


def _side_roots(agent: Agent, options: list[str], cwd: str, home: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rules: dict[str, None] = {}
    notes: list[str] = []
    for option, value in _values(agent, options):
        location = real_location(value, cwd)
        if location is None or not os.path.isdir(location):
            notes.append(f"{agent.name}: {option} {shown(value)} is no folder, so nothing is allowed for it")
            continue
        _refuse_broad(agent, option, value, location, home)
        rules[escape(location) + "/**"] = None
        notes.append(f"{agent.name}: {option} lets it write below {shown(location, 200)}")
    return tuple(rules), tuple(notes)


def _refuse_broad(agent: Agent, option: str, value: str, location: str, home: str) -> None:
    """An allowance stands after the shipped denies: one that holds the home folder would undo all of them."""
    at_home = split_path(real_location(home, "/") or home)
    names = split_path(location)
    if at_home[: len(names)] == names:
        raise UsageError(
            f"{agent.name}: {option} {shown(value)} would allow writing to {location}, which holds your home folder",
            remedy="name the folder that it shall work in",
        )


def _values(agent: Agent, options: list[str]) -> list[tuple[str, str]]:
    """(option, folder) in the order given."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(options):
        option = options[position]
        position += 1
        for name in agent.side_roots:
            values: list[str] = []
            joined = _joined(name, option)
            if joined is not None:
                values = [joined]
            elif option == name:
                several = agent.side_root_form is SideRootForm.SEVERAL
                while position < len(options) and (several or not values):
                    if options[position].startswith("-"):
                        break
                    values.append(options[position])
                    position += 1
            if agent.side_root_form is SideRootForm.COMMAS:
                values = [piece.strip() for value in values for piece in value.split(",")]
            found.extend((name, value) for value in values if value)
    return found


def _joined(name: str, option: str) -> str | None:
    """The value in `--name=value`, or in `-nvalue` for a one-letter option."""
    if name.startswith("--"):
        return option[len(name) + 1 :] if option.startswith(name + "=") else None
    if len(name) == 2 and option.startswith(name) and len(option) > 2:
        return option[2:].removeprefix("=")
    return None


def _given(name: str, options: list[str]) -> bool:
    return any(option == name or _joined(name, option) is not None for option in options)


def _command_name(program: str) -> str:
    name = program.replace("\\", "/").rpartition("/")[2] if os.sep == "\\" else os.path.basename(program)
    return name.removesuffix(".exe")


def _agent(name: str, node: Node) -> Agent:
    keys = entries_of(node, (*_LISTS, "sideRootForm"))
    lists = {_LISTS[key]: texts_of(value) for key, value in keys.items() if key in _LISTS}
    form = keys.get("sideRootForm")
    if form is not None and form.text not in list(SideRootForm):
        raise PolicyError(f"{shown(form.text)} is none of {', '.join(SideRootForm)}", source=form.source)
    return Agent(
        name, node.source, side_root_form=SideRootForm(form.text) if form is not None else SideRootForm.ONE, **lists
    )
