"""The order of the effective lists, and what merging does and never does."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbx.errors import PolicyError, UnknownProfile
from sbx.model.decide import decide
from sbx.model.profile import Environment, FutureDenies, Limits, Network, NetworkMode, Require
from sbx.model.rules import Access, Origin
from sbx.model.source import Source
from sbx.policy.document import FileStamp, Policy, PolicyFile, ProfileSource, RunRules, Written
from sbx.policy.effective import effective_profile, extends_chain
from sbx.policy.layers import load_policy, merge_profiles

ORDER = list(Origin)


def test_the_lists_keep_the_order_of_evaluation(workspace, load) -> None:
    policy = load(
        """
denyRead: ["./no/**"]
denyModify: ["./no/**"]
fsProfiles:
  base: {extends: agent, read: ["./b/**"], modify: ["./b/**"]}
  p: {extends: base, read: ["./p/**"], modify: ["./p/**"]}
"""
    )
    options = RunRules(read=("./o/**",), modify=("./o/**",), deny=("./d/**",))
    profile = effective_profile(policy, "p", options)
    for access in (Access.READ, Access.MODIFY):
        origins = [ORDER.index(rule.origin) for rule in profile.rules(access)]
        assert origins == sorted(origins)
        assert {Origin.BASELINE, Origin.EXTENDS, Origin.PROFILE, Origin.OPTION, Origin.SHIPPED_DENY,
                Origin.ALLOWANCE, Origin.DENY} <= {rule.origin for rule in profile.rules(access)}  # fmt: skip
    assert profile.modify[-1].origin is Origin.ALWAYS


def test_every_rule_knows_where_it_was_written(workspace, asking) -> None:
    profile = asking('read:\n  - "./a/**"\n  - "./b/**"', 'denyRead: ["./c"]').profile
    written = {rule.text: rule.source for rule in profile.read if rule.source.layer == "workspace"}
    path = str(workspace.root / "sbx.yaml")
    assert written["./a/**"] == Source(path, 6, 9, "workspace")
    assert written["./b/**"] == Source(path, 7, 9, "workspace")
    assert written["./c"] == Source(path, 2, 12, "workspace")
    assert {rule.source.layer for rule in profile.read} == {"shipped", "workspace", "sbx"}
    assert {rule.source.layer for rule in profile.modify} == {"shipped", "workspace", "sbx"} - {"workspace"}


def test_shipped_denies_allowances_and_the_users_last_word(workspace, load) -> None:
    policy = load('denyRead: ["~/.codex/private/**"]\nfsProfiles: {mine: {extends: agent}, plain: {read: ["~/**"]}}')
    mine, plain = effective_profile(policy, "mine"), effective_profile(policy, "plain")
    key = str(workspace.home / ".codex/auth.json")
    assert decide(mine, key, Access.MODIFY).allowed
    assert not decide(plain, key, Access.READ).allowed
    assert not decide(mine, str(workspace.home / ".codex/private/x"), Access.READ).allowed
    assert not decide(mine, str(workspace.home / ".codex/config.toml"), Access.MODIFY).allowed
    assert decide(mine, str(workspace.home / ".codex/config.toml"), Access.READ).allowed


def test_always_denied_cannot_be_granted(workspace, asking) -> None:
    asked = asking('read: ["/**"]\nmodify: ["/**"]', options=RunRules(modify=("./sbx.yaml",)))
    for path in (
        "sbx.yaml",
        workspace.home / ".config/sbx/policy.yaml",
        workspace.home / ".local/state/sbx/trust/x",
        workspace.home / ".local/state/sbx/audit.jsonl",
        workspace.home / ".cache/sbx/policy/x",
    ):
        assert not asked.modifies(path)
        assert asked.reads(path)


def test_no_nearer_policy_can_be_planted(workspace) -> None:
    """With consent for all (CI), a file that a command writes beside it would govern the next run."""
    workspace.policy("schemaVersion: 2\n")
    (workspace.root / "a/b").mkdir(parents=True)
    policy = load_policy(str(workspace.root / "a/b"), environ={**os.environ, "SBX_TRUST_WORKSPACE": "1"})
    profile = effective_profile(policy)
    for path in ("sbx.yaml", "a/sbx.yaml", "a/b/sbx.yaml"):
        assert not decide(profile, path, Access.MODIFY).allowed
    assert decide(profile, "a/b/other.yaml", Access.MODIFY).allowed


def test_the_network_knows_its_own_place(workspace, asking) -> None:
    source = asking("read: []\nnetwork: host").profile.network.source
    assert source is not None
    assert (source.line, source.column) == (6, 14)


def test_a_policy_that_is_a_symlink_is_protected_at_both_ends(workspace, tmp_path: Path) -> None:
    real = workspace.write("conf/real.yaml", "schemaVersion: 2\n")
    (workspace.root / "sbx.yaml").symlink_to("conf/real.yaml")
    policy = load_policy(str(workspace.root), environ={**os.environ, "SBX_TRUST_WORKSPACE": "1"})
    profile = effective_profile(policy)
    assert not decide(profile, str(real), Access.MODIFY).allowed
    assert not decide(profile, "sbx.yaml", Access.MODIFY, follow=False).allowed
    assert decide(profile, "conf/other", Access.MODIFY).allowed


def test_extends_merges_key_by_key(load) -> None:
    policy = load(
        """
fsProfiles:
  base:
    description: The base
    read: ["./**"]
    exec: ["/usr/bin/**"]
    network: {allow: ["api.example.com:443"]}
    env: {pass: [A, B], set: {X: "1", Y: "1"}, secret: [S]}
    limits: {wall: 1m, cpu: 10s, memory: 1GiB}
    require: partial
    futureDenies: required
  child:
    extends: base
    env: {pass: [C, A], set: {Y: "2"}}
    limits: {cpu: 20s}
  grandchild:
    extends: child
    exec: ["./bin/**"]
    network: none
    require: full
"""
    )
    child, grandchild = effective_profile(policy, "child"), effective_profile(policy, "grandchild")
    assert child.description == "The base"
    assert [text for text, _ in child.network.allow] == ["api.example.com:443"]
    assert child.limits == Limits(wall_s=60, cpu_s=20, memory_bytes=2**30)
    assert child.require is Require.PARTIAL
    assert child.future_denies is FutureDenies.REQUIRED
    assert child.env.pass_names[-3:] == ("A", "B", "C")
    assert dict(child.env.set_values) == {"X": "1", "Y": "2"}
    assert child.env.secret == ("S",)
    assert grandchild.network.mode is NetworkMode.NONE
    assert grandchild.require is Require.FULL
    assert [rule.text for rule in grandchild.exec or ()] == ["/usr/bin/**", "./bin/**"]


def test_options_beat_the_profile(asking) -> None:
    options = RunRules(
        network=Network(NetworkMode.HOST),
        env=Environment(("Z",), (("X", "9"),)),
        limits=Limits(wall_s=5),
        require=Require.PARTIAL,
    )
    profile = asking('network: none\nenv: {set: {X: "1"}}\nlimits: {wall: 1m, pids: 5}', options=options).profile
    assert profile.network.mode is NetworkMode.HOST
    assert dict(profile.env.set_values)["X"] == "9"
    assert "Z" in profile.env.pass_names
    assert profile.limits == Limits(wall_s=5, pids=5)
    assert profile.require is Require.PARTIAL


def test_an_empty_allow_list_is_no_network(asking) -> None:
    assert asking("network: {allow: []}").profile.network.mode is NetworkMode.NONE


def test_exec_is_optional_and_needs_read(asking) -> None:
    free = asking('read: ["./**"]')
    assert free.executes("x")
    bound = asking('read: ["./bin/**", "./src/**"]\nexec: ["./bin/**", "./other/**"]')
    assert bound.executes("bin/x")
    assert not bound.executes("src/x")
    assert not bound.executes("other/x")
    assert not asking('read: ["./**"]\nexec: []').executes("x")


def test_unknown_profiles_get_the_nearest_name(load) -> None:
    with pytest.raises(UnknownProfile) as caught:
        effective_profile(load(), "biuld")
    assert "did you mean 'build'?" in caught.value.remedy


def test_without_a_profile_it_is_unrestricted_unless_a_layer_says_otherwise(workspace, load) -> None:
    assert effective_profile(load()).name == "unrestricted"
    narrowed = effective_profile(load('fsProfiles: {unrestricted: {read: ["./only/**"]}}'))
    assert [rule.text for rule in narrowed.read if rule.origin is Origin.PROFILE] == ["./only/**"]


def test_its_own_name_means_the_weaker_layers_profile(load) -> None:
    policy = load('fsProfiles: {build: {extends: build, modify: ["./**"]}}')
    assert [profile.layer for profile in extends_chain(policy.profiles, policy.profiles["build"])] == [
        "shipped",
        "workspace",
    ]
    assert policy.profiles["build"].layer == "workspace"


class TestModifyNeedsRead:
    @pytest.mark.parametrize(
        ("read", "modify"),
        [
            ("./**", "./build/**"),
            ("./build/**", "./build/**"),
            ("./build/**", "./build/*.o"),
            ("./*.o", "./*.o"),
            ("./*", "./[ab]"),
            ("./{a,b}/**", "./a/x"),
            ("**/*.o", "./deep/x.o"),
            ("/**", "~/x"),
        ],
    )
    def test_covered(self, asking, read: str, modify: str) -> None:
        asking(f'read: ["{read}"]\nmodify: ["{modify}"]')

    @pytest.mark.parametrize(
        ("read", "modify"),
        [("./build", "./build/**"), ("./build/*", "./build/**"), ("./a*", "./*"), ("!./**", "./x"), ("./x", "**/x")],
    )
    def test_not_covered(self, asking, read: str, modify: str) -> None:
        with pytest.raises(PolicyError, match="not covered by a read rule"):
            asking(f'read: ["{read}"]\nmodify: ["{modify}"]')

    def test_alternatives_may_be_covered_one_by_one(self, asking) -> None:
        assert asking('read: ["./a/**", "./b/**"]\nmodify: ["./{a,b}/**"]').modifies("b/x")

    def test_the_base_may_cover_it(self, load) -> None:
        policy = load('fsProfiles:\n  base: {read: ["./**"]}\n  p: {extends: base, modify: ["./x"]}')
        effective_profile(policy, "p")


class TestPrivateFolders:
    """/tmp is private to the run, and the real one may hold the workspace, the home, or what a rule shows."""

    @pytest.fixture
    def below_tmp(self) -> Iterator[Policy]:
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            workspace = os.path.join(os.path.realpath(folder), "ws")
            os.mkdir(workspace)
            environ = {**os.environ, "HOME": os.path.join(os.path.dirname(workspace), "home")}
            yield load_policy(workspace, environ=environ, system_file="/nonexistent/policy.yaml")

    def test_the_private_one_is_writable(self, below_tmp: Policy, ask) -> None:
        lint = ask(effective_profile(below_tmp, "lint"))
        assert lint.is_private("/tmp/somewhere-else")
        assert lint.is_private("/var/tmp/x")

    def test_a_profile_that_writes_nothing_writes_nothing_in_a_workspace_there(self, below_tmp: Policy, ask) -> None:
        lint = ask(effective_profile(below_tmp, "lint"))
        assert lint.reads("x")
        assert not lint.modifies("x")
        assert not lint.modifies(".")

    def test_a_home_there_is_as_closed_as_elsewhere(self, below_tmp: Policy, ask) -> None:
        lint = ask(effective_profile(below_tmp, "lint"))
        home = below_tmp.environ["HOME"]
        assert not lint.reads(os.path.join(home, "letters"))
        assert not lint.modifies(os.path.join(home, "letters"))
        assert lint.reads(os.path.join(home, ".cargo/bin/cargo"))
        assert not lint.modifies(os.path.join(home, ".cargo/bin/cargo"))

    def test_what_a_rule_shows_of_the_real_one_is_not_writable_for_that(self, below_tmp: Policy, ask) -> None:
        shown = ask(effective_profile(below_tmp, "lint", RunRules(read=("/tmp/shown/**",))))
        assert shown.reads("/tmp/shown/x")
        assert not shown.modifies("/tmp/shown/x")
        assert shown.is_private("/tmp/not-shown/x")
        granted = ask(effective_profile(below_tmp, "lint", RunRules(modify=("/tmp/shown/**",))))
        assert granted.modifies("/tmp/shown/x")

    @pytest.mark.parametrize("rule", ["/tmp/**", "/tmp/*/x/**", "/tmp/{shown,other}/**"])
    def test_nor_by_a_wildcard_at_its_top(self, below_tmp: Policy, rule: str) -> None:
        """Judged as the listener does, which cannot tell the private one from the real one."""
        shown = effective_profile(below_tmp, "lint", RunRules(read=(rule,), modify=("/tmp/shown/x/report",)))
        assert decide(shown, "/tmp/shown/x/other", Access.READ).allowed
        assert not decide(shown, "/tmp/shown/x/other", Access.MODIFY).allowed
        assert decide(shown, "/tmp/shown/x/report", Access.MODIFY).allowed


# Properties, on policies made without files.

TEXTS = st.sampled_from(["./a/**", "./a", "!./a/b", "./*", "**/x", "./a/b/**", "!./**", "/opt/z/**"])
DENIES = st.sampled_from(["./a/**", "./a", "**/x", "./b", "/opt/z/**"])
PATHS = st.sampled_from(["a", "a/b", "a/b/c", "b", "x", "a/x", "/opt/z/x", "/opt/z", "a/b/x"])
WHERE = Source("policy.yaml", 1, 1, "user")


def written(texts: list[str]) -> tuple[Written, ...]:
    return tuple(Written(text, WHERE) for text in texts)


def make_file(layer: str, profiles: list[ProfileSource], deny_read: list[str]) -> PolicyFile:
    stamp = FileStamp("policy.yaml", 0, 0, 0, 0, 0)
    return PolicyFile("policy.yaml", layer, "", stamp, tuple(profiles), written(deny_read))


def make_policy(files: list[PolicyFile]) -> Policy:
    environ = {"HOME": "/nonexistent/home"}
    return Policy("/nonexistent/ws", "/nonexistent/ws", tuple(files), merge_profiles(files), environ=environ)


def reads(policy: Policy, path: str, options: RunRules | None = None) -> bool:
    return decide(effective_profile(policy, "p", options or RunRules()), path, Access.READ).allowed


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=4), st.lists(st.lists(DENIES, max_size=3), min_size=1, max_size=3), PATHS)
def test_denies_of_all_layers_accumulate(read: list[str], denies: list[list[str]], path: str) -> None:
    profile = ProfileSource("p", "user", WHERE, read=written(read))
    layers = ["system", "user", "workspace"]
    files = [make_file(layers[n], [profile] if n == 0 else [], deny) for n, deny in enumerate(denies)]
    together = reads(make_policy(files), path)
    alone = [reads(make_policy([make_file("user", [profile], deny)]), path) for deny in denies]
    assert together == all(alone)


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), PATHS)
def test_extends_is_writing_the_rules_one_after_another(
    first: list[str], second: list[str], third: list[str], path: str
) -> None:
    chain = [
        ProfileSource("a", "user", WHERE, read=written(first)),
        ProfileSource("b", "user", WHERE, extends=Written("a", WHERE), read=written(second)),
        ProfileSource("p", "user", WHERE, extends=Written("b", WHERE), read=written(third)),
    ]
    flat = ProfileSource("p", "user", WHERE, read=written(first + second + third))
    assert reads(make_policy([make_file("user", chain, [])]), path) == reads(
        make_policy([make_file("user", [flat], [])]), path
    )


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=3), st.lists(TEXTS, max_size=3), PATHS)
def test_a_later_layer_replaces_a_profile_whole(weak: list[str], strong: list[str], path: str) -> None:
    weaker = make_file("user", [ProfileSource("p", "user", WHERE, read=written(weak))], [])
    stronger = make_file("workspace", [ProfileSource("p", "workspace", WHERE, read=written(strong))], [])
    assert reads(make_policy([weaker, stronger]), path) == reads(make_policy([stronger]), path)


@settings(max_examples=200)
@given(st.lists(TEXTS, max_size=3), st.lists(DENIES, max_size=3), DENIES, PATHS)
def test_a_deny_option_only_takes_away(read: list[str], denies: list[str], option: str, path: str) -> None:
    policy = make_policy([make_file("user", [ProfileSource("p", "user", WHERE, read=written(read))], denies)])
    assert reads(policy, path) or not reads(policy, path, RunRules(deny=(option,)))


def test_a_workspace_that_is_itself_a_private_folder() -> None:
    """`cd /tmp && sbx run …`: the workspace is the real one, and may be modified."""
    policy = load_policy("/tmp", environ=os.environ, trust=False)
    if policy.workspace != os.path.realpath("/tmp"):
        pytest.skip("a policy above /tmp is in force here")
    profile = effective_profile(policy, None)
    assert decide(profile, "/tmp/x", Access.MODIFY).allowed
