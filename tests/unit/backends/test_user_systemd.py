"""The messages to the user's systemd, byte by byte, and the talk with one that is played here."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sbx.backends import user_systemd
from sbx.backends.user_systemd import (
    ERROR,
    RETURN,
    SIGNAL,
    NoScope,
    decode,
    encode,
    length_of,
    message,
    parse,
    private_socket,
    split,
)


def test_the_bytes_of_a_call() -> None:
    """As the specification has them: everything aligned to its own size, the body to eight."""
    fields = (
        b"\1\1o\0" + b"\x19\0\0\0/org/freedesktop/systemd1\0" + bytes(6)
        + b"\2\1s\0" + b"\x20\0\0\0org.freedesktop.systemd1.Manager\0" + bytes(7)
        + b"\3\1s\0" + b"\4\0\0\0Ping\0" + bytes(3)
        + b"\6\1s\0" + b"\x18\0\0\0org.freedesktop.systemd1\0" + bytes(7)
        + b"\x08\1g\0" + b"\1s\0"
    )  # fmt: skip
    head = b"l\1\0\1" + b"\x08\0\0\0" + b"\7\0\0\0" + bytes([len(fields)]) + bytes(3)
    assert message(7, "Ping", "s", ["hé"]) == head + fields + b"\0" + b"\3\0\0\0h\xc3\xa9\0"


@pytest.mark.parametrize(
    ("signature", "value", "data"),
    [
        ("u", 1, b"\1\0\0\0"),
        ("b", True, b"\1\0\0\0"),
        ("y", 5, b"\5"),
        ("s", "ab", b"\2\0\0\0ab\0"),
        ("g", "au", b"\2au\0"),
        ("au", [1, 2], b"\x08\0\0\0\1\0\0\0\2\0\0\0"),
        ("a(sv)", [], b"\0\0\0\0\0\0\0\0"),  # padded to where the first would be, though there is none
        ("v", ("b", True), b"\1b\0\0\1\0\0\0"),
        ("(su)", ("a", 9), b"\1\0\0\0a\0\0\0\x09\0\0\0"),
    ],
)
def test_values(signature: str, value: Any, data: bytes) -> None:
    out = bytearray()
    encode(out, signature, value)
    assert bytes(out) == data
    back, at = decode(data, 0, signature)
    assert at == len(data)
    assert back == (value[1] if signature == "v" else value)


def test_types_are_split() -> None:
    assert split("ssa(sv)a(sa(sv))") == ["s", "s", "a(sv)", "a(sa(sv))"]
    assert split("") == []


def test_a_call_can_be_read_back() -> None:
    properties = [("PIDs", ("au", [42])), ("Delegate", ("b", True))]
    data = message(3, "StartTransientUnit", "ssa(sv)a(sa(sv))", ["x.scope", "fail", properties, []])
    body, fields = length_of(data[:16])
    assert len(data) == 16 + -(-fields // 8) * 8 + body
    _kind, found, arguments = parse(data)
    assert found[3] == "StartTransientUnit"
    assert arguments == ["x.scope", "fail", [("PIDs", [42]), ("Delegate", 1)], []]


def answer(kind: int, fields: list[tuple[int, tuple[str, Any]]], signature: str, body: list[Any]) -> bytes:
    data = bytearray()
    for part, value in zip(split(signature), body, strict=True):
        encode(data, part, value)
    head = bytearray(struct.pack("<cBBBII", b"l", kind, 0, 1, len(data), 1))
    encode(head, "a(yv)", [*fields, (8, ("g", signature))])
    return bytes(head) + bytes(-len(head) % 8) + bytes(data)


JOB = "/org/freedesktop/systemd1/job/1"
# With a type that is unknown here.
OTHER = answer(SIGNAL, [(3, ("s", "PropertiesChanged"))], "s", ["x"]).replace(b"\1g\0\1s\0", b"\1g\0\1x\0")
RETURNED = answer(RETURN, [(5, ("u", 1))], "o", [JOB])


def removed(how: str) -> bytes:
    return answer(SIGNAL, [(3, ("s", "JobRemoved"))], "uoss", [1, JOB, "x.scope", how])


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes, bytes], list[bytes]]:
    """A service manager that says these things; what it was told is in the list."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "systemd").mkdir()

    def play(greeting: bytes, answers: bytes) -> list[bytes]:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(private_socket())
        listener.listen(1)
        heard: list[bytes] = []

        def serve() -> None:
            # Whoever has heard enough may be gone at any time.
            with contextlib.suppress(OSError), listener, listener.accept()[0] as peer:
                heard.append(peer.recv(4096))
                peer.sendall(greeting)
                if answers:
                    while heard[-1] and b"StartTransientUnit" not in heard[-1]:
                        heard.append(peer.recv(4096))
                    for byte in answers[:40]:
                        peer.sendall(bytes([byte]))
                    peer.sendall(answers[40:])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return heard

    return play


GOOD = b"OK 0123456789abcdef\r\n"


def test_a_scope_is_asked_for(played: Callable[[bytes, bytes], list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    heard = played(GOOD, OTHER + removed("done") + RETURNED)  # the end may be told before the beginning
    monkeypatch.setattr(user_systemd, "_own_folder", lambda name: "/folder" if name.endswith(".scope") else "")
    monkeypatch.setattr(user_systemd, "_hand_down", lambda folder, controllers: f"{folder} {controllers}")
    assert user_systemd.enter_scope(("memory",)) == "/folder ('memory',)"
    assert heard[0].startswith(b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode())
    told = b"".join(heard)
    assert b"Delegate" in told and struct.pack("<I", os.getpid()) in told


@pytest.mark.parametrize(
    ("greeting", "answers", "words"),
    [
        (b"REJECTED EXTERNAL\r\n", b"", "does not accept us"),
        (GOOD, answer(ERROR, [(5, ("u", 1)), (4, ("s", "org.example.No"))], "s", ["no"]), "org.example.No: no"),
        (GOOD, RETURNED + removed("failed"), "ended as 'failed'"),
        (GOOD, RETURNED, "closed the connection"),
        (GOOD, b"B" + RETURNED[1:], "byte order"),
        (GOOD, RETURNED[:4] + b"\xff\xff\xff\xff" + RETURNED[8:], "too long"),
    ],
)
def test_trouble_has_words(
    played: Callable[[bytes, bytes], list[bytes]], greeting: bytes, answers: bytes, words: str
) -> None:
    played(greeting, answers)
    with pytest.raises(NoScope, match=words):
        user_systemd.enter_scope(("memory",))


def test_nobody_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(NoScope, match="No such file"):
        user_systemd.enter_scope(("memory",))
