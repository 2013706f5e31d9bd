"""`sbx doctor` where Linux is not: is the platform's mechanism there, and what does it hold?"""

from __future__ import annotations

import platform
import sys
from typing import Any

from sbx.backends import macos, windows
from sbx.errors import SandboxUnavailable
from sbx.model.guarantee import Applied
from sbx.model.profile import EffectiveProfile, Limits
from sbx.planner.macos import plan

# Asks for everything, so that each mechanism speaks of itself.
EVERYTHING = EffectiveProfile(
    "doctor",
    "/",
    (),
    (),
    exec=(),
    limits=Limits(wall_s=1, cpu_s=1, memory_bytes=1, pids=1, nofile=1, stdout_bytes=1, stderr_bytes=1),
)


def command(options: dict[str, Any]) -> int:
    """0 when a profile with `require: full` can be enforced here, 1 otherwise."""
    refusal, held = examine(sys.platform)
    if options.get("json"):
        import json

        print(json.dumps(to_json(sys.platform, refusal, held), indent=2))
    else:
        print("\n".join(lines(sys.platform, refusal, held)))
    # Windows limits no reading, so that every profile but one that reads everything is refused there.
    return 0 if refusal is None and sys.platform == "darwin" else 1


def examine(system: str) -> tuple[SandboxUnavailable | None, dict[str, Applied]]:
    """The refusal that a run would meet, or none; and what would hold for a profile that asks for everything."""
    if system == "darwin":
        return macos.probe(), macos.enforced(macos.Prepared(EVERYTHING, plan(EVERYTHING, "/"), True))
    if system == "win32":
        return windows.probe(system), windows.enforced(EVERYTHING)
    remedy = "run sbx on Linux, macOS or Windows"
    return SandboxUnavailable(f"sbx has no sandbox for {system}", remedy=remedy, platform=system), {}


def lines(system: str, refusal: SandboxUnavailable | None, held: dict[str, Applied]) -> list[str]:
    found = [f"machine: {platform.system()} {platform.release()} {platform.machine()}"]
    if refusal is not None:
        found.append(f"sandbox: missing: {refusal}")
        found += [f"  {detail}" for detail in refusal.details if detail]
        return found
    by = "sandbox-exec" if system == "darwin" else "job object and restricted token"
    found.append(f"sandbox: {by}")
    found += [f"{name:<14} {'held' if each.applied else 'not held':<9} {each.details}" for name, each in held.items()]
    return found


def to_json(system: str, refusal: SandboxUnavailable | None, held: dict[str, Applied]) -> dict[str, Any]:
    return {
        "platform": system,
        "available": refusal is None,
        "reason": "" if refusal is None else refusal.reason or refusal.message,
        "remediation": "" if refusal is None else refusal.remedy,
        "enforced": {name: {"applied": each.applied, "details": each.details} for name, each in held.items()},
    }
