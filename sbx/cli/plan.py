"""`sbx plan`: what would be done, without doing it. Works for every platform on every platform."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sbx.errors import UsageError
from sbx.launch.redact import MASK, is_sensitive
from sbx.model.records import replace
from sbx.planner.plan_json import plan_to_json
from sbx.planner.render import text_lines

if TYPE_CHECKING:
    from sbx.model.plan import Plan
    from sbx.model.profile import EffectiveProfile
    from sbx.policy.document import Policy

PLATFORMS = ("linux", "macos", "windows")
FORMATS = ("text", "json", "sbpl", "bwrap", "systemd")
EQUIVALENTS = ("bwrap", "systemd")


def command(options: dict[str, Any], words: list[str]) -> int:
    platform = _choice(options, "platform", PLATFORMS, here())
    form = _choice(options, "format", FORMATS, "json" if options.get("json") else "text")
    if form == "sbpl" and platform != "macos":
        if "platform" in options:
            raise UsageError(
                f"--format sbpl is the macOS form of a plan, not that of {platform}", remedy="add --platform macos"
            )
        platform = "macos"
    if form in EQUIVALENTS and platform != "linux":
        raise UsageError(f"--format {form} is a form of Linux plans", remedy="add --platform linux")
    policy, profile, cwd = _profile(options, words)
    if form == "sbpl":
        from sbx.planner.macos import PLAN_TMP, compile_sbpl

        sys.stdout.write(compile_sbpl(profile, proxy_port=None, tmp=PLAN_TMP))
        return 0
    found = without_secrets(with_environment(plan_for_platform(platform, policy, profile, cwd), options))
    if form in EQUIVALENTS:
        return _equivalent(form, found, words)
    if form == "json":
        print(plan_to_json(found, indent=2))
    else:
        for line in text_lines(found):
            print(line)
    return 0


def _equivalent(form: str, plan: Plan, words: list[str]) -> int:
    """The nearest that another tool comes to the plan, with what it leaves out."""
    from shutil import which

    from sbx.launch.environment import build_environment, environment_rules
    from sbx.planner.as_bwrap import bwrap_lines, usable
    from sbx.planner.as_systemd import systemd_lines

    if not words:
        raise UsageError(
            f"--format {form} needs the command", remedy=f"write it last: sbx plan --format {form} -- make"
        )
    if not usable(plan):
        raise UsageError(
            "this machine's plan is made of Landlock rules, which bwrap and systemd cannot express",
            remedy="run it where 'sbx doctor' finds user namespaces",
        )
    env = plan.env
    rules = environment_rules(env.pass_names, (), env.secret, env.pass_all)
    environ = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    names = [os.fsdecode(name) for name in build_environment(rules, environ, {})]
    if form == "systemd":
        program = which(words[0])
        if program is None:
            raise UsageError(f"there is no command {words[0]}", remedy="systemd needs its full path")
        lines = systemd_lines(plan, [os.path.abspath(program), *words[1:]], names)
    else:
        lines = bwrap_lines(plan, words, names)
    for line in lines:
        print(line)
    return 0


def here() -> str:
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")


def _choice(options: Mapping[str, Any], name: str, known: tuple[str, ...], default: str) -> str:
    value = str(options.get(name, default))
    if value not in known:
        raise UsageError(f"--{name} {value}: there is no such {name}", remedy=f"choose one of {', '.join(known)}")
    return value


def _profile(options: Mapping[str, Any], words: list[str]) -> tuple[Policy, EffectiveProfile, str]:
    """As a run would have it: a coding agent's side roots are part of it."""
    from sbx.policy.agent_runs import adapt_run
    from sbx.policy.layers import effective_profile, load_policy
    from sbx.supervise.run_options import option_rules, working_directory

    cwd = working_directory(options)
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=os.environ)
    name = options.get("profile")
    _, allowances = adapt_run(policy, name, words, keep_inner=True, cwd=cwd)
    return policy, effective_profile(policy, name, replace(option_rules(options), allow=allowances)), cwd


def plan_for_platform(platform: str, policy: Policy, profile: EffectiveProfile, cwd: str) -> Plan:
    if platform == "macos":
        from sbx.planner import macos

        return macos.plan(profile, cwd)
    if platform == "windows":
        from sbx.planner import windows

        return windows.plan(profile, cwd)
    from sbx.planner import linux

    if here() != "linux":
        return linux.plan(profile, cwd)
    from sbx.backends.linux import holds_for_new_names, reaches_single_names
    from sbx.planner.observe import as_enforced
    from sbx.supervise.compile import capabilities, plan_for

    machine = capabilities()
    plan = plan_for(policy, profile, cwd=cwd, environ=os.environ, machine=machine)
    by_hand = reaches_single_names(profile, plan, machine)
    return as_enforced(plan, listening=by_hand or holds_for_new_names(plan, machine), by_hand=by_hand)


def with_environment(plan: Plan, options: Mapping[str, Any]) -> Plan:
    """The same plan with what --env and --env-all add to it."""
    entries = [entry.partition("=") for entry in options.get("env", ())]
    env = replace(
        plan.env,
        pass_names=(*plan.env.pass_names, *(name for name, equals, _ in entries if not equals)),
        set_values=(*plan.env.set_values, *((name, value) for name, equals, value in entries if equals)),
        pass_all=plan.env.pass_all or bool(options.get("env-all")),
    )
    return replace(plan, env=env)


def without_secrets(plan: Plan) -> Plan:
    """The same plan, fit to be shown: values of variables that sound like secrets are masked."""
    secret = set(plan.env.secret)
    values = tuple(
        (name, MASK if name in secret or is_sensitive(name) else value) for name, value in plan.env.set_values
    )
    return replace(plan, env=replace(plan.env, set_values=values))
