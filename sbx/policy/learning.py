"""From what a command touched to a few rules a person can read. Pure, but for looking at which folders there are.

A rule is a folder where a person would name the folder: a tool's cache, a build's output, a package. Never through a
deny, and nothing that looks like a secret: such paths are named, and left for a person to decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from sbx.model.glob import escape, parse, split_path
from sbx.model.records import dataclass, field
from sbx.policy.changed_names import NAMING, Change, WorkspaceChanges, path_of, tree_of, untouched
from sbx.policy.tool_folders import ToolFolders, load_tool_folders

READ, MODIFY, EXEC = 0, 1, 2
NOTHING = -1  # a look at what is not there

# Folders in the home folder whose children belong to one tool each.
SHARED_HOMES = (".cache", ".config", ".local/share", ".local/state", ".local/lib", "go", "Library/Caches")
# Folders of the system whose children belong to one package each.
SHARED_ROOTS = ("/opt", "/srv", "/var/lib", "/var/cache", "/usr/local", "/mnt", "/media", "/etc", "/run")
FEW = 3  # files of one folder that are still named one by one
MAX_UNTOUCHED = 12
MAX_LOOK = 100_000  # entries of a folder that are looked at for secrets

SECRET_NAMES = frozenset(
    (".netrc", "_netrc", ".npmrc", ".pypirc", ".git-credentials", ".pgpass", ".my.cnf", ".htpasswd", "shadow")
)
SECRET_PARTS = (
    "secret",
    "credential",
    "password",
    "passwd",
    "token",
    "private_key",
    "private-key",
    "apikey",
    "api_key",
)
SECRET_ENDS = (".pem", ".key", ".p12", ".pfx", ".jks", ".kdbx", ".keystore", ".env", ".gpg", ".asc", ".age")
SECRET_STARTS = ("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".env")
NOT_SECRET = ("/etc/passwd", "/etc/nsswitch.conf")
PROGRAM_ENDS = (".py", ".pyc", ".so", ".js", ".ts", ".h", ".c", ".go", ".rs", ".rb", ".md", ".html")


@dataclass(frozen=True, slots=True)
class Need:
    """Something the command did that the profile does not allow."""

    path: str
    access: int
    operation: str
    new: bool = False  # it was not there
    folder: bool = False  # it was one


@dataclass(slots=True)
class Proposal:
    """Rules by list, and what a person has to decide."""

    read: list[str] = field(default_factory=list)
    modify: list[str] = field(default_factory=list)
    exec: list[str] = field(default_factory=list)
    secrets: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)  # by a global deny
    notes: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)  # folders that a rule names and that the command made itself
    needless: list[str] = field(default_factory=list)  # paths that need no rule: a tool's folder will be there

    def __bool__(self) -> bool:
        return bool(self.read or self.modify or self.exec)


def looks_secret(path: str) -> bool:
    """Would somebody keep a secret under such a name?"""
    name = os.path.basename(path).lower()
    if path in NOT_SECRET or name.endswith(PROGRAM_ENDS):
        return False
    return (
        name in SECRET_NAMES
        or name.endswith(SECRET_ENDS)
        or name.startswith(SECRET_STARTS)
        or any(part in name for part in SECRET_PARTS)
    )


def asked_for(needs: list[Need], home: str) -> list[Need]:
    """Without looks at what is not there. But a tool that does not find its folder in ~/.cache asks whether ~/.cache
    may be written, to make it there: that folder is what it needs, and not all of ~/.cache."""
    shared = [(*split_path(home), *split_path(each)) for each in SHARED_HOMES]
    kept = []
    for position, need in enumerate(needs):
        if need.access == NOTHING:
            continue
        names = split_path(need.path)
        if need.operation != "access" or not any(names == each[: len(names)] for each in shared):
            kept.append(need)
            continue
        missing = [split_path(each.path) for each in needs[:position] if each.access == NOTHING]
        missing = [each for each in missing if _below(each, names)]
        wanted = missing.pop() if missing else ()
        while missing and _below(missing[-1], wanted):  # it looked for the inner one first
            wanted = missing.pop()
        tool = next((wanted[: len(each) + 1] for each in shared if _below(wanted, each)), None)
        if tool is not None:
            kept.append(Need("/" + "/".join(tool), MODIFY, "access"))
    return kept


class Generalizer:
    """Chooses the rule for each need. `denied` says whether a global deny is the reason; `granted`, whether something
    below a folder may be modified already; `by_hand`, whether single names can be granted in read-only folders."""

    def __init__(
        self,
        workspace: str,
        home: str,
        denied: Callable[[Need], bool],
        *,
        granted: Callable[[tuple[str, ...]], bool] = lambda folder: False,
        by_hand: bool = True,
        tools: ToolFolders | None = None,
    ) -> None:
        self.workspace = split_path(workspace)
        self.home = split_path(home)
        self.denied = denied
        self.granted = granted
        self.by_hand = by_hand
        self.tools = load_tool_folders() if tools is None else tools
        self.unseen: list[str] = []  # folders that are granted whole and were not looked through
        self.shared = {
            self.home,
            *((*self.home, *split_path(each)) for each in SHARED_HOMES),
            *map(split_path, SHARED_ROOTS),
        }

    def propose(self, needs: Iterable[Need], *, with_exec: bool = False) -> Proposal:
        proposal = Proposal()
        reads: set[str] = set()
        changes: dict[tuple[str, ...], Change] = {}
        runs: set[str] = set()
        for need in needs:
            if self.denied(need):
                proposal.denied.append(need.path)
            elif looks_secret(need.path) and not self._made_here(need):
                proposal.secrets.append(need.path)
            elif need.access == MODIFY:
                change = changes.setdefault(split_path(need.path), Change(new=need.new))
                change.folder |= need.folder or need.operation == "mkdir"
                if need.operation not in change.operations:
                    change.operations.append(need.operation)
            elif need.access == EXEC and with_exec:
                runs.add(need.path)
            else:
                reads.add(need.path)
        secret = tuple(split_path(path) for path in proposal.secrets)
        modify = self._modify(changes, secret, proposal)
        read = self._merged([*self._read(reads | runs), *self._read_for(modify)], secret)
        proposal.read = [self.spelled(rule) for rule in read]
        proposal.modify = [self.spelled(rule) for rule in modify]
        proposal.exec = [self.spelled(rule) for rule in self._merged(self._read(runs), secret)]
        proposal.secrets = sorted(set(proposal.secrets))
        proposal.denied = sorted(set(proposal.denied))
        for folder in sorted(set(self.unseen)):
            proposal.notes.append(f"{folder} holds more names than were looked at: see that no secret is among them")
        return proposal

    def _made_here(self, need: Need) -> bool:
        """What a build writes in its workspace is its own, whatever it is called (`token.o`)."""
        return need.access == MODIFY and _below(split_path(need.path), self.workspace)

    # Reading

    def _read(self, paths: Iterable[str]) -> list[str]:
        rules: list[str] = []
        elsewhere: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for path in sorted(paths):
            names = split_path(path)
            if names[: len(self.workspace)] == self.workspace:
                rules.append(tree_of(self.workspace))
            elif self._leads_to_workspace(names):
                continue  # a folder on the way to it is there anyway
            elif (owner := self._owner(names)) is not None:
                rules.append(tree_of(owner))
            else:
                elsewhere.setdefault(names[:2], []).append(names)
        for near in elsewhere.values():
            rules += self._together(near)
        return rules

    def _together(self, near: list[tuple[str, ...]]) -> list[str]:
        """Many files that lie close to each other are a folder, but not one that everybody shares."""
        deep = [names for names in near if len(names) > 2]
        common = deep[0][:-1] if deep else ()
        for names in deep:
            same = [one == other for one, other in zip(common, names[:-1], strict=False)]
            common = common[: same.index(False) if False in same else len(same)]
        shared = len(common) < 2 or common == self.home[: len(common)]
        if len(deep) <= FEW or shared:
            return [escape("/" + "/".join(names)) for names in near]
        outside = [names for names in near if names[: len(common)] != common]
        return [tree_of(common), *(escape("/" + "/".join(names)) for names in outside)]

    def _leads_to_workspace(self, names: tuple[str, ...]) -> bool:
        return names == self.workspace[: len(names)]

    def _owner(self, names: tuple[str, ...]) -> tuple[str, ...] | None:
        """The folder of the tool or package that a path belongs to."""
        if _below(names, self.home):
            inside = names[len(self.home) :]
            for shared in SHARED_HOMES:
                start = split_path(shared)
                if inside[: len(start)] == start:
                    return names[: len(self.home) + len(start) + 1] if len(inside) > len(start) + 1 else None
            return names[: len(self.home) + 1] if len(inside) > 1 else None
        for shared in SHARED_ROOTS:
            start = split_path(shared)
            if names[: len(start)] == start:
                return names[: len(start) + 1] if len(names) > len(start) + 1 else None
        return None

    # Modifying

    def _modify(
        self, changes: dict[tuple[str, ...], Change], secret: tuple[tuple[str, ...], ...], proposal: Proposal
    ) -> list[str]:
        size = len(self.workspace)
        here = {names: change for names, change in changes.items() if names[:size] == self.workspace}
        away = {names: change for names, change in changes.items() if names not in here}
        found = WorkspaceChanges(self.workspace, self.tools, by_hand=self.by_hand).grant(here)
        proposal.notes, proposal.needless = found.notes, found.needless
        modify = self._merged([*self._changed(away), *found.rules], secret)
        if tree_of(self.workspace) in modify:
            touched = {names[: size + 1] for names in here}
            modify += ["!" + each for each in untouched(self.workspace, touched, self.granted, MAX_UNTOUCHED)]
        else:
            modify += ["!" + each for each in found.excepted if not self.granted(split_path(each)[:-1])]
        new = {tree_of(names) for names, change in here.items() if change.new}
        proposal.made = [self.spelled(rule) for rule in modify if rule in new]
        return modify

    def _read_for(self, modify: list[str]) -> list[str]:
        """A name can be made in a folder that is shown, and what may be modified must be readable."""
        inside = tree_of(self.workspace)[:-2]
        rules = [rule for rule in modify if rule[0] != "!"]
        named = any(rule.startswith(inside) and not rule.endswith("/**") for rule in rules)
        return [*rules, *([inside + "**"] if named or any("/**/" in rule for rule in rules) else [])]

    def _changed(self, changes: dict[tuple[str, ...], Change]) -> list[str]:
        """Outside the workspace, where a folder is seldom shown whole: to make, move or remove a name takes its folder.
        A folder that the run made and left is its own. What is only written to is granted by itself."""
        made = {
            names for names, done in changes.items() if "mkdir" in done.operations and os.path.isdir(path_of(names))
        }
        rules: list[str] = []
        written: dict[tuple[str, ...], list[str]] = {}
        for names, change in sorted(changes.items()):
            path = path_of(names)
            top = next((names[:count] for count in range(1, len(names) + 1) if names[:count] in made), None)
            owner = self._owner(names)
            if owner is not None:
                rules.append(tree_of(owner))
            elif "access" in change.operations and not os.path.isfile(path):
                rules.append(tree_of(names))
            elif top is not None:
                rules.append(tree_of(top))
            elif NAMING.isdisjoint(change.operations):
                written.setdefault(names[:-1], []).append(path)
            elif names[:-1] in self.shared or len(names) < 3:
                rules.append(escape(path))  # not a folder that everybody shares, for one name in it
            else:
                rules.append(tree_of(names[:-1]))
        for folder, paths in written.items():
            if len(paths) > FEW and len(folder) > 1 and folder != self.home:
                rules.append(tree_of(folder))
            else:
                rules += [tree_of(split_path(path)) if os.path.isdir(path) else escape(path) for path in paths]
        return rules

    # Putting together

    def _merged(self, rules: Iterable[str], secret: tuple[tuple[str, ...], ...]) -> list[str]:
        """Without what another covers; a folder with something secret in it keeps it out."""
        wanted = sorted(set(rules), key=lambda rule: (rule.count("/"), rule))
        trees = [rule for rule in wanted if rule.endswith("/**")]
        kept = []
        for rule in wanted:
            body = rule.removesuffix("/**")
            covered = any(rule != tree and (body + "/").startswith(tree[:-2]) for tree in trees)
            covered = covered or any(rule != tree and body == tree[:-3] for tree in trees)
            if not covered:
                kept.append(rule)
        out: list[str] = []
        for rule in kept:
            out.append(rule)
            inside = _folder_of(rule)
            if inside:
                found = {path for path in secret if path[: len(inside)] == inside}
                if inside != self.workspace:
                    below, all_seen = _secrets_below(inside)
                    found |= set(below)
                    if not all_seen:
                        self.unseen.append("/" + "/".join(inside))
                out += ["!" + escape("/" + "/".join(path)) for path in sorted(found)]
        return out

    def spelled(self, rule: str) -> str:
        """As a person writes it: from the workspace, or from home."""
        sign, text = ("!", rule[1:]) if rule.startswith("!") else ("", rule)
        for folder, prefix in ((self.workspace, "."), (self.home, "~")):
            start = escape("/" + "/".join(folder))
            if folder and (text == start or text.startswith(start + "/")):
                return sign + prefix + text[len(start) :]
        return rule


def _below(names: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    return bool(folder) and len(names) > len(folder) and names[: len(folder)] == folder


def _folder_of(rule: str) -> tuple[str, ...]:
    """The one folder that a rule grants whole; empty for every other rule."""
    if not rule.endswith("/**"):
        return ()
    names = tuple(name for name in parse(rule.removesuffix("/**")) if isinstance(name, str))
    return names if len(names) == len(parse(rule)) - 1 else ()


def _secrets_below(folder: tuple[str, ...]) -> tuple[list[tuple[str, ...]], bool]:
    """What looks secret in a folder that would be granted whole, and whether all of it was looked at."""
    found: list[tuple[str, ...]] = []
    looked = 0
    for where, folders, files in os.walk("/" + "/".join(folder)):
        for name in (*folders, *files):
            looked += 1
            if looked > MAX_LOOK:
                return found, False
            if looks_secret(os.path.join(where, name)):
                found.append(split_path(os.path.join(where, name)))
    return found, True
