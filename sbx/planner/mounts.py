"""From rules to mounts: walk only where a rule could change the verdict, emit an operation only where it does.

Every directory gets a *stand*: covered (its entries are absent unless an operation brings them), or bound (its entries
are there, read-only or writable). The stand is what an entry gets without an operation of its own; so the walk has to
look at just those entries whose verdict differs from it.

A directory is bound writable only if it may be modified itself and so may any name that could be made in it: what a
bind allows for names to come is what the rules allow for names that nobody wrote down.
"""

from __future__ import annotations

import os

from sbx.model.plan import Op, Operation
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass, replace
from sbx.model.rules import Access, Origin
from sbx.planner.making import Making, join
from sbx.planner.observe import Observations
from sbx.planner.specials import NEVER_WALKED, Regions, children_by_parent
from sbx.planner.states import HIDDEN, MODIFIABLE, READABLE, State
from sbx.planner.walk import DIRECTORY, FILE, LINK, DirectoryReader, Entries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


@dataclass(frozen=True, slots=True)
class Stand:
    """What the entries of a directory get without an operation."""

    bound: bool
    writable: bool = False
    exec: bool = True
    unpinned: tuple[str, ...] = ()  # directories between the writable mount and here that could be renamed away

    @property
    def verdict(self) -> int:
        return HIDDEN if not self.bound else MODIFIABLE if self.writable else READABLE


COVERED = Stand(bound=False)


class MountWalk:
    """One walk from `/`; `operations` is its product, parents before children."""

    def __init__(
        self,
        profile: EffectiveProfile,
        regions: Regions,
        specials: tuple[tuple[str, Op], ...],
        reader: DirectoryReader,
        links: frozenset[str] = frozenset(),
    ) -> None:
        self.profile = profile
        self.operations: list[Operation] = []
        self.making = Making(profile, reader)
        self.seen = Observations(profile)
        self.single_names: set[str] = set()  # folders shown read-only, in which some names may be modified
        self._regions = regions
        self._specials = dict(specials)
        self._reader = reader
        # The private /dev comes with links of its own.
        devices = tuple(f"{path}/" for path, op in specials if op is Op.DEV)
        self._links = frozenset(path for path in links if not path.startswith(devices))
        self._forced = children_by_parent([*self._specials, *self._links])
        self._pinned: set[str] = set()
        self._changeable: dict[str, bool] = {}  # may the user make names in this folder?
        self._has_exec = profile.exec is not None

    def run(self) -> None:
        self._directory("/", self._regions.everywhere.at(()), COVERED, found=False)

    # --- directories

    def _special(self, path: str, around: Stand) -> None:
        op = self._specials[path]
        state = self._regions.private[path].at(tuple(name for name in path.split("/") if name))
        if op is not Op.PROC and state.verdict != HIDDEN:
            self._directory(path, state, around, found=False)  # a rule of the profile names the host's own
            return
        if around.bound and self._reader.kind(path) != DIRECTORY:
            return  # nothing to mount on: whatever is or is not there shows through the bind
        everywhere = self._regions.everywhere.at(tuple(name for name in path.split("/") if name))
        noexec = op is Op.TMPFS and self._has_exec and not everywhere.generic.exec
        self.operations.append(Operation(op, path, noexec=noexec, why="private"))
        if op is not Op.PROC:
            self._children(path, state, COVERED)

    def _directory(self, path: str, state: State, around: Stand, *, found: bool) -> None:
        stand = self._stand(state)
        if self._unlistable(path, state, stand):
            stand = None
            self.seen.unlistable.append(path)
        if stand is None:
            self._cover(path, state, around, found=found)
            return
        self.seen.directory_itself(state, stand.writable, by_hand=around.bound and not around.writable)
        self._granted_by_name(path, state, around)
        if around.bound and (stand.writable, stand.exec) == (around.writable, around.exec):
            if around.writable:
                stand = replace(stand, unpinned=(*around.unpinned, path))
        else:
            self._emit(self._bind(path, state, stand, around, found=found), around)
        self._children(path, state, stand)

    def _stand(self, state: State) -> Stand | None:
        """How to show this directory, or None: cover it."""
        generic = state.generic
        if state.verdict == HIDDEN or generic.verdict == HIDDEN:
            return None
        return Stand(True, state.writable, not self._has_exec or generic.all_exec)

    def _unlistable(self, path: str, state: State, stand: Stand | None) -> bool:
        """Names that should be excluded cannot be found, but may be guessed: show nothing of such a directory."""
        return (
            stand is not None
            and path not in NEVER_WALKED
            and self._must_list(state, stand)
            and self._reader.entries(path) is None
        )

    def _cover(self, path: str, state: State, around: Stand, *, found: bool) -> None:
        position = len(self.operations)
        self.seen.directory_itself(state, False)
        if around.bound:
            why, place = self._reason(state, Access.READ)
            mask = Operation(Op.MASK, path, listable=state.listed, optional=found, why=why, place=place)
            self._emit(mask, around)
            position = len(self.operations) - 1
        else:
            self.operations.append(Operation(Op.SKELETON, path, listable=state.listed))
        self._children(path, state, COVERED)
        if len(self.operations) == position + 1:
            if not around.bound and not state.listed and path != "/":
                self.operations.pop()  # it leads nowhere
        elif around.bound:
            self.operations[position] = replace(self.operations[position], populated=True)

    # --- entries

    def _must_list(self, state: State, stand: Stand) -> bool:
        generic = state.generic
        if stand.verdict != generic.verdict:
            return True
        if self._has_exec and stand.bound and stand.exec != generic.exec:
            return True
        return state.names.wildcard

    def _children(self, path: str, state: State, stand: Stand) -> None:
        forced = self._forced.get(path, ())
        self.seen.names_to_come(state, stand.bound, stand.writable)
        if stand.bound and not stand.writable:
            modify = state.below[1].continuations
            if any(not each.names and self._grants(each.rule) for each in modify if not each.negated):
                self.single_names.add(path)
        entries = None
        if path not in NEVER_WALKED and self._must_list(state, stand):
            entries = self._reader.entries(path)
        if entries is None:
            for name in sorted({*state.names.literals, *forced}):
                kind = self._reader.kind(join(path, name))
                self._named(path, name, kind, state, stand, found=False)
            return
        literals = state.names.literals
        for name, kind in self._remarkable(entries, forced, state, stand):
            self._named(path, name, kind, state, stand, found=name not in literals)
        wanted = {*literals, *forced}
        for name in sorted(wanted.difference(entries.names) if wanted else ()):
            self._named(path, name, None, state, stand, found=False)

    def _remarkable(
        self, entries: Entries, forced: Collection[str], state: State, stand: Stand
    ) -> Iterator[tuple[str, str]]:
        """The entries that may need an operation. Hardly one of 100,000 does: they are told apart together."""
        unasked = {DIRECTORY: False}  # per kind: does a name that no rule tells from others go without?
        is_common = state.names.is_common
        all_common = not forced and state.names.all_common(entries.joined)
        if all_common and entries.kinds.count(FILE) == len(entries.kinds):
            first = next(iter(entries.names), None)  # the usual case: nothing but files
            if first is None or self._goes_without(FILE, state.step(first), stand):
                return
        for name, kind in zip(entries.names, entries.kinds, strict=True):
            if all_common or (is_common(name) and name not in forced):
                if kind not in unasked:
                    unasked[kind] = self._goes_without(kind, state.step(name), stand)
                if unasked[kind]:
                    continue
            yield name, kind

    def _goes_without(self, kind: str, child: State, stand: Stand) -> bool:
        """Does an entry of this kind get what it deserves without an operation? (What _link and _file would find.)"""
        if kind == LINK:
            return child.verdict == MODIFIABLE or not stand.writable if stand.bound else child.verdict == HIDDEN
        return self._has_its_verdict(child, stand)

    def _has_its_verdict(self, child: State, stand: Stand) -> bool:
        same_exec = child.exec == stand.exec or not self._has_exec or child.verdict == HIDDEN
        return child.verdict == stand.verdict and same_exec

    def _named(self, parent: str, name: str, kind: str | None, state: State, stand: Stand, *, found: bool) -> None:
        path = join(parent, name)
        child = state.step(name)
        if path in self._specials:
            self._special(path, stand)
            return
        if kind is None:
            if path in self._forced and not stand.bound and self._stand(child) is None:
                kind = DIRECTORY  # leads to a private place on a host that lacks it
            elif not stand.writable and self.making.plan_for(parent, path, child):
                kind = DIRECTORY  # where the command may write, it can make the directory by itself
            else:
                self.seen.missing_name(state, name, stand.bound, stand.writable)
                self._granted_by_name(path, child, stand)
        if kind == DIRECTORY:
            self._directory(path, child, stand, found=found)
        elif kind == LINK:
            self._link(path, child, stand, found=found)
        elif kind is not None:
            self._file(path, child, stand, found=found)

    def _file(self, path: str, state: State, stand: Stand, *, found: bool) -> None:
        if self._has_its_verdict(state, stand):
            return
        if state.verdict == HIDDEN:
            why, place = self._reason(state, Access.READ)
            self._emit(Operation(Op.MASK, path, is_dir=False, optional=found, why=why, place=place), stand)
            return
        writable = state.verdict == MODIFIABLE
        if writable and not stand.writable:
            self.seen.file_in_place(state, by_hand=stand.bound)
            self._granted_by_name(path, state, stand)
        bound = Stand(True, writable, not self._has_exec or state.exec)
        self._emit(replace(self._bind(path, state, bound, stand, found=found), is_dir=False), stand)

    def _link(self, path: str, state: State, stand: Stand, *, found: bool) -> None:
        """A link's target is judged where it lies; here only the link itself is at stake."""
        if stand.bound:
            if stand.writable and state.verdict != MODIFIABLE:
                why, place = self._reason(state, Access.MODIFY)
                op = Operation(Op.BIND_RO, path, is_dir=False, is_link=True, optional=found, why=why, place=place)
                self._emit(op, stand)
            return
        if state.verdict == HIDDEN and path not in self._links:
            return
        try:
            text = os.readlink(path)
        except OSError:
            return
        why, place = self._reason(state, Access.READ) if state.verdict != HIDDEN else ("named by a rule", "")
        self.operations.append(Operation(Op.SYMLINK, path, text, is_dir=False, why=why, place=place))

    def _granted_by_name(self, path: str, state: State, around: Stand) -> None:
        """A path that may be modified in a folder that is shown and may not: only by hand can it be made or removed."""
        if state.verdict != MODIFIABLE or around.writable or not around.bound or not self._grants(state.winner(1)):
            return
        parent = os.path.dirname(path)
        if parent not in self._changeable:
            self._changeable[parent] = os.access(parent, os.W_OK | os.X_OK)
        if self._changeable[parent]:
            self.single_names.add(parent)

    def _grants(self, rule: int) -> bool:
        return self.profile.modify[rule].origin is not Origin.BASELINE

    # --- operations

    def _bind(self, path: str, state: State, stand: Stand, around: Stand, *, found: bool) -> Operation:
        why, place = self._reason(state, Access.MODIFY if stand.writable or around.writable else Access.READ)
        op = Op.BIND_RW if stand.writable else Op.BIND_RO
        return Operation(op, path, noexec=not stand.exec, optional=found, why=why, place=place)

    def _emit(self, operation: Operation, around: Stand) -> None:
        """An exception inside a writable bind: first nail down the directories above it."""
        if around.writable:
            for ancestor in around.unpinned:
                if ancestor not in self._pinned:
                    self._pinned.add(ancestor)
                    why = f"holds {os.path.basename(operation.path)} in its place"
                    self.operations.append(Operation(Op.PIN, ancestor, noexec=not around.exec, why=why))
        self.operations.append(operation)

    def _reason(self, state: State, access: Access) -> tuple[str, str]:
        rules = self.profile.rules(access)
        index = state.winner((Access.READ, Access.MODIFY, Access.EXEC).index(access))
        if index < 0:
            return f"no {access} rule matches", ""
        return str(rules[index]), rules[index].source.place
