"""Landlock alone, for hosts without user namespaces.

Landlock only adds: a right on a directory holds for all below it. So a directory gets a right just if everything that
exists below, and any name that could be made there, deserves it. Otherwise the directory is split: what stands in it
gets its own grants, and nothing that is excluded ever gets one.
"""

from __future__ import annotations

import os

from sbx.model.plan import Op, Operation, PathGrant, Plan
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass, field
from sbx.model.rules import Access
from sbx.planner.exceptions import EXCEPTIONS, LANDLOCK
from sbx.planner.grants import READ_TREE, WRITE_TREE, rights
from sbx.planner.making import Making, join
from sbx.planner.observe import Observations
from sbx.planner.specials import NEVER_WALKED, children_by_parent, regions
from sbx.planner.states import HIDDEN, MODIFIABLE, State
from sbx.planner.walk import DIRECTORY, LINK, DirectoryReader

HARMLESS_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_RIGHTS = ("READ_FILE", "WRITE_FILE", "TRUNCATE", "IOCTL_DEV")

Pairs = tuple[tuple[str, str], ...]  # names with their kinds


@dataclass(slots=True)
class Deserved:
    """What everything below a directory deserves, the directory's own listing included."""

    read_file: bool
    read_dir: bool
    modify: bool
    execute: bool

    def meet(self, other: Deserved) -> None:
        self.read_file &= other.read_file
        self.read_dir &= other.read_dir
        self.modify &= other.modify
        self.execute &= other.execute

    def rights(self) -> frozenset[str]:
        names = ["READ_FILE"] * self.read_file + ["READ_DIR"] * self.read_dir + ["EXECUTE"] * self.execute
        return frozenset((*names, *WRITE_TREE) if self.modify else names)


class LandlockWalk:
    def __init__(
        self, profile: EffectiveProfile, reader: DirectoryReader, specials: tuple[tuple[str, Op], ...]
    ) -> None:
        self.seen = Observations(profile)
        self.making = Making(profile, reader)
        self._reader = reader
        self._specials = dict(specials)
        self._regions = regions(profile, specials)
        self._forced = children_by_parent(list(self._specials))
        self._deserved: dict[str, Deserved] = {}
        self._grants: dict[str, frozenset[str]] = {}
        self._names: dict[tuple[int, int], _Names] = {}  # files with several names, by inode

    def run(self) -> tuple[PathGrant, ...]:
        self._directory("/", self._regions.everywhere.at(()), frozenset())
        for path, op in self._specials.items():
            self._special(path, op)
        self._level_hard_links()
        return tuple(PathGrant(path, in_order(found)) for path, found in sorted(self._grants.items()) if found)

    def _special(self, path: str, op: Op) -> None:
        if op is Op.PROC:
            self._grants[path] = frozenset(READ_TREE)
            return
        names = tuple(name for name in path.split("/") if name)
        state = self._regions.private[path].at(names)
        if self._reader.kind(path) == DIRECTORY:
            self._directory(path, state, frozenset())
        if op is Op.DEV:
            for name in HARMLESS_DEVICES:
                if os.path.exists(join(path, name)):
                    self._grants[join(path, name)] = frozenset(DEVICE_RIGHTS)

    # --- what may be granted on a directory as a whole

    def _deserves(self, path: str, state: State) -> Deserved:
        known = self._deserved.get(path)
        if known is None:
            generic = state.generic
            known = Deserved(
                generic.all_readable,
                state.verdict != HIDDEN and generic.all_readable,
                state.writable,
                generic.all_exec,
            )
            entries = self._exceptional(path, state)
            if entries is None:
                # Names that should be excluded cannot be found: grant nothing as a whole.
                self.seen.unlistable.append(path)
                known = Deserved(False, False, False, False)
            for name, kind in entries or ():
                known.meet(self._entry_deserves(join(path, name), kind, state.step(name)))
            self._deserved[path] = known
        return known

    def _entry_deserves(self, path: str, kind: str, state: State) -> Deserved:
        if path in self._specials:
            return Deserved(False, False, False, False)
        if kind == DIRECTORY:
            return self._deserves(path, state)
        modify = state.verdict == MODIFIABLE
        if kind == LINK:  # only the link itself is here; its target is judged where it lies
            return Deserved(True, True, modify, True)
        return Deserved(state.verdict != HIDDEN, True, modify, state.exec)

    def _exceptional(self, path: str, state: State) -> Pairs | None:
        """The entries whose verdict could differ from what an unnamed one gets; None when they cannot be found."""
        forced = self._forced.get(path, ())
        names = state.names
        if names.wildcard and path not in NEVER_WALKED:
            entries = self._reader.entries(path)
            if entries is None:
                return None
            missing = {*names.literals, *forced}.difference(name for name, _ in entries)
            return (*entries, *self._made(path, state, missing))
        found = {name: self._reader.kind(join(path, name)) for name in sorted({*names.literals, *forced})}
        present = {name: kind for name, kind in found.items() if kind is not None}
        return (*present.items(), *self._made(path, state, set(found).difference(present)))

    def _made(self, path: str, state: State, missing: set[str]) -> Pairs:
        """Of the names that rules spell out and that are not there, those that will be made."""
        if state.writable:
            return ()
        made = (name for name in sorted(missing) if self.making.plan_for(path, join(path, name), state.step(name)))
        return tuple((name, DIRECTORY) for name in made)

    # --- granting

    def _directory(self, path: str, state: State, inherited: frozenset[str]) -> None:
        deserved = self._deserves(path, state).rights()
        if not deserved <= inherited:
            self._grants[path] = deserved | inherited
        have = deserved | inherited
        self._observe(path, state, have)
        generic = state.generic
        wanted = frozenset(_rights(DIRECTORY, generic.verdict, generic.exec))
        entries = dict(self._exceptional(path, state) or ())
        if not wanted <= have and path not in NEVER_WALKED:
            entries |= dict(self._reader.entries(path) or ())
        present = set()
        for name, kind in sorted(entries.items()):
            present.add(name)
            child = state.step(name)
            usual = (child.verdict, child.exec) == (generic.verdict, generic.exec)
            self._entry(join(path, name), kind, child, have, usual=usual)
        for name in state.names.literals - present:
            self.seen.missing_name(state, name, "READ_FILE" in have, "MAKE_REG" in have)

    def _entry(self, path: str, kind: str, state: State, have: frozenset[str], *, usual: bool) -> None:
        if path in self._specials or kind == LINK:
            return
        if kind == DIRECTORY:
            self._directory(path, state, have)
            return
        wanted = frozenset(_rights(kind, state.verdict, state.exec))
        if not (wanted <= have and usual):
            self._remember_names(path, state, own_grant=not wanted <= have)
        if not wanted <= have:
            self._grants[path] = wanted
            if state.verdict == MODIFIABLE:
                self.seen.file_in_place(state)

    def _observe(self, path: str, state: State, have: frozenset[str]) -> None:
        writable, readable = "MAKE_REG" in have, "READ_FILE" in have
        self.seen.names_to_come(state, readable, writable)
        self.seen.directory_itself(state, state.writable)
        if state.writable and not writable:
            self.seen.note(1, state.winner(1), "landlock-split-create")
        if state.verdict != HIDDEN and "READ_DIR" not in have:
            self.seen.note(0, state.winner(0), "landlock-split-list")

    # --- files with several names: Landlock rules stick to the inode

    def _remember_names(self, path: str, state: State, *, own_grant: bool) -> None:
        try:
            found = os.lstat(path)
        except OSError:
            return
        if found.st_nlink < 2:
            return
        names = self._names.setdefault((found.st_dev, found.st_ino), _Names(found.st_nlink))
        names.unmet -= 1
        names.verdict = min(names.verdict, state.verdict)
        names.execute = names.execute and state.exec
        if own_grant:
            names.granted.append((path, state))

    def _level_hard_links(self) -> None:
        """The most restricted name decides; with names that were not met, none of them can be granted by itself."""
        for names in self._names.values():
            verdict = names.verdict if names.unmet <= 0 else HIDDEN
            allowed = frozenset(_rights("", verdict, names.execute))
            for path, state in names.granted:
                if not self._grants[path] <= allowed:
                    self._grants[path] &= allowed
                    for access in range(3):
                        self.seen.note(access, state.winner(access), "landlock-hard-link")


@dataclass(slots=True)
class _Names:
    """The names of one inode, as far as they were met."""

    unmet: int
    verdict: int = MODIFIABLE
    execute: bool = True
    granted: list[tuple[str, State]] = field(default_factory=list)


def _rights(kind: str, verdict: int, execute: bool) -> tuple[str, ...]:
    if verdict == HIDDEN:
        return ()
    return rights(is_dir=kind == DIRECTORY, writable=verdict == MODIFIABLE, executable=execute)


def in_order(found: frozenset[str]) -> tuple[str, ...]:
    order = (*READ_TREE, *WRITE_TREE, "IOCTL_DEV", "EXECUTE")
    return tuple(name for name in order if name in found)


def plan_landlock(
    profile: EffectiveProfile, cwd: str, reader: DirectoryReader, specials: tuple[tuple[str, Op], ...]
) -> Plan:
    walk = LandlockWalk(profile, reader, specials)
    grants = walk.run()
    for number, access in enumerate((Access.READ, Access.MODIFY)):
        for index, rule in enumerate(profile.rules(access)):
            if rule.negated:
                walk.seen.note(number, index, "landlock-metadata")
    return Plan(
        platform="linux",
        backend=LANDLOCK,
        profile=profile.name,
        workspace=profile.workspace,
        cwd=cwd,
        operations=tuple(Operation(Op.MAKE_DIR, path, why="a modify rule names it") for path in walk.making.made),
        grants=grants,
        network=profile.network,
        env=profile.env,
        limits=profile.limits,
        require=profile.require,
        guarantees=walk.seen.guarantees("landlock"),
        looked_at=tuple(reader.stamps[path] for path in sorted(reader.stamps)),
        missing=tuple(sorted(reader.missing)),
        notes=tuple(EXCEPTIONS[each].sentence for each in ("landlock-metadata", "landlock-no-private-place")),
    )
