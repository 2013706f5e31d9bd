"""The annotated result as facts: (label, text, tone). Plain lines are made here; the terminal form in report/run.py."""

from __future__ import annotations

from sbx.report.words import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from sbx.model.guarantee import Applied
    from sbx.model.result import Denial, Result

    Fact: TypeAlias = tuple[str, str, str]

GOOD, BAD, WARN, INFO, NEXT = "good", "bad", "warn", "info", "next"
SHOWN_DENIALS = 12
SHOWN_REMEDIES = 3

# What to do, by status. {profile} is filled in.
ADVICE = {
    "TIMEOUT": "give it more time with --timeout, or with limits.wall in profile {profile}",
    "MEM_LIMIT": "allow more with --memory, or with limits.memory in profile {profile}",
    "CPU_LIMIT": "allow more with --cpu, or with limits.cpu in profile {profile}",
    "FORBIDDEN_SYSCALL": "use a build of the program for this machine's own architecture",
}


def facts(result: Result, notes: Sequence[str] = (), hints: Sequence[str] = ()) -> list[Fact]:
    """What a person wants to know, most important first. `hints` are what to do next, beyond what the status says."""
    status = result.status.value
    found: list[Fact] = [(status, result.reason, GOOD if status == "OK" else BAD)]
    found.append(("ran", f"{_shown(result.cmd)} ({_where(result)})", INFO))
    found.extend(("denied", _denial(each), BAD) for each in result.denials[:SHOWN_DENIALS])
    if len(result.denials) > SHOWN_DENIALS:
        more = len(result.denials) - SHOWN_DENIALS
        found.append(("denied", f"and {more} more: see 'sbx audit --denied'", BAD))
    refused = [each for each in result.network if not _allowed(each)]
    found.extend(("network", network_words(each), WARN) for each in refused[:SHOWN_DENIALS])
    if len(refused) > SHOWN_DENIALS:
        found.append(("network", f"and {len(refused) - SHOWN_DENIALS} more: see 'sbx audit --denied'", WARN))
    found.extend((f"not enforced: {name}", each.details, WARN) for name, each in _lacking(result))
    found.extend(("note", note, WARN) for note in notes)
    if status not in ("OK", "EXIT", "NOT_FOUND", "NOT_EXECUTABLE", "INTERNAL_ERROR"):
        found.append(("used", _usage(result), INFO))
    advice = [ADVICE[status].format(profile=result.profile)] if status in ADVICE else []
    if any(True for _ in _lacking(result)):
        advice.append("'sbx doctor' says how this machine could enforce the rest")
    advice.extend(list(dict.fromkeys(each.remedy for each in result.denials if each.remedy))[:SHOWN_REMEDIES])
    if result.denials:
        advice.append("'sbx explain --last' says why, and what change would allow it")
    found.extend(("next", words, NEXT) for words in (*advice, *hints))
    return found


def plain_lines(found: Iterable[Fact]) -> list[str]:
    """One line for each fact, to be grepped."""
    return [f"sbx: {label}: {visible(text)}" for label, text, _ in found]


def is_worth_telling(result: Result, notes: Sequence[str] = ()) -> bool:
    """For `--report auto`: anything but a plain exit 0."""
    if result.status.value != "OK" or result.denials or notes:
        return True
    return any(True for _ in _lacking(result)) or any(not _allowed(each) for each in result.network)


def quoted(word: str) -> str:
    """As a shell would read it back."""
    if word and all(char.isalnum() or char in "@%+=:,./-_" for char in word):
        return word
    return "'" + word.replace("'", "'\\''") + "'"


def _shown(argv: Sequence[str]) -> str:
    text = " ".join(quoted(word) for word in argv)
    return text if len(text) <= 300 else text[:300] + "…"


def _where(result: Result) -> str:
    seconds = f", {result.duration_ms / 1000:.1f}s" if result.duration_ms >= 100 else ""
    return f"profile {result.profile}, {result.backend}{seconds}"


def _denial(each: Denial) -> str:
    program = f" by {each.program}" if each.program else ""
    times = f" ({each.count} times)" if each.count > 1 else ""
    rule = f": rule {each.rule}" if each.rule else ": no rule allows it"
    place = f" at {each.place}" if each.place else ""
    likely = "probably " if each.likely else ""
    return f"{likely}{each.operation} {each.path}{program}{times}{rule}{place}"


def _allowed(entry: dict[str, object]) -> bool:
    return entry.get("verdict") != "deny"


def network_words(entry: dict[str, object]) -> str:
    """A decision of the proxy as a sentence."""
    host, port = str(entry.get("host", "?")), entry.get("port", "?")
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    reason = f", {entry['reason']}" if entry.get("reason") else ""
    count = entry.get("count", 1)
    times = f" ({count} times)" if isinstance(count, int) and count > 1 else ""
    remedy = f"; to allow it: {entry['remedy']}" if entry.get("remedy") else ""
    return f"{'allowed' if _allowed(entry) else 'denied'} {target}{times}{reason}{remedy}"


def _lacking(result: Result) -> Iterable[tuple[str, Applied]]:
    return ((name, each) for name, each in result.enforced.items() if each.requested and not each.applied)


def _usage(result: Result) -> str:
    parts = [f"{result.duration_ms / 1000:.2f}s", f"{result.usage.cpu_ms / 1000:.2f}s cpu"]
    if result.usage.max_rss_bytes:
        parts.append(f"{result.usage.max_rss_bytes / (1 << 20):.0f} MiB")
    if result.usage.pids:
        parts.append(f"{result.usage.pids} process{'es' if result.usage.pids > 1 else ''}")
    return ", ".join(parts)
