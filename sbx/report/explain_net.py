"""Why a host and port are allowed or denied: the answer as a value, and its plain, terminal and JSON forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbx.model.profile import EffectiveProfile, NetworkMode
from sbx.model.records import dataclass
from sbx.model.source import Source
from sbx.network.addresses import PUBLIC, address_kind
from sbx.network.hosts import HostRule, decide_net, literal_address, parse_rule, split_authority
from sbx.report.words import place_of, visible

if TYPE_CHECKING:
    from sbx.report.text import Line

OWN_LAYERS = ("workspace", "user", "system")


@dataclass(frozen=True, slots=True)
class NetAnswer:
    """Everything explain says about one HOST:PORT."""

    asked: str
    target: str  # normalized
    allowed: bool
    reason: str
    rule: str = ""
    source: Source | None = None  # of the rule, or of what chose the mode
    enforced: str = ""
    notes: tuple[str, ...] = ()
    changes: tuple[tuple[str, str], ...] = ()  # (kind, text) with kind policy | option


def explain_net(profile: EffectiveProfile, asked: str, enforced: str = "") -> NetAnswer:
    """Raises ValueError for what is not HOST:PORT."""
    network = profile.network
    rules = tuple(parse_rule(text, source) for text, source in network.allow)
    decision = decide_net(rules, *split_authority(asked))
    if not decision.port:
        raise ValueError(decision.reason)
    target = decision.authority
    if network.mode is NetworkMode.HOST:
        return NetAnswer(asked, target, True, "the host's network, whole", source=network.source, enforced=enforced)
    if decision.rule is not None:
        rule = decision.rule
        notes = _notes(rule, decision.host)
        return NetAnswer(asked, target, True, decision.reason, rule.text, rule.source, enforced, notes)
    reason = decision.reason if network.mode is NetworkMode.ALLOW else "the profile has no network"
    changes = _changes(profile, decision.remedy.removeprefix("--net "))
    return NetAnswer(asked, target, False, reason, source=network.source, enforced=enforced, changes=changes)


def _notes(rule: HostRule, host: str) -> tuple[str, ...]:
    address = literal_address(host)
    if address is None and host != "localhost":
        return ("the address it resolves to is looked at, too: one that is not public has to be listed by itself",)
    if address is None or address_kind(address) != PUBLIC:
        return (f"this is the host's own network: {rule.text} lists it by name",)
    return ()


def _changes(profile: EffectiveProfile, entry: str) -> tuple[tuple[str, str], ...]:
    if not entry:
        return ()
    listed = [text for text, _ in profile.network.allow]
    source = profile.source
    if source is not None and source.layer in OWN_LAYERS:
        where = f"network: {{allow: [...]}} of profile {profile.name} in {source.place}"
        policy = f'add "{entry}" to {where}' if listed else f'write "{entry}" into {where}'
    else:
        names = ", ".join(f'"{text}"' for text in [*listed, entry])
        policy = (
            f"in sbx.yaml: fsProfiles: {{{profile.name}: {{extends: {profile.name}, network: {{allow: [{names}]}}}}}}"
        )
    options = " ".join(f"--net {text}" for text in [*listed, entry])
    return (("policy", policy), ("option", f"for one run: sbx run {options}"))


def plain_lines(answers: list[NetAnswer], cwd: str) -> list[str]:
    """One line per fact, each starting with what was asked."""
    lines = []
    for answer in answers:
        head = f"{visible(answer.asked)}: network"
        if answer.target != answer.asked:
            lines.append(f"{visible(answer.asked)}: is really {answer.target}")
        lines += [f"{head}: {fact}" for fact in _facts(answer, cwd)]
    return lines


def _facts(answer: NetAnswer, cwd: str) -> list[str]:
    word = "allowed" if answer.allowed else "denied"
    facts = [word if answer.rule else f"{word}: {visible(answer.reason)}"]
    if answer.source is not None:
        what = f"decided by {answer.rule}" if answer.rule else "as chosen"
        facts.append(f"{what} ({place_of(answer.source.file, answer.source.line, cwd)})")
    if answer.enforced:
        facts.append(f"enforced by {answer.enforced}")
    facts += [f"note: {note}" for note in answer.notes]
    facts += [f"change: {visible(text)}" for _, text in answer.changes]
    return facts


def terminal_lines(answers: list[NetAnswer], cwd: str) -> list[Line]:
    from sbx.report.text import BAD, DIM, GOOD, PLAIN, STRONG

    lines: list[Line] = []
    for answer in answers:
        style, sign = (GOOD, "✓") if answer.allowed else (BAD, "✗")
        really = f"  is really {answer.target}" if answer.target != answer.asked else ""
        lines.append([(visible(answer.asked), STRONG), (really, DIM)])
        first, *rest = _facts(answer, cwd)
        lines.append([(f"  {sign} network ", style), (first, style)])
        lines += [[("      ", PLAIN), (fact, PLAIN)] for fact in rest]
        lines.append([])
    return lines


def to_json(answers: list[NetAnswer]) -> list[dict[str, Any]]:
    return [
        {
            "asked": answer.asked,
            "target": answer.target,
            "allowed": answer.allowed,
            "reason": answer.reason,
            "rule": answer.rule or None,
            "file": None if answer.source is None else answer.source.file,
            "line": None if answer.source is None else answer.source.line,
            "enforced": answer.enforced,
            "notes": list(answer.notes),
            "changes": [{"kind": kind, "text": text} for kind, text in answer.changes],
        }
        for answer in answers
    ]
