"""Both pollers keep the same promises."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator

import pytest

from sbx.network.loop import READ, WRITE, Loop, SelectorPoller, best_poller


@pytest.fixture(params=["best", "selector"])
def loop(request: pytest.FixtureRequest) -> Loop:
    return Loop(best_poller() if request.param == "best" else SelectorPoller())


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    left, right = socket.socketpair()
    with left, right:
        yield left, right


def test_readiness_and_interest(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    calls: list[str] = []
    loop.watch(left.fileno(), READ, lambda: calls.append("left"))
    loop.turn(0)
    assert calls == []
    right.send(b"x")
    loop.turn(5)
    assert calls == ["left"]
    loop.set_interest(left.fileno(), 0)
    loop.turn(0)
    assert calls == ["left"]
    loop.set_interest(left.fileno(), READ | WRITE)
    loop.turn(5)
    assert len(calls) == 2
    loop.forget(left.fileno())


def test_a_hang_up_does_not_wake_who_asked_for_nothing(loop: Loop, pair: tuple[socket.socket, socket.socket]) -> None:
    left, right = pair
    calls: list[str] = []
    loop.watch(left.fileno(), READ, lambda: calls.append("left"))
    loop.set_interest(left.fileno(), 0)
    right.close()
    loop.turn(0)
    assert calls == []
    loop.forget(left.fileno())


def test_a_reused_number_gets_no_old_event() -> None:
    """Two are ready; the first handler closes the second and opens another under its number."""
    if sys.platform == "win32":
        pytest.skip("descriptor numbers are not reused in order here")
    loop = Loop()
    first, second = os.pipe(), os.pipe()
    calls: list[str] = []
    fresh: list[tuple[int, int]] = []

    def replace(other: int) -> None:
        if fresh:
            return
        loop.forget(other)
        os.close(other)
        fresh.append(os.pipe())
        assert other in fresh[0]
        loop.watch(other, READ if other == fresh[0][0] else WRITE, lambda: calls.append("new"))

    loop.watch(first[0], READ, lambda: replace(second[0]))
    loop.watch(second[0], READ, lambda: replace(first[0]))
    os.write(first[1], b"x")
    os.write(second[1], b"x")
    loop.turn(5)
    assert fresh
    assert calls == []
    for fd in {first[1], second[1], *fresh[0]} | ({first[0], second[0]} - set(fresh[0])):
        os.close(fd)
