"""An effective profile as a Linux plan: operations, Landlock rules, and how exactly each rule holds."""

from __future__ import annotations

from sbx.errors import SbxError
from sbx.model.plan import Op, Operation, Plan
from sbx.model.profile import EffectiveProfile
from sbx.planner.exceptions import LANDLOCK, NAMESPACES
from sbx.planner.grants import grants_over
from sbx.planner.links import Shown, drop_dangling, links_on, root_links
from sbx.planner.mounts import MountWalk
from sbx.planner.sockets import masked_sockets
from sbx.planner.specials import DEFAULT_SPECIALS, regions
from sbx.planner.walk import DirectoryReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DEFAULT_SPECIALS", "CwdNotVisible", "plan"]

# The kernel's default for mounts in one namespace is 100,000, and each costs time at every start.
MAX_MOUNTS = 20_000


class CwdNotVisible(SbxError):
    slug = "cwd_not_visible"


def plan(
    profile: EffectiveProfile,
    cwd: str,
    *,
    backend: str = NAMESPACES,
    reader: DirectoryReader | None = None,
    specials: tuple[tuple[str, Op], ...] = DEFAULT_SPECIALS,
    paths_as_written: Sequence[str] = (),
    sockets: Sequence[str] = (),
) -> Plan:
    """What one launch does. Reads the file system only through `reader` (and links on the way to what rules name).

    `paths_as_written` are further absolute paths whose symlinks should work inside, such as $PWD. `sockets` are those
    that exist on the host (see planner.sockets).
    A stored plan is up to date while every `looked_at` stamp is the same, no `missing` path exists, and every path of
    a non-optional operation is there and of its kind.
    """
    reader = DirectoryReader() if reader is None else reader
    if backend == LANDLOCK:
        from sbx.planner.landlock import plan_landlock  # where there are no namespaces

        found = plan_landlock(profile, cwd, reader, specials)
    else:
        found = _plan_namespaces(profile, cwd, reader, specials, paths_as_written, sockets)
    reader.save()
    return found


def _plan_namespaces(
    profile: EffectiveProfile,
    cwd: str,
    reader: DirectoryReader,
    specials: tuple[tuple[str, Op], ...],
    paths_as_written: Sequence[str],
    sockets: Sequence[str],
) -> Plan:
    optional_links = root_links()
    # A path that is its own real one has no links on it; those of /proc are not looked at in rules.
    linked = (path for path, real in profile.resolved if path != real or path.startswith("/proc"))
    written = links_on([*linked, *paths_as_written])
    walk = MountWalk(profile, regions(profile, specials), specials, reader, optional_links | written)
    walk.run()
    operations = drop_dangling(walk.operations, optional_links - written)
    operations += masked_sockets(sockets, operations, profile.judge)
    _check_cwd(profile, cwd, operations)
    made = tuple(Operation(Op.MAKE_DIR, path, why="a modify rule names it") for path in walk.making.made)
    return Plan(
        platform="linux",
        backend=NAMESPACES,
        profile=profile.name,
        workspace=profile.workspace,
        cwd=cwd,
        operations=(*made, *operations),
        grants=grants_over(operations, profile),
        network=profile.network,
        env=profile.env,
        limits=profile.limits,
        require=profile.require,
        guarantees=walk.seen.guarantees("mounts"),
        looked_at=tuple(reader.stamps[path] for path in sorted(reader.stamps)),
        missing=tuple(sorted(reader.missing)),
        single_names=_topmost(walk.single_names),
        notes=_notes(walk),
        refusals=_refusals(operations),
    )


def _topmost(folders: set[str]) -> tuple[str, ...]:
    found: list[str] = []
    for folder in sorted(folders, key=lambda each: each.count("/") if each != "/" else 0):
        if not any(folder.startswith(above if above == "/" else above + "/") for above in found):
            found.append(folder)
    return tuple(sorted(found))


def _check_cwd(profile: EffectiveProfile, cwd: str, operations: list[Operation]) -> None:
    if cwd in Shown(operations) and _reachable(cwd, operations):
        return
    raise CwdNotVisible(
        f"the working directory {cwd} is not visible in profile '{profile.name}'",
        remedy="grant it with a read rule, or name another one with --cwd",
    )


def _reachable(cwd: str, operations: list[Operation]) -> bool:
    """A mask without anything in it cannot be a working directory, and neither can anything below one."""
    return not any(each.op is Op.MASK and each.path == cwd and not each.populated for each in operations)


def _notes(walk: MountWalk) -> tuple[str, ...]:
    notes = [f"{path} cannot be listed and is hidden: a wildcard would have to be searched in it"
             for path in walk.seen.unlistable]  # fmt: skip
    notes += [f"{each.path}: names a symlink that stays as it is" for each in walk.operations if each.is_link]
    return tuple(notes)


def _refusals(operations: list[Operation]) -> tuple[str, ...]:
    mounts = [each for each in operations if each.op not in (Op.SKELETON, Op.SYMLINK)]
    if len(mounts) <= MAX_MOUNTS:
        return ()
    rules: dict[tuple[str, str], int] = {}
    for each in mounts:
        rules[each.why, each.place] = rules.get((each.why, each.place), 0) + 1
    (why, place), count = max(rules.items(), key=lambda item: item[1])
    return (
        f"{len(mounts)} mounts would be needed, {count} of them for the rule {why} ({place}): "
        "grant or deny a folder instead",
    )
