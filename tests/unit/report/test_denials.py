"""What a traced run was denied: what is left out as harmless, and remedies that help without granting too much."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sbx.model.result import Denial
from sbx.model.verdict import MODIFY, READ
from sbx.policy.layers import effective_profile, load_policy
from sbx.report.denials import TARGET, denial_of, judged, traced
from sbx.report.view import View, view_of

POLICY = "schemaVersion: 2\nfsProfiles:\n  t:\n    read: ['./**']\n    modify: ['./out/**']\n"
Tries = list[tuple[str, int, bytes, int, bool, bytes, int]]


def view_in(workspace: Any, name: str | None = None) -> View:
    policy = load_policy(str(workspace.root), environ=os.environ, trust=False)
    return view_of(effective_profile(policy, name), policy)


@pytest.fixture
def view(workspace: Any) -> View:
    workspace.policy(POLICY)
    return view_in(workspace, "t")


def tries(*each: tuple[str, int, str]) -> Tries:
    return [(word, access, os.fsencode(path), TARGET, True, b"pip", 0) for word, access, path in each]


def denied(view: View, word: str, access: int, path: str) -> Denial:
    found = denial_of(view, word, access, path, view.workspace)
    assert found is not None
    return found


def test_a_look_at_the_home_folder_is_harmless(view: View) -> None:
    told = tries(("access", MODIFY, view.home), ("stat", READ, view.home), ("stat", READ, "/"))
    assert judged(view, told, (1, 2, 1), view.workspace) == ([], 4)


@pytest.mark.parametrize("access", [READ, MODIFY])
def test_no_remedy_opens_the_whole_home(view: View, access: int) -> None:
    for folder in (view.home,) if access == READ else (view.home, "/"):
        found = denied(view, "list" if access == READ else "write", access, folder)
        assert "~/**" not in found.remedy and "/**" not in found.remedy
        assert "grant what is needed below it" in found.remedy


def test_a_compiled_module_is_granted_with_its_folder(view: View) -> None:
    path = f"{view.workspace}/tests/__pycache__/test_b.cpython-311-pytest-9.2.0.pyc.2"
    assert '"./tests/__pycache__/**"' in denied(view, "create", MODIFY, path).remedy


def test_without_a_policy_file_the_remedy_is_an_option(workspace: Any) -> None:
    view = view_in(workspace)
    os.makedirs(f"{view.home}/data")
    assert denied(view, "list", READ, f"{view.home}/data").remedy == "for one run: sbx run --read '~/data/**'"
    assert denied(view, "create", MODIFY, f"{view.home}/data/x").remedy == (
        "for one run: sbx run --modify '~/data/x'; create it before the run: "
        "where the folder is hidden, a rule can only show what exists"
    )


def test_a_deny_that_stands_behind_a_missing_rule_is_introduced(workspace: Any) -> None:
    found = denied(view_in(workspace), "create", MODIFY, os.path.join(view_in(workspace).home, ".bashrc"))
    assert "bashrc" not in found.rule
    assert (
        found.remedy.startswith("even with a rule that allows it: ") and "is a deny that comes with sbx" in found.remedy
    )
    assert "create it" not in found.remedy


def test_what_could_not_be_read_outside_either_is_counted(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything: the answer is made up."""
    path = f"{view.home}/closed"
    with open(path, "w", encoding="ascii"):
        pass
    real = os.access
    monkeypatch.setattr(os, "access", lambda name, mode: name != path and real(name, mode))

    class Done:
        def __init__(self, status: int) -> None:
            counted = ((1, 1), 0, 0)
            self.prepared = {"view": view.entry(), "launch": {"cwd": os.fsencode(view.workspace)}}
            self.outcome = {"denied": tries(("read", READ, path)), "counted": counted, "status": status}
            self.denials: tuple[Denial, ...] = ()
            self.notes: list[str] = []

    failed, succeeded = Done(256), Done(0)
    traced(failed)  # type: ignore[arg-type]
    traced(succeeded)  # type: ignore[arg-type]
    assert failed.notes == ["1 path is hidden here and could not be read outside either"]
    assert failed.denials == () and succeeded.notes == []


def test_one_is_singular(view: View) -> None:
    class Done:
        prepared = {"view": view.entry(), "launch": {"cwd": os.fsencode(view.workspace)}}
        outcome: dict[str, Any] = {"counted": ((1, 1), 1, 0), "status": 256}
        denials: tuple[Denial, ...] = ()
        notes: list[str] = []

    target = f"{view.home}/there"
    os.mkdir(target)
    Done.outcome["denied"] = tries(("stat", READ, f"{view.home}/none"), ("list", READ, target))
    done = Done()
    traced(done)  # type: ignore[arg-type]
    assert len(done.denials) == 1
    assert done.notes[0].startswith("1 harmless try is not shown")
    assert done.notes[1].startswith("1 call could not be looked at")
