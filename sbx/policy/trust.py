"""Which workspace policies a person approved.

One small file per approval, named by a hash over the policy's real path and its content: changed content is a new
policy, and a copy in another repository is another repository's policy. Existence is the whole record, so checking
costs one look, and approving or forgetting needs no lock.
"""

from __future__ import annotations

import os
import stat

from sbx.errors import SbxError
from sbx.model.records import dataclass
from sbx.policy.digest import sha256_hex
from sbx.policy.folders import state_folder
from sbx.policy.private_files import private_folder, read_private, write_private

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

CONSENT_VARIABLE = "SBX_TRUST_WORKSPACE"


@dataclass(frozen=True, slots=True)
class Approval:
    path: str
    sha256: str
    key: str


def trust_folder(environ: Mapping[str, str]) -> str:
    return os.path.join(state_folder(environ), "trust")


def approval_key(path: str, sha256: str) -> str:
    return sha256_hex(os.fsencode(os.path.realpath(path)) + b"\0" + sha256.encode("ascii"))


def is_trusted(path: str, sha256: str, environ: Mapping[str, str]) -> bool:
    """Was this very content of this very file approved, or is consent given for all (CI)?"""
    if environ.get(CONSENT_VARIABLE) == "1":
        return True
    entry = read_private(os.path.join(trust_folder(environ), approval_key(path, sha256)))
    return entry is not None and _parse(entry, "") is not None


def approve(path: str, sha256: str, environ: Mapping[str, str]) -> Approval:
    """Remember the content with this hash as approved. Raises SbxError when it cannot be stored safely."""
    folder = trust_folder(environ)
    key = approval_key(path, sha256)
    content = f"{sha256}\n".encode("ascii") + os.fsencode(os.path.realpath(path)) + b"\n"
    try:
        private_folder(folder)
        write_private(os.path.join(folder, key), content)
    except OSError as error:
        raise SbxError(
            f"the approval cannot be stored in {folder}: {error.strerror}",
            remedy="the folder must be yours, with nobody else allowed to write to it",
        ) from None
    return Approval(os.path.realpath(path), sha256, key)


def forget(path: str, environ: Mapping[str, str]) -> int:
    """Withdraw every approval of this file, whatever its content was; how many there were."""
    real = os.path.realpath(path)
    count = 0
    for approval in list_approvals(environ):
        if approval.path == real:
            try:
                os.unlink(os.path.join(trust_folder(environ), approval.key))
            except FileNotFoundError:
                continue
            count += 1
    return count


def list_approvals(environ: Mapping[str, str]) -> tuple[Approval, ...]:
    folder = trust_folder(environ)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return ()
    found = []
    for name in names:
        entry = read_private(os.path.join(folder, name))
        approval = _parse(entry, name) if entry is not None else None
        if approval is not None:
            found.append(approval)
    return tuple(sorted(found, key=lambda approval: (approval.path, approval.sha256)))


def _parse(entry: bytes, name: str) -> Approval | None:
    sha256, separator, path = entry.partition(b"\n")
    if not separator or len(sha256) != 64 or not path.endswith(b"\n"):
        return None
    return Approval(os.fsdecode(path[:-1]), sha256.decode("ascii", "replace"), name)


def is_writable_by_others(path: str) -> bool:
    """May somebody else change this file?"""
    try:
        status = os.stat(path)
    except OSError:
        return False
    return bool(status.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
