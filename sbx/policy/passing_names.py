"""Will a name be the same next time? From one run it can only be told by its looks.

What is gone when the run ends is looked at with suspicion: `m.tmpX3kP9q`, `.m.1234`, `x7Gh2kLq`. What stays has most
often the name it will have next time, but for dates, times and hashes.
"""

from __future__ import annotations

import re

from sbx.model.glob import escape

SHORTEST = 2  # what has to stay of a name for a glob to mean it, and not just anything
RANDOM_LENGTH = 6  # mkstemp(3) replaces six letters
LONG_NUMBER = 4  # digits of a year, a process, a moment
HASH_LENGTH = 8

# A word, a run of signs; `tmp` before a word and one or two digits behind a word are apart.
_PIECES = re.compile(r"tmp(?=[^\W_])|[a-z]{3,}(?=\d{1,2}(?![^\W_]))|[^\W_]+|[\W_]+")
_HEX = re.compile(r"[0-9a-f]+")
_NO_WORD = re.compile(r"[^aeiouyAEIOUY]{5}")
_CASE_CHANGES = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")


def next_time(name: str, *, stays: bool) -> str | None:
    """The glob for it: `name` itself, escaped; with `*` for what changes; None where nothing of it would be left."""
    pieces = _PIECES.findall(name)
    changes = [_numbered(piece) if stays else _looks_random(piece) for piece in pieces]
    for at in range(1, len(pieces)):
        if not stays and pieces[at - 1] == "tmp" and pieces[at].isalnum():
            changes[at] = True  # tmpx81b, but not tmp.file
    if not any(changes):
        return escape(name)
    # Beside a number or a hash that changes, other numbers do too: 2026-11-18.
    changes = [changed or piece.isdigit() for changed, piece in zip(changes, pieces, strict=True)]
    kept = "".join(piece for changed, piece in zip(changes, pieces, strict=True) if not changed)
    if len(kept) < SHORTEST:
        return escape(name) if stays else None
    return "".join("*" if changed else escape(piece) for changed, piece in zip(changes, pieces, strict=True))


def _numbered(piece: str) -> bool:
    if piece.isdigit():
        return len(piece) >= LONG_NUMBER
    return len(piece) >= HASH_LENGTH and bool(_HEX.fullmatch(piece)) and any(char.isdigit() for char in piece)


def _looks_random(piece: str) -> bool:
    if piece.isdigit():
        return True
    if len(piece) < RANDOM_LENGTH or not piece.isalnum():
        return False
    if any(char.isdigit() for char in piece):
        return True
    return bool(_NO_WORD.search(piece) or _CASE_CHANGES.search(piece))
