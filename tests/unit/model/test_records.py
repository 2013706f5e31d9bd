"""Records mean what `dataclasses` would have made of them: the same classes are made both ways and compared."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import pickle
from pathlib import Path
from typing import Any

import pytest

import sbx
from sbx.model import records
from sbx.model.plan import Op, Operation
from sbx.model.source import Source

PACKAGE = Path(sbx.__file__).parent


def both(body: dict[str, Any], **options: Any) -> tuple[Any, Any]:
    """One class made by `dataclasses`, and by `records`."""
    made = []
    for module in (dataclasses, records):
        own = {name: value(module) if callable(value) else value for name, value in body.items()}
        made.append(module.dataclass(**options)(type("Point", (), {**own, "__module__": __name__})))
    return made[0], made[1]


BODY: dict[str, Any] = {
    "__annotations__": {"x": "int", "y": "int", "tags": "list", "hidden": "int", "made": "int"},
    "y": 2,
    "tags": lambda module: module.field(default_factory=list),
    "hidden": lambda module: module.field(default=5, repr=False, compare=False),
    "made": lambda module: module.field(init=False, repr=False, compare=False),
    "__post_init__": lambda module: lambda self: object.__setattr__(self, "made", self.x + self.y),
}
OPTIONS = [
    {"frozen": True, "slots": True},
    {"slots": True},
    {"frozen": True},
    {"eq": False},
]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1,), {}),
    ((1, 3), {}),
    ((1, 3, ["a"], 7), {}),
    ((), {"x": 1}),
    ((1,), {"hidden": 9, "y": 0}),
]
MISTAKES: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1, 2, [], 4, 5), {}),
    ((1,), {"x": 1}),
    ((1,), {"z": 1}),
    ((1,), {"made": 1}),
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_values_come_out(options: dict[str, Any]) -> None:
    theirs, ours = both(BODY, **options)
    for given, named in CALLS:
        one, other = theirs(*given, **named), ours(*given, **named)
        for name in BODY["__annotations__"]:
            assert getattr(one, name) == getattr(other, name)
        assert repr(one) == repr(other)
        assert dataclasses.asdict(one) == dataclasses.asdict(other) == records.asdict(other)
        assert records.replace(other, y=8).made == dataclasses.replace(one, y=8).made == one.x + 8
        assert dataclasses.replace(other, y=8).made == one.x + 8
    assert ours(1).tags is not ours(1).tags
    assert theirs.__match_args__ == ours.__match_args__
    assert hasattr(ours(1), "__dict__") == hasattr(theirs(1), "__dict__")


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_mistakes_are_refused(options: dict[str, Any]) -> None:
    for made in both(BODY, **options):
        for given, named in MISTAKES:
            with pytest.raises(TypeError):
                made(*given, **named)
        with pytest.raises((TypeError, ValueError)):  # the latter is what dataclasses says of a field without init
            dataclasses.replace(made(1), made=3)
    with pytest.raises(TypeError):
        records.replace(made(1), made=3)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equality_and_hash(options: dict[str, Any]) -> None:
    body = {**BODY, "tags": ()}
    for made in both(body, **options):
        if options.get("eq", True):
            assert made(1, 2) == made(1)
            assert made(1, 3) != made(1)
            assert made(1, hidden=6) == made(1)
            assert made(1) != (1, 2)
        else:
            assert made(1) != made(1)
        if options.get("frozen"):
            assert hash(made(1, hidden=6)) == hash(made(1))
            assert len({made(1), made(1), made(2)}) == 2
        elif options.get("eq", True):
            with pytest.raises(TypeError):
                hash(made(1))


def test_what_is_frozen_stays() -> None:
    for made in both(BODY, frozen=True, slots=True):
        record = made(1)
        with pytest.raises(dataclasses.FrozenInstanceError):
            record.x = 2
        with pytest.raises(dataclasses.FrozenInstanceError):
            del record.x
    for made in both(BODY, slots=True):
        record = made(1)
        record.x = 2
        assert record.x == 2


def test_copies_and_pickles() -> None:
    operation = Operation(Op.BIND_RO, "/usr", why="x")
    for again in (pickle.loads(pickle.dumps(operation)), copy.copy(operation), copy.deepcopy(operation)):
        assert again == operation
        assert again is not operation
        assert repr(again) == repr(operation)


def test_it_looks_like_a_dataclass_from_outside() -> None:
    assert dataclasses.is_dataclass(Source)
    assert [each.name for each in dataclasses.fields(Source)] == ["file", "line", "column", "layer"]
    match Source("f", 3, 4, "user"):
        case Source(file, line):
            assert (file, line) == ("f", 3)
        case _:
            raise AssertionError


def every_record() -> list[Any]:
    """Of all modules that make some, but for those that only another platform can import."""
    found: list[Any] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "from sbx.model.records import" not in path.read_text(encoding="utf-8") or path.name == "windows_run.py":
            continue
        name = ".".join(("sbx", *path.relative_to(PACKAGE).with_suffix("").parts))
        for value in vars(importlib.import_module(name)).values():
            if inspect.isclass(value) and "__record__" in vars(value) and value.__module__ == name:
                found.append(value)
    return found


def test_every_record_would_be_a_good_dataclass() -> None:
    """`dataclasses` refuses a mutable default, or fields in a bad order, when a class is made; here a test asks it."""
    classes = every_record()
    assert len(classes) > 50
    for cls in classes:
        assert [each.name for each in dataclasses.fields(cls)] == list(cls.__record__.fields), cls
