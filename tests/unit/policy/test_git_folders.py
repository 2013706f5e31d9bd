"""Worktrees and submodules, made by git itself; and `.git` files that lie."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sbx.policy.git import git_folders
from sbx.policy.layers import effective_profile, load_policy

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always",
         "-c", "init.defaultBranch=main", "-C", str(folder), *arguments],
        check=True, capture_output=True, env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1"},
    )  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repo"
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "f").write_text("x")
    git(folder, "add", "f")
    git(folder, "commit", "-qm", "first")
    return folder


@pytest.fixture
def worktree(repository: Path) -> Path:
    folder = repository.parent / "tree"
    git(repository, "worktree", "add", "-q", str(folder))
    return folder


@pytest.fixture
def submodule(repository: Path) -> Path:
    parent = repository.parent / "super"
    parent.mkdir()
    git(parent, "init", "-q")
    git(parent, "submodule", "add", "-q", str(repository), "deps/mod")
    return parent / "deps" / "mod"


def asked(ask: Callable, workspace: Path, profile: str | None = None):
    policy = load_policy(str(workspace), environ=os.environ, system_file="/nonexistent/policy.yaml")
    return ask(effective_profile(policy, profile))


def test_an_ordinary_repository(repository: Path, ask) -> None:
    assert git_folders(str(repository)) is None
    it = asked(ask, repository)
    for path in (".git/index", ".git/index.lock", ".git/HEAD", ".git/objects/ab/c", ".git/refs/heads/new",
                 ".git/logs/HEAD", ".git/worktrees/new/HEAD", ".git/worktrees/new/commondir", ".git/COMMIT_EDITMSG",
                 ".git/info/exclude", ".git/packed-refs", ".git"):  # fmt: skip
        assert it.modifies(path), path
    for path in (".git/hooks/pre-commit", ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir",
                 ".git/modules/a/config", ".git/modules/a/b/hooks/x", ".git/worktrees/w/config.worktree"):  # fmt: skip
        assert not it.modifies(path), path
        assert it.reads(path), path


def test_a_profile_without_git_history(repository: Path, ask) -> None:
    build = asked(ask, repository, "build")
    assert build.modifies("main.o")
    assert not build.modifies(".git/index")
    assert build.reads(".git/index")


class TestWorktree:
    def test_git_itself_links_back(self, repository: Path, worktree: Path) -> None:
        found = git_folders(str(worktree))
        assert found is not None
        assert found.verified
        assert found.git_dir == str(repository / ".git/worktrees/tree")
        assert found.common == str(repository / ".git")

    def test_commits_can_be_written(self, repository: Path, worktree: Path, ask) -> None:
        it = asked(ask, worktree)
        for path in (".git/worktrees/tree/index.lock", ".git/worktrees/tree/HEAD", ".git/objects/ab/c",
                     ".git/refs/heads/tree", ".git/logs/refs/heads/tree"):  # fmt: skip
            assert it.modifies(repository / path), path
        assert not it.modifies(repository / "f")
        assert not it.reads(repository / "f")

    def test_denies_follow(self, repository: Path, worktree: Path, ask) -> None:
        it = asked(ask, worktree)
        for path in (
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/worktrees/tree/config.worktree",
            ".git/worktrees/tree/commondir",
            ".git/worktrees/tree/gitdir",
            ".git/modules/m/config",
        ):
            assert not it.modifies(repository / path), path

    def test_the_file_itself_cannot_be_changed(self, worktree: Path, ask) -> None:
        it = asked(ask, worktree)
        assert not it.modifies(".git")
        assert it.reads(".git")

    def test_a_profile_that_may_not_write_gets_no_repository_to_write(
        self, repository: Path, worktree: Path, ask
    ) -> None:
        lint, build = asked(ask, worktree, "lint"), asked(ask, worktree, "build")
        assert lint.reads(repository / ".git/HEAD")
        assert not lint.modifies(repository / ".git/index")
        assert not build.modifies(repository / ".git/index")

    def test_a_commit_really_touches_only_what_is_allowed(self, repository: Path, worktree: Path, ask) -> None:
        def snapshot() -> dict[Path, tuple[int, int]]:
            return {
                path: (path.lstat().st_mtime_ns, path.lstat().st_ino)
                for root in (repository / ".git", worktree)
                for path in root.rglob("*")
                if not path.is_dir()
            }

        before = snapshot()
        (worktree / "new").write_text("y")
        git(worktree, "add", "new")
        git(worktree, "commit", "-qm", "second")
        git(worktree, "branch", "another")
        changed = {path for path, stamp in snapshot().items() if before.get(path) != stamp}
        it = asked(ask, worktree)
        assert changed
        assert [path for path in changed if not it.modifies(path)] == []


class TestSubmodule:
    def test_git_itself_links_back(self, submodule: Path) -> None:
        found = git_folders(str(submodule))
        assert found is not None
        assert found.verified
        assert found.git_dir == found.common == str(submodule.parents[1] / ".git/modules/deps/mod")

    def test_commits_can_be_written_and_denies_follow(self, submodule: Path, ask) -> None:
        it = asked(ask, submodule)
        module = submodule.parents[1] / ".git/modules/deps/mod"
        assert it.modifies(module / "index.lock")
        assert it.modifies(module / "objects/ab/c")
        assert not it.modifies(module / "config")
        assert not it.modifies(module / "hooks/post-checkout")
        assert not it.modifies(submodule.parents[1] / ".git/index")
        assert not it.modifies(".git")


class TestLies:
    """A sandboxed command may have written the `.git` file: only git's own link back counts."""

    @pytest.fixture
    def victim(self, tmp_path: Path) -> Path:
        folder = tmp_path.resolve() / "victim"
        folder.mkdir()
        (folder / "diary").write_text("secret")
        return folder

    def check_closed(self, ask, workspace: Path, victim: Path) -> None:
        it = asked(ask, workspace)
        assert not it.reads(victim / "diary")
        assert not it.modifies(victim / "diary")

    def test_a_folder_that_is_no_repository(self, workspace, victim: Path, ask) -> None:
        workspace.write(".git", f"gitdir: {victim}\n")
        found = git_folders(str(workspace.root))
        assert found is not None
        assert not found.verified
        self.check_closed(ask, workspace.root, victim)

    def test_somebody_elses_repository(self, workspace, repository: Path, ask) -> None:
        workspace.write(".git", f"gitdir: {repository}/.git\n")
        self.check_closed(ask, workspace.root, repository / ".git")
        assert not asked(ask, workspace.root).modifies(repository / ".git/index")

    def test_somebody_elses_worktree(self, workspace, worktree: Path, repository: Path, ask) -> None:
        workspace.write(".git", (worktree / ".git").read_text())
        assert not asked(ask, workspace.root).modifies(repository / ".git/index")

    def test_a_forged_git_folder_in_the_workspace_cannot_name_a_common_one_outside(
        self, workspace, victim: Path, ask
    ) -> None:
        workspace.write("fake/worktrees/w/gitdir", f"{workspace.root}/.git\n")
        workspace.write("fake/worktrees/w/commondir", f"{victim}\n")
        workspace.write("fake/worktrees/w/HEAD", "ref: refs/heads/main\n")
        (victim / "HEAD").write_text("ref: refs/heads/main\n")
        workspace.write(".git", "gitdir: fake/worktrees/w\n")
        self.check_closed(ask, workspace.root, victim)

    def test_a_symlinked_worktrees_folder_does_not_help(self, workspace, victim: Path, ask) -> None:
        workspace.write("fake/gitdir", f"{workspace.root}/.git\n")
        workspace.write("fake/commondir", f"{victim}\n")
        (victim / "HEAD").write_text("x")
        (workspace.root / "worktrees").symlink_to(victim)
        workspace.write(".git", "gitdir: fake\n")
        self.check_closed(ask, workspace.root, victim)

    @pytest.mark.parametrize(
        "content", [b"", b"gitdir:", b"gitdir: \n", b"nonsense", b"gitdir: a\nb\n", b"gitdir: a\0b", b"\xff" * 100]
    )
    def test_nonsense_is_no_answer(self, workspace, content: bytes) -> None:
        workspace.write(".git", content)
        assert git_folders(str(workspace.root)) is None

    def test_a_fifo_does_not_block(self, workspace) -> None:
        os.mkfifo(workspace.root / ".git")
        assert git_folders(str(workspace.root)) is None

    @pytest.mark.parametrize(
        ("config", "verified"),
        [
            ("[core]\n\tworktree = {ws}\n", True),
            ('[core]\n\tworktree = "{ws}"\n', True),
            ("[Core]\n\tWorkTree={ws}\n", True),
            ("[core]\n\tworktree = /elsewhere\n\tworktree = {ws}\n", True),
            ("[core]\n\tworktree = {ws}\n\tworktree = /elsewhere\n", False),
            ('[core "x"]\n\tworktree = {ws}\n', False),
            ("[user]\n\tworktree = {ws}\n", False),
            ("[core]\n\t# worktree = {ws}\n", False),
            ("", False),
        ],
    )
    def test_how_the_configuration_is_read(self, workspace, tmp_path: Path, config: str, verified: bool) -> None:
        module = tmp_path / "module"
        module.mkdir()
        (module / "HEAD").write_text("x")
        (module / "config").write_text(config.replace("{ws}", str(workspace.root)))
        workspace.write(".git", f"gitdir: {module}\n")
        found = git_folders(str(workspace.root))
        assert found is not None
        assert found.verified is verified


def test_without_a_repository_none_can_be_planted(workspace, ask) -> None:
    it = asked(ask, workspace.root)
    assert not it.modifies(".git")
    assert it.modifies("x")
