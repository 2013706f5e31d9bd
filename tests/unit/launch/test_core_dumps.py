"""Which denies a core file could meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sbx.launch.core_dumps import may_be_denied
from sbx.model.glob import parse

if TYPE_CHECKING:
    from sbx.model.verdict import Judge


def judge(*denied: str) -> Judge:
    rules = ((False, (parse("/w/**"),)), *((True, (parse(text),)) for text in denied))
    return ((False, (parse("/w/**"),)),), rules, None


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "denied", "expected"),
    [
        (b"core", b"0", "/w/**/core", True),
        (b"core", b"0", "/w/**/c*", True),
        (b"core", b"0", "/w/sub/*", True),
        (b"core", b"0", "/w/**/*.pem", False),
        (b"core", b"0", "/w/**/core.*", False),
        (b"core", b"1", "/w/**/core.*", True),
        (b"core", b"1", "/w/**/core.77", True),
        (b"core", b"1", "/w/**/*.pem", False),
        (b"core", b"1", "/w/**/.env", False),
        (b"core.%p", b"0", "/w/**/core.[1-9]*", True),
        (b"%t-%p.core", b"0", "/w/**/*.core", True),
        (b"%t-%p.core", b"0", "/w/**/*.cores", False),
        (b"core.%e", b"0", "/w/**/.env", True),  # the program's name is the command's to choose
        (b"/var/crash/core.%p", b"0", "/w/**/core.*", True),
        (b"|/usr/lib/handler %e", b"0", "/w/**/core", False),
        (b"@/run/handler", b"0", "/w/**", False),
        (b"core", b"0", "/w/.git/hooks/**", False),
    ],
)
def test_may_be_denied(pattern: bytes, uses_pid: bytes, denied: str, expected: bool) -> None:
    assert may_be_denied(judge(denied), pattern, uses_pid) is expected


def test_without_denies_core_files_stay() -> None:
    assert not may_be_denied(judge(), b"core.%e", b"1")
