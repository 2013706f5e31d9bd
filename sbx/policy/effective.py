"""Policy -> EffectiveProfile: one ordered list each for read and modify, with nothing left to look up.

The order is the evaluation's: baseline, extends (base first), profile, options, shipped denies, allowances of the
shipped layer, denies of all layers and options, and what is always denied. Last match wins.
"""

from __future__ import annotations

import os

from sbx.errors import PolicyError, UnknownProfile
from sbx.model.glob import ANY_DEPTH, escape, fixed_prefix, split_path
from sbx.model.profile import EffectiveProfile, Environment, FutureDenies, Limits, Network, Require
from sbx.model.records import replace
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source
from sbx.model.verdict import allows, last_match
from sbx.policy.build import DEFAULT_PROFILE
from sbx.policy.cover import covered_by_any
from sbx.policy.document import NO_OPTIONS, OPTION, SBX, SHIPPED, Policy, ProfileSource, RunRules, Written
from sbx.policy.expand import Expander
from sbx.policy.folders import WORKSPACE_FILE, turns_lock
from sbx.policy.git import GitFolders, git_folders, is_folder
from sbx.policy.git_identity import shareable
from sbx.policy.nearest import did_you_mean
from sbx.policy.nodes import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    from sbx.model.glob import Pattern

    _Value = TypeVar("_Value")


def effective_profile(policy: Policy, name: str | None = None, options: RunRules = NO_OPTIONS) -> EffectiveProfile:
    """Everything one run is held to. Raises UnknownProfile, PolicyError."""
    chain = extends_chain(policy.profiles, find_profile(policy, name))
    profile = chain[-1]
    git = git_folders(policy.workspace)
    rules = _RuleLists(Expander(policy.workspace, policy.environ, git.folders if git else ()))
    rules.add_baseline(policy)
    rules.add_git_identity(policy)
    for each in chain:
        rules.add_profile(each, Origin.PROFILE if each is profile else Origin.EXTENDS)
    rules.add_options(options)
    if git is not None and git.verified:
        rules.add_git(policy.workspace, git)
    rules.keep_private_folders_apart()
    rules.check_modify_needs_read()
    rules.check_escapes()
    rules.add_denies(policy, chain, options)
    rules.add_always(policy)
    expander = rules.expander
    return EffectiveProfile(
        name=profile.name,
        workspace=policy.workspace,
        read=tuple(rules.read),
        modify=tuple(rules.modify),
        exec=None if rules.exec is None else tuple(rules.exec),
        description=next((each.description for each in reversed(chain) if each.description), ""),
        source=profile.source,
        network=_last([each.network for each in chain], options.network) or Network(),
        env=merge_environments(policy.baseline.env, *(each.env for each in chain), options.env),
        limits=_limits(chain, options.limits),
        require=_last([each.require for each in chain], options.require) or Require.FULL,
        future_denies=_last([each.future_denies for each in chain], options.future_denies) or FutureDenies.BEST,
        policy_files=policy.paths,
        variables=tuple(sorted(expander.variables.items())),
        resolved=tuple(sorted(expander.resolved.items())),
    )


def find_profile(policy: Policy, name: str | None) -> ProfileSource:
    wanted = DEFAULT_PROFILE if name is None else name
    profile = policy.profiles.get(wanted)
    if profile is None:
        remedy = did_you_mean(wanted, policy.profiles) + " ('sbx profiles' lists them)"
        raise UnknownProfile(f"there is no profile {shown(wanted)}", remedy=remedy)
    return profile


def extends_chain(profiles: dict[str, ProfileSource], profile: ProfileSource) -> list[ProfileSource]:
    """The profile and all it extends, base first. Its own name means the profile it replaces."""
    chain = [profile]
    while (extends := chain[-1].extends) is not None:
        current = chain[-1]
        base = current.replaces if extends.text == current.name else profiles.get(extends.text)
        if base is None and extends.text == current.name:
            remedy = "remove the extends, or name another profile"
            message = f"profile {shown(current.name)} extends itself"
            raise PolicyError(message, remedy=remedy, source=extends.source)
        if base is None:
            message = f"profile {shown(current.name)} extends {shown(extends.text)}, which does not exist"
            raise PolicyError(message, remedy=did_you_mean(extends.text, profiles), source=extends.source)
        if base in chain:
            circle = " -> ".join(each.name for each in [*chain[chain.index(base) :], base])
            message = f"profiles extend each other in a circle: {circle}"
            raise PolicyError(message, remedy="remove one of these extends", source=extends.source)
        chain.append(base)
    return chain[::-1]


class _RuleLists:
    """The rule lists while they grow."""

    def __init__(self, expander: Expander) -> None:
        self.expander = expander
        self.read: list[Rule] = []
        self.modify: list[Rule] = []
        self.exec: list[Rule] | None = None
        self.private: tuple[tuple[str, ...], ...] = ()  # the baseline's private folders, such as /tmp
        self.baseline_modify = 0  # how many modify rules are the baseline's

    def _add(self, written: Written, access: Access, origin: Origin, *, deny: bool = False) -> Rule:
        rule = self.expander.expand(written, access, origin, deny=deny)
        if access is Access.EXEC:
            self.exec = [*(self.exec or ()), rule]
        else:
            (self.read if access is Access.READ else self.modify).append(rule)
        return rule

    def add_baseline(self, policy: Policy) -> None:
        private = [self.expander.resolve(split_path(folder)).names for folder in policy.baseline_specials.tmpfs]
        self.private = tuple(names for names in private if names is not None)
        for access, texts in ((Access.READ, policy.baseline.read), (Access.MODIFY, policy.baseline.modify)):
            rules = self.read if access is Access.READ else self.modify
            for written in texts:
                if "${" not in written.text:
                    self._carve_out(self._add(written, access, Origin.BASELINE), rules)
                elif not self.expander.lacks_variable(written):
                    self._add_place(written, access, rules)
        self.baseline_modify = len(self.modify)

    def _carve_out(self, rule: Rule, rules: list[Rule]) -> None:
        """A private /tmp says nothing about a workspace or a home that lies in the real one."""
        for folder in dict.fromkeys((self.expander.workspace, self.expander.home)):
            for private in self.private:
                if (*private, ANY_DEPTH) in rule.patterns and folder[: len(private)] == private:
                    text = "/".join(("", *(escape(name) for name in folder), "**"))
                    pattern: Pattern = (*folder, ANY_DEPTH)
                    rules.append(replace(rule, text=text, negated=True, patterns=(pattern,)))

    def keep_private_folders_apart(self) -> None:
        """What a rule shows of the real /tmp is not private: that the private one is writable does not make it so."""
        added: list[Rule] = []
        taken = [pattern for rule in self.modify[: self.baseline_modify] if rule.negated for pattern in rule.patterns]
        for rule in self.read:
            for pattern in rule.patterns:
                prefix = fixed_prefix(pattern)
                # The baseline's own /tmp/** is the private one; anybody else's is the real one.
                own = rule.origin is Origin.BASELINE
                inside = any(prefix[: len(each)] == each and not (own and prefix == each) for each in self.private)
                if inside and not rule.negated and not covered_by_any(pattern, taken):
                    added.append(replace(rule, negated=True, access=Access.MODIFY, origin=Origin.BASELINE,
                                         patterns=(pattern,)))  # fmt: skip
        self.modify[self.baseline_modify : self.baseline_modify] = added

    def _add_place(self, written: Written, access: Access, rules: list[Rule]) -> None:
        """A rule such as ${VIRTUAL_ENV}/**: it adds a place for programs, never the home as a whole, and never what
        a symlink in the workspace leads to; and it stays out of the list where an earlier rule says the same."""
        known = len(self.expander.escapes)
        rule = self.expander.expand(written, access, Origin.BASELINE)
        escapes = len(self.expander.escapes) > known
        del self.expander.escapes[known:]
        if not rule.negated:
            said = self._granted(rules)
            if escapes or rule.matches(self.expander.home) or all(covered_by_any(each, said) for each in rule.patterns):
                return
        rules.append(rule)

    def add_profile(self, profile: ProfileSource, origin: Origin) -> None:
        for written in profile.read:
            self._add(written, Access.READ, origin)
        for written in profile.modify:
            self._add(written, Access.MODIFY, origin)
        if profile.exec is not None:
            self.exec = self.exec or []
            for written in profile.exec:
                self._add(written, Access.EXEC, origin)

    def add_options(self, options: RunRules) -> None:
        for text in options.read:
            self._add(_option("--read", text), Access.READ, Origin.OPTION)
        for text in options.modify:
            written = _option("--modify", text)
            rule = self._add(written, Access.MODIFY, Origin.OPTION)
            if not rule.negated:
                self._add(written, Access.READ, Origin.OPTION)

    def add_git_identity(self, policy: Policy) -> None:
        for path in shareable(policy.environ):
            self._add(Written(escape(path), _of_sbx("git configuration")), Access.READ, Origin.BASELINE)

    def add_git(self, workspace: str, git: GitFolders) -> None:
        """Where `.git` is granted, so is the repository it names: else a worktree could not commit."""
        names = split_path(os.path.join(workspace, ".git"))
        for access, rules in ((Access.READ, self.read), (Access.MODIFY, self.modify)):
            index = last_match(tuple(rule.compiled for rule in rules), names)
            if index < 0 or rules[index].negated:
                continue
            winner = rules[index]
            for folder in git.folders:
                self._add(Written(f"{escape(folder)}/**", winner.source), access, winner.origin)

    def check_modify_needs_read(self) -> None:
        shown_places = self._granted(self.read)
        readable = shown_places + [(*folder, ANY_DEPTH) for folder in self.private]
        carved = [pattern for rule in self.read if self._is_carving(rule) for pattern in rule.patterns]
        for rule in self.modify:
            if (
                rule.negated
                or rule.origin is Origin.BASELINE
                or all(
                    covered_by_any(pattern, shown_places if covered_by_any(pattern, carved) else readable)
                    for pattern in rule.patterns
                )
            ):
                continue
            raise PolicyError(
                f"modify rule {shown(rule.text)} is not covered by a read rule",
                remedy=f"add {shown(rule.text)} to read as well",
                source=rule.source,
            )

    def _granted(self, rules: list[Rule]) -> list[Pattern]:
        """What the rules show of the real file system: the private folders show nothing of it."""
        private = [(*folder, ANY_DEPTH) for folder in self.private]
        positive = [rule for rule in rules if not rule.negated]
        return [
            pattern
            for rule in positive
            for pattern in rule.patterns
            # A workspace may be /tmp itself: then the profile's rule shows the real one.
            if rule.origin is not Origin.BASELINE or pattern not in private
        ]

    def _is_carving(self, rule: Rule) -> bool:
        own = [(*folder, ANY_DEPTH) for folder in (self.expander.workspace, self.expander.home)]
        return rule.negated and rule.origin is Origin.BASELINE and rule.patterns[0] in own

    def check_escapes(self) -> None:
        """A command of an earlier run may have planted a symlink in the workspace: it must not widen the next one."""
        for escape_ in self.expander.escapes:
            rules = self.read if escape_.rule.access is Access.READ else self.modify
            if escape_.rule.access is Access.EXEC:
                continue  # executing needs reading, which is checked
            suspects = [each.rule for each in self.expander.escapes]
            granted = self._granted([rule for rule in rules if rule not in suspects])
            if all(covered_by_any(pattern, granted) for pattern in escape_.rule.patterns[:1]):
                continue
            raise PolicyError(
                f"rule {shown(escape_.rule.text)} leaves the workspace: {shown(escape_.link)} is a symlink "
                f"to {shown(escape_.target)}",
                remedy=f"if that is meant, add a rule with the real path, as in '{escape_.target}/**'",
                source=escape_.rule.source,
            )

    def add_denies(self, policy: Policy, chain: list[ProfileSource], options: RunRules) -> None:
        shipped = [file for file in policy.files if file.layer == SHIPPED] if policy.shipped_denies else []
        for file in shipped:
            self._deny(file.deny_read, file.deny_modify, Origin.SHIPPED_DENY)
        if shipped and not is_folder(policy.workspace):
            # A file of this name, written by a sandboxed command, would lead git outside to hooks of its own.
            self._add(Written(".git", _of_sbx("git file")), Access.MODIFY, Origin.SHIPPED_DENY, deny=True)
        for written in (*(each for profile in chain for each in profile.state_folders), *options.allow):
            rule = self._add(written, Access.MODIFY, Origin.ALLOWANCE)
            if not rule.negated:
                self._add(written, Access.READ, Origin.ALLOWANCE)
        for file in policy.files:
            if file.layer != SHIPPED:
                self._deny(file.deny_read, file.deny_modify, Origin.DENY)
        denied = tuple(_option("--deny", text) for text in options.deny)
        self._deny(denied, denied, Origin.DENY)

    def _deny(self, read: tuple[Written, ...], modify: tuple[Written, ...], origin: Origin) -> None:
        for written in read:
            self._add(written, Access.READ, origin, deny=True)
        for written in modify:
            self._add(written, Access.MODIFY, origin, deny=True)

    def add_always(self, policy: Policy) -> None:
        compiled = tuple(rule.compiled for rule in self.modify)
        # Where a file would be in force once it is there: a command that writes one would govern the next run.
        planted = [path for path in policy.missing_files if allows(compiled, split_path(path))]
        for path in dict.fromkeys((*policy.paths, os.path.join(policy.workspace, WORKSPACE_FILE), *planted)):
            self._add(Written(escape(path), _of_sbx("policy file")), Access.MODIFY, Origin.ALWAYS, deny=True)
        for what, folder in policy.own_folders:
            self._add(Written(f"{escape(folder)}/**", _of_sbx(what)), Access.MODIFY, Origin.ALWAYS, deny=True)
        # Who can open it can lock it, and so stop all other sandboxes.
        lock = Written(escape(turns_lock(policy.environ)), _of_sbx("lock"))
        self._add(lock, Access.READ, Origin.ALWAYS, deny=True)


def _option(name: str, text: str) -> Written:
    return Written(text, Source(name, 0, 0, OPTION))


def _of_sbx(what: str) -> Source:
    return Source(f"sbx ({what})", 0, 0, SBX)


def merge_environments(*environments: Environment) -> Environment:
    """Lists accumulate, a later value of `set` beats an earlier one."""
    names: dict[str, None] = {}
    secret: dict[str, None] = {}
    values: dict[str, str] = {}
    for each in environments:
        names.update(dict.fromkeys(each.pass_names))
        secret.update(dict.fromkeys(each.secret))
        values.update(each.set_values)
    pass_all = any(each.pass_all for each in environments)
    return Environment(tuple(names), tuple(values.items()), tuple(secret), pass_all)


def _limits(chain: list[ProfileSource], options: Limits) -> Limits:
    merged = Limits()
    for each in chain:
        merged = each.limits.over(merged)
    return options.over(merged)


def _last(values: list[_Value | None], option: _Value | None) -> _Value | None:
    return option if option is not None else next((value for value in reversed(values) if value is not None), None)
