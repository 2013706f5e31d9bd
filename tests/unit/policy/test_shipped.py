"""The data that comes with sbx: does it hold what the manual promises?"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from sbx.model.profile import NetworkMode
from sbx.model.rules import Origin
from sbx.policy.document import RunRules
from sbx.policy.effective import effective_profile
from sbx.policy.folders import shipped_folder
from sbx.policy.lint import Severity, lint

PROFILES = ("unrestricted", "build", "test", "lint", "offline", "install", "agent")


@pytest.fixture
def shipped(load, ask):
    policy = load()

    def shipped(name: str, **options):
        return ask(effective_profile(policy, name, RunRules(**options)))

    return shipped


def test_the_shipped_profiles_are_found_and_described(load) -> None:
    policy = load()
    assert set(policy.profiles) == {*PROFILES, "read-only", "workspace-write", "no-network"}  # the library's three
    for profile in policy.profiles.values():
        assert 20 < len(profile.description) < 120
        assert profile.source.file.startswith(shipped_folder())


@pytest.mark.parametrize("name", PROFILES)
def test_each_becomes_an_effective_profile(shipped, name: str) -> None:
    profile = shipped(name).profile
    assert profile.name == name
    assert profile.limits.wall_s == (1800 if name == "test" else None)
    assert profile.network.mode is (NetworkMode.HOST if name in ("install", "agent") else NetworkMode.NONE)


def test_lint_has_nothing_to_say_against_them(load) -> None:
    assert [finding for finding in lint(load()) if finding.severity is not Severity.NOTE] == []


@pytest.mark.parametrize("name", PROFILES)
def test_ordinary_programs_run(shipped, name: str) -> None:
    it = shipped(name)
    for program in ("sh", "ls", "env", "cat"):
        path = shutil.which(program)
        assert path is not None
        assert it.executes(path), path
    assert it.executes(sys.executable)
    assert it.reads(os.__file__)
    for path in ("/usr/lib/libx.so", "/lib64/ld-linux-x86-64.so.2", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf",
                 "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/ssl/certs/ca-certificates.crt",
                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ld.so.cache", "/etc/alternatives/cc", "/etc/gitconfig",
                 "/etc/fonts/fonts.conf", "/nix/store/x/bin/y", "/opt/x", "/proc/cpuinfo", "/proc/self/maps",
                 "/sys/devices/system/cpu/online", "/sys/fs/cgroup/memory.max", "/dev/null", "/dev/zero"):  # fmt: skip
        assert it.reads(path), path
    for path in ("/tmp/x", "/var/tmp/x", "/dev/shm/x"):
        assert it.is_private(path), path
    for path in ("/dev/null", "/dev/tty"):
        assert it.modifies(path), path


@pytest.mark.parametrize("name", PROFILES)
def test_no_profile_touches_the_system_or_reads_its_secrets(shipped, name: str) -> None:
    it = shipped(name)
    for path in ("/usr/bin/x", "/etc/passwd", "/opt/x", "/sys/fs/cgroup/x", "/dev/sda", "/lib/x", "/nix/store/x"):
        assert not it.modifies(path), path
    for path in ("/etc/shadow", "/etc/sudoers", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssl/private/key.pem", "/dev/sda",
                 "/dev/kmsg", "/var/log/syslog", "/run/docker.sock", "/run/systemd/resolve/io.systemd.Resolve",
                 "/run/dbus/system_bus_socket", "/boot/x", "/home/somebody/x", "/sys/kernel/debug",
                 "/etc/sbx/policy.yaml", "/home"):  # fmt: skip
        assert not it.reads(path), path


TOOLS = [
    (".pyenv/versions/3.12/bin/python", ""), (".local/share/uv/python/x/bin/python3", ""), (".nvm/versions/x/node", ""),
    (".volta/bin/node", ""), (".rustup/toolchains/x/bin/rustc", ""), (".cargo/bin/cargo", ".cargo/credentials.toml"),
    ("go/bin/tool", ""), (".asdf/shims/x", ""), (".local/share/mise/installs/x", ""), (".sdkman/candidates/x", ""),
    ("miniconda3/bin/python", "miniconda3/.condarc"), (".local/bin/x", ""),
]  # fmt: skip


@pytest.mark.parametrize(("program", "secret"), TOOLS, ids=[row[0] for row in TOOLS])
def test_programs_of_version_managers_without_their_credentials(workspace, shipped, program: str, secret: str) -> None:
    it = shipped("lint")
    assert it.executes(workspace.home / program)
    assert not it.modifies(workspace.home / program)
    if secret:
        assert not it.reads(workspace.home / secret)


def test_version_managers_that_live_elsewhere(workspace, load, ask) -> None:
    policy = load(environ={"CARGO_HOME": "/srv/cargo", "PYENV_ROOT": "/srv/pyenv", "VIRTUAL_ENV": "/srv/venv"})
    it = ask(effective_profile(policy, "lint"))
    assert it.reads("/srv/cargo/bin/cargo")
    assert not it.reads("/srv/cargo/credentials.toml")
    assert it.reads("/srv/pyenv/versions/x")
    assert it.reads("/srv/venv/bin/python")
    assert not it.reads("/srv/venv/pip.conf")
    assert not it.reads(workspace.home / ".pyenv/x")


@pytest.mark.parametrize("value", ["/", "~", "..", "~/.."])
def test_a_variable_cannot_open_the_home(workspace, load, ask, value: str) -> None:
    value = value.replace("~", str(workspace.home)).replace("..", str(workspace.home.parent))
    it = ask(effective_profile(load(environ={"VIRTUAL_ENV": value, "JAVA_HOME": value}), "lint"))
    assert not it.reads(workspace.home / "letter")
    assert not it.reads("/srv/x")


def test_an_active_environment_behind_a_planted_link_is_left_out(workspace, load, ask, tmp_path: Path) -> None:
    (tmp_path / "private").mkdir()
    (workspace.root / ".venv").symlink_to(tmp_path / "private")
    it = ask(effective_profile(load(environ={"VIRTUAL_ENV": str(workspace.root / ".venv")}), "lint"))
    assert not it.reads(tmp_path / "private/x")


CREDENTIALS = [
    ".ssh/id_ed25519", ".gnupg/x", ".aws/credentials", ".azure/x", ".config/gcloud/x", ".kube/config",
    ".docker/config.json", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".config/gh/hosts.yml",
    ".local/share/keyrings/x", ".password-store/x.gpg", ".mozilla/firefox/x", ".config/google-chrome/Default/Cookies",
    ".bash_history", ".zsh_history", ".cargo/credentials.toml", ".terraform.d/credentials.tfrc.json", ".vault-token",
    ".bitcoin/wallet.dat", "Library/Keychains/x", ".codex/auth.json", ".claude/.credentials.json", ".pgpass",
]  # fmt: skip


@pytest.mark.parametrize("path", CREDENTIALS)
def test_credentials_stay_unreadable_under_the_widest_grant(workspace, shipped, path: str) -> None:
    it = shipped("unrestricted", read=("/**",), modify=("/**",))
    assert not it.reads(workspace.home / path)
    assert not it.modifies(workspace.home / path)
    assert it.reads(workspace.home / "ordinary")


LATER = [
    ".bashrc", ".zshrc", ".profile", ".config/fish/config.fish", ".config/autostart/x.desktop", ".gitconfig",
    ".config/systemd/user/x.service", ".local/bin/ls", ".vimrc", ".config/nvim/init.lua", ".config/Code/User/x",
    "Library/LaunchAgents/x.plist", ".local/lib/python3.12/site-packages/x.pth",
]  # fmt: skip


@pytest.mark.parametrize("path", LATER)
def test_what_runs_later_outside_stays_unmodified_under_the_widest_grant(workspace, shipped, path: str) -> None:
    it = shipped("unrestricted", read=("/**",), modify=("/**",))
    assert not it.modifies(workspace.home / path)
    assert it.reads(workspace.home / path)
    assert it.modifies(workspace.home / "ordinary")


@pytest.mark.parametrize(
    "path", [".vscode/tasks.json", ".envrc", ".husky/pre-commit", ".idea/runConfigurations/x.xml", ".git/hooks/x"]
)
def test_files_of_the_workspace_that_run_unasked(workspace, shipped, path: str) -> None:
    it = shipped("unrestricted")
    assert not it.modifies(path)
    assert it.reads(path)
    assert it.modifies("src/main.c")


class TestAgent:
    FOLDERS = [".codex", ".claude", ".gemini"]

    @pytest.mark.parametrize("folder", FOLDERS)
    def test_state_folders(self, workspace, shipped, folder: str) -> None:
        agent, other = shipped("agent"), shipped("build")
        path = workspace.home / folder / "sessions/x.json"
        assert agent.modifies(path)
        assert agent.reads(path)
        assert not other.reads(path)

    def test_they_follow_the_agents_own_variables(self, workspace, load, ask) -> None:
        policy = load(environ={"CODEX_HOME": "/srv/codex", "CLAUDE_CONFIG_DIR": "/srv/claude"})
        agent = ask(effective_profile(policy, "agent"))
        assert agent.modifies("/srv/codex/x")
        assert agent.modifies("/srv/claude/x")
        assert not agent.modifies(workspace.home / ".codex/x")
        assert not agent.reads(workspace.home / ".codex/x")

    @pytest.mark.parametrize(
        "path", [".codex/config.toml", ".claude/settings.json", ".claude/hooks/x.sh", ".gemini/settings.json"]
    )
    def test_what_an_agent_runs_the_next_time_is_not_its_to_write(self, workspace, shipped, path: str) -> None:
        agent = shipped("agent")
        assert agent.reads(workspace.home / path)
        assert not agent.modifies(workspace.home / path)

    def test_the_allowance_is_for_these_folders_only(self, workspace, shipped) -> None:
        agent = shipped("agent")
        assert not agent.modifies(workspace.home / ".ssh/config")
        assert not agent.reads(workspace.home / ".codexx/x")
        assert not agent.modifies(workspace.home / "x")

    def test_workspace_hooks_stay_protected(self, shipped) -> None:
        agent = shipped("agent")
        assert agent.modifies("src/x")
        assert agent.modifies(".git/index")
        assert not agent.modifies(".git/hooks/pre-commit")


def test_lint_writes_nothing(workspace, shipped) -> None:
    it = shipped("lint")
    assert it.reads("src/x")
    for path in ("src/x", ".git/index", ".", "build/x", workspace.home / ".cache/x"):
        assert not it.modifies(path)


def test_the_environment_passed_by_default_holds_no_secret(shipped) -> None:
    env = shipped("unrestricted").profile.env
    assert {"PATH", "HOME", "LANG", "TERM", "LC_*"} <= set(env.pass_names)
    suspicious = [
        name for name in env.pass_names if any(word in name for word in ("TOKEN", "KEY", "SECRET", "PASS", "AUTH"))
    ]
    assert suspicious == []
    assert not env.pass_all


def test_specials(load) -> None:
    specials = load().baseline_specials
    assert specials.proc == ("/proc",)
    assert specials.dev == ("/dev",)
    assert specials.tmpfs == ("/tmp", "/var/tmp", "/dev/shm")


def test_no_shipped_deny_walks_a_whole_tree(shipped) -> None:
    """`**/x` in a shipped deny would make every start look at every folder."""
    for rules in (shipped("unrestricted").profile.read, shipped("unrestricted").profile.modify):
        for rule in rules:
            if rule.origin is Origin.SHIPPED_DENY:
                assert not rule.text.startswith("**"), rule
