"""A run on macOS or Windows: the same policy, compiled for the platform's own mechanism, and the same result.

Not run on those platforms so far: docs/platforms.md says what of it was tested, and how.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from sbx.errors import SandboxUnavailable
from sbx.launch.environment import build_environment, environment_rules, secret_names, with_options
from sbx.launch.redact import redactor_for
from sbx.model.guarantee import Applied
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass, replace
from sbx.model.result import Result, Status, Usage
from sbx.policy.agent_runs import adapt_run
from sbx.policy.document import Policy
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.wide import too_wide
from sbx.supervise.result import new_trace_id, partial_words
from sbx.supervise.run_options import option_rules

PLACES = {"darwin": "sbx.supervise.on_macos", "win32": "sbx.supervise.on_windows"}


@dataclass(frozen=True, slots=True)
class Job:
    """One run made ready, up to what the platform does."""

    policy: Policy
    profile: EffectiveProfile
    command: tuple[str, ...]
    cwd: str
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()  # what was adapted in a coding agent's command


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended, whatever the platform."""

    status: Status
    rc: int
    exit_code: int | None
    signal: int | None
    reason: str
    stdout: bytes
    stderr: bytes
    truncated: dict[str, int]
    usage: Usage


def prepare(options: Mapping[str, Any], command: list[str], *, cwd: str, environ: Mapping[str, str]) -> Job:
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=environ)
    name = options.get("profile")
    keep_inner = bool(options.get("keep-inner-sandbox"))
    adapted, allowances = adapt_run(policy, name, command, keep_inner=keep_inner, cwd=cwd)
    profile = effective_profile(policy, name, replace(option_rules(options), allow=allowances))
    wide = too_wide(profile, environ)
    notes = (*adapted.notes, f"{wide}; better run it in a project's folder") if wide else adapted.notes
    return Job(policy, profile, adapted.argv, cwd, options, notes)


def perform(job: Job, platform: str = sys.platform) -> tuple[Result, list[str]]:
    """Run it. The result, and notes for the report."""
    if platform not in PLACES:
        raise SandboxUnavailable(
            f"sbx has no sandbox for {platform}",
            remedy="run it on Linux, macOS or Windows; 'sbx plan' shows what would be done there",
            platform=platform,
            reason="no backend",
        )
    module: Any = import_module(PLACES[platform])
    made: tuple[Result, list[str]] = module.run(job)
    return made


def environment(job: Job, inside: Mapping[str, str]) -> dict[str, str]:
    """The command's. What the profile keeps in a private /tmp is in `inside`'s TMPDIR: there is no such /tmp here."""
    env = job.profile.env
    values = tuple((name, in_private_tmp(value, inside.get("TMPDIR", ""))) for name, value in env.set_values)
    rules = environment_rules(env.pass_names, values, env.secret, env.pass_all)
    rules = with_options(rules, tuple(job.options.get("env", ())), bool(job.options.get("env-all")))
    built = build_environment(rules, environ_bytes(), _encoded({"PWD": job.cwd, **inside}))
    return {os.fsdecode(name): os.fsdecode(value) for name, value in built.items()}


def in_private_tmp(value: str, tmp: str) -> str:
    """`/tmp/go-build` of a profile means a place in the private folder."""
    if not tmp or not (value == "/tmp" or value.startswith("/tmp/")):
        return value
    return tmp.rstrip("/") + value.removeprefix("/tmp")


def environ_bytes() -> dict[bytes, bytes]:
    return _encoded(os.environ)


def _encoded(variables: Mapping[str, str]) -> dict[bytes, bytes]:
    return {os.fsencode(name): os.fsencode(value) for name, value in variables.items()}


def result_of(
    job: Job,
    outcome: Outcome,
    backend: str,
    enforced: dict[str, Applied],
    began: float,
    network: tuple[dict[str, Any], ...],
) -> Result:
    environ = environ_bytes()
    env = job.profile.env
    rules = environment_rules(env.pass_names, env.set_values, env.secret, env.pass_all)
    redactor = redactor_for(environ, secret_names=secret_names(rules, environ))
    return Result(
        status=outcome.status,
        rc=outcome.rc,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        reason=redactor.text(outcome.reason + partial_words(enforced)),
        duration_ms=round((time.monotonic() - began) * 1000),
        cmd=tuple(redactor.argv(list(job.command))),
        cwd=job.cwd,
        profile=job.profile.name,
        trace_id=new_trace_id(),
        backend=backend,
        stdout=outcome.stdout,
        stderr=outcome.stderr,
        truncated=outcome.truncated,
        usage=outcome.usage,
        network=network,
        enforced=enforced,
    )
