"""`sbx learn`: run the command with next to nothing in its way, and propose the profile that it needs."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from sbx.errors import SbxError, UsageError
from sbx.model.glob import escape, split_path
from sbx.model.profile import EffectiveProfile, Limits
from sbx.model.records import replace
from sbx.model.source import Source
from sbx.policy.digest import sha256_hex
from sbx.policy.document import WORKSPACE, Policy, ProfileSource, Written
from sbx.policy.folders import WORKSPACE_FILE, home_folder
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.learning import EXEC, FEW, MODIFY, NOTHING, Generalizer, Need, Proposal, asked_for
from sbx.policy.patch import difference, patched
from sbx.report.denials import SURE
from sbx.report.words import visible

if TYPE_CHECKING:
    from sbx.launch.wait import Outcome

DEFAULT_NAME = "learned"
OBSERVING = "observing"
MADE_BY_THE_SANDBOX = ("proc", "dev", "sys", "tmp", "mnt", "lost+found")


def command(options: dict[str, Any], words: list[str]) -> int:
    """0 when the command succeeded and a proposal was made or none is needed."""
    if sys.platform != "linux":
        raise UsageError("learning needs Linux", remedy="write the profile by hand: 'sbx init' makes a first one")
    name = options.get("profile") or DEFAULT_NAME
    cwd = os.path.realpath(os.getcwd())
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=os.environ)
    base = base_profile(policy, name)
    outcome, by_hand = run_observed(policy, base, options, words, cwd)
    needs = asked_for(needs_of(outcome), os.path.realpath(home_folder(policy.environ)))
    proposal = propose(base, without_noise(base, needs), policy, by_hand=by_hand)
    tell_left_out(proposal)
    return hand_over(proposal, policy, name, options, words, succeeded(outcome))


def base_profile(policy: Policy, name: str) -> EffectiveProfile:
    """The profile to extend; one that is not there yet has nothing but the baseline."""
    if name not in policy.profiles:
        policy = with_profile(policy, name, ())
    return effective_profile(policy, name)


def with_profile(policy: Policy, name: str, rules: tuple[str, ...]) -> Policy:
    source = Source("sbx learn", layer="sbx")
    written = tuple(Written(rule, source) for rule in rules)
    return replace(
        policy,
        profiles={**policy.profiles, name: ProfileSource(name, WORKSPACE, source, read=written, modify=written)},
    )


def everywhere() -> tuple[str, ...]:
    """What is in the root folder, one by one: the root itself stays the sandbox's own, which keeps its masks there."""
    names = sorted(name for name in os.listdir("/") if name not in MADE_BY_THE_SANDBOX)
    rules = [escape("/" + name) + ("/**" if os.path.isdir("/" + name) else "") for name in names]
    return (*rules, "~/**", "./**")


def run_observed(
    policy: Policy, base: EffectiveProfile, options: dict[str, Any], words: list[str], cwd: str
) -> tuple[Outcome, bool]:
    """Everything is allowed but what is denied in every profile; the listener notes what `base` lacks. And: could this
    machine make single names by hand, under the profile?"""
    from sbx.backends.linux import has_hand
    from sbx.launch.perform import failed_step
    from sbx.supervise.compile import capabilities, compile_profile
    from sbx.supervise.execute import execute
    from sbx.supervise.run_options import option_rules

    rules = option_rules(options)
    observing = effective_profile(with_profile(policy, OBSERVING, everywhere()), OBSERVING, rules)
    network = base.network if rules.network is None else observing.network
    limits = Limits(wall_s=observing.limits.wall_s)
    observing = replace(observing, network=network, env=base.env, limits=limits, require=base.require)
    compiled = compile_profile(policy, observing, cwd=cwd, environ=dict(os.environ), learn=base)
    chosen = {name: value for name, value in options.items() if name in ("env", "env-all", "net")}
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)  # standard output is for the proposal
    try:
        outcome = execute(compiled.prepared, {**chosen, "no-tty": True}, words, dict(os.environb)).outcome
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    failure = failed_step(outcome)
    if failure is not None:
        raise failure
    if outcome["exec_errno"] is not None:
        raise SbxError(f"{words[0]}: {os.strerror(outcome['exec_errno'])}", remedy="name a command that can be run")
    return outcome, has_hand(base, compiled.plan, capabilities())


def succeeded(outcome: Outcome) -> bool:
    return outcome["status"] == 0


def needs_of(outcome: Outcome) -> list[Need]:
    """In the order in which they came up; what is not there has no access."""
    needs = []
    for operation, access, location, evidence, _follow, _program, mode in outcome.get("denied", []):
        there = evidence == SURE or os.path.lexists(location)
        wanted = access if there else NOTHING
        needs.append(Need(os.fsdecode(location), wanted, operation, new=not mode, folder=stat.S_ISDIR(mode)))
    return needs


def without_noise(base: EffectiveProfile, needs: list[Need]) -> list[Need]:
    """Without looks at folders that are there because something below them is granted; without looks at everything in
    a folder, since who walks through it sees what is shown; without Python's compiled modules outside the workspace,
    which it keeps only where it can."""
    there: set[tuple[str, ...]] = set()
    for rule in base.read:
        for pattern in () if rule.negated else rule.patterns:
            fixed = tuple(str(part) for part in itertools.takewhile(lambda part: isinstance(part, str), pattern))
            there.update(fixed[:count] for count in range(len(fixed)))
    workspace = split_path(base.workspace)
    used = {need.path for need in needs if need.operation != "stat"}
    looks = Counter(os.path.dirname(need.path) for need in needs if need.path not in used)
    kept = []
    for need in needs:
        names = split_path(need.path)
        compiled = need.access == MODIFY and "__pycache__" in names and names[: len(workspace)] != workspace
        walked = names[: len(workspace)] != workspace and looks[os.path.dirname(need.path)] > FEW
        if not compiled and not (need.operation == "stat" and (names in there or walked) and need.path not in used):
            kept.append(need)
    return kept


def propose(base: EffectiveProfile, needs: list[Need], policy: Policy, *, by_hand: bool) -> Proposal:
    from sbx.model.decide import ACCESSES, decide_location
    from sbx.model.verdict import uniform_below
    from sbx.report.change import FINAL

    def denied(need: Need) -> bool:
        lists = decide_location(base, need.path, ACCESSES[need.access]).lists
        winners = [each.winner for each in lists if not each.allowed]
        return any(rule is not None and rule.origin.value in FINAL for rule in winners)

    modifiable = tuple(rule.compiled for rule in base.modify)

    def granted(folder: tuple[str, ...]) -> bool:
        return uniform_below(modifiable, folder) is not False

    generalizer = Generalizer(
        base.workspace,
        os.path.realpath(home_folder(policy.environ)),
        denied,
        granted=granted,
        by_hand=by_hand,
    )
    proposal = generalizer.propose(needs, with_exec=base.exec is not None)
    left = {*proposal.secrets, *proposal.denied, *proposal.needless}
    learned = with_rules(policy, base.name, proposal)
    for need in needs:
        if need.path not in left and not decide_location(learned, need.path, ACCESSES[need.access]).allowed:
            rule = generalizer.spelled(escape(need.path))
            lists = (proposal.read, proposal.modify) if need.access == MODIFY else (proposal.read,)
            for rules in (*lists, proposal.exec) if need.access == EXEC and base.exec is not None else lists:
                if rule not in rules:
                    rules.append(rule)
    return proposal


def with_rules(policy: Policy, name: str, proposal: Proposal) -> EffectiveProfile:
    """The profile as the proposal would make it, to ask it whether anything is missing."""
    if name not in policy.profiles:
        policy = with_profile(policy, name, ())
    known, source = policy.profiles[name], Source("sbx learn", layer="sbx")

    def added(rules: list[str]) -> tuple[Written, ...]:
        return tuple(Written(rule, source) for rule in rules)

    longer = replace(
        known,
        read=(*known.read, *added(proposal.read)),
        modify=(*known.modify, *added(proposal.modify)),
        exec=None if known.exec is None else (*known.exec, *added(proposal.exec)),
    )
    return effective_profile(replace(policy, profiles={**policy.profiles, name: longer}), name)


def tell_left_out(proposal: Proposal) -> None:
    for path in proposal.secrets:
        print(f"sbx: looks secret, left to you: {visible(path)}", file=sys.stderr)
    for path in proposal.denied:
        print(f"sbx: denied in every profile, and stays so: {visible(path)}", file=sys.stderr)


def hand_over(
    proposal: Proposal, policy: Policy, name: str, options: dict[str, Any], words: list[str], success: bool
) -> int:
    path = options.get("policy") or policy.workspace_file or os.path.join(policy.workspace, WORKSPACE_FILE)
    old = ""
    if os.path.lexists(path):
        with open(path, encoding="utf-8", newline="") as file:
            old = file.read()
    if not success:
        print("sbx: the command failed, so it may need more than was seen", file=sys.stderr)
    known = policy.profiles.get(name)
    in_file = known is not None and os.path.realpath(known.source.file) == os.path.realpath(path)
    if not proposal and (known is not None or not success):
        print(f"sbx: profile {name} allows all that was needed", file=sys.stderr)
        return 0 if success else 1
    extends = name if known is not None and not in_file else ""
    new = patched(old, name, proposal, extends=extends, description=f"Learned from {visible(words[0])}")
    print(difference(os.path.basename(path), old, new), end="")
    for note in proposal.notes:
        print(f"sbx: note: {visible(note)}", file=sys.stderr)
    for made in proposal.made:
        folder = visible(made.removesuffix("/**"))
        print(f"sbx: note: {folder} is made before the command starts, since a rule names it", file=sys.stderr)
    if options.get("write"):
        if not success:
            raise SbxError("nothing was written: the command failed", remedy="make it succeed, then learn again")
        write(path, new, policy)
    else:
        print("sbx: nothing was written; --write does it, or pipe this to 'patch -p1'", file=sys.stderr)
    return 0 if success else 1


def write(path: str, text: str, policy: Policy) -> None:
    """Replaced whole, and approved: whoever asks for it has seen what is granted."""
    from sbx.policy.trust import approve

    content = text.encode()
    target = os.path.realpath(path)
    draft = f"{target}.{os.getpid()}.new"
    try:
        with open(draft, "xb") as file:
            file.write(content)
        if os.path.exists(target):
            os.chmod(draft, os.stat(target).st_mode & 0o777)
        os.replace(draft, target)
    except OSError as error:
        raise SbxError(
            f"could not write {visible(path)}: {error.strerror}", remedy="make room or grant access, then learn again"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(draft)  # of what went wrong nothing is left
    approve(path, sha256_hex(content), policy.environ)
    print(f"sbx: wrote and approved {visible(path)}", file=sys.stderr)
