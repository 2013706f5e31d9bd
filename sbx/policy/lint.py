"""What is valid but probably not meant: findings with a remedy, and the policy's own tests."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from sbx.errors import SbxError
from sbx.model.decide import Decision, decide
from sbx.model.glob import ANY_DEPTH, is_exact, is_subtree, split_path
from sbx.model.profile import EffectiveProfile, NetworkMode
from sbx.model.records import dataclass
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source
from sbx.policy.cover import covers, may_meet
from sbx.policy.document import SHIPPED, Policy, PolicyTest, ProfileSource
from sbx.policy.effective import effective_profile
from sbx.policy.folders import home_folder
from sbx.policy.nodes import shown
from sbx.policy.trust import is_writable_by_others
from sbx.policy.wide import too_wide

if TYPE_CHECKING:
    from sbx.model.glob import Pattern

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "PRIVATE_KEY", "CREDENTIAL")
_CONTROL_SOCKETS = ("docker.sock", "containerd.sock", "podman.sock", "crio.sock", "libvirt-sock")


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    message: str
    remedy: str
    source: Source | None = None

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source is not None else ""
        return f"{where}{self.severity.value}: {self.message}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One expectation of `tests:` and what the policy says to it. `problem` is set when it could not be asked."""

    __test__ = False  # pytest takes the name for a test

    test: PolicyTest
    access: Access
    expected: bool
    decision: Decision | None
    problem: str = ""

    @property
    def passed(self) -> bool:
        return self.decision is not None and self.decision.allowed == self.expected


def lint(policy: Policy) -> list[Finding]:
    """Everything odd about the profiles and denies that people wrote; the shipped ones are taken as given."""
    findings = list(_files(policy))
    effective: list[EffectiveProfile] = []
    for profile in policy.profiles.values():
        try:
            built = effective_profile(policy, profile.name)
        except SbxError as error:
            findings.append(Finding(Severity.ERROR, error.message, error.remedy, error.source or profile.source))
            continue
        effective.append(built)
        if profile.layer != SHIPPED:
            findings.extend(_profile(policy, profile, built))
            if wide := too_wide(built, policy.environ):
                findings.append(Finding(Severity.WARNING, wide, "put sbx.yaml into a project's folder", profile.source))
    findings.extend(_idle_denies(effective))
    order = {Severity.ERROR: 0, Severity.WARNING: 1, Severity.NOTE: 2}
    return sorted(dict.fromkeys(findings), key=lambda finding: order[finding.severity])


def run_tests(policy: Policy) -> list[TestOutcome]:
    """Ask every expectation of every file, in the files' order."""
    outcomes: list[TestOutcome] = []
    home = home_folder(policy.environ)
    for file in policy.files:
        for test in file.tests:
            wanted = ((Access.READ, test.read), (Access.MODIFY, test.modify))
            path = os.path.join(home, test.path[2:]) if test.path.startswith("~/") else test.path
            for access, expected in wanted:
                if expected is not None:
                    outcomes.append(_ask(policy, test, path, access, expected))
    return outcomes


def _ask(policy: Policy, test: PolicyTest, path: str, access: Access, expected: bool) -> TestOutcome:
    try:
        decision = decide(effective_profile(policy, test.profile), path, access)
    except SbxError as error:
        return TestOutcome(test, access, expected, None, str(error))
    return TestOutcome(test, access, expected, decision)


def _files(policy: Policy) -> Iterator[Finding]:
    misnamed = os.path.join(policy.workspace, "sbx.yml")
    if os.path.lexists(misnamed):
        yield Finding(Severity.WARNING, "sbx.yml is not read", "rename it to sbx.yaml", Source(misnamed))
    for path in policy.paths:
        if is_writable_by_others(path):
            message = "others may write to this policy file"
            yield Finding(Severity.WARNING, message, f"chmod go-w {path}", Source(path))


def _profile(policy: Policy, profile: ProfileSource, built: EffectiveProfile) -> Iterator[Finding]:
    own = (Origin.PROFILE,)
    for access in (Access.READ, Access.MODIFY, Access.EXEC):
        rules = built.rules(access)
        for index, rule in enumerate(rules):
            if rule.origin in own:
                yield from _rule(policy, rule)
                yield from _unreachable(rule, rules[index + 1 :])
    yield from _environment(profile)
    if built.exec is not None:
        yield Finding(
            Severity.NOTE,
            f"profile {shown(profile.name)}: Windows cannot enforce an exec list",
            "a run there needs require: partial",
            profile.source,
        )
    if built.network.mode is NetworkMode.ALLOW:
        yield Finding(
            Severity.NOTE,
            f"profile {shown(profile.name)}: Windows cannot enforce a network allow list",
            "a run there needs require: partial",
            built.network.source or profile.source,
        )


def _rule(policy: Policy, rule: Rule) -> Iterator[Finding]:
    yield from _directory_alone(rule)
    if rule.negated:
        return
    yield from _too_wide(policy, rule)
    yield from _socket(rule)
    pattern = rule.patterns[0]
    if rule.access is Access.MODIFY and not is_exact(pattern) and not is_subtree(pattern):
        yield Finding(
            Severity.NOTE,
            f"modify rule {shown(rule.text)} has wildcards: where single names cannot be made by hand (exec rules, an "
            "older kernel), it holds for what exists when a run starts",
            "grant a folder with 'X/**' if new names must be covered there too",
            rule.source,
        )


def _directory_alone(rule: Rule) -> Iterator[Finding]:
    for pattern in rule.patterns:
        path = "/" + "/".join(str(name) for name in pattern)
        if is_exact(pattern) and os.path.isdir(path) and not os.path.islink(path):
            message = f"{rule.access.value} rule {shown(rule.text)} names a directory and nothing in it"
            yield Finding(Severity.WARNING, message, f"write {shown(rule.text + '/**')} for all below it", rule.source)
            return


def _too_wide(policy: Policy, rule: Rule) -> Iterator[Finding]:
    home: Pattern = (*split_path(home_folder(policy.environ)), ANY_DEPTH)
    for pattern in rule.patterns:
        if covers(pattern, (ANY_DEPTH,)):
            message = f"{rule.access.value} rule {shown(rule.text)} grants the whole file system"
            yield Finding(Severity.WARNING, message, "name the folders that are needed", rule.source)
            return
        if covers(pattern, home):
            message = f"{rule.access.value} rule {shown(rule.text)} grants the whole home"
            yield Finding(Severity.WARNING, message, "name the folders that are needed", rule.source)
            return


def _socket(rule: Rule) -> Iterator[Finding]:
    for pattern in rule.patterns:
        if not is_exact(pattern) or not pattern:
            continue
        path = "/" + "/".join(str(name) for name in pattern)
        if pattern[-1] in _CONTROL_SOCKETS or _is_socket(path):
            message = f"{rule.access.value} rule {shown(rule.text)} grants a socket: what listens there acts outside"
            remedy = "remove it, unless the command may do all that the listener can"
            yield Finding(Severity.WARNING, message, remedy, rule.source)
            return


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _unreachable(rule: Rule, later: tuple[Rule, ...]) -> Iterator[Finding]:
    for other in later:
        if other.access is rule.access and _covers_all(other, rule):
            if other.negated and rule.negated and other.origin is not Origin.PROFILE:
                continue  # says again what is denied anyway: harmless
            message = (
                f"{rule.access.value} rule {shown(str(rule))} never decides: {shown(str(other))} "
                f"({other.source.place}) comes later and matches all it matches"
            )
            remedy = "remove it" if other.origin is not Origin.PROFILE else "remove it, or put it after that rule"
            yield Finding(Severity.WARNING, message, remedy, rule.source)
            return


def _covers_all(wide: Rule, narrow: Rule) -> bool:
    return all(any(covers(each, pattern) for each in wide.patterns) for pattern in narrow.patterns)


def _environment(profile: ProfileSource) -> Iterator[Finding]:
    for name in profile.env.pass_names:
        if name.strip("*?") == "":
            message = f"profile {shown(profile.name)} passes the whole environment, secrets included"
            yield Finding(Severity.WARNING, message, "name the variables that are needed", profile.source)
        elif any(word in name.upper() for word in _SECRET_WORDS):
            message = f"profile {shown(profile.name)} passes {name}, which looks like a secret"
            remedy = f"move it to secret: [{name}], so that its value is masked"
            yield Finding(Severity.WARNING, message, remedy, profile.source)


def _idle_denies(profiles: list[EffectiveProfile]) -> Iterator[Finding]:
    """A deny that meets no grant of any profile does nothing yet: perhaps it is misspelt."""
    met: dict[tuple[Source, str], bool] = {}
    for profile in profiles:
        for access in (Access.READ, Access.MODIFY):
            rules = profile.rules(access)
            grants = [pattern for rule in rules if not rule.negated for pattern in rule.patterns]
            for rule in rules:
                if rule.origin is Origin.DENY:
                    found = any(may_meet(pattern, grant) for pattern in rule.patterns for grant in grants)
                    key = (rule.source, rule.text)
                    met[key] = met.get(key, False) or found
    for (source, text), found in met.items():
        if not found:
            message = f"deny {shown(text)} has no effect: no profile grants anything it matches"
            yield Finding(Severity.NOTE, message, "check its spelling, or keep it as a precaution", source)
