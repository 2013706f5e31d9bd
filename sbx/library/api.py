"""The functions of the public API: run one command, ask about a path, ask about this machine."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from sbx.errors import CommandFailed, Denied, SandboxUnavailable, UsageError
from sbx.library.types import (
    Enforcement,
    EnvironmentChoice,
    OnUnavailable,
    PathLike,
    Rules,
    make_rules,
    words_of,
)
from sbx.model.decide import Decision
from sbx.model.decide import decide as decide_in
from sbx.model.profile import EffectiveProfile, Limits
from sbx.model.result import Result
from sbx.model.rules import Access

if TYPE_CHECKING:
    from sbx.library.plans import ReadyPlan
    from sbx.library.running import Call

Stdin = bytes | int | IO[Any] | None
AT_ONCE = 32  # sandboxes of one event loop; further calls wait their turn


def run(
    cmd: Sequence[PathLike],
    *,
    policy: PathLike | None = None,
    profile: str | None = None,
    cwd: PathLike | None = None,
    env: EnvironmentChoice = None,
    extra_env: dict[str, str] | None = None,
    stdin: Stdin = None,
    timeout: float | None = None,
    limits: Limits | None = None,
    read: Sequence[str] = (),
    modify: Sequence[str] = (),
    deny: Sequence[str] = (),
    net: str | Sequence[str] | None = None,
    live: bool = False,
    check: bool = False,
    audit: bool = True,
    on_unavailable: OnUnavailable = OnUnavailable.REFUSE,
) -> Result:
    """Run one command in a fresh sandbox and say how it ended; its output is in the result.

    Raises SbxError before anything was started: PolicyError, UntrustedPolicy, UnknownProfile, SandboxUnavailable. With
    `check`, CommandFailed when it ended in any way but with status 0.
    """
    rules = make_rules(
        policy=policy, profile=profile, read=read, modify=modify, deny=deny, net=net, limits=limits, timeout=timeout,
        on_unavailable=on_unavailable,
    )  # fmt: skip
    words = words_of(cmd)
    _linux_only()
    from sbx.library.running import Running

    folder = folder_of(cwd)
    call = call_of(words, rules, env=env, extra_env=extra_env, stdin=stdin, live=live, audit=audit)
    try:
        plan = _plan(rules, folder, call.environ)
    except SandboxUnavailable as error:
        return unavailable(error, rules, words, on_unavailable)
    return checked(Running(plan, call).finish(), check)


async def arun(
    cmd: Sequence[PathLike],
    *,
    policy: PathLike | None = None,
    profile: str | None = None,
    cwd: PathLike | None = None,
    env: EnvironmentChoice = None,
    extra_env: dict[str, str] | None = None,
    stdin: Stdin = None,
    timeout: float | None = None,
    limits: Limits | None = None,
    read: Sequence[str] = (),
    modify: Sequence[str] = (),
    deny: Sequence[str] = (),
    net: str | Sequence[str] | None = None,
    live: bool = False,
    check: bool = False,
    audit: bool = True,
    on_unavailable: OnUnavailable = OnUnavailable.REFUSE,
) -> Result:
    """`run` for asyncio. Cancelled, it kills the command's whole tree before it raises."""
    rules = make_rules(
        policy=policy, profile=profile, read=read, modify=modify, deny=deny, net=net, limits=limits, timeout=timeout,
        on_unavailable=on_unavailable,
    )  # fmt: skip
    words = words_of(cmd)
    _linux_only()
    from sbx.library.running import Running

    folder = folder_of(cwd)
    call = call_of(words, rules, env=env, extra_env=extra_env, stdin=stdin, live=live, audit=audit)
    async with turn():
        try:
            plan = _known(rules, folder, call.environ)
            if plan is None:
                plan = await asyncio.to_thread(_plan, rules, folder, call.environ)
        except SandboxUnavailable as error:
            return unavailable(error, rules, words, on_unavailable)
        return checked(await Running(plan, call).finish_async(), check)


def _plan(rules: Rules, folder: str, environ: dict[bytes, bytes]) -> ReadyPlan:
    from sbx.library.plans import PLANS

    return PLANS.get(rules.options(), folder, environ)


def _known(rules: Rules, folder: str, environ: dict[bytes, bytes]) -> ReadyPlan | None:
    from sbx.library.plans import PLANS

    return PLANS.known(rules.options(), folder, environ)


_turns: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


def turn() -> asyncio.Semaphore:
    """Each loop has its own count: thousands of tasks may ask at once, and descriptors are few."""
    return _turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE))


def call_of(
    words: list[str],
    rules: Rules,
    *,
    env: EnvironmentChoice,
    extra_env: dict[str, str] | None,
    stdin: Stdin,
    live: bool,
    audit: bool,
    cwd: str | None = None,
    wall_s: float | None = None,
) -> Call:
    from sbx.library.running import Call

    exact = None
    if env is not None and env != "all":
        exact = {**env, **(extra_env or {})}
    return Call(
        command=words,
        environ=dict(os.environb),
        cwd=None if cwd is None else os.fsencode(cwd),
        env=exact,
        env_all=env == "all",
        extra_env=tuple(f"{name}={value}" for name, value in (extra_env or {}).items()),
        stdin=_stdin(stdin),
        live=live,
        audit=audit,
        options=rules.options(),
        wall_s=wall_s,
    )


def _stdin(stdin: Stdin) -> int | bytes:
    if stdin is None:
        return -1
    return stdin if isinstance(stdin, bytes | int) else stdin.fileno()


def folder_of(cwd: PathLike | None) -> str:
    folder = os.path.realpath(os.getcwd() if cwd is None else os.fspath(cwd))
    if not os.path.isdir(folder):
        raise UsageError(f"cwd={cwd}: no such directory", remedy="name a directory that exists")
    return folder


def checked(result: Result, check: bool) -> Result:
    if check and not result.success:
        raise CommandFailed(result)
    return result


def unavailable(error: SandboxUnavailable, rules: Rules, words: list[str], choice: OnUnavailable) -> Result:
    """Nothing was run; the audit log says so whatever the caller does with the answer."""
    from sbx import audit
    from sbx.supervise.result import failed_result

    result = failed_result(error, rules.options(), words)
    audit.record_unavailable(result, error)
    if choice is OnUnavailable.REPORT:
        return result
    raise error


def _linux_only() -> None:
    if sys.platform != "linux":
        raise SandboxUnavailable(
            "the library starts sandboxes itself on Linux only",
            remedy="use Session.wrap(), which works wherever the sbx command does",
            platform=sys.platform,
        )


class _Profiles:
    """The profiles that `decide` and `enforce` were asked about, as long as their policy files are unchanged."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], tuple[EffectiveProfile, tuple[tuple[Any, ...], ...]]] = {}
        self._lock = threading.Lock()

    def get(self, policy: str | None, profile: str | None, cwd: str) -> EffectiveProfile:
        from sbx.policy.layers import effective_profile, load_policy

        key = (policy, profile, cwd)
        environ = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
        with self._lock:
            known = self._known.get(key)
        if sys.platform == "linux":
            from sbx.launch.store import unchanged

            if known is not None and unchanged(known[1], environ):
                return known[0]
        loaded = load_policy(cwd, policy_file=policy, environ=os.environ)
        effective = effective_profile(loaded, profile)
        if sys.platform == "linux":
            from sbx.supervise.compile import policy_dependencies

            depends = policy_dependencies(loaded, effective)
            if depends is not None:
                with self._lock:
                    self._known[key] = (effective, depends)
        return effective


_profiles = _Profiles()


def decide(
    path: PathLike,
    access: Access | str = Access.READ,
    *,
    policy: PathLike | None = None,
    profile: str | None = None,
    cwd: PathLike | None = None,
) -> Decision:
    """May it? The answer that the sandbox, `sbx explain` and the planner give, with the rules that matched."""
    folder = folder_of(cwd)
    named = None if policy is None else os.path.abspath(os.fspath(policy))
    effective = _profiles.get(named, None if profile is None else str(profile), folder)
    return decide_in(effective, os.fspath(path), Access(access), cwd=folder)


def enforce(
    path: PathLike,
    access: Access | str = Access.READ,
    *,
    policy: PathLike | None = None,
    profile: str | None = None,
    cwd: PathLike | None = None,
) -> Decision:
    """For tools that do their own file work: raises Denied, and writes an audit record, where `decide` says no."""
    decision = decide(path, access, policy=policy, profile=profile, cwd=cwd)
    if decision.allowed:
        return decision
    from sbx import audit

    winner = decision.winner
    rule = "" if winner is None else str(winner)
    place = "" if winner is None else str(winner.source)
    where = decision.location or decision.path
    audit.record_denied(where, decision.access.value, rule, place, profile or "unrestricted")
    why = f"the rule {rule}" if rule else "no rule allows it"
    raise Denied(
        f"{decision.access.value} of {where} is denied: {why}",
        remedy=f"'sbx explain {decision.path}' says what would allow it",
        source=None if winner is None else winner.source,
    )


def probe() -> dict[str, Enforcement]:
    """How strongly each capability would be enforced on this machine, by its name in `Result.enforced`."""
    from sbx.library.probing import strengths

    return strengths()


async def aprobe() -> dict[str, Enforcement]:
    """`probe` for asyncio: the first one tries things out, in child processes."""
    return await asyncio.to_thread(probe)
