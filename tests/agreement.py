"""Does the kernel's verdict equal decide()? Every operation, inside and in a reference outside, step by step.

A disagreement is a bug unless an entry of `sbx.planner.exceptions` states its very kind; each entry that may excuse
has a function here that checks that the circumstances are those of its sentence.
"""

from __future__ import annotations

import errno
import marshal
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import file_operations
from capabilities import landlock_abi
from file_operations import Operation, bind_socket, perform
from random_policies import Case
from sandboxed import PYTHON, compile_rules, run_compiled

from sbx.backends.capabilities import Capabilities
from sbx.backends.linux import own_paths
from sbx.errors import PolicyError
from sbx.model.decide import decide_location
from sbx.model.plan import Op
from sbx.model.rules import Access
from sbx.planner.exceptions import EXCEPTIONS
from sbx.planner.links import links_on
from sbx.supervise.compile import Compiled

READ, MODIFY, EXEC = Access.READ, Access.MODIFY, Access.EXEC
PROBE = Path(file_operations.__file__).read_text()
STRANGE = "\1" * 64  # a name that no rule spells out
DEPTH = 6  # deeper than any rule of these tests can tell apart

MAKES = frozenset({"create", "open-create", "mkdir", "mkfifo", "bind", "symlink"})
REMOVES = frozenset({"unlink", "rmdir"})
MOVES = frozenset({"rename", "rename-noreplace", "exchange"})


@dataclass(frozen=True)
class Need:
    """A verdict that an operation depends on: this access to this place (the real location, inside)."""

    access: Access
    place: str
    naming: bool = False  # a name is made, removed or moved here


@dataclass
class Step:
    operation: Operation
    inside: int
    needs: list[Need]
    denied: list[Need]


class Comparison:
    """One case, one machine."""

    trace = False

    def __init__(self, case: Case, folder: Path, machine: Capabilities | None) -> None:
        self.case = case
        self.workspace = os.path.realpath(folder / "w")
        self.copy = os.path.realpath(folder / "copy")
        os.mkdir(self.workspace)
        os.mkdir(self.copy)
        case.build(self.workspace)
        case.build(self.copy)
        self.at_start = set(_everything(self.workspace))
        self.compiled: Compiled = compile_rules(
            case.rules, self.workspace, cwd="/usr", machine=machine, small=True, trace=self.trace
        )
        self.profile = self.compiled.profile
        self.mounted = {each.path: each.op for each in self.compiled.plan.operations if each.op is not Op.MAKE_DIR}
        self.grants = {each.path: frozenset(each.rights) for each in self.compiled.plan.grants}
        self.made = [each.path for each in self.compiled.plan.operations if each.op is Op.MAKE_DIR]
        for path in self.made:
            os.mkdir(self.outside(path))
        self.landlock = self.compiled.plan.backend == "landlock"
        self.own_paths = set(own_paths(self.profile))

    def run(self) -> list[str]:
        """The disagreements, in words."""
        request = marshal.dumps((os.fsencode(self.workspace), list(self.case.operations)))
        ended = run_compiled(self.compiled, [*PYTHON, "-c", PROBE], stdin=request)
        assert ended.status == 0, (ended.status, ended.stderr.decode(errors="replace"))
        outcomes = marshal.loads(ended.stdout)
        assert len(outcomes) == len(self.case.operations)
        found = []
        for operation, inside in zip(self.case.operations, outcomes, strict=True):
            found += self._step(operation, inside)
        if not found:
            found += self._trees_differ()
        return found

    def _step(self, operation: Operation, inside: int) -> Iterator[str]:
        needs = list(self.needs(operation))
        denied = [need for need in needs if not self.allows(need)]
        step = Step(operation, inside, needs, denied)
        if denied and inside:
            return  # refused, as it should be; or it would have failed anyway
        if denied:
            excuse = self.excuse(step, LOOSER)
            if excuse is None:
                yield f"{operation} succeeded inside; denied: {denied}"
            if operation[0] not in ("read", "list", "readlink"):
                perform(os.fsencode(self.copy), operation)
            return
        if inside == 0 or operation[0] in ("read", "list", "readlink", "execute"):
            outside = perform(os.fsencode(self.copy), operation)
        else:
            outside = self._would(operation)
        if bool(outside) == bool(inside):
            return
        if inside and self.excuse(step, STRICTER) is None:
            yield f"{operation} failed inside with {errno.errorcode[inside]}; allowed: {needs}"
        elif outside:
            yield f"{operation} succeeded inside; outside {errno.errorcode[outside]}"

    def _would(self, operation: Operation) -> int:
        """What a call that failed inside would have given outside: on a copy of the tree, so that nothing changes."""
        trial = self.copy + ".trial"
        _copy_tree(self.copy, trial)
        try:
            return perform(os.fsencode(trial), operation)
        finally:
            _remove_tree(trial)

    # --- places

    def outside(self, place: str) -> str:
        return self.copy + place[len(self.workspace) :]

    def location(self, path: bytes, *, follow: bool) -> str | None:
        """Where a path really leads, in words of the workspace, by the state the reference is in now."""
        full = os.path.join(os.fsencode(self.copy), path)
        head, name = os.path.split(full)
        try:
            if follow:
                real = os.path.realpath(full)
                os.path.realpath(os.path.dirname(real), strict=True)
                if os.path.islink(real):
                    return None
            else:
                real = os.path.join(os.path.realpath(head, strict=True), name)
        except OSError:
            return None
        inside = os.fsdecode(real)
        if inside != self.copy and not inside.startswith(self.copy + "/"):
            return None
        return self.workspace + inside[len(self.copy) :]

    def allows(self, need: Need) -> bool:
        return decide_location(self.profile, need.place, need.access).allowed

    def below(self, place: str) -> Iterator[str]:
        for path in _everything(self.outside(place)):
            yield self.workspace + path[len(self.copy) :]

    def needs(self, operation: Operation) -> Iterator[Need]:
        kind, first = operation[:2]
        if kind in ("read", "list", "execute", "write", "truncate", "chmod", "utime", "open-create"):
            place = self.location(first, follow=True)
            if place is not None:
                access = READ if kind in ("read", "list") else EXEC if kind == "execute" else MODIFY
                there = os.path.lexists(self.outside(place))
                yield Need(access, place, naming=kind == "open-create" and not there)
        elif kind == "readlink":
            place = self.location(first, follow=False)
            if place is not None:
                yield Need(READ, place)
        elif kind in MAKES or kind in REMOVES:
            place = self.location(first, follow=False)
            if place is not None:
                yield Need(MODIFY, place, naming=True)
        elif kind == "nameless":
            folder, place = self.location(first, follow=True), self.location(operation[2], follow=False)
            if folder is not None and place is not None:
                yield Need(MODIFY, folder)
                yield Need(MODIFY, place, naming=True)
        else:
            yield from self._moving(kind, first, operation[2])

    def _moving(self, kind: str, first: bytes, second: bytes) -> Iterator[Need]:
        old, new = self.location(first, follow=False), self.location(second, follow=False)
        if old is None or new is None:
            return
        yield Need(MODIFY, old, naming=kind != "link")
        yield Need(MODIFY, new, naming=True)
        if kind in MOVES:
            for below in self.below(old):
                yield Need(MODIFY, below)
                yield Need(MODIFY, new + below[len(old) :])
            if kind == "exchange":
                for below in self.below(new):
                    yield Need(MODIFY, below)
                    yield Need(MODIFY, old + below[len(new) :])

    def by_hand(self, name: str) -> bool:
        """Is the folder of `name` one whose single names a hand outside makes and removes?"""
        hand = self.compiled.prepared["launch"]["hand"]
        folder = os.path.dirname(name)
        return (
            hand is not None
            and any(folder == root or folder.startswith(root + "/") for root in map(os.fsdecode, hand[2]))
            and self.mounted.get(self.mount_of(folder)) in (Op.BIND_RO, Op.BIND_RW)
            and self.mounted.get(name) is not Op.MASK
        )

    # --- exceptions

    def excuse(self, step: Step, table: dict[str, Excuse]) -> str | None:
        backend = "landlock" if self.landlock else "namespaces"
        for name, holds in table.items():
            if backend in EXCEPTIONS[name].backends and holds(self, step):
                return name
        return None

    def exceptional_below(self, folder: str, access: Access) -> bool:
        """Is there something below `folder`, there or still to come under a strange name, that may not be accessed?"""
        known = [path for path in self.at_start if path.startswith(folder + "/")]
        strange = (path + f"/{STRANGE}" * depth for path in (folder, *known) for depth in range(1, DEPTH))
        return any(not self.allows(Need(access, place)) for place in (*known, *strange))

    def strange_names_denied(self, folder: str) -> bool:
        """Is there a name nobody wrote down, at some depth, that may not be made below `folder`?"""
        return any(not self.allows(Need(MODIFY, folder + f"/{STRANGE}" * depth)) for depth in range(1, DEPTH))

    def mount_of(self, place: str) -> str:
        while place not in self.mounted and place != "/":
            place = os.path.dirname(place)
        return place

    def links_on(self, operation: Operation) -> Iterator[str]:
        """The symlinks that lead the operation to where it goes, and the link that it is about."""
        for path in operation[1:2] if operation[0] == "symlink" else operation[1:]:
            for link in links_on([os.path.join(self.copy, os.fsdecode(path))]):
                yield self.workspace + link[len(self.copy) :]

    def _trees_differ(self) -> list[str]:
        ours, theirs = _portrait(self.workspace), _portrait(self.copy)
        return [
            f"{path!r} is {ours.get(path)} inside and {theirs.get(path)} in the reference"
            for path in sorted({*ours, *theirs})
            if ours.get(path) != theirs.get(path)
        ]


# --- which circumstances an exception speaks of: one function each, stricter ones first

Excuse = Callable[[Comparison, Step], bool]


def _named(step: Step) -> list[str]:
    """The places at which a name is made, removed or moved."""
    return [need.place for need in step.needs if need.naming]


def _stays(self: Comparison, step: Step) -> bool:
    """A mount of its own, or there at the start and granted inside a folder that may not be modified."""
    return any(
        name in self.mounted or (name in self.at_start and not self.allows(Need(MODIFY, os.path.dirname(name))))
        for name in _named(step)
        if not self.by_hand(name)
    )


def _directory_itself(self: Comparison, step: Step) -> bool:
    folders = [os.path.dirname(name) for name in _named(step) if not self.by_hand(name)]
    if step.operation[0] in ("chmod", "utime", "nameless"):
        places = [need.place for need in step.needs if not self.by_hand(need.place)]
        folders += [place for place in places if os.path.isdir(self.outside(place))]
    return any(self.allows(Need(MODIFY, folder)) and self.strange_names_denied(folder) for folder in folders)


def _missing_grant(self: Comparison, step: Step) -> bool:
    """A name that was not there at the start, in a folder that may not be modified."""
    return any(
        name not in self.at_start and not self.allows(Need(MODIFY, os.path.dirname(name)))
        for name in _named(step)
        if not self.by_hand(name)
    )


def _own_path_link(self: Comparison, step: Step) -> bool:
    """A symlink by hand, to where the fixed part of a granting rule leads."""
    kind = step.operation[0]
    is_link = kind == "symlink" or any(os.path.islink(self.outside(need.place)) for need in step.needs)
    return (
        kind in ("symlink", "link", *MOVES)
        and is_link
        and any(self.by_hand(name) and os.fsencode(name) in self.own_paths for name in _named(step))
    )


def _across(self: Comparison, step: Step) -> bool:
    kind = step.operation[0]
    if kind not in (*MOVES, "link", "nameless") or step.inside != errno.EXDEV:
        return False
    old, new = (need.place for need in step.needs[:2])
    if kind != "nameless" and self.by_hand(old) and self.by_hand(new):
        return False
    source = old if kind in ("link", "nameless") else os.path.dirname(old)
    return self.mount_of(source) != self.mount_of(os.path.dirname(new))


def _symlink_name(self: Comparison, step: Step) -> bool:
    """Where the folder or names nobody wrote down are not shown, a link is only there if it may be read."""
    return any(
        not self.allows(Need(READ, link))
        and not all(self.allows(Need(READ, place)) for place in (folder, f"{folder}/{STRANGE}"))
        for link, folder in ((link, os.path.dirname(link)) for link in self.links_on(step.operation))
    )


def _no_sockets(self: Comparison, step: Step) -> bool:
    return step.operation[0] == "bind" and landlock_abi() < 9


def _split_create(self: Comparison, step: Step) -> bool:
    folders = [os.path.dirname(name) for name in _named(step)]
    if step.operation[0] == "nameless":  # made in its folder, before it has a name
        folders.append(step.needs[0].place)
    return any(self.exceptional_below(folder, MODIFY) for folder in folders)


def _moved_apart(self: Comparison, step: Step) -> bool:
    if step.operation[0] not in (*MOVES, "link", "nameless") or step.inside != errno.EXDEV:
        return False
    folders = [os.path.dirname(need.place) for need in step.needs[:2]]
    return any(not self.allows(Need(MODIFY, folder)) or self.exceptional_below(folder, MODIFY) for folder in folders)


def _split_list(self: Comparison, step: Step) -> bool:
    return step.operation[0] in ("list", "read") and any(
        self.exceptional_below(need.place, READ) for need in step.needs
    )


def _hard_linked(self: Comparison, step: Step) -> bool:
    return any(_names_of(self.outside(need.place)) > 1 for need in step.needs)


STRICTER: dict[str, Excuse] = {
    "mount-point-stays": _stays,
    "directory-itself": _directory_itself,
    "missing-grant": _missing_grant,
    "own-path-link": _own_path_link,
    "rename-across-mounts": _across,
    "symlink-name": _symlink_name,
    "landlock-no-sockets": _no_sockets,
    "landlock-split-create": _split_create,
    "landlock-move-apart": _moved_apart,
    "landlock-split-list": _split_list,
    "landlock-hard-link": _hard_linked,
}


def _link_text(self: Comparison, step: Step) -> bool:
    return step.operation[0] == "readlink"


def _metadata(self: Comparison, step: Step) -> bool:
    return step.operation[0] in ("chmod", "utime")


def _snapshot_deny(self: Comparison, step: Step) -> bool:
    """Only where there is no listener: a name that was not there at the start, in a folder that may be modified."""
    return self.compiled.prepared["launch"]["future"] is None and all(
        need.place not in self.at_start and self.allows(Need(MODIFY, os.path.dirname(need.place)))
        for need in step.denied
    )


LOOSER: dict[str, Excuse] = {
    "link-text": _link_text,
    "landlock-metadata": _metadata,
    "snapshot-deny": _snapshot_deny,
}


def _names_of(path: str) -> int:
    try:
        found = os.lstat(path)
    except OSError:
        return 0
    return 1 if stat.S_ISDIR(found.st_mode) else found.st_nlink


def _everything(folder: str) -> Iterator[str]:
    """All paths below, parents first, without following links."""
    if os.path.islink(folder):
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            yield from _everything(entry.path)


def _portrait(folder: str) -> dict[str, tuple[int, int, bytes]]:
    """Kind and permissions, number of names, content."""
    found = {}
    for path in _everything(folder):
        seen = os.lstat(path)
        content = b""
        if stat.S_ISLNK(seen.st_mode):
            content = os.readlink(os.fsencode(path))
        elif stat.S_ISREG(seen.st_mode):
            content = Path(path).read_bytes()
        links = seen.st_nlink if stat.S_ISREG(seen.st_mode) else 0
        found[path[len(folder) :]] = (seen.st_mode, links, content)
    return found


def _copy_tree(source: str, target: str) -> None:
    """With hard links kept as such; special files by kind."""
    os.mkdir(target)
    known: dict[int, str] = {}
    for path in _everything(source):
        seen, new = os.lstat(path), target + path[len(source) :]
        if stat.S_ISDIR(seen.st_mode):
            os.mkdir(new)
        elif stat.S_ISLNK(seen.st_mode):
            os.symlink(os.readlink(path), new)
        elif seen.st_ino in known:
            os.link(known[seen.st_ino], new)
        elif stat.S_ISREG(seen.st_mode):
            Path(new).write_bytes(Path(path).read_bytes())
            os.chmod(new, 0o755)
        elif stat.S_ISFIFO(seen.st_mode):
            os.mkfifo(new)
        else:
            bind_socket(os.fsencode(new))
        known[seen.st_ino] = new


def _remove_tree(folder: str) -> None:
    for path in reversed(list(_everything(folder))):
        if os.path.isdir(path) and not os.path.islink(path):
            os.rmdir(path)
        else:
            os.unlink(path)
    os.rmdir(folder)


def compare(case: Case, folder: Path, machine: Capabilities | None = None) -> list[str] | None:
    """The disagreements, or None for a policy that is refused as such."""
    try:
        comparison = Comparison(case, folder, machine)
    except PolicyError:
        return None
    return comparison.run()
