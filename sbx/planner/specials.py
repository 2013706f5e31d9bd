"""Places that the sandbox has of its own instead of the host's: /proc, /dev and the temporary folders."""

from __future__ import annotations

from sbx.model.glob import fixed_prefix, split_path
from sbx.model.plan import Op
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass
from sbx.model.rules import Origin, Rule
from sbx.planner.states import Automaton

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.model.glob import Pattern
    from sbx.model.verdict import CompiledRule, CompiledRules
    from sbx.planner.states import Known

DEFAULT_SPECIALS: tuple[tuple[str, Op], ...] = (
    ("/proc", Op.PROC),
    ("/dev", Op.DEV),
    ("/dev/shm", Op.TMPFS),
    ("/tmp", Op.TMPFS),
    ("/var/tmp", Op.TMPFS),
)

# Kernel file systems without a user's files in them: bound as a whole, never searched for what a glob might match.
NEVER_WALKED = frozenset({"/sys", "/proc", "/dev"})

# The links that a merged /usr leaves at the root; without them no `#!/bin/sh` works.
ROOT_LINKS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr/lib64", "/var/run")


@dataclass(frozen=True, slots=True)
class Regions:
    """The automaton of the whole tree, and that of each private place."""

    everywhere: Automaton
    private: dict[str, Automaton]


def regions(profile: EffectiveProfile, specials: tuple[tuple[str, Op], ...]) -> Regions:
    """In a private place the host's files are shown only where a rule of the profile speaks of that very place.

    `/**` or the baseline's own `/tmp/**` mean the private /tmp; a workspace or a virtual environment below the host's
    /tmp does show.
    """
    read, modify, execute = profile.judge
    executes = () if execute is None else (execute,)
    known: Known = {}
    private = {
        path: Automaton(
            (read, _speaking_of(profile.read, path, kind)),
            (modify, _speaking_of(profile.modify, path, kind)),
            executes,
            known,
        )
        for path, kind in specials
    }
    return Regions(Automaton((read,), (modify,), executes, known), private)


def _speaking_of(rules: tuple[Rule, ...], place: str, kind: Op) -> CompiledRules:
    """The grants that name `place` or something in it; the others stay as rules that match nothing, to keep count."""
    names = split_path(place)
    size = len(names)
    found: list[CompiledRule] = []
    for rule in rules:
        inside: tuple[Pattern, ...] = ()
        if not rule.negated:
            inside = tuple([pattern for pattern in rule.patterns if pattern[:size] == names])
        found.append((False, _deeper(inside, names, kind) if inside and rule.origin is Origin.BASELINE else inside))
    return tuple(found)


def _deeper(patterns: tuple[Pattern, ...], names: tuple[str, ...], kind: Op) -> tuple[Pattern, ...]:
    """The baseline names the private places themselves; what it names inside of a temporary one (where a virtual
    environment may be) is the host's."""
    if kind is not Op.TMPFS:
        return ()
    return tuple(pattern for pattern in patterns if fixed_prefix(pattern) != names)


def children_by_parent(paths: list[str]) -> dict[str, tuple[str, ...]]:
    """For each directory on the way to one of these paths, the names that lead on."""
    found: dict[str, set[str]] = {}
    for path in paths:
        current = "/"
        for name in (name for name in path.split("/") if name):
            found.setdefault(current, set()).add(name)
            current = f"/{name}" if current == "/" else f"{current}/{name}"
    return {parent: tuple(sorted(names)) for parent, names in found.items()}
