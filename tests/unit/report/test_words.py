from __future__ import annotations

import os

import pytest

from sbx.report.words import place_of, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("naïve ✓", "naïve ✓"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        (os.fsdecode(b"x\xff"), "x\\xff"),
        ("\u202etxt", "\\u202etxt"),
        ("\ud800", "\\ud800"),
    ],
)
def test_every_text_is_one_safe_line(text: str, shown: str) -> None:
    assert visible(text) == shown
    visible(text).encode("utf-8")


@pytest.mark.parametrize(
    ("file", "line", "cwd", "place"),
    [
        ("/w/sbx.yaml", 3, "/w", "sbx.yaml:3"),
        ("/w/sub/sbx.yaml", 3, "/w", "sub/sbx.yaml:3"),
        ("/wide/sbx.yaml", 3, "/w", "/wide/sbx.yaml:3"),
        ("/etc/sbx/policy.yaml", 1, "/", "etc/sbx/policy.yaml:1"),
        ("--deny", 0, "/w", "--deny"),
    ],
)
def test_places(file: str, line: int, cwd: str, place: str) -> None:
    assert place_of(file, line, cwd) == place
