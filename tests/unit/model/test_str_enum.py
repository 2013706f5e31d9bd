"""Sets of words do what those of `enum` do."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest

from sbx.model import str_enum


class Own(str_enum.StrEnum):
    """Some words."""

    LEFT = "to the left"
    RIGHT = "right"

    @property
    def loud(self) -> str:
        return self.upper()


class Usual(enum.StrEnum):
    LEFT = "to the left"
    RIGHT = "right"


def looks(words: Any) -> list[object]:
    """What can be seen of such a set from outside, but for the names of its class."""
    left = words.LEFT
    return [
        str(left), f"{left:>20}", left.name, left.value, left == "to the left", left == "to the left", left == "other",
        hash(left) == hash("to the left"), {left: 1}["to the left"], left is words("to the left"),
        left is words["LEFT"], [each.name for each in words], [each.name for each in reversed(words)], len(words),
        bool(words), isinstance(left, words), isinstance(left, str), left in words, words.RIGHT in (left,),
        list(words.__members__),
        type(str(left)), type(left.value), repr(left).replace(words.__name__, ""), words.__name__, words.__qualname__,
        json.dumps({left: [left]}), "/".join([left]), left.upper(), words(left) is left,
    ]  # fmt: skip


def test_it_looks_like_that_of_enum() -> None:
    own = looks(Own)
    assert own == [each if each != "Usual" else "Own" for each in looks(Usual)]


def test_a_member_stays_itself() -> None:
    assert copy.copy(Own.LEFT) is Own.LEFT
    assert copy.deepcopy([Own.LEFT])[0] is Own.LEFT
    assert all(pickle.loads(pickle.dumps(Own.LEFT, each)) is Own.LEFT for each in range(pickle.HIGHEST_PROTOCOL + 1))
    assert Own.LEFT.loud == "TO THE LEFT"
    assert Own.__doc__ == "Some words."


@pytest.mark.parametrize("text", ["left", "LEFT", "", None, 3, []])
def test_what_is_no_word_of_it_is_refused_in_the_same_words(text: Any) -> None:
    with pytest.raises(ValueError) as usual:
        Usual(text)
    with pytest.raises(ValueError) as own:
        Own(text)
    assert str(own.value) == str(usual.value).replace("Usual", "Own")


def test_it_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Own.LEFT = Own.RIGHT  # type: ignore[assignment, misc, unused-ignore]
    with pytest.raises(AttributeError):
        del Own.LEFT
    with pytest.raises(AttributeError):
        Own.LEFT.value = "right"  # type: ignore[misc]
    with pytest.raises(KeyError):
        Own["MIDDLE"]
    with pytest.raises(ValueError, match="second time"):
        type(Own)("Twice", (str_enum.StrEnum,), {"A": "a", "B": "a"})
