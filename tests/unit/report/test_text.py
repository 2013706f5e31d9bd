"""Lines for a terminal: broken between words, the rest below where the text began."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.report.text import Line, columns, print_lines, wrapped


def shown(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line) for line in lines]


def test_what_fits_is_left_alone() -> None:
    line = [("label  ", "dim"), ("a b", "")]
    assert wrapped(line, 10) == [line]


def test_the_rest_hangs_below_the_text() -> None:
    line = [("  note  ", "dim"), ("pid and ipc namespaces with a folder", "")]
    assert shown(wrapped(line, 24)) == ["  note  pid and ipc", "        namespaces with", "        a folder"]


def test_a_text_that_begins_far_right_is_indented_a_little() -> None:
    line = [
        ("  ", ""),
        ("/a/rule/that/is/long/**", ""),
        ("  ", ""),
        ("denies.yaml:8", ""),
        ("  ", ""),
        ("shipped deny", ""),
    ]
    assert shown(wrapped(line, 40)) == ["  /a/rule/that/is/long/**  denies.yaml:8", "      shipped deny"]


def test_a_long_word_stays_whole_also_across_styles() -> None:
    path = "/home/somebody/a/folder/with/a/long/name"
    line = [("read ", ""), (path[:10], "red"), (path[10:], ""), (" by cat", "")]
    assert shown(wrapped(line, 20)) == ["read", "    " + path, "    by cat"]


@given(st.lists(st.tuples(st.text("ab /", max_size=30), st.sampled_from(["", "dim"])), max_size=5), st.integers(10, 60))
def test_no_word_is_lost(line: list[tuple[str, str]], width: int) -> None:
    text = "".join(text for text, _ in line)
    assert " ".join(shown(wrapped(line, width))).split() == text.split()


def test_one_wide_cell_does_not_push_the_other_rows() -> None:
    rows = [[("a", ""), ("x", "")], [("b" * 200, ""), ("y", "")], [("ccc", ""), ("z", "")]]
    assert [text.rstrip() for text in shown(columns(rows))] == ["a    x", "b" * 200 + "  y", "ccc  z"]


def test_lines_are_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    print_lines([[("label ", ""), ("word " * 30, "")]], stream)
    assert all(len(line) <= 40 for line in stream.getvalue().splitlines())
