"""An effective profile on Windows: a job object and a restricted, low-integrity token, and what these cannot hold.

A low-integrity process writes only where a folder is labelled low, and reads whatever the user may read. Path rules are
therefore judged one by one: writes outside of labelled folders are denied exactly; what may be read, which program may
be executed and whom to talk to cannot be limited this way, and each such rule says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sbx.errors import PolicyError
from sbx.model.glob import ANY_DEPTH, MANY, ONE, is_exact
from sbx.model.guarantee import Exactness
from sbx.model.plan import Plan, RuleGuarantee
from sbx.model.profile import EffectiveProfile, NetworkMode
from sbx.model.rules import Access, Rule
from sbx.model.source import Source
from sbx.planner.ancestors import may_overlap

if TYPE_CHECKING:
    from sbx.model.glob import Component, Pattern

MECHANISM = "job-object"
TOKEN = "low-integrity token"

_FORBIDDEN = frozenset('<>:"|?*\\')
_NUMBERED = tuple(f"{kind}{digit}" for kind in ("com", "lpt") for digit in "0123456789¹²³")
_DEVICES = frozenset(("con", "prn", "aux", "nul", "conin$", "conout$", *_NUMBERED))


def plan(profile: EffectiveProfile, cwd: str) -> Plan:
    """What would be done on Windows, with the guarantee of each rule. Works on every platform."""
    guarantees = tuple(_guarantees(profile))
    return Plan(
        platform="windows",
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
        guarantees=guarantees,
        notes=tuple(_notes(profile)),
        refusals=tuple(_refusals(profile, guarantees)),
    )


def windows_form(pattern: Pattern, source: Source | None = None) -> str:
    """The rule as Windows writes paths. Refuses names that Windows would take for another: `x.`, `nul.txt`, `a:b`."""
    pieces = [_component(component, index, source) for index, component in enumerate(pattern)]
    if pieces and _is_drive(pieces[0]):
        return pieces[0] + "\\" + "\\".join(pieces[1:])
    prefix = "" if pieces[:1] == ["**"] else "\\"
    return prefix + "\\".join(pieces)


def _component(component: Component, index: int, source: Source | None) -> str:
    if component == ANY_DEPTH:
        return "**"
    if isinstance(component, str):
        if not (index == 0 and _is_drive(component)):
            _check_name(component, source)
        return component
    assert not isinstance(component, int)
    spelled = ["".join(_token(token) for token in tokens) for tokens in component]
    return spelled[0] if len(spelled) == 1 else "{" + ",".join(spelled) + "}"


def _token(token: object) -> str:
    if isinstance(token, str):
        return token
    if isinstance(token, int):
        return {MANY: "*", ONE: "?"}[token]
    assert isinstance(token, tuple)
    negated, ranges = token
    body = "".join(low if low == high else f"{low}-{high}" for low, high in ranges)
    return f"[{'!' if negated else ''}{body}]"


def _check_name(name: str, source: Source | None) -> None:
    problem = ""
    if any(char in _FORBIDDEN or ord(char) < 0x20 for char in name):
        problem = "has a character that no Windows name can have"
    elif name != name.rstrip(". "):
        problem = "ends with a dot or a space, which Windows drops: the rule would speak of another file"
    elif name.split(".")[0].rstrip(" ").lower() in _DEVICES:
        problem = "is the name of a device on Windows, whatever folder it stands in"
    if problem:
        raise PolicyError(
            f"{name!r} {problem}", remedy="rename it, or keep the rule in a policy for other systems", source=source
        )


def _is_drive(name: str) -> bool:
    return len(name) == 2 and name[1] == ":" and name[0].isascii() and name[0].isalpha()


def _guarantees(profile: EffectiveProfile) -> Iterable[RuleGuarantee]:
    positive = [pattern for rule in profile.modify if not rule.negated for pattern in rule.patterns]
    for access, rules in (
        (Access.READ, profile.read),
        (Access.MODIFY, profile.modify),
        (Access.EXEC, profile.exec or ()),
    ):
        for rule in rules:
            forms = ", ".join(windows_form(pattern, rule.source) for pattern in rule.patterns)
            exactness, mechanism, note = _judged(access, rule, positive)
            note = f"{forms}: {note}" if note else forms
            yield RuleGuarantee(str(rule), access.value, rule.source.place, exactness, mechanism, note)


def _judged(access: Access, rule: Rule, modifiable: list[Pattern]) -> tuple[Exactness, str, str]:
    if access is Access.READ:
        if rule.negated:
            return Exactness.NOT_ENFORCED, "", "a low-integrity process reads what the user may read"
        return Exactness.NOT_ENFORCED, "", "reading is allowed here, and everywhere else too"
    if access is Access.EXEC:
        return Exactness.NOT_ENFORCED, "", "whatever may be read may be executed"
    if not rule.negated:
        return (
            Exactness.STRICTER,
            TOKEN,
            "written to only if the folder is labelled low: icacls FOLDER /setintegritylevel (OI)(CI)L",
        )
    if any(may_overlap(denied, allowed, fold=True) for denied in rule.patterns for allowed in modifiable):
        return Exactness.NOT_ENFORCED, "", "inside a folder that may be labelled low, nothing holds writes back"
    return Exactness.EXACT, TOKEN, "no folder here is labelled low"


def _refusals(profile: EffectiveProfile, guarantees: tuple[RuleGuarantee, ...]) -> Iterable[str]:
    """Why `require: full` does not run: one line a capability, with the rules it is about."""
    for access, words in (
        ("read", "what may be read cannot be limited"),
        ("modify", "denies inside writable folders cannot be held"),
        ("exec", "what may be executed cannot be limited"),
    ):
        missed = [each for each in guarantees if each.access == access and each.exactness is Exactness.NOT_ENFORCED]
        if missed and not (access == "read" and _reads_everything(profile)):
            yield f"{access}: {words} on Windows ({len(missed)} rules, the first at {missed[0].place})"
    if profile.network.mode is not NetworkMode.HOST:
        yield f"network: {profile.network.mode} needs rules of the filtering platform, which administrators add"
    if profile.limits.nofile is not None:
        yield "nofile: Windows has no such limit"


def _reads_everything(profile: EffectiveProfile) -> bool:
    return not any(rule.negated for rule in profile.read) and any(
        pattern == (ANY_DEPTH,) for rule in profile.read for pattern in rule.patterns
    )


def _notes(profile: EffectiveProfile) -> Iterable[str]:
    yield "not run on Windows: the job's life cycle was tried under Wine, limits and tokens were not"
    yield "TEMP names a folder of the run's own below AppData\\LocalLow, which is labelled low"
    if any(is_exact(pattern) for rule in profile.modify for pattern in rule.patterns):
        yield "names are compared without regard to case, and short names (8.3) reach the same files"
