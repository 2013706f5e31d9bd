"""Two sandboxes on one tree: together they can do no more than each of them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from capabilities import requires
from runs import PATIENCE_S, Host

if TYPE_CHECKING:
    from conftest import Workspace

POLICY = """
denyModify: ["./**/.git/hooks/**"]
fsProfiles:
  p: {read: ["./**", "%s/**", "%s/**"], modify: ["./**"]}
"""
# One makes a name in a folder, the other moves the folder to where the name is denied.
LOOP = """
import os, sys
mine, over = sys.argv[1:]
for number in range(4000):
    try:
        if mine == "file":
            os.rename("x", "d/hooks")
            os.rename("d/hooks", "x")
        else:
            os.rename("d", "sub/.git")
            os.rename("sub/.git", "d")
    except OSError:
        pass
    if os.path.exists("sub/.git/hooks/pre-commit"):
        sys.exit("a hook was made")
    if os.path.exists(over):
        break
open(over, "w").close()
"""


@requires("userns", "notify")
def test_no_denied_name_comes_about_between_them(here: Host, workspace: Workspace) -> None:
    workspace.policy("schemaVersion: 2" + POLICY % (sys.prefix, sys.base_prefix))
    for folder in ("x", "d", "sub"):
        (workspace.root / folder).mkdir()
    (workspace.root / "x" / "pre-commit").write_text("#!/bin/sh\n")
    trusted = {"SBX_TRUST_WORKSPACE": "1"}
    python = (sys.executable, "-I", "-S", "-c", LOOP)
    command = ["--profile", "p", "--", *python]
    plain = here.run("--profile", "p", "--", "sh", "-c", "mkdir d/hooks && mv d sub/.git", env=trusted)
    assert b"Permission denied" in plain.stderr, "nobody judged: this shows nothing"
    (workspace.root / "d" / "hooks").rmdir()
    with (
        here.started(*command, "file", "over", env=trusted, cwd=workspace.root) as one,
        here.started(*command, "folder", "over", env=trusted, cwd=workspace.root) as other,
    ):
        for each in (one, other):
            _, errors = each.communicate(timeout=PATIENCE_S)
            assert (each.returncode, errors) == (0, b"")


@requires("userns", "notify")
def test_the_lock_is_out_of_a_commands_reach(here: Host, workspace: Workspace) -> None:
    """Who held it could stop every other sandbox."""
    lock = workspace.home / ".cache" / "sbx" / "turns"
    script = f"touch made; cat '{lock}'; ls -l /proc/self/fd"
    done = here.run("--read", "~/.cache/**", "--", "sh", "-c", script)
    assert b"turns" not in done.stdout
    assert lock.exists(), "nobody took turns: this shows nothing"
    assert b"No such file" in done.stderr or b"Permission denied" in done.stderr
    assert subprocess.run(["flock", "--nonblock", str(lock), "true"], check=False).returncode == 0
