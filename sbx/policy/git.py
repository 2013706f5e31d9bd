"""Where `.git` is a file: worktrees and submodules keep their repository elsewhere.

A sandboxed command may have written the `.git` file of the workspace in an earlier run, and such a file may name any
folder. So what it names is granted only when git's own link back agrees, which lies in the folder itself:
    worktree    <common>/worktrees/<name>/gitdir holds the path of this .git file
    submodule   core.worktree in the config of the module's git folder leads to this workspace
Denies follow the file without that proof: too many denies open nothing.
"""

from __future__ import annotations

import os
import stat

from sbx.model.records import dataclass

MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class GitFolders:
    """The folders behind a `.git` file. `common` equals `git_dir` for a submodule."""

    git_dir: str
    common: str
    verified: bool

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.git_dir, self.common)))


def is_folder(workspace: str) -> bool:
    """Is `.git` the repository itself? (Through a symlink too: rules resolve those by themselves.)"""
    return os.path.isdir(os.path.join(workspace, ".git"))


def git_folders(workspace: str) -> GitFolders | None:
    """What the workspace's `.git` file names, or None when there is no such file."""
    dot_git = os.path.join(workspace, ".git")
    text = _read(dot_git)
    if text is None or not text.startswith("gitdir:"):
        return None
    named = text.removeprefix("gitdir:").strip("\n").strip()
    if not named or "\n" in named or "\0" in named:
        return None
    git_dir = os.path.realpath(os.path.join(workspace, named))
    if not os.path.isdir(git_dir):
        return None
    common = _common(git_dir)
    if common != git_dir:
        return GitFolders(git_dir, common, _is_worktree(dot_git, git_dir, common))
    return GitFolders(git_dir, git_dir, _is_submodule(workspace, git_dir))


def _common(git_dir: str) -> str:
    named = (_read(os.path.join(git_dir, "commondir")) or "").strip()
    if not named or "\0" in named:
        return git_dir
    return os.path.realpath(os.path.join(git_dir, named))


def _is_worktree(dot_git: str, git_dir: str, common: str) -> bool:
    # Its place proves that the repository itself made it: nobody else could put it below <common>/worktrees.
    if os.path.dirname(git_dir) != os.path.join(common, "worktrees"):
        return False
    back = (_read(os.path.join(git_dir, "gitdir")) or "").strip()
    if not back or "\0" in back or not os.path.isfile(os.path.join(common, "HEAD")):
        return False
    return os.path.realpath(os.path.join(git_dir, back)) == os.path.realpath(dot_git)


def _is_submodule(workspace: str, git_dir: str) -> bool:
    worktree = _core_worktree(_read(os.path.join(git_dir, "config")) or "")
    if worktree is None or "\0" in worktree or not os.path.isfile(os.path.join(git_dir, "HEAD")):
        return False
    return os.path.realpath(os.path.join(git_dir, worktree)) == os.path.realpath(workspace)


def _core_worktree(config: str) -> str | None:
    """`core.worktree` of a git config, the last one as git has it. Anything unusual is no answer."""
    section, found = "", None
    for line in config.splitlines():
        stripped = line.strip()
        if stripped.startswith("["):
            section = stripped.partition("]")[0][1:].strip().lower()
            continue
        name, equals, value = stripped.partition("=")
        if section == "core" and equals and name.strip().lower() == "worktree":
            found = _value(value.strip())
    return found


def _value(text: str) -> str | None:
    quoted = len(text) >= 2 and text[0] == text[-1] == '"'
    inner = text[1:-1] if quoted else text
    if '"' in inner.replace('\\"', "") or (not quoted and any(char in inner for char in "#;")):
        return None
    return inner.replace('\\"', '"').replace("\\\\", "\\")


def _read(path: str) -> str | None:
    """A small regular file's text; None for all else. Never blocks, never follows the last name."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_BYTES:
            return None
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "surrogateescape")
    except OSError:
        return None
    finally:
        os.close(descriptor)
