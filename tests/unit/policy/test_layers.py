"""Which files are in force, who replaces whom, and who is trusted."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from sbx.errors import EXIT_INTERNAL, PolicyError, SbxError, UntrustedPolicy
from sbx.policy import trust
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.load import load_file

V2 = "schemaVersion: 2\n"
LIBRARY = ("read-only", "workspace-write", "no-network")


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "sbx" / "policy.yaml"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(V2 + text)
    return path


def profile(name: str, rule: str) -> str:
    return f'fsProfiles: {{{name}: {{read: ["{rule}"]}}}}\n'


def test_with_no_file_at_all_the_workspace_is_the_working_directory(workspace, system: Path) -> None:
    (workspace.root / "deep").mkdir()
    policy = load_policy(str(workspace.root / "deep"), environ=os.environ, system_file=str(system))
    assert policy.workspace == str(workspace.root / "deep")
    assert policy.paths == ()
    commands = {"unrestricted", "build", "test", "lint", "offline", "install", "agent"}
    assert set(policy.profiles) == {*commands, *LIBRARY}
    assert {each.layer for each in policy.profiles.values()} == {"shipped"}


def test_layers_in_order_and_replacement_by_name(workspace, system: Path) -> None:
    write(system, profile("a", "./system") + 'denyRead: ["./ds"]\n')
    user = workspace.user_policy(V2 + 'fsProfiles: {a: {read: ["./user"]}, b: {read: []}}\ndenyRead: ["./du"]\n')
    own = workspace.policy(V2 + profile("b", "./workspace") + 'denyRead: ["./dw"]\n')
    environ = {**os.environ, "SBX_TRUST_WORKSPACE": "1"}
    policy = load_policy(str(workspace.root), environ=environ, system_file=str(system))
    assert policy.paths == (str(system), str(user), str(own))
    assert policy.profiles["a"].layer == "user"
    assert policy.profiles["b"].layer == "workspace"
    assert policy.profiles["a"].replaces is not None
    assert policy.profiles["a"].replaces.layer == "system"
    negated = [rule for rule in effective_profile(policy, "a").read if rule.negated]
    denied = {rule.text for rule in negated if rule.source.layer not in ("shipped", "sbx")}
    assert denied == {"./ds", "./du", "./dw"}


def test_the_nearest_workspace_file_counts_and_its_folder_is_the_workspace(workspace) -> None:
    workspace.policy(V2)
    inner = workspace.write("a/sbx.yaml", V2)
    (workspace.root / "a/b/c").mkdir(parents=True)
    policy = load_policy(str(workspace.root / "a/b/c"), environ=os.environ, trust=False)
    assert policy.workspace == str(workspace.root / "a")
    assert policy.workspace_file == str(inner)
    assert str(workspace.root / "a/b/sbx.yaml") in policy.missing_files
    assert str(workspace.root / "sbx.yaml") not in policy.missing_files


def test_a_named_policy_takes_the_place_of_the_workspaces(workspace) -> None:
    workspace.policy(V2 + profile("found", "./x"))
    named = workspace.write("other/ci.yaml", V2 + profile("named", "./x"))
    (workspace.root / "sub").mkdir()
    policy = load_policy(str(workspace.root / "sub"), policy_file="../other/ci.yaml", environ=os.environ)
    assert "named" in policy.profiles
    assert "found" not in policy.profiles
    assert policy.workspace == str(workspace.root)  # rules mean the same places as in the file it replaces
    assert [os.path.realpath(path) for path in policy.paths] == [str(named)]
    assert policy.trusted


def test_a_named_policy_without_a_workspace_file_leaves_the_working_directory(workspace, tmp_path: Path) -> None:
    named = write(tmp_path / "elsewhere" / "p.yaml", "")
    policy = load_policy(str(workspace.root), policy_file=str(named), environ=os.environ)
    assert policy.workspace == str(workspace.root)


@pytest.mark.parametrize("layer", ["system", "user"])
def test_only_the_systems_and_the_users_policy_may_drop_the_shipped_denies(workspace, system: Path, layer: str) -> None:
    path = system if layer == "system" else workspace.home / ".config/sbx/policy.yaml"
    write(path, "shippedDenies: false\n")
    policy = load_policy(str(workspace.root), environ=os.environ, system_file=str(system))
    assert not policy.shipped_denies
    assert not [rule for rule in effective_profile(policy).read if str(rule) == "!~/.ssh/**"]


def test_the_workspaces_policy_may_not(workspace) -> None:
    workspace.policy(V2 + "shippedDenies: false\n")
    with pytest.raises(PolicyError, match="not for a workspace's policy"):
        load_policy(str(workspace.root), environ=os.environ)


def test_a_relative_xdg_folder_is_ignored(workspace) -> None:
    workspace.user_policy(V2 + profile("mine", "./x"))
    environ = {**os.environ, "XDG_CONFIG_HOME": "relative"}
    assert "mine" in load_policy(str(workspace.root), environ=environ).profiles


@pytest.mark.parametrize("kind", ["directory", "fifo", "dangling", "loop"])
def test_a_layer_that_is_there_but_no_file_is_an_error_and_never_skipped(workspace, kind: str) -> None:
    path = workspace.root / "sbx.yaml"
    make = {
        "directory": path.mkdir,
        "fifo": lambda: os.mkfifo(path),
        "dangling": lambda: path.symlink_to("nowhere"),
        "loop": lambda: path.symlink_to("sbx.yaml"),
    }
    make[kind]()
    with pytest.raises(PolicyError) as caught:
        load_policy(str(workspace.root), environ=os.environ)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look everywhere")
def test_a_system_folder_that_may_not_be_searched_is_an_error(workspace, system: Path) -> None:
    write(system, "")
    system.parent.chmod(0)
    try:
        with pytest.raises(PolicyError, match="may not be read"):
            load_policy(str(workspace.root), environ=os.environ, system_file=str(system))
    finally:
        system.parent.chmod(0o700)


def test_policies_pickle(workspace) -> None:
    policy = load_policy(str(workspace.root), environ=os.environ)
    profile_ = effective_profile(policy, "build")
    assert pickle.loads(pickle.dumps(profile_)) == profile_
    assert pickle.loads(pickle.dumps(policy)) == policy


def test_the_environments_values_stay_out_of_a_printed_policy(workspace) -> None:
    policy = load_policy(str(workspace.root), environ={**os.environ, "SOME_TOKEN": "hunter2"})
    assert "hunter2" not in repr(policy)


class TestTrust:
    POLICY = (
        V2
        + """
fsProfiles:
  build:
    read: ["./**"]
    modify: ["./out/**", "~/.cache/x/**"]
    network: host
    exec: ["/usr/bin/**"]
    env: {pass: [CC], secret: [API_TOKEN], set: {PATH: "./evil"}}
  api: {read: [], network: {allow: ["api.example.com:443"]}, require: partial}
"""
    )

    def load(self, workspace, **environ: str):
        return load_policy(str(workspace.root), environ={**os.environ, **environ})

    def approve(self, path: Path) -> trust.Approval:
        return trust.approve(str(path), load_file(str(path), "workspace").sha256, os.environ)

    def test_a_file_that_was_merely_found_is_not_used(self, workspace) -> None:
        path = workspace.policy(self.POLICY)
        with pytest.raises(UntrustedPolicy) as caught:
            self.load(workspace)
        error = caught.value
        assert error.exit_code == EXIT_INTERNAL
        assert str(path) in error.message
        assert "sbx trust" in error.remedy
        words = "\n".join(error.details)
        for piece in (
            "profile 'build' (replaces the shipped one)",
            "may read ./**",
            "may modify ./out/**, ~/.cache/x/**",
            "whole network",
            "may execute only /usr/bin/**",
            "secrets API_TOKEN",
            "variables CC",
            "PATH=./evil",
            "may reach api.example.com:443",
            "even where something cannot be enforced",
        ):
            assert piece in words

    def test_its_words_cannot_paint_on_the_terminal(self, workspace) -> None:
        workspace.policy(V2 + 'fsProfiles: {p: {env: {set: {X: "\\e[2Jx"}}}}\n')
        with pytest.raises(UntrustedPolicy) as caught:
            self.load(workspace)
        assert all(line.isprintable() for line in caught.value.details)

    def test_approval_is_for_this_content(self, workspace) -> None:
        path = workspace.policy(self.POLICY)
        self.approve(path)
        assert self.load(workspace).trusted
        path.write_text(self.POLICY + "# changed\n")
        with pytest.raises(UntrustedPolicy):
            self.load(workspace)
        path.write_text(self.POLICY)
        assert self.load(workspace).trusted

    def test_approval_is_for_this_place(self, workspace) -> None:
        self.approve(workspace.policy(self.POLICY))
        workspace.write("vendored/sbx.yaml", self.POLICY)
        with pytest.raises(UntrustedPolicy):
            load_policy(str(workspace.root / "vendored"), environ=os.environ)

    def test_consent_for_ci(self, workspace) -> None:
        workspace.policy(self.POLICY)
        assert self.load(workspace, SBX_TRUST_WORKSPACE="1").trusted
        for other in ("0", "", "no", "false"):
            with pytest.raises(UntrustedPolicy):
                self.load(workspace, SBX_TRUST_WORKSPACE=other)

    def test_naming_the_file_is_consent(self, workspace) -> None:
        path = workspace.policy(self.POLICY)
        assert load_policy(str(workspace.root), policy_file=str(path), environ=os.environ).trusted

    def test_loading_without_trust_says_so(self, workspace) -> None:
        workspace.policy(self.POLICY)
        assert not load_policy(str(workspace.root), environ=os.environ, trust=False).trusted

    def test_list_and_forget(self, workspace) -> None:
        path = workspace.policy(self.POLICY)
        first = self.approve(path)
        path.write_text(self.POLICY + "# two\n")
        self.approve(path)
        other = workspace.write("b/sbx.yaml", self.POLICY)
        self.approve(other)
        assert [each.path for each in trust.list_approvals(os.environ)] == [str(other), str(path), str(path)]
        assert first in trust.list_approvals(os.environ)
        assert trust.forget(str(path), os.environ) == 2
        assert trust.forget(str(path), os.environ) == 0
        assert [each.path for each in trust.list_approvals(os.environ)] == [str(other)]

    def test_the_store_is_private(self, workspace) -> None:
        approval = self.approve(workspace.policy(self.POLICY))
        folder = Path(trust.trust_folder(os.environ))
        assert folder.stat().st_mode & 0o777 == 0o700
        assert (folder / approval.key).stat().st_mode & 0o777 == 0o600
        assert [entry.name for entry in folder.iterdir()] == [approval.key]  # no temporary file stays

    @pytest.mark.parametrize("spoil", ["entry writable", "folder writable", "symlink", "empty", "directory"])
    def test_an_entry_that_others_could_have_made_does_not_count(self, workspace, tmp_path: Path, spoil: str) -> None:
        approval = self.approve(workspace.policy(self.POLICY))
        folder = Path(trust.trust_folder(os.environ))
        entry = folder / approval.key
        if spoil == "entry writable":
            entry.chmod(0o666)
        elif spoil == "folder writable":
            folder.chmod(0o777)
        elif spoil == "symlink":
            entry.rename(tmp_path / "moved")
            entry.symlink_to(tmp_path / "moved")
        elif spoil == "empty":
            entry.write_bytes(b"")
        else:
            entry.unlink()
            entry.mkdir()
        with pytest.raises(UntrustedPolicy):
            self.load(workspace)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_a_foreign_owners_entry_does_not_count(self, workspace) -> None:
        approval = self.approve(workspace.policy(self.POLICY))
        os.chown(Path(trust.trust_folder(os.environ)) / approval.key, 12345, 12345)
        with pytest.raises(UntrustedPolicy):
            self.load(workspace)

    def test_a_store_that_cannot_be_written_is_told(self, workspace) -> None:
        path = workspace.policy(self.POLICY)
        (workspace.home / ".local/state/sbx").write_text("in the way")
        with pytest.raises(SbxError, match="cannot be stored"):
            self.approve(path)
