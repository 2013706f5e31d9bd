"""What the command changed in its workspace, as few rules: single names first, then globs, then folders.

A single name can be granted in a folder that is read-only otherwise (docs/adr/0011): it is made, replaced and removed
by a hand outside. So a folder is granted whole only where that is what a person would write (a tool's folder, one that
the command made itself), where too many unlike names come and go in it, or where the hand cannot do what was done.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from sbx.model.glob import escape
from sbx.model.records import dataclass, field
from sbx.policy.passing_names import next_time
from sbx.policy.tool_folders import ToolFolders

Names = tuple[str, ...]
_Each = TypeVar("_Each")

FEW = 3  # names with the same ending that are still named one by one
MANY = 6  # rules below one folder, from which on it is granted whole
LONGEST_ENDING = 8
MAKING = frozenset(("create", "mkdir", "mknod", "symlink", "link", "bind", "rename"))
NAMING = MAKING | {"unlink", "rmdir"}
# What the hand outside does not do for a name that it has made: see docs/policy.md.
NOT_BY_HAND = frozenset(("mknod", "chown", "setxattr", "access"))


@dataclass(slots=True)
class Change:
    """What was done to one path, in the order of the first time."""

    operations: list[str] = field(default_factory=list)
    new: bool = False  # was not there before
    folder: bool = False  # was one, or became one

    def passes_the_hand(self) -> bool:
        made = next((at for at, done in enumerate(self.operations) if done in MAKING), None)
        return made is None or NOT_BY_HAND.isdisjoint(self.operations[made:])


@dataclass(slots=True)
class Granted:
    """The rules as globs of absolute paths; what should be said about them; what needs no rule."""

    rules: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    excepted: list[str] = field(default_factory=list)
    needless: list[str] = field(default_factory=list)


class WorkspaceChanges:
    """`by_hand`: single names can be granted (not where a profile has exec rules)."""

    def __init__(self, workspace: Names, tools: ToolFolders, *, by_hand: bool) -> None:
        self.workspace = workspace
        self.tools = tools
        self.by_hand = by_hand
        self.trees: set[Names] = set()
        self.globs: set[tuple[Names, str]] = set()  # (folder, glob of names in it)
        self.passing: set[Names] = set()  # folders that were made and are gone
        self.names: dict[Names, dict[str, Change]] = {}
        self.scattered: set[str] = set()
        self.granted = Granted()

    def grant(self, changes: Mapping[Names, Change]) -> Granted:
        made = {
            names
            for names, change in changes.items()
            if "mkdir" in change.operations and os.path.isdir(path_of(names)) and names != self.workspace
        }
        folders_move = any(change.folder and "rename" in change.operations for change in changes.values())
        for names, change in sorted(changes.items()):
            # What was renamed away again was noted when it was not there yet.
            if folders_move and change.new and set(change.operations) == {"rename"}:
                change.folder |= not os.path.lexists(path_of(names))
            top = next((names[:count] for count in range(1, len(names) + 1) if names[:count] in made), None)
            if self._of_a_tool(names, change, top):
                continue
            if top is not None:
                self.trees.add(top)
            else:
                self._one(names, change)
        for folder, found in sorted(self.names.items()):
            self._in_folder(folder, found)
        self._lift()
        granted = self.granted
        granted.rules = [tree_of(folder) for folder in sorted(self.trees)]
        granted.rules += [escape(path_of(folder)).rstrip("/") + "/" + glob for folder, glob in sorted(self.globs)]
        for name in sorted(self.scattered):
            granted.rules.append(f"{escape(path_of(self.workspace))}/**/{escape(name)}/**")
            granted.excepted += self._foreign(changes)
        return granted

    # One path

    def _of_a_tool(self, names: Names, change: Change, top: Names | None) -> bool:
        """`top` is the topmost folder on the way that the command made: one above the tool's is the command's own."""
        depth = len(self.workspace)
        inside = names[depth:]
        later = self.tools.as_they_become(inside)
        is_folder = later != inside or "mkdir" in change.operations or os.path.isdir(path_of(names))
        found = self.tools.folder_of(later, is_folder=is_folder)
        at = self.tools.scattered_at(inside[: len(inside) if is_folder else -1])
        count = depth + (len(found) if found is not None else 0 if at is None else at + 1)
        if count == depth or (top is not None and len(top) < count):
            return False
        if later != inside:
            self.granted.needless.append(path_of(names))
        if found is not None:
            self.trees.add((*self.workspace, *found))
        elif self.by_hand:
            self.scattered.add(names[count - 1])
        else:
            self.trees.add(names[:count])
        return True

    def _one(self, names: Names, change: Change) -> None:
        path = path_of(names)
        above = [names[:count] for count in range(len(self.workspace) + 1, len(names) + 1)]
        if any(folder in self.passing for folder in above):
            return
        if "access" in change.operations and not os.path.isfile(path):
            self._whole(names, f"the command asks whether it may write in {self._said(names)} itself")
        elif change.folder and change.new and not os.path.lexists(path):
            self._passing_folder(names)
        elif os.path.isdir(path) and not os.path.islink(path):
            if change.new and self.by_hand and names != self.workspace:
                self._as_it_comes(names, escape(names[-1]))  # moved here: to a folder that is there it would go inside
            else:
                nameless = "create" in change.operations
                verb = "makes files without a name in" if nameless else "changes"
                self._whole(names, f"the command {verb} {self._said(names)} itself")
        elif change.folder:
            self._whole(names, f"the command moves {self._said(names)} itself")
        elif not self._by_hand(change):
            self._whole(names[:-1], f"{self._said(names)} cannot be granted by itself")
        else:
            self.names.setdefault(names[:-1], {})[names[-1]] = change

    def _by_hand(self, change: Change) -> bool:
        return NAMING.isdisjoint(change.operations) or (self.by_hand and change.passes_the_hand())

    def _passing_folder(self, names: Names) -> None:
        """Made, and gone when the run ends. Not `X/**`: sbx would make it before the command does."""
        glob = self._glob(names[-1], stays=False) if self.by_hand else None
        if glob is None:
            self._whole(names[:-1], f"the next name of {self._said(names)} cannot be told")
        else:
            self.passing.add(names)
            self._as_it_comes(names, glob)

    def _as_it_comes(self, names: Names, glob: str) -> None:
        self.passing.add(names)
        self.globs |= {(names[:-1], glob), (names[:-1], glob + "/**/*")}

    def _glob(self, name: str, *, stays: bool) -> str | None:
        known = None if stays else self.tools.temporary_glob(name)
        return known or next_time(name, stays=stays)

    # All names of a folder

    def _in_folder(self, folder: Names, found: Mapping[str, Change]) -> None:
        single: dict[str, str] = {}  # glob: ending
        for name, change in sorted(found.items()):
            path = path_of((*folder, name))
            stays = not change.new or os.path.lexists(path)
            glob = self._glob(name, stays=stays)
            if glob is None:
                self._whole(folder, f"the next name of {self._said((*folder, name))} cannot be told")
                return
            if os.path.islink(path) or "symlink" in change.operations:
                glob = glob.rstrip("*") + "*"  # no symlink takes the place that a rule spells out
                single |= dict.fromkeys(self.tools.beside_links if stays else (), "")
            single[glob] = _ending(name) if glob == escape(name) else ""
        for ending, globs in _by_ending(single).items():
            if len(globs) > FEW:
                single = {glob: each for glob, each in single.items() if each != ending}
                single["*." + escape(ending)] = ending
        if len(single) > MANY:
            self._whole(folder, f"{len(single)} unlike names are made in {self._said(folder)} itself")
        self.globs |= {(folder, glob) for glob in single}

    def _whole(self, folder: Names, why: str) -> None:
        self.trees.add(folder)
        if folder == self.workspace and not self.granted.notes:
            self.granted.notes.append(f"the whole workspace is proposed: {why}")

    # Everything

    def _lift(self) -> None:
        """Many rules below one folder are one: a store of objects, by their first letters. But never the workspace."""
        depth = len(self.workspace)
        places = {*self.trees, *(folder for folder, _ in self.globs)}
        above = {place[:count] for place in places for count in range(depth + 1, len(place) + 1)}
        for folder in sorted(above, key=len, reverse=True):
            trees = {tree for tree in self.trees if tree[: len(folder)] == folder}
            globs = {each for each in self.globs if each[0][: len(folder)] == folder}
            if len(trees) + len(globs) <= MANY or folder in self.trees:
                continue
            endings = {_ending(glob) for _, glob in globs}
            self.trees -= trees
            self.globs -= globs
            if trees or "" in endings or len(endings) > FEW:
                self.trees.add(folder)
            else:
                self.globs |= {(folder, "**/*." + escape(ending)) for ending in endings}
        for ending, found in _by_ending({each: _ending(each[1]) for each in self.globs}).items():
            if len(found) > MANY:  # objects beside sources, all over the workspace
                self.globs -= set(found)
                self.globs.add((self.workspace, "**/*." + escape(ending)))

    def _foreign(self, changes: Mapping[Names, Change]) -> list[str]:
        """Other people's code that the command left alone."""
        depth = len(self.workspace)
        touched = {names[depth] for names in changes if len(names) > depth}
        return [
            tree_of((*self.workspace, name))
            for name in self.tools.foreign
            if name not in touched and os.path.isdir(path_of((*self.workspace, name)))
        ]

    def _said(self, names: Names) -> str:
        inside = names[len(self.workspace) :]
        return "./" + "/".join(inside) if inside else "the workspace"


def untouched(workspace: Names, touched: set[Names], granted: Callable[[Names], bool], most: int) -> list[str]:
    """Where the whole workspace has to be granted: the folders in it that the command left alone."""
    try:
        folders = sorted(entry.name for entry in os.scandir(path_of(workspace)) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []
    rest = [(*workspace, name) for name in folders if (*workspace, name) not in touched]
    return [tree_of(names) for names in rest if not granted(names)][:most]


def path_of(names: Names) -> str:
    return "/" + "/".join(names)


def tree_of(names: Names) -> str:
    return escape(path_of(names)) + "/**"


def _ending(name: str) -> str:
    """Of `f.o`; none of `.profile`, of `lib.so.1`."""
    stem, _, ending = name.rpartition(".")
    plain = ending.isalnum() and not ending.isdigit() and len(ending) <= LONGEST_ENDING
    return ending if stem.strip(".") and plain else ""


def _by_ending(endings: Mapping[_Each, str]) -> dict[str, list[_Each]]:
    found: dict[str, list[_Each]] = {}
    for each, ending in endings.items():
        if ending:
            found.setdefault(ending, []).append(each)
    return found
