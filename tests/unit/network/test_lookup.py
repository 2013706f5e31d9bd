"""Name lookup beside the loop: nobody waits for another's name, and what waits has an end."""

from __future__ import annotations

import threading

import pytest

from sbx.network import lookup as lookup_module
from sbx.network.lookup import Answer, Lookup
from sbx.network.loop import Loop


class SlowNames:
    """Stands in for the system's lookup: each name waits until the test lets it go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gates: dict[str, threading.Event] = {}

    def __call__(self, name: str) -> Answer:
        self.asked.append(name)
        assert self.gates.setdefault(name, threading.Event()).wait(30)
        return (f"address of {name}",)

    def release(self, *names: str) -> None:
        for name in names:
            self.gates.setdefault(name, threading.Event()).set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowNames:
    names = SlowNames()
    monkeypatch.setattr(lookup_module, "ask_system", names)
    return names


def test_a_slow_name_holds_up_nobody_else(slow: SlowNames) -> None:
    loop = Loop()
    lookup = Lookup(loop, {}, threads=2, max_waiting=10)
    got: list[Answer] = []
    assert lookup.find("slow.example.com", got.append)
    assert lookup.find("quick.example.com", got.append)
    slow.release("quick.example.com")
    while not got:
        loop.turn(30)
    assert got == [("address of quick.example.com",)]
    slow.release("slow.example.com")
    while len(got) < 2:
        loop.turn(30)
    assert got[1] == ("address of slow.example.com",)


def test_one_question_for_many_who_ask_and_a_short_memory(slow: SlowNames) -> None:
    loop = Loop()
    lookup = Lookup(loop, {}, threads=2, max_waiting=10)
    got: list[Answer] = []
    for _ in range(5):
        assert lookup.find("a.example.com", got.append)
    slow.release("a.example.com")
    while len(got) < 5:
        loop.turn(30)
    assert lookup.find("a.example.com", got.append)
    assert len(got) == 6
    assert slow.asked == ["a.example.com"]


def test_waiting_names_are_bounded(slow: SlowNames) -> None:
    loop = Loop()
    lookup = Lookup(loop, {}, threads=1, max_waiting=3)
    got: list[Answer] = []
    names = [f"{number}.example.com" for number in range(3)]
    assert all(lookup.find(name, got.append) for name in names)
    assert not lookup.find("one.more.example.com", got.append)
    slow.release(*names)
    while len(got) < 3:
        loop.turn(30)


def test_the_table_comes_before_the_system(slow: SlowNames) -> None:
    got: list[Answer] = []
    assert Lookup(Loop(), {"a.example.com": ("192.0.2.1",)}, 1, 1).find("a.example.com", got.append)
    assert got == [("192.0.2.1",)]
    assert slow.asked == []
