"""Did you mean…? One function for keys, profiles, values and commands."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word closest to what was written, or None when nothing is close."""
    words = list(known)
    for candidate in words:
        if _folded(candidate) == _folded(word):
            return candidate
    swapped = _neighbours_swapped(word)
    for candidate in words:
        if candidate in swapped:  # the commonest slip of fast fingers, and a far one to difflib: gti
            return candidate
    from difflib import get_close_matches  # costs more than most policies: only on the way to an error

    folded = {_folded(candidate): candidate for candidate in words}
    found = get_close_matches(_folded(word[:80]), folded, n=1, cutoff=0.6)
    return folded[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy: the nearest spelling, or else all that there are."""
    words = sorted(known)
    close = nearest(word, words)
    if close is not None:
        return f"did you mean '{close}'?"
    if not words:
        return "there are none"
    return f"known: {', '.join(words)}"


def _neighbours_swapped(word: str) -> set[str]:
    return {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word[:80]) - 1)}


def _folded(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")
