"""The compiled macOS profile against decide(), by way of an evaluator that shares no code with either."""

from __future__ import annotations

import itertools

import pytest
from capabilities import requires
from contract.sbpl_evaluator import Refused, SandboxProfile, read_profile
from contract.sbpl_policies import NAMES, ROOTS, SOURCE, paths, profiles
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sbx.model.decide import decide_location
from sbx.model.glob import parse
from sbx.model.guarantee import Exactness
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access, Origin, Rule
from sbx.planner.macos import compile_sbpl, plan

pytestmark = requires(tools=["tinyscheme"])

TMP = "/private/tmp/sbx-test"
FOLDERS = tuple(
    "/" + "/".join((root, *names))
    for root in ROOTS
    for depth in (0, 1, 2)
    for names in itertools.product(NAMES[:4], repeat=depth)
)


def allowed(profile: EffectiveProfile, path: str, access: Access) -> bool:
    return decide_location(profile, path, access).allowed


def compiled(profile: EffectiveProfile, *, case_insensitive: bool = False) -> SandboxProfile:
    return read_profile(compile_sbpl(profile, proxy_port=None, tmp=TMP, case_insensitive=case_insensitive))


def both(sandbox: SandboxProfile, operation: str, path: str, *, folder: bool = False) -> bool:
    """The verdict, which must not depend on how specific operations are weighed."""
    verdict = sandbox.allows(operation, path, folder=folder)
    assert sandbox.allows_by_order_alone(operation, path, folder=folder) is verdict
    return verdict


def rule(text: str, access: Access, *, origin: Origin = Origin.PROFILE) -> Rule:
    negated = text.startswith("!")
    return Rule(text.lstrip("!"), negated, access, origin, SOURCE, (parse(text.lstrip("!")),))


def profile_of(read: list[str], modify: list[str]) -> EffectiveProfile:
    return EffectiveProfile(
        "p", "/w", tuple(rule(text, Access.READ) for text in read), tuple(rule(text, Access.MODIFY) for text in modify)
    )


@pytest.mark.timeout(1800)
@settings(max_examples=max(1000, settings.default.max_examples))
@given(profiles(), st.lists(paths, min_size=5, max_size=8))
def test_verdicts_are_those_of_decide(profile: EffectiveProfile, asked: list[str]) -> None:
    """At least 5,000 pairs of a policy and a path; --deep asks for a hundred thousand."""
    sandbox = compiled(profile)
    for path in asked:
        read, modify = allowed(profile, path, Access.READ), allowed(profile, path, Access.MODIFY)
        assert both(sandbox, "file-read-data", path) is read, path
        assert both(sandbox, "file-map-executable", path) is read, path
        assert both(sandbox, "process-exec*", path) is allowed(profile, path, Access.EXEC), path
        for operation in ("file-write-data", "file-write-create", "file-write-mode", "file-link"):
            assert both(sandbox, operation, path) is modify, (operation, path)
        assert not both(sandbox, "file-write-setugid", path)
        if not modify:  # a denied path can be neither removed nor renamed
            assert not both(sandbox, "file-write-unlink", path), path
            assert not both(sandbox, "file-write-unlink", path, folder=True), path


@settings(max_examples=max(200, settings.default.max_examples))
@given(profiles())
@example(profile_of(["/w/**", "!/w/a/.env"], ["/w/**"]))
@example(profile_of(["/w/**", "/v/**", "!/w/**/.env"], ["/w/**", "/v/**"]))
@example(profile_of(["/w/**", "!**/a/.env"], ["/w/**"]))
@example(profile_of(["/w/a", "/w/a/a", "/w/b/**"], ["/w/**"]))
def test_no_rename_of_a_folder_frees_a_denied_path(profile: EffectiveProfile) -> None:
    """Whatever folder may be renamed: nothing below it may be read or modified afterwards that could not before."""
    sandbox = compiled(profile)
    unsure = {
        (each.rule, each.access)
        for each in plan(profile, "/w", case_insensitive=False).guarantees
        if each.exactness is Exactness.SNAPSHOT and each.note.startswith("a folder moved to")
    }
    movable = [path for path in FOLDERS if both(sandbox, "file-write-unlink", path, folder=True)]
    targets = [path for path in FOLDERS if both(sandbox, "file-write-create", path, folder=True)]
    for source, target in itertools.product(movable, targets):
        if target == source or target.startswith(source + "/"):
            continue
        for name in NAMES[:5]:
            for access in (Access.READ, Access.MODIFY):
                before = decide_location(profile, f"{source}/{name}", access)
                if not before.allowed and allowed(profile, f"{target}/{name}", access):
                    failed = before.failed
                    assert failed is not None
                    assert failed.winner is not None, (source, target, name)
                    assert (str(failed.winner), failed.access.value) in unsure, (source, target, name, failed)


@settings(max_examples=300)
@given(profiles(), paths, st.data())
def test_case_insensitive_volumes_only_deny_more(profile: EffectiveProfile, path: str, data: st.DataObject) -> None:
    sandbox = compiled(profile, case_insensitive=True)
    # The workspace's own path is spelled as on disk: the backend refuses to start otherwise.
    swapped = path[:2] + "".join(char.swapcase() if data.draw(st.booleans()) else char for char in path[2:])
    for access, operation in ((Access.READ, "file-read-data"), (Access.MODIFY, "file-write-data")):
        for spelled in (path, swapped):
            if sandbox.allows(operation, spelled):
                assert allowed(profile, spelled, access)
        winner = decide_location(profile, path, access).winner
        if winner is not None and winner.negated and all(isinstance(each, str) for each in winner.patterns[0]):
            assert not sandbox.allows(operation, swapped), "another spelling of a denied name"


@pytest.mark.parametrize(
    ("denied", "spelling"),
    [
        ("!/w/.git/config", "/w/.git/CONFIG"),
        ("!/w/.git/config", "/w/.Git/config"),
        ("!**/*.env", "/w/x.ENV"),
        ("!/w/[a-c].key", "/w/B.KEY"),
        ("!/w/Straße", "/w/straße"),
        ("!/w/é", "/w/É"),
        ("!/w/é", "/w/e\u0301"),
    ],
)
def test_denies_hold_for_every_spelling(denied: str, spelling: str) -> None:
    profile = profile_of(["/w/**"], ["/w/**", denied])
    assert not compiled(profile, case_insensitive=True).allows("file-write-create", spelling)
    assert compiled(profile, case_insensitive=False).allows("file-write-create", spelling)


@pytest.mark.parametrize("name", ["é", "日本", "😀", "ä.env"])
def test_wildcards_in_denies_reach_names_outside_ascii(name: str) -> None:
    """The evaluator counts bytes, the reading that is harder for us."""
    path = f"/w/{name}"
    for denied in ("!/w/?", "!/w/??", "!/w/?.env", "!/w/[!x]", "!/w/[!x]*", "!/w/[é-ü]*", "!/w/*"):
        profile = profile_of(["/w/**", denied], [])
        if not allowed(profile, path, Access.READ):
            assert not compiled(profile).allows("file-read-data", path), denied


def test_private_twins_follow_the_links_of_the_root_folder() -> None:
    profile = profile_of(["/tmp/x/**", "/var/y", "/{etc,usr}/z/**", "!/tmp/x/secret", "!/*/x/hidden"], ["/tmp/x/**"])
    sandbox = compiled(profile)
    for path in ("/tmp/x/f", "/private/tmp/x/f", "/private/var/y", "/private/etc/z/f"):
        assert both(sandbox, "file-read-data", path), path
    for path in ("/private/usr/z/f", "/private/tmp/x/secret", "/private/tmp/x/hidden", "/private/tmp/other"):
        assert not both(sandbox, "file-read-data", path), path
    assert both(sandbox, "file-write-data", "/private/tmp/x/f")
    assert not both(sandbox, "file-write-data", "/private/tmp/x/secret")


def test_allowances_stand_after_the_denies_they_reopen() -> None:
    home = profile_of(["/w/**", "!/h/.*/**"], ["/w/**", "!/h/.*/**"])
    reopened = EffectiveProfile(
        "agent",
        "/w",
        (*home.read, rule("/h/.codex/**", Access.READ, origin=Origin.ALLOWANCE)),
        (*home.modify, rule("/h/.codex/**", Access.MODIFY, origin=Origin.ALLOWANCE)),
    )
    sandbox = compiled(reopened)
    assert both(sandbox, "file-write-data", "/h/.codex/sessions/1")
    assert not both(sandbox, "file-write-data", "/h/.claude/x")
    assert not both(compiled(home), "file-write-data", "/h/.codex/sessions/1")


def test_ancestors_of_a_denied_path_stay_where_they_are() -> None:
    sandbox = compiled(profile_of(["/w/**", "!/w/a/b/secret"], ["/w/**", "!/w/.git/hooks/**"]))
    for path in ("/w", "/w/a", "/w/a/b", "/w/a/b/secret", "/w/.git", "/w/.git/hooks"):
        assert not both(sandbox, "file-write-unlink", path, folder=True), path
        if path != "/w/a/b/secret" and path != "/w/.git/hooks":
            assert both(sandbox, "file-write-data", path, folder=True), path
    for path in ("/w/b", "/w/a/c", "/w/.git/refs", "/w/.git/index.lock"):
        assert both(sandbox, "file-write-unlink", path, folder=True), path
    assert not both(sandbox, "file-write-create", "/w/.git", folder=True), "or a folder with hooks is moved in"
    assert both(sandbox, "file-write-create", "/w/.git"), "a worktree's .git is a file"


def test_folders_on_the_way_can_be_looked_at_and_not_listed() -> None:
    sandbox = compiled(profile_of(["/home/u/w/**", "/v/*/x/**"], []))
    for path in ("/", "/home", "/home/u", "/v", "/v/any", "/tmp"):
        assert sandbox.allows("file-read-metadata", path, folder=True), path
    for path in ("/home", "/home/u", "/v", "/v/any"):
        assert not both(sandbox, "file-read-data", path, folder=True), path
    assert both(sandbox, "file-read-data", "/", folder=True)
    assert not sandbox.allows("file-read-metadata", "/home/other", folder=True)


def test_folders_cannot_be_cloned_around_a_deny() -> None:
    sandbox = compiled(profile_of(["/w/**", "!/w/a/secret"], ["/w/**"]))
    assert both(sandbox, "file-clone", "/w/a/plain")
    assert not both(sandbox, "file-clone", "/w/a/secret")
    assert not both(sandbox, "file-clone", "/w/a", folder=True)


@pytest.mark.parametrize(
    "text",
    [
        '(version 1)(deny default)(allow file-reed* (subpath "/x"))',
        '(version 1)(deny default)(allow file-read* (subpat "/x"))',
        '(version 1)(deny default)(allow file-read* (subpath "/x")',
        '(version 1)(deny default)(allow file-read* (subpath "x"))',
        "(version 1)(deny default)(allow file-read* (subpath /x))",
        '(version 1)(deny default)(allow file-read* (regex "^/[x"))',
        '(version 1)(deny default)(allow file-read* (regex "^/(?:x)"))',
        '(version 1)(deny default)(allow mach-lookup (subpath "/x"))',
        '(version 1)(deny default)(allow (subpath "/x") file-read*)',
        "(version 1)(deny default)(allow)",
        "(version 1)(allow default)",
        "(version 2)(deny default)",
        "(deny default)",
        "",
    ],
)
def test_the_evaluator_refuses_what_is_not_a_profile(text: str) -> None:
    with pytest.raises(Refused):
        read_profile(text)
