"""Linux: an effective profile and what this machine can do -> a prepared launch, or a refusal with its cause.

No policy is decided here. The planner says what to do, `kernel` knows how; this file chooses the mechanisms, counts
what was asked for and could not be had, and packs the result into plain values for the launch side.
"""

from __future__ import annotations

import os
import stat

from sbx.backends.capabilities import Capabilities
from sbx.backends.kept_filter import kept_filter
from sbx.errors import SandboxUnavailable
from sbx.kernel import landlock, process
from sbx.kernel.seccomp_filter import NOTIFY_CHANGES, NOTIFY_CREATES
from sbx.kernel.syscalls_table import numbers
from sbx.launch import root
from sbx.launch.attend import core_file_setting
from sbx.launch.core_dumps import may_be_denied
from sbx.launch.environment import environment_rules
from sbx.model.glob import fixed_prefix, split_path, states_below
from sbx.model.guarantee import Applied
from sbx.model.plan import Op, Operation, Plan
from sbx.model.profile import EffectiveProfile, FutureDenies, NetworkMode, Require
from sbx.model.records import dataclass
from sbx.model.rules import Access
from sbx.network.environment import PROXY_PORT
from sbx.planner.grants import WRITE_TREE
from sbx.policy.folders import shipped_folder, turns_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sbx.kernel.seccomp_filter import Watch
    from sbx.launch.hand import HandPlan
    from sbx.launch.perform import Prepared
    from sbx.model.verdict import CompiledRule, Judge

CODES = {
    Op.TMPFS: root.TMPFS,
    Op.PROC: root.PROC,
    Op.DEV: root.DEV,
    Op.SKELETON: root.SKELETON,
    Op.SYMLINK: root.SYMLINK,
    Op.BIND_RO: root.BIND_RO,
    Op.BIND_RW: root.BIND_RW,
    Op.MASK: root.MASK,
    Op.MAKE_DIR: root.MAKE_DIR,
    Op.PIN: root.PIN,
}

BASELINE = os.path.join(shipped_folder(), "baseline.yaml")

# Where the private root may be put together. Any directory will do that nothing is read from meanwhile.
STAGING = ("/mnt", "/media", "/srv", "/boot", "/lost+found", "/sys", "/run", "/var/tmp", "/tmp", "/dev", "/proc")

NAMESPACE_FLAGS = (
    process.CLONE_NEWUSER | process.CLONE_NEWNS | process.CLONE_NEWPID | process.CLONE_NEWIPC | process.CLONE_NEWUTS
)  # fmt: skip


READING = ("EXECUTE", "READ_FILE", "READ_DIR")


@dataclass(frozen=True, slots=True)
class Backing:
    """A plan made ready for this machine: the launch values and the account of what is enforced."""

    prepared: Prepared
    plan: Plan
    enforced: dict[str, Applied]


def compile_launch(
    profile: EffectiveProfile,
    plan: Plan,
    capabilities: Capabilities,
    *,
    trace: bool = False,
    learn: EffectiveProfile | None = None,
) -> Backing:
    """Raises SandboxUnavailable where something asked for cannot be enforced and the profile insists on it.

    `trace` tells what `profile` denied; `learn` tells what another profile would have to allow.
    """
    if capabilities.backend == "none":
        raise unavailable(capabilities)
    from sbx.backends.limits import choose_limits

    limits = choose_limits(profile.limits, capabilities)
    enforced = account(profile, plan, capabilities) | limits.enforced
    if trace or learn is not None:
        from sbx.backends.trace import account_trace

        enforced["trace"] = account_trace(capabilities, namespaces=plan.backend == "namespaces")
    watching = "trace" in enforced and enforced["trace"].applied
    if profile.require is Require.FULL:
        refuse_lacking(profile, plan, enforced, capabilities)
    namespaces = plan.backend == "namespaces"
    flags = 0
    if namespaces:
        flags = NAMESPACE_FLAGS | (process.CLONE_NEWCGROUP if capabilities.cgroup_ns else 0)
        if profile.network.mode is not NetworkMode.HOST:
            flags |= process.CLONE_NEWNET
    by_hand = reaches_single_names(profile, plan, capabilities)
    listening = by_hand or holds_for_new_names(plan, capabilities)
    judged = () if not listening else NOTIFY_CHANGES if by_hand else NOTIFY_CREATES
    # A pinned directory is a mount of its own, and renames across it fail; the listener refuses to move it anyway.
    operations = tuple(each for each in plan.operations if not (listening and each.op is Op.PIN))
    judge = relevant_judge(profile, operations, plan) if listening else None
    prepared: Prepared = {
        "launch": {
            "namespaces": flags,
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "loopback": bool(flags & process.CLONE_NEWNET),
            "staging": staging(plan.operations) if namespaces else b"",
            "restrict_proc": os.geteuid() == 0,
            "operations": launch_operations(operations),
            "cwd": os.fsencode(plan.cwd),
            "landlock": launch_landlock(profile, plan, capabilities),
            "seccomp": kept_filter(
                capabilities.machine,
                network=profile.network.mode.value,
                own_netns=bool(flags & process.CLONE_NEWNET),
                # Otherwise a program could be written to memory and executed there, past every exec rule.
                exec_memfd=profile.exec is None,
                # Without a private root nothing but this, or Landlock from ABI 9 on, keeps the host's sockets away.
                unix_sockets=namespaces or capabilities.landlock_abi >= 9,
                notify=judged,
                watch=_watched(capabilities.machine, walking=learn is not None) if watching else (),
            ),
            "private_tmp_access": 0 if namespaces else private_tmp_access(profile, capabilities.landlock_abi),
            "proxy_port": PROXY_PORT if profile.network.mode is NetworkMode.ALLOW else 0,
            "future": None if judge is None else (judge, judged_calls(capabilities.machine, judged)),
            "turns": b"" if judge is None else os.fsencode(turns_lock(os.environ)),
            "core_files": None if judge is None else core_files(judge),
            "hand": launch_hand(profile, plan, capabilities.landlock_abi) if by_hand else None,
        },
        "env": environment_rules(
            profile.env.pass_names, profile.env.set_values, profile.env.secret, profile.env.pass_all
        ),
        "limits": limit_values(profile),
        "rlimits": limits.rlimits,
        "cgroup": limits.cgroup,
        "sample": limits.sample,
        "profile": profile.name,
        "workspace": profile.workspace,
        "backend": plan.backend,
        "enforced": tuple((name, each.requested, each.applied, each.details) for name, each in enforced.items()),
        "network": (profile.network.mode.value, tuple(text for text, _ in profile.network.allow)),
        "adapted": (),
    }
    if watching:
        asked = profile if learn is None else learn
        from sbx.backends.trace import launch_trace

        prepared["launch"]["trace"] = launch_trace(
            asked.judge, capabilities.machine, learning=learn is not None, judged=judged
        )
    return Backing(prepared, plan, enforced)


def may_match_new_names(plan: Plan) -> int:
    """How many denies could match a name that does not exist yet, inside what may be modified."""
    return sum(1 for each in plan.guarantees if "snapshot-deny" in each.exceptions)


def holds_for_new_names(plan: Plan, capabilities: Capabilities) -> bool:
    """Is a listener needed, and can this kernel give an exact one? (Linux 5.19: no call is made twice.)"""
    return can_judge(plan, capabilities) and may_match_new_names(plan) > 0


def can_judge(plan: Plan, capabilities: Capabilities) -> bool:
    needed = {"addfd_send", "wait_killable"}
    return capabilities.user_notif and needed <= set(capabilities.notif_flags) and plan.backend == "namespaces"


def reaches_single_names(profile: EffectiveProfile, plan: Plan, capabilities: Capabilities) -> bool:
    """Are there granted names in folders that are read-only inside, and can a hand outside be had for them? Landlock
    is what holds it to those folders (ABI 2 to move between them). Not under exec rules: what it makes would be
    executable wherever its folder is."""
    return bool(plan.single_names) and has_hand(profile, plan, capabilities)


def has_hand(profile: EffectiveProfile, plan: Plan, capabilities: Capabilities) -> bool:
    """Could single names be granted in read-only folders, if there were any?"""
    return can_judge(plan, capabilities) and capabilities.landlock_abi >= 2 and profile.exec is None


HAND_RIGHTS = ("READ_FILE", *(each for each in WRITE_TREE if each != "RESOLVE_UNIX"))


def launch_hand(profile: EffectiveProfile, plan: Plan, abi: int) -> HandPlan:
    fs, _net, _scopes = landlock.handled(abi)
    folders = tuple(os.fsencode(each) for each in plan.single_names)
    return fs, landlock.rights_mask(HAND_RIGHTS, abi), folders, frozenset(own_paths(profile))


def own_paths(profile: EffectiveProfile) -> Iterator[bytes]:
    """Every place that the fixed part of a granting rule leads through: a symlink there would be followed next time."""
    for access in Access:
        for rule in profile.rules(access):
            for pattern in () if rule.negated else rule.patterns:
                prefix = fixed_prefix(pattern)
                for size in range(1, len(prefix) + 1):
                    yield os.fsencode("/" + "/".join(prefix[:size]))


def relevant_judge(profile: EffectiveProfile, operations: tuple[Operation, ...], plan: Plan) -> Judge:
    """The rules that can speak of a name in what may be written. Elsewhere nothing can be made, whatever rules say."""
    writable = [split_path(each.path) for each in operations if each.op in (Op.BIND_RW, Op.TMPFS)]
    writable += [split_path(each) for each in plan.single_names]

    firsts = {place[0] for place in writable if place}
    whole = () in writable

    def speaks(rule: CompiledRule) -> bool:
        for pattern in rule[1]:
            first = pattern[0] if pattern else ""
            if first.__class__ is str and first not in firsts and not whole:
                continue  # most rules are of other places
            if any(states_below(pattern, place) for place in writable):  # it matches here, or may match below
                return True
        return False

    read, modify, _exec = profile.judge
    return tuple(filter(speaks, read)), tuple(filter(speaks, modify)), None


def core_files(judge: Judge) -> tuple[bytes, bytes, bool] | None:
    """The host's setting for them, and whether the plan's rules deny such a name; None where it cannot be read."""
    try:
        setting = core_file_setting()
    except OSError:
        return None
    return (*setting, may_be_denied(judge, *setting))


def _watched(machine: str, *, walking: bool) -> tuple[Watch, ...]:
    from sbx.kernel.path_calls import watched  # a traced run's

    return watched(machine, walking=walking)


def judged_calls(machine: str, judged: Sequence[tuple[str, int, int]]) -> dict[int, str]:
    table = numbers(machine)
    return {table[name]: name for name, _argument, _mask in judged if name in table}


def launch_operations(operations: tuple[Operation, ...]) -> tuple[tuple[int, bytes, bytes, int], ...]:
    packed: list[tuple[int, bytes, bytes, int]] = []
    bound: tuple[str, ...] = ()  # with a slash behind them
    made: set[str] = set()
    known: dict[str, bool] = {}
    for each in operations:
        fresh = not each.path.startswith(bound)
        content = system_file(each) if fresh else None
        if content is not None:
            packed.append((root.COPY, os.fsencode(each.path), content, 0))
            continue
        if each.op in (Op.BIND_RO, Op.BIND_RW):
            bound += (each.path.rstrip("/") + "/",)
        attributes = (
            (root.IS_DIR if each.is_dir else 0)
            | (root.LISTABLE if each.listable else 0)
            | (root.NOEXEC if each.noexec else 0)
            | (root.OPTIONAL if each.optional else 0)
            | (root.IS_LINK if each.is_link else 0)
            | (root.FRESH if fresh and made_above(each.path, made) else 0)
            | (root.SYSTEM if only_roots_own(os.path.dirname(each.source or each.path), known) else 0)
        )
        made.add(each.path)
        packed.append((CODES[each.op], os.fsencode(each.path), os.fsencode(each.source), attributes))
    return tuple(packed)


def made_above(path: str, made: set[str]) -> bool:
    """Was the folder of `path` made by an earlier operation, and `path` itself by none?"""
    return os.path.dirname(path) in made and path not in made


def only_roots_own(folder: str, known: dict[str, bool]) -> bool:
    """Is it, like every folder on the way, root's, and writable for nobody else? Then no symlink can be put there
    meanwhile. `known`: what was found out for this plan already."""
    if os.geteuid() == 0:
        return False  # a command that root runs may be allowed to change root's folders
    found = known.get(folder)
    if found is None:
        try:
            status = os.lstat(folder)
        except OSError:
            found = False
        else:
            found = status.st_uid == 0 and not status.st_mode & 0o022 and stat.S_ISDIR(status.st_mode)
            found = found and (folder == "/" or only_roots_own(os.path.dirname(folder), known))
        known[folder] = found
    return found


COPIED_BYTES = 8 * 1024  # beyond that a mount is cheaper


def system_file(operation: Operation) -> bytes | None:
    """The content of a small file that the baseline shows: /etc/passwd and its like, public and root's own.

    There are dozens of them, and a mount for each would cost more than all the rest of a start. The stored plan
    depends on their stamps, so a changed file is read anew at the next start.
    """
    if operation.op is not Op.BIND_RO or operation.is_dir or operation.is_link or operation.source:
        return None
    if not operation.path.startswith("/etc/") or not operation.place.startswith(BASELINE + ":"):
        return None
    try:
        descriptor = os.open(operation.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        public = stat.S_ISREG(found.st_mode) and found.st_mode & 0o004 and found.st_uid == 0
        if not public or found.st_size > COPIED_BYTES:
            return None
        content = os.read(descriptor, COPIED_BYTES + 1)
        return content if len(content) == found.st_size else None
    finally:
        os.close(descriptor)


def copied_files(prepared: Prepared) -> tuple[str, ...]:
    """The files whose content a launch carries along: their stamps are dependencies of the stored plan."""
    return tuple(os.fsdecode(each[1]) for each in prepared["launch"]["operations"] if each[0] == root.COPY)


def staging(operations: tuple[Operation, ...]) -> bytes:
    sources = [each.source or each.path for each in operations if each.op in (Op.BIND_RO, Op.BIND_RW, Op.PIN)]
    for folder in STAGING:
        inside = folder + "/"
        usable = os.path.isdir(folder) and not os.path.islink(folder)
        if usable and not any(source == folder or source.startswith(inside) for source in sources):
            return os.fsencode(folder)
    raise SandboxUnavailable(
        "no directory is free to build the private root on",
        remedy=f"do not grant all of {', '.join(STAGING)}",
        platform="linux",
    )


def launch_landlock(profile: EffectiveProfile, plan: Plan, capabilities: Capabilities) -> tuple[object, ...] | None:
    """The same plan once more, in Landlock's terms. Paths that vanished since grant nothing, so they may be missing."""
    abi = capabilities.landlock_abi
    if abi <= 0:
        return None
    fs, _net, scopes = landlock.handled(abi)
    masks = {grant.path: landlock.rights_mask(grant.rights, abi) & fs for grant in plan.grants}
    if plan.backend == "namespaces" and profile.exec is None:
        # What can be seen in the private root can be read: one rule says so, and a descriptor that leads outside of
        # it is below no rule at all.
        reading = landlock.rights_mask(READING, abi)
        masks = {path: mask for path, mask in masks.items() if mask & ~reading}
        masks["/"] = masks.get("/", 0) | reading
    paths = tuple((os.fsencode(path), mask, True) for path, mask in masks.items())
    return (fs, launch_ports(profile, plan, abi), scopes, 0, paths, ())


def launch_ports(profile: EffectiveProfile, plan: Plan, abi: int) -> int:
    """Rights over ports that the ruleset holds. With an allow-list and no network namespace, TCP may reach one port,
    the proxy's, which is known when it has started; until then, and for listening, none."""
    if plan.backend == "namespaces" or profile.network.mode is not NetworkMode.ALLOW:
        return 0
    net = landlock.handled(abi)[1]
    return net & (landlock.NET_RIGHTS["CONNECT_TCP"][1] | landlock.NET_RIGHTS["BIND_TCP"][1])


def private_tmp_access(profile: EffectiveProfile, abi: int) -> int:
    """Everything, as on the private /tmp that a mount namespace gives."""
    execute = landlock.FS_RIGHTS["EXECUTE"][1]
    return landlock.handled(abi)[0] & ~(execute if profile.exec is not None else 0)


def limit_values(profile: EffectiveProfile) -> dict[str, object]:
    limits = profile.limits
    named = {name: getattr(limits, name) for name in limits.__slots__}
    return {name: value for name, value in named.items() if value is not None}


def account(profile: EffectiveProfile, plan: Plan, capabilities: Capabilities) -> dict[str, Applied]:
    """What was asked for, what is applied, by what."""
    abi = capabilities.landlock_abi
    second = f" and Landlock ABI {abi}" if abi > 0 else ""
    namespaces = plan.backend == "namespaces"
    mode = profile.network.mode
    found: dict[str, Applied] = {}
    if namespaces:
        by_hand = "; single names by hand" if reaches_single_names(profile, plan, capabilities) else ""
        found["filesystem"] = Applied(True, not plan.refusals, f"private root{second}{by_hand}")
        found["processes"] = Applied(True, True, "own pid namespace")
    else:
        found["filesystem"] = Applied(True, abi >= 3 and not plan.refusals, f"Landlock ABI {abi}; names stay visible")
        words = "no pid namespace: the tree is followed and killed at its end, other processes stay visible"
        if abi < 6:
            words += f", and Landlock ABI {abi} does not keep it from signalling them"
        found["processes"] = Applied(True, False, words)
    if profile.exec is not None:
        found["exec"] = Applied(True, abi > 0, f"Landlock ABI {abi} and noexec mounts" if abi > 0 else "noexec mounts")
    found["future_denies"] = _future_denies(profile, plan, capabilities)
    found["network"] = network_account(mode, namespaces, abi)
    found["syscalls"] = Applied(True, capabilities.seccomp, "seccomp filter")
    found["privileges"] = Applied(True, True, "no_new_privs, no capabilities, nosuid" if namespaces else "no_new_privs")
    found["terminal"] = Applied(True, capabilities.seccomp, "TIOCSTI and TIOCLINUX refused by seccomp")
    found["environment"] = Applied(True, True, "all variables" if profile.env.pass_all else "allow-list")
    return found


def _future_denies(profile: EffectiveProfile, plan: Plan, capabilities: Capabilities) -> Applied:
    wanted = profile.future_denies is FutureDenies.REQUIRED
    count = may_match_new_names(plan)
    if count == 0:
        return Applied(wanted, True, "no deny can match a new name")
    if holds_for_new_names(plan, capabilities):
        return Applied(wanted, True, f"seccomp listener judges new names ({count} rules)")
    return Applied(wanted, False, f"snapshot: {count} denies hold for what exists at the start")


def network_account(mode: NetworkMode, namespaces: bool, abi: int) -> Applied:
    if mode is NetworkMode.HOST:
        return Applied(False, True, "host network, as the profile asks")
    if namespaces:
        what = "own network namespace" if mode is NetworkMode.NONE else "own network namespace and a proxy"
        return Applied(True, True, what)
    if mode is NetworkMode.NONE:
        return Applied(True, True, "network sockets refused by seccomp, loopback included")
    if abi >= 4:
        words = f"a proxy, and Landlock ABI {abi} lets TCP reach its port alone, but on every host"
    else:
        words = f"a proxy that programs may pass by: Landlock ABI {abi} knows no ports"
    return Applied(True, False, f"no network namespace; {words}")


def refuse_lacking(
    profile: EffectiveProfile, plan: Plan, enforced: dict[str, Applied], capabilities: Capabilities
) -> None:
    lacking = {name: each for name, each in enforced.items() if each.requested and not each.applied}
    if not lacking:
        return
    details = [f"{name}: {each.details}" for name, each in lacking.items()]
    details += list(plan.refusals)
    remedies = [reason.remedy for reason in capabilities.reasons if reason.remedy and plan.backend != "namespaces"]
    first = remedies[0] if remedies else "see 'sbx doctor'"
    raise SandboxUnavailable(
        f"cannot enforce all that profile '{profile.name}' asks for: {', '.join(lacking)}",
        remedy=f"{first}; or run with --partial, and what is missing is reported",
        details=details,
        platform="linux",
        reason="; ".join(details),
    )


def unavailable(capabilities: Capabilities) -> SandboxUnavailable:
    reasons = [f"{reason.mechanism}: {reason.words}" for reason in capabilities.reasons]
    remedies = [reason.remedy for reason in capabilities.reasons if reason.remedy]
    return SandboxUnavailable(
        "this machine offers neither user namespaces nor Landlock with seccomp",
        remedy=remedies[0] if remedies else "see 'sbx doctor'",
        details=reasons,
        platform="linux",
        reason="; ".join(reasons),
    )
