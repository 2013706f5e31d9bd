"""`sbx explain --net`: verdict, rule, place and what would change it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Sbx, Workspace

POLICY = """\
schemaVersion: 2
fsProfiles:
  listed:
    read: ["./**"]
    network: {allow: ["api.example.com:443", "*.pkg.example.com:8443", "127.0.0.1:9000"]}
  open: {read: ["./**"], network: host}
  closed: {read: ["./**"]}
"""


@pytest.fixture(autouse=True)
def policy(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.policy(POLICY)
    monkeypatch.setenv("SBX_TRUST_WORKSPACE", "1")


@pytest.mark.parametrize(
    ("profile", "target", "rc", "words"),
    [
        ("listed", "api.example.com:443", 0, "decided by api.example.com:443 (sbx.yaml:5)"),
        ("listed", "API.Example.Com.:443", 0, "is really api.example.com:443"),
        ("listed", "a.b.pkg.example.com:8443", 0, "decided by *.pkg.example.com:8443 (sbx.yaml:5)"),
        ("listed", "127.0.0.1:9000", 0, "the host's own network"),
        ("listed", "0x7f.1:9000", 0, "is really 127.0.0.1:9000"),
        ("listed", "api.example.com:80", 1, "denied: no rule for this port, only for 443"),
        ("listed", "pkg.example.com:8443", 1, "covers the names below pkg.example.com"),
        ("listed", "evil.example.net:443", 1,
         'change: add "evil.example.net:443" to network: {allow: [...]} of profile listed'),
        ("listed", "evil.example.net:443", 1,
         "for one run: sbx run --net api.example.com:443 --net *.pkg.example.com:8443 --net 127.0.0.1:9000 "
         "--net evil.example.net:443"),
        ("listed", "[2001:db8::1]:443", 1, 'change: add "[2001:db8::1]:443"'),
        ("open", "evil.example.net:443", 0, "allowed: the host's network, whole"),
        ("closed", "api.example.com:443", 1, "denied: the profile has no network"),
    ],
)  # fmt: skip
def test_the_verdict_and_its_reason(sbx: Sbx, profile: str, target: str, rc: int, words: str) -> None:
    said = sbx("explain", "--profile", profile, "--net", target)
    assert said.rc == rc, said.stderr
    assert words in said.stdout


def test_several_at_once_as_json(sbx: Sbx) -> None:
    said = sbx(
        "explain", "--profile", "listed", "--json", "--net", "api.example.com:443", "--net", "evil.example.net:443"
    )
    assert said.rc == 1
    found = json.loads(said.stdout)
    assert found["allowed"] is False
    first, second = found["network"]
    assert (first["allowed"], first["rule"], first["line"]) == (True, "api.example.com:443", 5)
    assert (second["allowed"], second["rule"], second["reason"]) == (False, None, "no rule")
    assert [each["kind"] for each in second["changes"]] == ["policy", "option"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--net", "example.com"),
        ("--net", "a b:1"),
        ("--net", "x:0"),
        ("--net", "x:1", "some/path"),
        ("--net", "x:1", "--read"),
    ],
)
def test_what_cannot_be_asked(sbx: Sbx, arguments: tuple[str, ...]) -> None:
    said = sbx("explain", *arguments)
    assert said.rc == 2
    assert said.stdout == ""
    assert "--net" in said.stderr
