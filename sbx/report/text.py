"""Text for terminals: the only user of rich, and only when there is a terminal to write to.

A line is a list of (text, style) spans; what a report says and how it looks are decided by whoever makes the spans.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import IO, TypeAlias

Span: TypeAlias = tuple[str, str]
Line: TypeAlias = Sequence[Span]

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
        console.print(Text.assemble(*((text, style) for text, style in line)))


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
    """Rows as aligned columns; the last column is not padded."""
    from rich.cells import cell_len

    widths: list[int] = []
    for row in rows:
        for index, (text, _) in enumerate(row[:-1]):
            width = cell_len(text)
            if index == len(widths):
                widths.append(width)
            else:
                widths[index] = max(widths[index], width)
    lines: list[Line] = []
    for row in rows:
        spans: list[Span] = [(indent, PLAIN)]
        for index, (text, style) in enumerate(row):
            padding = "" if index == len(row) - 1 else " " * (widths[index] - cell_len(text) + gap)
            spans.append((text, style))
            spans.append((padding, PLAIN))
        lines.append(spans)
    return lines
