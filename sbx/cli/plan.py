"""`sbx plan`: what would be done, without doing it. Works for every platform on every platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sbx.errors import UsageError
from sbx.launch.redact import MASK, is_sensitive
from sbx.planner.plan_json import plan_to_json
from sbx.planner.render import text_lines

if TYPE_CHECKING:
    from sbx.model.plan import Plan
    from sbx.model.profile import EffectiveProfile
    from sbx.policy.document import Policy

PLATFORMS = ("linux", "macos", "windows")
FORMATS = ("text", "json", "sbpl")


def command(options: dict[str, Any], words: list[str]) -> int:
    platform = _choice(options, "platform", PLATFORMS, _here())
    form = _choice(options, "format", FORMATS, "json" if options.get("json") else "text")
    if form == "sbpl" and platform != "macos":
        if "platform" in options:
            raise UsageError(f"--format sbpl is the macOS form of a plan, not that of {platform}")
        platform = "macos"
    policy, profile, cwd = _profile(options)
    if form == "sbpl":
        from sbx.planner.macos import PLAN_TMP, compile_sbpl

        sys.stdout.write(compile_sbpl(profile, proxy_port=None, tmp=PLAN_TMP))
        return 0
    found = without_secrets(_plan(platform, policy, profile, cwd))
    if form == "json":
        print(plan_to_json(found, indent=2))
    else:
        for line in text_lines(found):
            print(line)
    return 0


def _here() -> str:
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def _choice(options: Mapping[str, Any], name: str, known: tuple[str, ...], default: str) -> str:
    value = str(options.get(name, default))
    if value not in known:
        raise UsageError(f"--{name} {value}: there is no such {name}", remedy=f"choose one of {', '.join(known)}")
    return value


def _profile(options: Mapping[str, Any]) -> tuple[Policy, EffectiveProfile, str]:
    from sbx.policy.layers import effective_profile, load_policy
    from sbx.supervise.compile import option_rules, working_directory

    cwd = working_directory(options)
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=os.environ)
    return policy, effective_profile(policy, options.get("profile"), option_rules(options)), cwd


def _plan(platform: str, policy: Policy, profile: EffectiveProfile, cwd: str) -> Plan:
    if platform == "macos":
        from sbx.planner import macos

        return macos.plan(profile, cwd)
    if platform == "windows":
        from sbx.planner import windows

        return windows.plan(profile, cwd)
    from sbx.planner import linux

    if _here() != "linux":
        return linux.plan(profile, cwd)
    from sbx.supervise.compile import capabilities, plan_for

    return plan_for(policy, profile, cwd=cwd, environ=os.environ, machine=capabilities())


def without_secrets(plan: Plan) -> Plan:
    """The same plan, fit to be shown: values of variables that sound like secrets are masked."""
    secret = set(plan.env.secret)
    values = tuple(
        (name, MASK if name in secret or is_sensitive(name) else value) for name, value in plan.env.set_values
    )
    return replace(plan, env=replace(plan.env, set_values=values))
