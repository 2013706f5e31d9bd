"""What a stored plan or explanation was made from, in the form that the launch side checks with a few stats."""

from __future__ import annotations

import os

from sbx.launch.store import ABSENT, FILE, LEADS_TO, VARIABLE
from sbx.model.profile import EffectiveProfile
from sbx.policy.document import WORKSPACE, Policy
from sbx.policy.git import git_folders
from sbx.policy.trust import approval_key, trust_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.launch.store import Dependency


GIT_PROOFS = ("commondir", "gitdir", "config")  # what sbx.policy.git reads in the folder that `.git` names


def policy_dependencies(policy: Policy, profile: EffectiveProfile) -> tuple[Dependency, ...] | None:
    """Everything the profile's rules depended on; None when it cannot be stored (a file that changed just now)."""
    if any(file.racy for file in policy.files):
        return None
    found: list[Dependency] = []
    for file in policy.files:
        stamp = file.stamp
        seen = (stamp.mtime_ns, stamp.ino, stamp.dev, stamp.size, stamp.ctime_ns)
        found.append((FILE, os.fsencode(file.path), seen))
        if file.layer == WORKSPACE:
            found += _approval(file.path, file.sha256, policy)
    found += [(ABSENT, os.fsencode(path)) for path in policy.missing_files]
    for name, value in profile.variables:
        found.append((VARIABLE, os.fsencode(name), None if value is None else os.fsencode(value)))
    for prefix, _ in profile.resolved:
        found += _leads_to(prefix)
    found += _git(policy.workspace)
    return tuple(dict.fromkeys(found))


def _approval(path: str, sha256: str, policy: Policy) -> list[Dependency]:
    """An approval that is withdrawn must count at once. Without one, consent came from the command or the key."""
    record = os.path.join(trust_folder(policy.environ), approval_key(path, sha256))
    return _identity(record) or []


def _leads_to(prefix: str) -> list[Dependency]:
    """A rule's fixed prefix and where it leads; for one that does not exist, the part of it that does."""
    known = _identity(prefix)
    if known is not None:
        return known
    found: list[Dependency] = [] if os.path.lexists(prefix) else [(ABSENT, os.fsencode(prefix))]
    parent = os.path.dirname(prefix)
    while parent != "/":
        known = _identity(parent)
        if known is not None:
            return found + known
        parent = os.path.dirname(parent)
    return found


def _identity(path: str) -> list[Dependency] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [(LEADS_TO, os.fsencode(path), (status.st_dev, status.st_ino))]


def _git(workspace: str) -> list[Dependency]:
    """`.git` as a file (worktree, submodule) names folders that rules follow, if those folders name it back."""
    dot_git = os.path.join(workspace, ".git")
    if os.path.isdir(dot_git):
        return _identity(dot_git) or []
    named = git_folders(workspace)
    beside = () if named is None else tuple(os.path.join(named.git_dir, name) for name in GIT_PROOFS)
    return [_content(path) for path in (dot_git, *beside)]


def _content(path: str) -> Dependency:
    try:
        status = os.stat(path)
    except OSError:
        return (ABSENT, os.fsencode(path))
    seen = (status.st_mtime_ns, status.st_ino, status.st_dev, status.st_size, status.st_ctime_ns)
    return (FILE, os.fsencode(path), seen)
