"""An effective profile as a macOS sandbox profile (SBPL), and as a Plan that says how exactly each rule holds.

Facts about SBPL that shape the text:

- Within one operation the last matching rule wins, as in a policy. A more specific operation (`file-write-unlink`)
  beats a wider one (`file-write*`) wherever it stands. So allows and denies of one kind use the same operations, and
  a specific operation appears only where it shall beat the rest; those come last, so that order agrees too.
- A rename is `file-write-unlink` of the old place and `file-write-create` of the new one. Rules speak of places:
  whoever may rename a folder may carry a denied file to where it is allowed. Hence the section on ancestors.
- Paths are real locations: symlinks are resolved before a rule is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sbx.errors import PolicyError
from sbx.model.glob import ANY_DEPTH, split_path
from sbx.model.guarantee import Exactness
from sbx.model.plan import Plan, RuleGuarantee
from sbx.model.profile import EffectiveProfile, NetworkMode
from sbx.model.records import dataclass
from sbx.model.rules import Access, Rule
from sbx.planner.ancestors import Ancestor, ancestors, covered, may_overlap, needs_renaming_guard
from sbx.planner.macos_baseline import adapted
from sbx.planner.macos_services import network_text, services_text
from sbx.planner.sbpl import all_of, any_of, filter_for, none_of, subpath

if TYPE_CHECKING:
    from sbx.model.glob import Pattern

READ_OPERATIONS = "file-read* file-map-executable file-test-existence file-clone"
WRITE_OPERATIONS = "file-write* file-link"
EXEC_OPERATION = "process-exec*"
PLAN_TMP = "/private/tmp/sbx-run"  # stands in for the folder that each run makes, where a plan is only shown
MECHANISM = "sandbox-exec"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Rules as text. Denies fold case on volumes that do; allows name what they name.

    The workspace's own path is not folded: the allows inside it begin with the same spelling, so that with any other
    spelling of it nothing is allowed in the first place.
    """

    fold: bool
    workspace: tuple[str, ...]

    def filters(self, rule: Rule) -> tuple[str, ...]:
        return tuple(self.filter(pattern, rule.negated, rule) for pattern in rule.patterns)

    def filter(self, pattern: Pattern, negated: bool, rule: Rule) -> str:
        return filter_for(
            pattern, widen=negated, fold=self.fold and negated, source=rule.source, spelled=self.workspace
        )

    def rule_list(self, rules: Iterable[Rule], operations: str) -> Iterable[str]:
        for rule in rules:
            action = "deny" if rule.negated else "allow"
            yield f"({action} {operations} {' '.join(self.filters(rule))}){_remark(rule)}"


def compile_sbpl(profile: EffectiveProfile, *, proxy_port: int | None, tmp: str, case_insensitive: bool = True) -> str:
    """The profile's text for `sandbox-exec -f`. `tmp` is the run's own temporary folder, by its real path."""
    if not tmp.startswith("/") or tmp == "/":
        raise PolicyError(
            f"the temporary folder of a run must be an absolute path, not {tmp!r}", remedy="start it with /"
        )
    mac = adapted(profile, tmp)
    write = _Writer(case_insensitive, split_path(profile.workspace))
    reads = READ_OPERATIONS if mac.exec is not None else f"{READ_OPERATIONS} {EXEC_OPERATION}"
    sections = [
        "(version 1)\n(deny default)",
        services_text(),
        f"; network: {profile.network.mode}\n" + network_text(profile.network, proxy_port, tmp),
        "; read\n" + "\n".join(write.rule_list(mac.read, reads)),
        '(allow file-read* (literal "/"))  ; no program starts without it\n(deny file-clone (vnode-type DIRECTORY))',
    ]
    if mac.exec is not None:
        sections.append("; execute\n" + "\n".join(write.rule_list(mac.exec, EXEC_OPERATION)))
        sections.append("\n".join(_unreadable(mac, mac.exec, EXEC_OPERATION, write)))
    sections.append("; modify\n" + "\n".join(write.rule_list(mac.modify, WRITE_OPERATIONS)))
    sections.append("; what may not be read may not be modified\n" + "\n".join(_unmodifiable(mac, write)))
    sections.append("; set-id bits, and folders that lead to denied paths\n" + "\n".join(_guards(mac, write)))
    sections.append("; folders on the way to what is allowed\n" + "\n".join(_metadata(mac, write)))
    return "\n\n".join(section for section in sections if section) + "\n"


def plan(profile: EffectiveProfile, cwd: str, *, case_insensitive: bool = True) -> Plan:
    """What would be done on macOS, with the guarantee of each rule. Works on every platform."""
    compile_sbpl(profile, proxy_port=None, tmp=PLAN_TMP, case_insensitive=case_insensitive)  # refuses what it must
    mac = adapted(profile, PLAN_TMP)
    return Plan(
        platform="macos",
        backend=MECHANISM,
        profile=profile.name,
        workspace=profile.workspace,
        cwd=cwd,
        operations=(),
        grants=(),
        network=profile.network,
        env=profile.env,
        limits=profile.limits,
        require=profile.require,
        guarantees=tuple(_guarantees(mac)),
        notes=tuple(_notes(profile)),
        refusals=tuple(_refusals(profile)),
    )


def _remark(rule: Rule) -> str:
    text = f"{rule}  {rule.source.place}"
    return "  ; " + "".join(char if char.isprintable() else "?" for char in text)


def _unreadable(mac: EffectiveProfile, asked: Sequence[Rule], operations: str, write: _Writer) -> Iterable[str]:
    """Denies for everything the read list denies: by a rule that no later one undoes, or by default."""
    allowed = [pattern for rule in asked if not rule.negated for pattern in rule.patterns]
    for index, rule in enumerate(mac.read):
        if not rule.negated or not any(
            may_overlap(mine, denied, fold=write.fold) for mine in allowed for denied in rule.patterns
        ):
            continue  # where nothing is allowed, nothing has to be denied
        later = [
            write.filter(pattern, False, other)
            for other in mac.read[index + 1 :]
            if not other.negated
            for pattern in other.patterns
            if any(may_overlap(pattern, denied, fold=write.fold) for denied in rule.patterns)
        ]
        condition = write.filters(rule) if not later else (all_of(any_of(write.filters(rule)), *none_of(later)),)
        yield f"(deny {operations} {' '.join(condition)}){_remark(rule)}"
    positive = [(pattern, rule) for rule in mac.read if not rule.negated for pattern in rule.patterns]
    readable = [pattern for pattern, _ in positive]
    if not all(covered(pattern, readable) for pattern in allowed):
        filters = [write.filter(pattern, False, rule) for pattern, rule in positive]
        yield f"(deny {operations} {all_of(subpath(()), *none_of(filters))})"


def _unmodifiable(mac: EffectiveProfile, write: _Writer) -> Iterable[str]:
    return _unreadable(mac, mac.modify, WRITE_OPERATIONS, write)


def _guards(mac: EffectiveProfile, write: _Writer) -> Iterable[str]:
    yield "(deny file-write-setugid)"
    modifiable = [pattern for rule in mac.modify if not rule.negated for pattern in rule.patterns]
    seen: set[Ancestor] = set()
    for rule in (*mac.read, *mac.modify):
        if rule.negated:
            for ancestor in ancestors(rule, modifiable, fold=write.fold):
                if ancestor not in seen:
                    seen.add(ancestor)
                    yield from _guard(ancestor, rule, write)
    for rules in (mac.modify, mac.read):
        if needs_renaming_guard(mac.modify, rules):
            whole = [(p, r) for r in rules if not r.negated for p in r.patterns if p and p[-1] == ANY_DEPTH]
            filters = [write.filter(pattern, False, rule) for pattern, rule in whole]
            yield f"(deny file-write-unlink {all_of('(vnode-type DIRECTORY)', *none_of(filters))})"


def _guard(ancestor: Ancestor, rule: Rule, write: _Writer) -> Iterable[str]:
    place = write.filter(ancestor.pattern, True, rule)
    folder = f"(require-all {place} (vnode-type DIRECTORY))"
    yield f"(deny file-write-unlink {place if ancestor.named else folder}){_remark(rule)}"
    if ancestor.guard_creation:
        yield f"(deny file-write-create {folder}){_remark(rule)}"


def _metadata(mac: EffectiveProfile, write: _Writer) -> Iterable[str]:
    """lstat of every folder that leads to an allowed path: getcwd, realpath and each lookup need it."""
    literals: dict[str, None] = {}
    for rule in mac.read:
        if rule.negated:
            continue
        for pattern in rule.patterns:
            for size in range(len(pattern)):
                prefix = pattern[:size]
                if prefix and prefix[-1] == ANY_DEPTH:
                    inside = write.filter(prefix, False, rule)
                    literals[f"(require-all {inside} (vnode-type DIRECTORY))"] = None
                    break
                literals[write.filter(prefix, False, rule)] = None
    for name in ("tmp", "var", "etc"):
        literals[f'(literal "/{name}")'] = None  # the symlinks themselves
    yield "(allow file-read-metadata file-test-existence\n  " + "\n  ".join(literals) + ")"


def _guarantees(mac: EffectiveProfile) -> Iterable[RuleGuarantee]:
    modifiable = [pattern for rule in mac.modify if not rule.negated for pattern in rule.patterns]
    lists = (mac.read, mac.modify, mac.exec or ())
    for access, rules in zip((Access.READ, Access.MODIFY, Access.EXEC), lists, strict=True):
        for index, rule in enumerate(rules):
            exactness, note = Exactness.EXACT, ""
            if rule.negated and access is not Access.EXEC:
                exactness, note = _held(rule, rules[index + 1 :], modifiable)
            yield RuleGuarantee(str(rule), access.value, rule.source.place, exactness, MECHANISM, note)


def _held(rule: Rule, later: Sequence[Rule], modifiable: Sequence[Pattern]) -> tuple[Exactness, str]:
    """How far a deny reaches, once folders can be renamed."""
    found = list(ancestors(rule, modifiable, fold=True))
    if any(ancestor.region for ancestor in found):
        return Exactness.SNAPSHOT, (
            "no folder below the rule's fixed part can be renamed or removed; a folder made elsewhere and moved in "
            "is not caught: begin the rule with '**/' to have both"
        )
    if not all(ancestor.guard_creation for ancestor in found):
        return Exactness.SNAPSHOT, "a folder made elsewhere and moved in is not caught: begin the rule with '**/'"
    if any(pattern[:1] == (ANY_DEPTH,) and _reopened(pattern, later) for pattern in rule.patterns):
        return Exactness.SNAPSHOT, "a folder moved to where a later rule allows it is out of this rule's reach"
    if found:
        return Exactness.EXACT, "the folders that lead there cannot be made, renamed or removed"
    return Exactness.EXACT, ""


def _reopened(pattern: Pattern, later: Sequence[Rule]) -> bool:
    return any(may_overlap(pattern, other, fold=True) for rule in later if not rule.negated for other in rule.patterns)


def _refusals(profile: EffectiveProfile) -> Iterable[str]:
    """What `require: full` cannot have: limits of a whole tree of processes, for which macOS has no mechanism."""
    if profile.limits.memory_bytes is not None:
        yield "memory: macOS ignores the limit on a process's memory, and has none for a tree"
    if profile.limits.pids is not None:
        yield "pids: macOS counts all processes of the user, not those of the run"
    if profile.limits.cpu_s is not None:
        yield "cpu: macOS limits each process, not the tree"


def _notes(profile: EffectiveProfile) -> Iterable[str]:
    yield "TMPDIR names a folder of the run's own; /tmp itself is not replaced"
    yield "names outside ASCII: a '?' or a class in a deny may match more than one character"
    if profile.network.mode is not NetworkMode.HOST:
        yield "loopback connections are closed too, except to the proxy and to sockets in TMPDIR"
