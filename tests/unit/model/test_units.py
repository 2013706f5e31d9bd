from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.model.units import (
    MAX_BYTES,
    BadUnit,
    format_duration,
    format_size,
    parse_count,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30), ("30s", 30), ("5m", 300), ("1h30m", 5400), ("500ms", 0.5), ("1.5s", 1.5), ("1m500ms", 60.5), ("0", 0),
     ("1d", 86400), ("2H", 7200)]
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    ["", "s", "5x", "-5", "1h1h", "30m1h", "1h30", "5 m", "1..5", ".", "1e5", "99999d", "nan", "inf", "٣s", "3s!"],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadUnit) as caught:
        parse_duration(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("512", 512), ("512MiB", 512 * 2**20), ("512M", 512 * 2**20), ("1GB", 10**9), ("1g", 2**30), ("1.5K", 1536),
     ("10B", 10), ("2 KiB", 2048), ("1TiB", 2**40), ("0", 0)]
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1X", "1MM", "1 M B", "1e9", "99999999T", "0x10"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadUnit):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "-1", "1.5", "many", "1e3", "٣", "9999999999"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(BadUnit):
        parse_count(text)


@given(st.integers(0, 365 * 86400 * 1000))
def test_a_formatted_duration_reads_back(milliseconds: int) -> None:
    assert round(parse_duration(format_duration(milliseconds / 1000)) * 1000) == milliseconds


@given(st.integers(0, 2**50))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_size(format_size(size)) == size <= MAX_BYTES


@pytest.mark.parametrize(
    ("text", "words"),
    [("-5", "is negative"), ("10 minutes", "has a space in it"), ("ten", "does not start with a number")],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(BadUnit, match=words):
        parse_duration(text)
