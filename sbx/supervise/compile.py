"""Options, policy files and machine -> a prepared launch, kept for the next time with all it was made from."""

from __future__ import annotations

import os

from sbx.backends.capabilities import Capabilities
from sbx.backends.capability_cache import load_cached
from sbx.backends.capability_cache import store as remember_capabilities
from sbx.backends.linux import compile_launch, copied_files
from sbx.kernel.machine import machine_key
from sbx.kernel.own_folder import make_own_folder
from sbx.launch import store
from sbx.model.guarantee import Applied
from sbx.model.plan import Op, Plan
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass, replace
from sbx.planner import linux as planner
from sbx.planner.sockets import host_sockets
from sbx.planner.specials import DEFAULT_SPECIALS
from sbx.planner.walk import DirectoryReader, default_cache_file
from sbx.policy import git_identity
from sbx.policy.agent_runs import adapt_run, agent_names
from sbx.policy.document import Policy, RunRules
from sbx.policy.folders import turns_lock
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.wide import too_wide
from sbx.supervise.run_options import option_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from sbx.launch.perform import Prepared


@dataclass(frozen=True, slots=True)
class Compiled:
    """One run made ready, with the values of each stage it went through."""

    policy: Policy
    profile: EffectiveProfile
    plan: Plan
    prepared: Prepared
    enforced: dict[str, Applied]
    dependencies: tuple[tuple[Any, ...], ...] | None  # None: it depends on something that cannot be stamped
    command: tuple[str, ...] = ()  # as it is run: a coding agent's arguments are adapted
    notes: tuple[str, ...] = ()  # what was adapted, for the caller to be told


def capabilities() -> Capabilities:
    """What was probed before on this machine, or a fresh probe."""
    found = load_cached()
    if found is None:
        from sbx.backends.probe_linux import probe

        found = probe()
        remember_capabilities(found)
    return found


def capabilities_for_a_guest() -> Capabilities:
    """The same for code in somebody else's process, which must not be moved into another cgroup."""
    found = capabilities()
    if found.cgroup_mechanism != "systemd":
        return found
    return replace(found, cgroup_mechanism="", cgroup_controllers=())


def compile_run(
    options: Mapping[str, Any],
    *,
    cwd: str,
    environ: Mapping[str, str],
    extra: RunRules | None = None,
    machine: Capabilities | None = None,
    command: Sequence[str] = (),
) -> Compiled:
    """Everything up to the launch. Raises SbxError; nothing was started."""
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=environ)
    rules = option_rules(options) if extra is None else extra
    name = options.get("profile")
    keep_inner = bool(options.get("keep-inner-sandbox"))
    adapted, allowances = adapt_run(policy, name, command, keep_inner=keep_inner, cwd=cwd)
    profile = effective_profile(policy, name, replace(rules, allow=allowances) if allowances else rules)
    trace = bool(options.get("trace"))
    made = compile_profile(policy, profile, cwd=cwd, environ=environ, machine=machine, trace=trace)
    made.prepared["adapted"] = agent_names(policy, name)
    # A plan with allowances is this command's own: others with the same options must not find it.
    notes = adapted.notes
    if wide := too_wide(profile, environ):
        notes = (*notes, f"{wide}; better run it in a project's folder")
    # Nor may a later run find a plan whose notes it would not tell.
    needed = None if allowances or wide else made.dependencies
    return replace(made, command=adapted.argv, notes=notes, dependencies=needed)


def compile_profile(
    policy: Policy,
    profile: EffectiveProfile,
    *,
    cwd: str,
    environ: Mapping[str, str],
    machine: Capabilities | None = None,
    trace: bool = False,
    learn: EffectiveProfile | None = None,
) -> Compiled:
    """`trace` and `learn`: see `backends.linux.compile_launch`."""
    found = capabilities() if machine is None else machine
    make_turns_lock(environ)
    plan = plan_for(policy, profile, cwd=cwd, environ=environ, machine=found)
    backing = compile_launch(profile, plan, found, trace=trace, learn=learn)
    needed = dependencies(policy, profile, plan, copied_files(backing.prepared))
    return Compiled(policy, profile, plan, backing.prepared, backing.enforced, needed)


def make_turns_lock(environ: Mapping[str, str]) -> None:
    """Before the plan: only what is there can be covered where a command may read the folder around it."""
    path = turns_lock(environ)
    try:
        make_own_folder(os.path.dirname(path))
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError:
        pass  # a home that cannot be written: see launch.turns


def plan_for(
    policy: Policy, profile: EffectiveProfile, *, cwd: str, environ: Mapping[str, str], machine: Capabilities
) -> Plan:
    """What this machine would do; also what `explain` reads off how exactly each rule holds."""
    return planner.plan(
        profile,
        cwd,
        backend="namespaces" if machine.backend != "landlock" else "landlock",
        reader=DirectoryReader(default_cache_file(environ, profile.workspace)),
        specials=_specials(policy),
        paths_as_written=[environ["PWD"]] if environ.get("PWD", "").startswith("/") else [],
        sockets=host_sockets(),
    )


def _specials(policy: Policy) -> tuple[tuple[str, Op], ...]:
    named = policy.baseline_specials
    pairs = [(path, Op.PROC) for path in named.proc] + [(path, Op.DEV) for path in named.dev]
    pairs += [(path, Op.TMPFS) for path in named.tmpfs]
    return tuple(pairs) or DEFAULT_SPECIALS


def dependencies(
    policy: Policy, profile: EffectiveProfile, plan: Plan, copied: tuple[str, ...] = ()
) -> tuple[tuple[Any, ...], ...] | None:
    """What the stored plan has to be compared with before it is used again."""
    rules = policy_dependencies(policy, profile, copied)
    if rules is None:
        return None
    found: list[tuple[Any, ...]] = list(rules)
    if plan.backend != "namespaces":
        found.append((store.MACHINE, machine_key()))
    for looked in plan.looked_at:
        if looked.ctime_ns < 0:
            return None
        found.append((store.DIRECTORY, os.fsencode(looked.path), (looked.ctime_ns, looked.ino, looked.dev)))
    found += [(store.ABSENT, os.fsencode(missing)) for missing in plan.missing]
    return tuple(found)


def policy_dependencies(
    policy: Policy, profile: EffectiveProfile, copied: tuple[str, ...] = ()
) -> tuple[tuple[Any, ...], ...] | None:
    """The part of them that the rules were made from, and the contents of `copied`."""
    found: list[tuple[Any, ...]] = []
    for file in policy.files:
        if file.racy:
            return None
        seen = file.stamp  # of the bytes that were parsed: a stat now could describe a newer file
        stamp = (seen.mtime_ns, seen.ino, seen.dev, seen.size, seen.ctime_ns)
        found.append((store.FILE, os.fsencode(file.path), stamp))
    dot_git = os.path.join(policy.workspace, ".git")
    for path in [*_git_files(dot_git), *_approval(policy), *copied]:
        try:
            now = os.stat(path)
        except OSError:
            return None
        stamp = (now.st_mtime_ns, now.st_ino, now.st_dev, now.st_size, now.st_ctime_ns)
        found.append((store.FILE, os.fsencode(path), stamp))
    for path in git_identity.places(policy.environ):
        try:
            now = os.stat(path)
        except OSError:
            found.append((store.ABSENT, os.fsencode(path)))
            continue
        stamp = (now.st_mtime_ns, now.st_ino, now.st_dev, now.st_size, now.st_ctime_ns)
        found.append((store.FILE, os.fsencode(path), stamp))
    for name, value in profile.variables:
        found.append((store.VARIABLE, os.fsencode(name), None if value is None else os.fsencode(value)))
    for prefix, real in profile.resolved:
        if real.startswith("/proc/"):
            continue  # /dev/fd and its like lead elsewhere in every process, and are private to the run anyway
        if prefix != real and os.path.exists(prefix):
            now = os.stat(prefix)
            found.append((store.LEADS_TO, os.fsencode(prefix), (now.st_dev, now.st_ino)))
    found += [(store.ABSENT, os.fsencode(missing)) for missing in policy.missing_files]
    return tuple(found)


def _git_files(dot_git: str) -> list[str]:
    """A `.git` file and the links it leads over: the git folders that the plan grants and protects."""
    if not os.path.isfile(dot_git):
        return []
    from sbx.policy.git import git_folders

    folders = git_folders(os.path.dirname(dot_git))
    files = [dot_git]
    for folder in folders.folders if folders is not None else ():
        files += [path for name in ("gitdir", "commondir") if os.path.isfile(path := os.path.join(folder, name))]
    return files


def _approval(policy: Policy) -> list[str]:
    """The file that says a person approved the workspace's policy: withdrawing it must be noticed."""
    from sbx.policy.trust import CONSENT_VARIABLE, approval_key, trust_folder

    last = policy.files[-1]
    if last.layer != "workspace" or policy.environ.get(CONSENT_VARIABLE) == "1":
        return []
    path = os.path.join(trust_folder(policy.environ), approval_key(last.path, last.sha256))
    return [path] if os.path.exists(path) else []
