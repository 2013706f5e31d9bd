"""`sbx trust`: show what a workspace's policy grants, and approve its content."""

from __future__ import annotations

import os
from typing import Any

from sbx.cli.here import working_directory
from sbx.errors import UsageError
from sbx.policy.folders import find_workspace_file
from sbx.policy.grants import grants_in_words
from sbx.policy.layers import load_policy
from sbx.policy.trust import Approval, approve, forget, is_trusted, is_writable_by_others, list_approvals
from sbx.report.words import visible


def command(options: dict[str, Any], words: list[str]) -> int:
    if options.get("list"):
        return _list(words)
    path = _named_or_nearest(words)
    if options.get("forget"):
        count = forget(path, os.environ)
        print(f"{visible(path)}: {'approval withdrawn' if count else 'was not approved'}")
        return 0
    return _approve(path)


def _named_or_nearest(words: list[str]) -> str:
    if words:
        return os.path.join(working_directory(), words[0])
    found = find_workspace_file(os.path.realpath(working_directory()))
    if found is None:
        raise UsageError("there is no sbx.yaml here or above", remedy="'sbx init' writes one, or name a file")
    return found


def _approve(path: str) -> int:
    policy = load_policy(os.path.dirname(path), policy_file=path, environ=os.environ, trust=False)
    file = policy.files[-1]
    known = is_trusted(file.path, file.sha256, os.environ)
    # The hash of the very bytes that are shown: a change in between is not approved.
    approve(file.path, file.sha256, os.environ)
    print(f"{visible(file.path)} {'was approved before' if known else 'is approved now'}; it says:")
    for line in grants_in_words(policy, file):
        print(f"  {visible(line)}")
    if is_writable_by_others(file.path):
        print(f"  note: others may write to it; a change has to be approved again (chmod go-w {visible(file.path)})")
    return 0


def _list(words: list[str]) -> int:
    if words:
        raise UsageError("trust: --list takes no file", remedy="write 'sbx trust --list'")
    for approval in list_approvals(os.environ):
        print(f"{visible(approval.path)}: {approval.sha256[:12]}{_state(approval)}")
    return 0


def _state(approval: Approval) -> str:
    from sbx.policy.digest import sha256_hex

    if not os.path.isfile(approval.path):  # opening a FIFO would wait for a writer
        return " (gone)"
    try:
        with open(approval.path, "rb") as file:
            return "" if sha256_hex(file.read()) == approval.sha256 else " (changed since)"
    except OSError:
        return " (not readable)"
