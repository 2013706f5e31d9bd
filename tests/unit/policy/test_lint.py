"""Findings: valid, but probably not meant. And the policy's own tests."""

from __future__ import annotations

import os
import socket

import pytest

from sbx.policy.layers import load_policy
from sbx.policy.lint import Severity, lint, run_tests


def messages(policy, severity: Severity | None = None) -> list[str]:
    return [str(finding) for finding in lint(policy) if severity in (None, finding.severity)]


@pytest.fixture
def findings(load):
    def findings(keys: str, top: str = "") -> list[str]:
        indented = "".join(f"    {line}\n" for line in keys.splitlines())
        return messages(load(f"{top}\nfsProfiles:\n  p:\n{indented}"))

    return findings


def test_a_sound_policy_has_none(workspace, findings) -> None:
    workspace.write("src/x")
    assert findings('read: ["./**"]\nmodify: ["./build/**"]', 'denyRead: ["./secret/**"]') == []


@pytest.mark.parametrize(
    ("keys", "piece"),
    [
        ('read: ["./src"]', "read rule './src' names a directory"),
        ('read: ["/**"]', "grants the whole file system"),
        ('read: ["**"]', "grants the whole file system"),
        ('read: ["~/**"]', "grants the whole home"),
        ('read: ["/run/docker.sock"]', "grants a socket"),
        ('read: ["./a/**", "./**"]', "'./a/**' never decides: './**'"),
        ('read: ["./**", "!./a/**", "./**"]', "'!./a/**' never decides"),
        ('read: ["~/.ssh/config"]', "'~/.ssh/config' never decides: '!~/.ssh/**'"),
        ('read: ["./**"]\nmodify: ["./*.o"]', "has wildcards"),
        ('env: {pass: ["*"]}', "passes the whole environment"),
        ("env: {pass: [NPM_TOKEN]}", "looks like a secret"),
        ("exec: []", "Windows cannot enforce an exec list"),
        ('network: {allow: ["api.example.com:443"]}', "Windows cannot enforce a network allow list"),
        ('modify: ["./x"]', "error: modify rule './x' is not covered"),
        ('read: ["${NO_SUCH}/x"]', "error: rule '${NO_SUCH}/x': the variable NO_SUCH is not set"),
    ],
)
def test_each_finding_has_a_place_and_a_remedy(workspace, findings, keys: str, piece: str) -> None:
    workspace.write("src/x")
    found = findings(keys)
    hits = [line for line in found if piece in line]
    assert hits, found
    assert all(line.startswith(f"{workspace.root}/sbx.yaml:") and "; " in line for line in hits)


def test_a_deny_that_meets_nothing(findings) -> None:
    found = findings('read: ["./**"]', 'denyRead: ["/srv/nowhere/**", "./x", "**/*.env"]')
    assert [line for line in found if "has no effect" in line] == [line for line in found if "/srv/nowhere/**" in line]
    assert len(found) == 1


def test_a_real_socket(workspace, findings, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("agent")  # relative: the address of a socket is short
        assert any("grants a socket" in line for line in findings('read: ["./agent"]'))


def test_files_beside_the_point(workspace, load) -> None:
    workspace.write("sbx.yml", "schemaVersion: 2\n")
    policy = load("fsProfiles: {}")
    os.chmod(workspace.root / "sbx.yaml", 0o666)
    found = messages(policy, Severity.WARNING)
    assert any("sbx.yml is not read" in line for line in found)
    assert any("others may write" in line for line in found)


def test_errors_come_first(load) -> None:
    policy = load('fsProfiles:\n  a: {read: ["/**"]}\n  b: {modify: ["./x"]}')
    severities = [finding.severity for finding in lint(policy)]
    assert severities[0] is Severity.ERROR
    assert Severity.WARNING in severities


class TestOwnTests:
    def outcomes(self, workspace, text: str):
        path = workspace.policy("schemaVersion: 2\n" + text)
        return run_tests(load_policy(str(workspace.root), policy_file=str(path), environ=os.environ))

    def test_each_expectation_is_asked(self, workspace) -> None:
        outcomes = self.outcomes(
            workspace,
            """
denyRead: ["**/*.env"]
fsProfiles: {b: {read: ["./**"], modify: ["./build/**"]}}
tests:
  - {profile: b, path: ./x.env, read: deny}
  - {profile: b, path: ./build/x.o, read: allow, modify: allow}
  - {profile: b, path: src/main.c, modify: allow}
  - {path: ~/.ssh/id_rsa, read: deny}
""",
        )
        assert [(outcome.test.path, outcome.access.value, outcome.passed) for outcome in outcomes] == [
            ("./x.env", "read", True),
            ("./build/x.o", "read", True),
            ("./build/x.o", "modify", True),
            ("src/main.c", "modify", False),
            ("~/.ssh/id_rsa", "read", True),
        ]
        failed = outcomes[3]
        assert failed.decision is not None
        assert failed.test.source.line == 8

    def test_a_test_of_an_unknown_profile_fails_in_words(self, workspace) -> None:
        (outcome,) = self.outcomes(workspace, "tests: [{profile: biuld, path: x, read: allow}]")
        assert not outcome.passed
        assert "did you mean 'build'" in outcome.problem
