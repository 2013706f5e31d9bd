"""The layers of policy, weakest first, and their merge.

    shipped     the profiles, denies and baseline that come with sbx
    system      /etc/sbx/policy.yaml
    user        $XDG_CONFIG_HOME/sbx/policy.yaml
    workspace   the nearest sbx.yaml at or above the working directory, or --policy FILE in its place

The workspace is the folder of the nearest sbx.yaml, also under --policy; without one it is the working directory.
A later layer replaces a profile of the same name; denies accumulate.
"""

from __future__ import annotations

import os

from sbx.errors import UntrustedPolicy
from sbx.policy.cache import load_cached
from sbx.policy.document import (
    SHIPPED,
    SYSTEM,
    USER,
    WORKSPACE,
    Policy,
    PolicyFile,
    ProfileSource,
    RunRules,
)
from sbx.policy.effective import effective_profile, extends_chain
from sbx.policy.folders import (
    SYSTEM_FILE,
    WORKSPACE_FILE,
    cache_folder,
    config_folder,
    find_workspace_file,
    shipped_folder,
    state_folder,
)
from sbx.policy.trust import CONSENT_VARIABLE, is_trusted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Policy", "ProfileSource", "RunRules", "effective_profile", "load_policy"]

SHIPPED_FILES = ("baseline.yaml", "denies.yaml", "profiles.yaml")


def load_policy(
    cwd: str,
    *,
    policy_file: str | None = None,
    environ: Mapping[str, str],
    trust: bool = True,
    system_file: str = SYSTEM_FILE,
) -> Policy:
    """All layers for a working directory. Raises PolicyError, and UntrustedPolicy unless `trust` is False.

    With `trust=False` (check, trust, init) an unapproved workspace file is loaded and `Policy.trusted` says so.
    """
    folder = os.path.realpath(cwd)
    found = find_workspace_file(folder)
    workspace = os.path.dirname(found) if found is not None else folder
    named = os.path.join(folder, policy_file) if policy_file is not None else None
    files = [_load(os.path.join(shipped_folder(), name), SHIPPED, environ) for name in SHIPPED_FILES]
    missing = _nearer_files(folder, found)
    for path, layer in ((system_file, SYSTEM), (os.path.join(config_folder(environ), "policy.yaml"), USER)):
        if _exists(path):
            files.append(_load(path, layer, environ))
        else:
            missing.append(path)
    last = named or found
    trusted = True
    if last is not None:
        files.append(_load(last, WORKSPACE, environ))
        trusted = named is not None or is_trusted(last, files[-1].sha256, environ)
    policy = Policy(
        workspace=workspace,
        cwd=folder,
        files=tuple(files),
        profiles=merge_profiles(files),
        trusted=trusted,
        workspace_file=last,
        missing_files=tuple(missing),
        own_folders=_own_folders(environ, system_file),
        environ=dict(environ),
    )
    for profile in policy.profiles.values():
        extends_chain(policy.profiles, profile)  # a circle in one profile is a broken policy, whichever is used
    if trust and not trusted:
        raise untrusted(policy, files[-1])
    return policy


def merge_profiles(files: list[PolicyFile]) -> dict[str, ProfileSource]:
    """Profiles by name; a later layer's beats an earlier one's, and remembers it."""
    from sbx.model.records import replace

    merged: dict[str, ProfileSource] = {}
    for file in files:
        for profile in file.profiles:
            merged[profile.name] = replace(profile, replaces=merged.get(profile.name))
    return merged


def untrusted(policy: Policy, file: PolicyFile) -> UntrustedPolicy:
    from sbx.policy.grants import grants_in_words

    return UntrustedPolicy(
        f"{file.path} was found here, and nobody approved its content yet",
        remedy=f"read it, then run 'sbx trust'; or name it with --policy; or set {CONSENT_VARIABLE}=1 in CI",
        details=grants_in_words(policy, file),
    )


def _load(path: str, layer: str, environ: Mapping[str, str]) -> PolicyFile:
    return load_cached(path, layer, environ, _load_fresh)


def _load_fresh(path: str, layer: str) -> PolicyFile:
    from sbx.policy.load import load_file  # the YAML parser costs more than all the rest

    return load_file(path, layer)


def _exists(path: str) -> bool:
    """Is there something, readable or not? A policy that cannot be looked at must not be taken for none."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _nearer_files(folder: str, found: str | None) -> list[str]:
    """Where a nearer sbx.yaml could appear."""
    missing = []
    stop = None if found is None else os.path.dirname(found)
    while folder != stop:
        missing.append(os.path.join(folder, WORKSPACE_FILE))
        parent = os.path.dirname(folder)
        if parent == folder:
            break
        folder = parent
    return missing


def _own_folders(environ: Mapping[str, str], system_file: str) -> tuple[tuple[str, str], ...]:
    return (
        ("system configuration", os.path.dirname(system_file)),
        ("configuration", config_folder(environ)),
        ("trust and audit", state_folder(environ)),
        ("cache", cache_folder(environ)),
    )
