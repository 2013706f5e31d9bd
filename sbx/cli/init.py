"""`sbx init`: look at the folder, propose a policy that fits, approve it."""

from __future__ import annotations

import os
from typing import Any

from sbx.cli.here import working_directory
from sbx.errors import SbxError, UsageError
from sbx.policy.digest import sha256_hex
from sbx.policy.folders import WORKSPACE_FILE, find_workspace_file
from sbx.policy.layers import load_policy
from sbx.policy.starter import look_at, starter
from sbx.policy.trust import approve
from sbx.policy.wide import what_it_is
from sbx.report.words import visible


def command(options: dict[str, Any], words: list[str]) -> int:
    folder = os.path.realpath(working_directory())
    kinds = look_at(folder)
    text = starter(folder, kinds)
    if options.get("print"):
        print(text, end="")
        return 0
    if what := what_it_is(folder, os.environ):
        raise UsageError(
            f"this folder is {what}: a policy here would stand for every folder below it",
            remedy="run 'sbx init' in a project's folder; 'sbx init --print' prints the proposal",
        )
    path = os.path.join(folder, WORKSPACE_FILE)
    above = find_workspace_file(os.path.dirname(folder))
    _write(path, text.encode())
    # What was written is what is approved, and it is used by no run before it passed the same checks as any policy.
    file = load_policy(folder, environ=os.environ, trust=False).files[-1]
    if file.sha256 != sha256_hex(text.encode()):
        raise SbxError(f"{path} was changed by somebody else meanwhile", remedy="read it, then run 'sbx trust'")
    approve(path, file.sha256, os.environ)
    print(f"wrote and approved {visible(path)}")
    if kinds:
        print(f"it fits what is here: {', '.join(kind.name for kind in kinds)}")
    if above is not None:
        print(f"note: inside this folder it takes the place of {visible(above)}")
    build = next((kind.build for kind in kinds if kind.build), "make")
    print(f"next: read it, then 'sbx check' and 'sbx run --profile build -- {build}'")
    return 0


def _write(path: str, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        descriptor = os.open(path, flags, 0o644)
    except FileExistsError:
        raise UsageError(
            f"{path} is there already", remedy="edit it, or compare it with what 'sbx init --print' proposes"
        ) from None
    except OSError as error:
        raise SbxError(f"{path} cannot be written: {error.strerror}", remedy="'sbx init --print' prints it") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
