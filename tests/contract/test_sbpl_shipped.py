"""The shipped profiles compile for macOS and Windows, and on macOS they say what decide() says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from capabilities import requires
from conftest import Workspace
from contract.sbpl_evaluator import read_profile

from sbx.model.decide import decide_location
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access
from sbx.planner import windows
from sbx.planner.macos import compile_sbpl
from sbx.planner.macos_baseline import adapted
from sbx.policy.layers import effective_profile, load_policy

TMP = "/private/tmp/sbx-test"
PROFILES = ("unrestricted", "build", "test", "lint", "offline", "install", "agent")
IN_HOME = (
    "", ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".gitconfig", ".bashrc", ".zshrc", ".codex/auth.json",
    ".codex/config.toml", ".claude/x", ".claude/settings.json", ".gemini/x", "Documents/x", ".cargo/bin/cargo",
)  # fmt: skip
IN_WORKSPACE = (
    "", "src/main.c", "build/out.o", ".git/config", ".git/hooks/pre-commit", ".git/objects/ab/cd", ".git/index.lock",
    ".vscode/tasks.json", ".env", "sbx.yaml", "deep/er/.git/hooks/x",
)  # fmt: skip
ELSEWHERE = (
    "/usr/bin/env", "/usr/lib/dyld", "/System/Library/Frameworks/x", "/etc/passwd", "/private/etc/passwd",
    "/private/etc/master.passwd", "/tmp/x", "/private/tmp/x", f"{TMP}/x", "/dev/null", "/dev/ttys001", "/dev/disk0",
    "/Users/other/x", "/private/var/db/timezone/x", "/opt/homebrew/bin/x", "/Library/Keychains/System.keychain",
)  # fmt: skip


def shipped(name: str, workspace: Workspace) -> EffectiveProfile:
    return effective_profile(load_policy(str(workspace.root), environ=os.environ), name)


def asked(workspace: Workspace, home: Path) -> list[str]:
    inside = [str(workspace.root / name) for name in IN_WORKSPACE]
    return [*inside, *(str(home / name) for name in IN_HOME), *ELSEWHERE]


@requires(tools=["tinyscheme"])
@pytest.mark.parametrize("name", PROFILES)
def test_on_macos(name: str, workspace: Workspace, home: Path) -> None:
    profile = shipped(name, workspace)
    mac = adapted(profile, TMP)
    for fold in (False, True):
        sandbox = read_profile(compile_sbpl(profile, proxy_port=None, tmp=TMP, case_insensitive=fold))
        for path in asked(workspace, home):
            read = decide_location(mac, path, Access.READ).allowed
            modify = decide_location(mac, path, Access.MODIFY).allowed
            assert sandbox.allows("file-read-data", path) is read, path
            assert sandbox.allows("file-write-data", path) is modify, path
            assert sandbox.allows("process-exec*", path) is read, path
    assert sandbox.allows("file-read-data", "/usr/bin/env")
    assert not sandbox.allows("file-read-data", str(home / ".ssh" / "id_ed25519"))
    assert not sandbox.allows("file-write-data", str(workspace.root / ".git" / "hooks" / "pre-commit"))
    assert sandbox.allows("file-write-data", str(workspace.root / "src" / "main.c")) is (name != "lint")
    assert sandbox.allows("file-write-data", str(home / ".codex" / "auth.json")) is (name == "agent")


@pytest.mark.parametrize("name", PROFILES)
def test_on_windows(name: str, workspace: Workspace) -> None:
    made = windows.plan(shipped(name, workspace), str(workspace.root))
    assert any(line.startswith("read:") for line in made.refusals), "so that require: full does not run"
    assert all(each.note for each in made.guarantees)
