"""Rule text -> Rule with absolute, resolved patterns.

A rule's fixed prefix (its leading literal names) is resolved against the file system, because paths are decided by
their real location. Where the last of those names is itself a symlink, the rule speaks of both places: the link and
what it points to. What the expansion depended on is recorded, so that a stored plan can tell when it is stale.
"""

from __future__ import annotations

import os
import sys
from errno import ENOENT, ENOTDIR

from sbx.errors import PolicyError
from sbx.model.glob import BadGlob, escape, fixed_prefix, split_path
from sbx.model.records import dataclass
from sbx.model.rules import Access, Origin, Rule
from sbx.policy.document import Written
from sbx.policy.folders import database_home, home_folder, python_prefix
from sbx.policy.nodes import shown
from sbx.policy.rule_text import Anchor, RuleText, read_rule, remedy_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbx.model.glob import Pattern

MAX_LINKS = 40  # as the kernel has it


@dataclass(frozen=True, slots=True)
class Resolution:
    """Where a chain of names really leads. `names` is None for a symlink loop, which nothing can reach."""

    names: tuple[str, ...] | None
    links: tuple[str, ...]  # every symlink on the way
    own: tuple[str, ...] | None  # the place of the last name itself, when that is a symlink


@dataclass(frozen=True, slots=True)
class Escape:
    """A positive rule that leaves the workspace through a symlink lying in it."""

    rule: Rule
    link: str
    target: str


class Expander:
    """Expands the rules of one profile, and remembers what it looked at."""

    def __init__(self, workspace: str, environ: Mapping[str, str], git_folders: tuple[str, ...] = ()) -> None:
        # Known to the program, not to the environment: not recorded, since they cannot change for this installation.
        self.own_values = {"SBX_PYTHON_PREFIX": python_prefix(), "SBX_PYTHON_BASE_PREFIX": sys.base_prefix}
        self.workspace = split_path(workspace)
        self.environ = environ
        self.home = split_path(home_folder(environ))
        # A deny under ~/ holds for the home of the user database too: a changed $HOME must not open the real one.
        real_home = database_home()
        self.other_home = split_path(real_home) if real_home else self.home
        self.git_folders = tuple(split_path(folder) for folder in git_folders)
        self.variables: dict[str, str | None] = {"HOME": environ.get("HOME")}
        self.resolved: dict[str, str] = {}
        self.escapes: list[Escape] = []
        self._targets: dict[str, str | None] = {}
        self._absent: set[str] = set()
        self._resolutions: dict[tuple[str, ...], Resolution] = {}
        self._read: dict[str, RuleText] = {}  # a deny is written once and stands in two lists

    def expand(self, written: Written, access: Access, origin: Origin, *, deny: bool = False) -> Rule:
        """The rule, or with `deny` the opposite of it. Raises PolicyError."""
        try:
            parts = self._read.get(written.text) or read_rule(written.text, self._value)
        except BadGlob as bad:
            what, remedy = remedy_of(bad)
            message = f"rule {shown(written.text)}: {what}"
            raise PolicyError(message, remedy=remedy, source=written.source) from None
        self._read[written.text] = parts
        negated = parts.negated or deny
        text = written.text[1:] if parts.negated else written.text
        patterns: list[Pattern] = []
        escaped: tuple[str, str] | None = None
        for absolute in self._anchored(parts, negated):
            prefix = fixed_prefix(absolute)
            rest = absolute[len(prefix) :]
            resolution = self.resolve(prefix)
            named = "/" + "/".join(prefix)
            names = resolution.names or prefix
            self.resolved[named] = named if names == prefix else "/" + "/".join(names)
            if not resolution.links and resolution.names is not None:
                patterns.append(resolution.names + rest)  # as most
                continue
            patterns.extend(self._patterns(resolution, prefix, rest, negated and access is Access.MODIFY))
            escaped = escaped or self._escape(resolution)
        if not patterns:
            message = f"rule {shown(written.text)}: its path is a loop of symlinks"
            raise PolicyError(message, remedy="remove the loop or name another path", source=written.source)
        if negated and self.git_folders:
            patterns.extend(self._in_git_folders(patterns))
        rule = Rule(text, negated, access, origin, written.source, tuple(dict.fromkeys(patterns)))
        if escaped is not None and not negated:
            self.escapes.append(Escape(rule, *escaped))
        return rule

    def lacks_variable(self, written: Written) -> bool:
        """Does the rule name a variable that has neither a value nor a default?"""
        try:
            read_rule(written.text, self._value)
        except BadGlob:
            return True  # the shipped rules are well-formed: nothing else can be wrong with one
        return False

    def _value(self, name: str, default: str | None) -> str:
        if name in self.own_values:
            return escape(self.own_values[name])
        value = self.environ.get(name)
        self.variables[name] = value
        if value:
            return escape(value)
        if default:
            return default
        state = "is not set" if value is None else "is empty"
        raise BadGlob(f"the variable {name} {state}: set it, or write '${{{name}:-default}}'")

    def _anchored(self, parts: RuleText, negated: bool) -> list[Pattern]:
        if parts.anchor is Anchor.ROOT:
            return [parts.pattern]
        if parts.anchor is Anchor.WORKSPACE:
            return [self.workspace + parts.pattern]
        homes = [self.home]
        if negated and self.other_home != self.home:
            homes.append(self.other_home)
        return [home + parts.pattern for home in homes]

    def _patterns(
        self, resolution: Resolution, prefix: tuple[str, ...], rest: Pattern, protect_links: bool
    ) -> list[Pattern]:
        patterns: list[Pattern] = []
        if resolution.names is not None:
            patterns.append(resolution.names + rest)
        elif protect_links:
            patterns.append(prefix + rest)  # unreachable today, but the loop's links may be replaced
        if resolution.own is not None:
            patterns.append(resolution.own + rest)
        if protect_links:
            # Replacing any link on the way would put another file in the protected one's place.
            patterns.extend(split_path(link) for link in resolution.links)
        return patterns

    def _escape(self, resolution: Resolution) -> tuple[str, str] | None:
        if resolution.names is None or _within(resolution.names, self.workspace):
            return None
        inside = [link for link in resolution.links if _within(split_path(link), self.workspace)]
        return (inside[0], "/" + "/".join(resolution.names)) if inside else None

    def _in_git_folders(self, patterns: list[Pattern]) -> list[Pattern]:
        """A deny below `.git` speaks of the real git folders where `.git` is a file that names them."""
        dot_git = (*self.workspace, ".git")
        size = len(dot_git)
        below = [pattern[size:] for pattern in patterns if pattern[:size] == dot_git and len(pattern) > size]
        return [folder + rest for folder in self.git_folders for rest in below]

    def resolve(self, names: tuple[str, ...]) -> Resolution:
        """Follow symlinks name by name; names that do not exist stay as they are."""
        found = self._resolutions.get(names)
        if found is None:
            found = self._resolutions[names] = self._resolve(names)
        return found

    def _resolve(self, names: tuple[str, ...]) -> Resolution:
        done: list[str] = []
        links: list[str] = []
        todo = list(reversed(names))
        while todo:
            name = todo.pop()
            if name == "..":
                del done[-1:]
                continue
            path = f"/{'/'.join(done)}/{name}" if done else f"/{name}"
            target = self._target(path)
            if target is None:
                done.append(name)
                if path in self._absent and ".." not in todo:
                    done.extend(reversed(todo))  # nothing is below it either
                    break
                continue
            links.append(path)
            if len(links) > MAX_LINKS:
                return Resolution(None, tuple(dict.fromkeys(links)), None)
            if target.startswith("/"):
                done.clear()
            todo.extend(part for part in reversed(target.split("/")) if part not in ("", "."))
        return Resolution(tuple(done), tuple(links), self._own_place(names) if links else None)

    def _own_place(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        if not names or names[-1] == "..":
            return None
        parent = self.resolve(names[:-1]).names
        if parent is None or self._target("/" + "/".join((*parent, names[-1]))) is None:
            return None
        return (*parent, names[-1])

    def _target(self, path: str) -> str | None:
        """The text of a symlink, or None. /proc is private to the run: its links mean other things there."""
        if path.startswith("/proc/"):
            return None
        try:
            return self._targets[path]
        except KeyError:
            pass
        try:
            target: str | None = os.readlink(path)
        except OSError as error:
            target = None
            if error.errno in (ENOENT, ENOTDIR):
                self._absent.add(path)
        self._targets[path] = target
        return target


def _within(names: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    return names[: len(folder)] == folder
