"""The audit log: who ran what under which profile, how it ended, what was denied. Written by `launch.audit_line`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from sbx.errors import SandboxUnavailable, SbxError
from sbx.launch.audit_line import KEEP, NAME, START, append, encode, folder_of, run_fields, stamp
from sbx.model.result import Denial, Result
from sbx.policy.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.supervise.execute import Done

MAX_DENIALS = 100  # of one record: a line stays a line
DENIED = "denied"


def environ_bytes() -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}


def quick_encode(fields: dict[str, Any]) -> str:
    """What `encode` writes, by json where that is here anyway, as in programs that use the library."""
    if "json" not in sys.modules:
        return encode(fields)
    import json

    text = json.dumps(fields, separators=(",", ":"))
    return encode(fields) if "\\ud" in text else text  # it would let lone surrogates through


def record(result: Result, done: Done) -> None:
    """One line for a run. Trouble becomes a note of the report."""
    fields = fields_of(result)
    if result.denials:
        fields.update(_rules_of(done.options))
    trouble = append(fields, done.environ or environ_bytes(), quick_encode)
    if trouble is not None:
        done.notes.append(f"no audit record was written: {trouble}")


def record_unavailable(result: Result, error: SbxError) -> str | None:
    """Nothing was run. That the platform could not do what was asked is a class of its own."""
    fields = fields_of(result)
    fields["event"] = error.slug
    if isinstance(error, SandboxUnavailable):
        fields["unavailable"] = {
            "platform": error.platform or sys.platform,
            "reason": error.reason or error.message,
            "remediation": error.remedy,
        }
    return append(fields, environ_bytes())


def record_denied(path: str, access: str, rule: str, place: str, profile: str) -> str | None:
    """A denial that a program asked for itself (`sbx.enforce`)."""
    denial = _denial(Denial(operation=access, path=path, rule=rule, place=place))
    fields = {"event": DENIED, "platform": sys.platform, "profile": profile, "denials": [denial]}
    return append(fields, environ_bytes())


def fields_of(result: Result) -> dict[str, Any]:
    fields = run_fields(
        trace_id=result.trace_id,
        argv=list(result.cmd),
        cwd=result.cwd,
        profile=result.profile,
        backend=result.backend,
        status=result.status.value,
        rc=result.rc,
        reason=result.reason,
        duration_ms=result.duration_ms,
        enforced=tuple((name, each.requested, each.applied, each.details) for name, each in result.enforced.items()),
    )
    for name, data in (("stdout_sha256", result.stdout), ("stderr_sha256", result.stderr)):
        if data:
            fields[name] = sha256_hex(data)
    if result.denials:
        fields["denials"] = [_denial(each) for each in result.denials[:MAX_DENIALS]]
    if result.network:
        fields["network"] = [_network(each) for each in _bounded(result.network)]
        if len(result.network) > MAX_DENIALS:
            fields["network_left_out"] = len(result.network) - MAX_DENIALS
    return fields


def _denial(denial: Denial) -> dict[str, Any]:
    fields = {
        "operation": denial.operation,
        "path": denial.path,
        "program": denial.program,
        "count": denial.count,
        "rule": denial.rule,
        "place": denial.place,
        "likely": denial.likely,
    }
    return {name: value for name, value in fields.items() if value or name in ("operation", "path")}


def _rules_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the run added to the policy, for whoever explains its denials later."""
    found: dict[str, Any] = {name: list(options[name]) for name in ("read", "modify", "deny") if options.get(name)}
    if options.get("policy"):
        found["policy"] = os.path.abspath(options["policy"])
    return {"options": found} if found else {}


def _bounded(decisions: tuple[dict[str, Any], ...]) -> list[dict[str, Any]]:
    """At most MAX_DENIALS of them: what was refused before what was allowed."""
    ordered = sorted(decisions, key=lambda each: each.get("verdict") != "deny")
    return ordered[:MAX_DENIALS]


def _network(decision: dict[str, Any]) -> dict[str, Any]:
    fields = {name: value for name, value in decision.items() if name not in ("event", "remedy") and value is not None}
    return {name: stamp(value) if name == "time" else value for name, value in fields.items()}


def is_denial(fields: Mapping[str, Any]) -> bool:
    if fields.get("denials") or fields.get("event") == DENIED or fields.get("status") == "FORBIDDEN_SYSCALL":
        return True
    return any(entry.get("verdict") == "deny" for entry in fields.get("network", ()))


def records(environ: Mapping[bytes, bytes] | None = None) -> Iterator[dict[str, Any]]:
    """Every record there is, oldest first. What is torn or not ours to read is left out."""
    folder = folder_of(environ_bytes() if environ is None else environ)
    if folder is None:
        return
    path = folder + b"/" + NAME
    for name in (*(path + b".%d" % number for number in range(KEEP, 0, -1)), path):
        try:
            with open(name, encoding="utf-8", errors="replace") as file:
                for line in file:
                    yield from _parsed(line)
        except OSError:
            continue


def _parsed(line: str) -> Iterator[dict[str, Any]]:
    import json

    try:
        fields = json.loads(line)
        if isinstance(fields, dict):
            yield fields
    except ValueError:
        # A full disk can cut a record short, and the next one then follows on the same line.
        again = line.find(START, 1)
        if again > 0:
            yield from _parsed(line[again:])
