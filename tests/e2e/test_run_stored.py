"""A stored plan is carried out while it is checked: an outdated one must have started nothing."""

from __future__ import annotations

import json
from pathlib import Path

from conftest import Workspace
from runs import Host

POLICY = """\
schemaVersion: 2
fsProfiles:
  mine:
    extends: build
    read: ["./**"]
    modify: ["./**"]
denyRead: [{denied}]
"""
LOOK = ("--profile", "mine", "--", "sh", "-c", "echo ran >>runs; cat secret")


def plans(workspace: Workspace) -> list[Path]:
    return [each for each in (workspace.home / ".cache/sbx/plans").iterdir() if each.name != "hot-path"]


def test_a_policy_that_changed_holds_at_the_next_start(here: Host, workspace: Workspace) -> None:
    workspace.write("secret", "seen\n")
    trust = {"SBX_TRUST_WORKSPACE": "1"}
    for denied, expected in (("", b"seen\n"), ('"./secret"', b""), ("", b"seen\n")) * 2:
        workspace.write("sbx.yaml", POLICY.format(denied=denied))
        (workspace.root / "runs").unlink(missing_ok=True)
        first = here.run(*LOOK, env=trust)
        assert first.stdout == expected, first.stderr
        # Once, and not a second time under the plan that was no longer true.
        assert (workspace.root / "runs").read_text() == "ran\n"
        assert here.run(*LOOK, env=trust).stdout == expected
        assert (workspace.root / "runs").read_text() == "ran\n" * 2


def test_a_folder_that_a_stale_plan_would_make_is_not_made(here: Host, workspace: Workspace) -> None:
    trust = {"SBX_TRUST_WORKSPACE": "1"}
    making = POLICY.format(denied="").replace("build", "lint").replace('modify: ["./**"]', 'modify: ["./out/**"]')
    workspace.write("sbx.yaml", making)
    for _ in range(2):
        assert here.run("--profile", "mine", "--", "true", env=trust).returncode == 0
    assert plans(workspace)
    (workspace.root / "out").rmdir()
    workspace.write("sbx.yaml", making.replace("./out/", "./other/"))
    assert here.run("--profile", "mine", "--", "true", env=trust).returncode == 0
    assert not (workspace.root / "out").exists()
    assert (workspace.root / "other").is_dir()


def test_the_first_run_is_recorded_as_the_next_one(here: Host, workspace: Workspace) -> None:
    """It makes the plan, and from there on it is the same run."""
    workspace.write("sbx.yaml", POLICY.format(denied=""))
    for _ in range(2):
        done = here.run("--profile", "mine", "--", "true", env={"SBX_TRUST_WORKSPACE": "1"})
        assert (done.returncode, done.stderr) == (0, b"")
    lines = (workspace.home / ".local/state/sbx/audit.jsonl").read_text().splitlines()
    first, second = ({**json.loads(line), "time": "", "traceId": "", "duration_ms": 0} for line in lines)
    assert first == second
    assert plans(workspace)
