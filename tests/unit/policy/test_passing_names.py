"""Which names will be the same next time."""

from __future__ import annotations

import pytest

from sbx.policy.passing_names import next_time


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("main.o", "main.o"),
        ("t.db-journal", "t.db-journal"),
        ("parser.tab.c", "parser.tab.c"),
        ("index.lock", "index.lock"),
        ("conf3.dir", "conf*.dir"),
        ("f0.o", "f0.o"),
        ("a.owXCPh0", "a.*"),
        ("m.tmpX3kP9q", "m.tmp*"),
        ("m.tmp.7", "m.tmp.*"),
        ("work.WFPXw5", "work.*"),
        ("tmpabcdefgh", "tmp*"),
        ("tmp.file", "tmp.file"),
        (".package.json.1234567", ".package.json.*"),
        ("x7Gh2kLq", None),
        ("a[b].tmp123", "a\\[b\\].tmp*"),
    ],
)
def test_what_is_gone_in_the_end(name: str, glob: str | None) -> None:
    assert next_time(name, stays=False) == glob


@pytest.mark.parametrize(
    ("name", "glob"),
    [
        ("f0.o", "f0.o"),
        ("libx.so.1.2.3", "libx.so.1.2.3"),
        ("x86_64", "x86_64"),
        ("CMakeCache.txt", "CMakeCache.txt"),
        ("log-2026-11-18.txt", "log-*-*-*.txt"),
        ("core.12345", "core.*"),
        ("main.3f2a1bc9.js", "main.*.js"),
        ("20261118", "20261118"),
    ],
)
def test_what_stays(name: str, glob: str) -> None:
    assert next_time(name, stays=True) == glob
