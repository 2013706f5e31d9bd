"""Text for terminals: the only user of rich, and only when there is a terminal to write to.

A line is a list of (text, style) spans; what a report says and how it looks are decided by whoever makes the spans.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import IO, TypeAlias

Span: TypeAlias = tuple[str, str]
Line: TypeAlias = Sequence[Span]

WIDE = 56

GOOD, BAD, WARN, DIM, STRONG, PLACE, PLAIN = "green", "red", "yellow", "dim", "bold", "cyan", ""


def is_terminal(stream: IO[str]) -> bool:
    """Does a person look at it? Layout and colour are for people only."""
    try:
        return stream.isatty() and os.environ.get("TERM", "") != "dumb"
    except ValueError:  # closed
        return False


def print_lines(lines: Iterable[Line], stream: IO[str]) -> None:
    """Print with colour as far as the terminal and NO_COLOR allow."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for line in lines:
        for part in wrapped(line, console.width):
            console.print(Text.assemble(*((text, style) for text, style in part)))


def wrapped(line: Line, width: int) -> list[Line]:
    """A line that is too long, broken between words, the rest below the last column (or a little indented, where that
    one begins far right). Words longer than a line (paths) stay whole."""
    from rich.cells import cell_len

    if sum(cell_len(text) for text, _ in line) <= width:
        return [line]
    indent = _hang(line, width)
    lines: list[Line] = []
    now: list[Span] = []
    used, has_word = 0, False
    for gap, word in _words(line):
        size = sum(cell_len(text) for text, _ in word)
        space = sum(cell_len(text) for text, _ in gap)
        if has_word and used + space + size > width:
            lines.append(now)
            now, used = [(" " * indent, PLAIN), *word], indent + size
        else:
            now, used = [*now, *gap, *word], used + space + size
        has_word = True
    return [*lines, now]


def _hang(line: Line, width: int) -> int:
    from rich.cells import cell_len

    last = max((index for index, (text, _) in enumerate(line) if text.strip()), default=0)
    start = sum(cell_len(text) for text, _ in line[:last])
    text = "".join(text for text, _ in line)
    plain = len(text) - len(text.lstrip(" ")) + 4
    return start if plain <= start <= width // 2 else plain


def _words(line: Line) -> Iterator[tuple[list[Span], list[Span]]]:
    """Each word with the space before it; where the style changes inside a word it is one word still."""
    gap: list[Span] = []
    word: list[Span] = []
    for text, style in line:
        for is_space, characters in groupby(text, str.isspace):
            if is_space and word:
                yield gap, word
                gap, word = [], []
            (gap if is_space else word).append(("".join(characters), style))
    if word:
        yield gap, word


def paragraph(label: str, text: str, label_style: str = DIM) -> list[Line]:
    """A label and a text that wraps beside it; long words (paths, commands) stay whole so that they can be copied."""
    from shutil import get_terminal_size
    from textwrap import wrap

    width = max(40, min(get_terminal_size().columns, 120) - len(label))
    pieces = wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]
    return [
        [(label if index == 0 else " " * len(label), label_style), (piece, PLAIN)] for index, piece in enumerate(pieces)
    ]


def columns(rows: Sequence[Sequence[Span]], *, indent: str = "", gap: int = 2) -> list[Line]:
    """Rows as aligned columns; the last column is not padded. A cell beyond WIDE pushes its own row alone."""
    from rich.cells import cell_len

    widths: list[int] = []
    for row in rows:
        for index, (text, _) in enumerate(row[:-1]):
            width = cell_len(text) if cell_len(text) <= WIDE else 0
            if index == len(widths):
                widths.append(width)
            else:
                widths[index] = max(widths[index], width)
    lines: list[Line] = []
    for row in rows:
        spans: list[Span] = [(indent, PLAIN)]
        for index, (text, style) in enumerate(row):
            padding = "" if index == len(row) - 1 else " " * (max(0, widths[index] - cell_len(text)) + gap)
            spans.append((text, style))
            spans.append((padding, PLAIN))
        lines.append(spans)
    return lines
