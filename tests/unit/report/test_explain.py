"""explain says what decide() says, with the reasons; and what it advises really helps."""

from __future__ import annotations

import marshal
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.model.decide import decide
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access
from sbx.model.verdict import MODIFY, READ
from sbx.policy.document import Policy, RunRules
from sbx.policy.layers import effective_profile, load_policy
from sbx.report.explain import Answer, explain, plain_lines, to_json
from sbx.report.explain_terminal import terminal_lines
from sbx.report.view import View, from_entry, view_of

POLICY = """\
schemaVersion: 2
denyRead: ["**/*.env"]
denyModify: ["./locked/**"]
fsProfiles:
  build:
    read: ["./**", "!./private/**"]
    modify: ["./build/**", "./locked/**"]
"""


NO_RULES = RunRules()


def load(workspace: Any, name: str = "build", rules: RunRules = NO_RULES) -> tuple[Policy, EffectiveProfile]:
    policy = load_policy(str(workspace.root), environ=os.environ, trust=False)
    return policy, effective_profile(policy, name, rules)


@pytest.fixture
def view(workspace: Any) -> View:
    workspace.policy(POLICY)
    policy, profile = load(workspace)
    return view_of(profile, policy)


def ask(view: View, path: str, *accesses: int) -> Answer:
    return explain(view, path, accesses or (READ, MODIFY), view.workspace)


def texts(answer: Answer, number: int = 0) -> str:
    return " | ".join(text for _, text in answer.verdicts[number].changes)


def test_a_stored_view_answers_alike(view: View) -> None:
    again = from_entry(marshal.loads(marshal.dumps(view.entry())))
    assert again is not None
    for path in ("x.env", "build/x", "private/x", "/etc/passwd"):
        cwd = view.workspace
        assert plain_lines(again, [ask(again, path)], cwd) == plain_lines(view, [ask(view, path)], cwd)
    assert from_entry({**view.entry(), "format": -1}) is None


names = st.sampled_from(["build", "private", "locked", "x.env", "a", "b", ".git", "config", "sbx.yaml"])


@given(parts=st.lists(names, min_size=1, max_size=4))
def test_the_verdict_is_that_of_decide(parts: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    profile, view = _shared(tmp_path_factory)
    path = "/".join(parts)
    for access, number in ((Access.READ, READ), (Access.MODIFY, MODIFY)):
        decision = decide(profile, path, access)
        verdict = explain(view, path, (number,), view.workspace).verdicts[0]
        assert verdict.allowed == decision.allowed
        deciding = verdict.deciding
        assert deciding is not None
        winner = None if deciding.winner is None else (deciding.winner.text, deciding.winner.line)
        assert winner == (None if decision.winner is None else (str(decision.winner), decision.winner.source.line))


_made: list[tuple[EffectiveProfile, View]] = []


def _shared(factory: pytest.TempPathFactory) -> tuple[EffectiveProfile, View]:
    if not _made:
        root = factory.mktemp("shared").resolve()
        (root / "sbx.yaml").write_text(POLICY)
        policy = load_policy(str(root), environ=os.environ, trust=False)
        profile = effective_profile(policy, "build")
        _made.append((profile, view_of(profile, policy)))
    return _made[0]


def test_a_deny_cannot_be_undone_and_names_its_line(view: View) -> None:
    answer = ask(view, "x.env", READ)
    assert not answer.allowed
    assert "cannot be undone" in texts(answer)
    assert f"{view.workspace}/sbx.yaml:2" in texts(answer)


def test_a_shipped_deny_says_who_may_drop_it(view: View) -> None:
    assert "shippedDenies: false" in texts(ask(view, os.path.expanduser("~/.ssh/id_rsa"), READ))


def test_the_policy_file_is_always_protected(view: View) -> None:
    answer = ask(view, "sbx.yaml", MODIFY)
    assert [kind for kind, _ in answer.verdicts[0].changes] == ["none"]


def test_an_option_that_denies_is_named(workspace: Any) -> None:
    workspace.policy(POLICY)
    policy, profile = load(workspace, rules=RunRules(deny=("./build/secret",)))
    answer = ask(view_of(profile, policy), "build/secret", READ)
    assert texts(answer) == "leave out --deny ./build/secret"


@pytest.mark.parametrize("path", ["private/x", "odd [name]*", "build", "private"])
@pytest.mark.parametrize("access", [READ, MODIFY])
def test_the_option_it_advises_helps(workspace: Any, path: str, access: int) -> None:
    workspace.policy(POLICY)
    workspace.write("private/x")
    workspace.write("build/keep")
    policy, profile = load(workspace)
    answer = ask(view_of(profile, policy), path, access)
    if answer.allowed:
        return
    advised = next(text for kind, text in answer.verdicts[0].changes if kind == "option")
    words = shlex.split(advised.removeprefix("for one run: "))
    assert words[:2] == ["sbx", "run"]
    rules = RunRules(**{words[2].removeprefix("--"): (words[3],)})
    policy, profile = load(workspace, rules=rules)
    assert ask(view_of(profile, policy), path, access).allowed


def test_the_line_it_advises_for_a_shipped_profile_helps(workspace: Any) -> None:
    outside = Path("/no-such-folder-of-anybody")
    policy, profile = load(workspace, "lint")
    answer = ask(view_of(profile, policy), str(outside / "x"), MODIFY)
    advised = next(text for kind, text in answer.verdicts[0].changes if kind == "policy")
    head, _, line = advised.partition(": fsProfiles: ")
    assert head.startswith(f"in {workspace.root}/sbx.yaml")
    workspace.policy(f"schemaVersion: 2\nfsProfiles: {line}\n")
    policy, profile = load(workspace, "lint")
    assert ask(view_of(profile, policy), str(outside / "x"), MODIFY).allowed


def test_advice_for_a_profile_of_the_workspace_names_its_line(view: View) -> None:
    assert f"of profile build in {view.workspace}/sbx.yaml:5" in texts(ask(view, "other", MODIFY))


def test_modify_says_when_reading_is_what_failed(view: View) -> None:
    lines = plain_lines(view, [ask(view, "build/x.env", MODIFY)], view.workspace)
    assert lines[0] == "build/x.env: modify: denied (it may not be read)"
    assert any("decided by !**/*.env (sbx.yaml:2, deny) in the read list" in line for line in lines)


def test_both_lists_that_deny_are_shown(view: View) -> None:
    lines = plain_lines(view, [ask(view, "private/x", MODIFY)], view.workspace)
    assert any("decided by !./private/**" in line for line in lines)
    # Below /tmp, a rule of the baseline keeps the workspace out of the private folder's grant.
    assert any("no rule matched, which is a denial" in line or "also denied by" in line for line in lines)


def test_symlinks_are_decided_by_where_they_lead(view: View, workspace: Any) -> None:
    workspace.write("build/real")
    (workspace.root / "link").symlink_to("build/real")
    answer = ask(view, "link")
    assert answer.location == f"{view.workspace}/build/real"
    assert plain_lines(view, [answer], view.workspace)[0] == f"link: is really {view.workspace}/build/real"


def test_a_loop_of_symlinks_is_denied_with_words(view: View, workspace: Any) -> None:
    (workspace.root / "loop").symlink_to("loop")
    answer = ask(view, "loop")
    assert not answer.allowed
    assert answer.location is None
    assert "loop" in plain_lines(view, [answer], view.workspace)[-1]
    assert terminal_lines(view, [answer], view.workspace)
    assert to_json(view, [answer])["paths"][0]["location"] is None


def test_what_decided_is_said_to_be_inexact_where_it_is(view: View) -> None:
    row = ask(view, "x.env", READ).verdicts[0].deciding.winner
    key = ("read", "!**/*.env", f"{row.file}:{row.line}")
    view.guarantees[key] = ("snapshot", "mounts", "holds for what existed")
    answer = ask(view, "x.env", READ)
    line = "x.env: read: enforced snapshot: mounts (holds for what existed)"
    assert line in plain_lines(view, [answer], view.workspace)
    assert to_json(view, [answer])["paths"][0]["verdicts"][0]["enforced"]["exactness"] == "snapshot"
    view.guarantees[key] = ("exact", "mounts", "")
    answer = ask(view, "x.env", READ)
    assert not any("enforced" in line for line in plain_lines(view, [answer], view.workspace))
    assert to_json(view, [answer])["paths"][0]["verdicts"][0]["enforced"]["mechanism"] == "mounts"


def test_odd_names_stay_on_their_line(view: View) -> None:
    lines = plain_lines(view, [ask(view, "a\nb\udcff")], view.workspace)
    assert all(line.startswith("a\\nb\\xff: ") for line in lines)
