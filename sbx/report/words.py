"""Small texts that every report shares. Built-in modules only: `sbx explain` is on a time budget."""

from __future__ import annotations


def visible(text: str) -> str:
    """The text on one line, whatever bytes a file name holds: control characters and undecodable bytes escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as os.fsdecode keeps it
        return f"\\x{code - 0xDC00:02x}"
    return char.encode("unicode_escape").decode("ascii") if code < 0xD800 or code > 0xDFFF else f"\\u{code:04x}"


def place_of(file: str, line: int, cwd: str) -> str:
    """`file:line` as somebody in `cwd` would type it."""
    below = cwd.rstrip("/") + "/"
    shown = file[len(below) :] if file.startswith(below) else file
    return visible(f"{shown}:{line}" if line else shown)
