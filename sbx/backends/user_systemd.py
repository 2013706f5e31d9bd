"""A delegated cgroup from the user's own systemd, over its socket: a scope that this process is moved into.

Where no cgroup folder is handed to the user directly (a login by ssh, a console), the user's service manager still may
hand one out. A scope is asked for with this process in it, since only what is born below a delegated folder may stay
there; it goes away by itself with the last process in it, also when that one is killed. The few D-Bus messages this
takes are written by hand: the types that they need, and nothing else.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any

assert sys.platform == "linux"

SERVICE, OBJECT, MANAGER = "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
CALL, RETURN, ERROR, SIGNAL = 1, 2, 3, 4
PATIENCE_S = 10.0
MAX_MESSAGE = 1 << 20
OWN_FOLDER = "own"  # in the scope, for this process: a folder with processes in it cannot hand controllers down
ALIGNMENT = {"y": 1, "b": 4, "u": 4, "s": 4, "o": 4, "g": 1, "a": 4, "v": 1, "(": 8, "t": 8}


class NoScope(Exception):
    """It could not be had; the text says why."""


def private_socket(environ: Any = os.environ) -> str:
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    return f"{runtime}/systemd/private"


def enter_scope(controllers: tuple[str, ...]) -> str:
    """Move this process into a scope of its own. Returns the folder below which cgroups with these controllers can be
    made. Raises NoScope; then nothing has changed, or the scope ends with this process."""
    try:
        name = f"sbx-{os.getpid()}-{os.urandom(4).hex()}.scope"
        _start_scope(name)
        return _hand_down(_own_folder(name), controllers)
    except (OSError, ValueError, LookupError, RecursionError, struct.error) as error:
        raise NoScope(f"the user's systemd gives no cgroup: {error}") from None


def _start_scope(name: str) -> None:
    properties = [
        ("Description", ("s", "a command run by sbx")),
        ("PIDs", ("au", [os.getpid()])),
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
    ]
    with Connection(private_socket()) as connection:
        serial = connection.call("StartTransientUnit", "ssa(sv)a(sa(sv))", [name, "fail", properties, []])
        job = ""
        ended: dict[str, str] = {}
        for kind, fields, body in connection.messages():
            if kind == ERROR and fields.get(5) == serial:
                raise ValueError(f"{fields.get(4, 'an error')}: {body[0] if body else ''}")
            if kind == RETURN and fields.get(5) == serial:
                job = body[0]
            elif kind == SIGNAL and fields.get(3) == "JobRemoved":
                ended[body[1]] = body[3]
            if job in ended:
                if ended[job] != "done":
                    raise ValueError(f"the scope's start ended as '{ended[job]}'")
                return


def _own_folder(name: str) -> str:
    from sbx.backends.probe_cgroup import mount_point, own_path

    mount, own = mount_point(), own_path()
    if mount is None or own is None or not own.endswith("/" + name):
        raise ValueError("this process was not moved")
    return mount + own


def _hand_down(folder: str, controllers: tuple[str, ...]) -> str:
    os.mkdir(f"{folder}/{OWN_FOLDER}", 0o755)
    _write(f"{folder}/{OWN_FOLDER}/cgroup.procs", "0")
    _write(f"{folder}/cgroup.subtree_control", " ".join(f"+{name}" for name in controllers))
    return folder


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


class Connection:
    """A direct one to the service manager, without a bus between: no names, no subscriptions."""

    def __init__(self, path: str) -> None:
        self.deadline = time.monotonic() + PATIENCE_S
        self.serial = 0
        self.pending = b""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            self.socket.settimeout(PATIENCE_S)
            self.socket.connect(path)
            self._authenticate()
        except BaseException:
            self.socket.close()
            raise

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def call(self, member: str, signature: str, arguments: list[Any]) -> int:
        """Send a call to the manager. Returns the serial that its answer will speak of."""
        self.serial += 1
        self.socket.sendall(message(self.serial, member, signature, arguments))
        return self.serial

    def messages(self) -> Iterator[tuple[int, dict[int, Any], list[Any]]]:
        """What arrives, until the patience ends: (kind, header fields, arguments)."""
        while True:
            head = self._take(16)
            length, fields_length = length_of(head)
            rest = self._take(_padded(fields_length, 8) + length)
            yield parse(head + rest)

    def _authenticate(self) -> None:
        """As the user that the kernel says we are."""
        identity = str(os.geteuid()).encode().hex().encode()
        self.socket.sendall(b"\0AUTH EXTERNAL " + identity + b"\r\nBEGIN\r\n")
        answer = b""
        while not answer.endswith(b"\r\n"):
            answer += self._take(1)
        if not answer.startswith(b"OK "):
            raise ValueError(f"it does not accept us: {answer.decode('ascii', 'replace').strip()}")

    def _take(self, count: int) -> bytes:
        while len(self.pending) < count:
            left = self.deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("it did not answer in time")
            self.socket.settimeout(left)
            data = self.socket.recv(65536)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self.pending += data
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken


def message(serial: int, member: str, signature: str, arguments: list[Any]) -> bytes:
    """A method call to the manager, little-endian."""
    body = bytearray()
    for part, argument in zip(split(signature), arguments, strict=True):
        encode(body, part, argument)
    fields = [
        (1, ("o", OBJECT)),
        (2, ("s", MANAGER)),
        (3, ("s", member)),
        (6, ("s", SERVICE)),
        (8, ("g", signature)),
    ]
    head = bytearray(struct.pack("<cBBBII", b"l", CALL, 0, 1, len(body), serial))
    encode(head, "a(yv)", fields)
    head += bytes(_padded(len(head), 8) - len(head))
    return bytes(head + body)


def split(signature: str) -> list[str]:
    """One string for each complete type."""
    found = []
    at = 0
    while at < len(signature):
        end = at
        while signature[end] == "a":
            end += 1
        depth = 0
        while True:
            depth += {"(": 1, ")": -1}.get(signature[end], 0)
            end += 1
            if depth == 0:
                break
        found.append(signature[at:end])
        at = end
    return found


def encode(out: bytearray, kind: str, value: Any) -> None:
    """Append one value. A variant is (its type, its value)."""
    out += bytes(_padded(len(out), ALIGNMENT[kind[0]]) - len(out))
    if kind in ("u", "b"):
        out += struct.pack("<I", value)
    elif kind == "y":
        out.append(value)
    elif kind in ("s", "o"):
        data = value.encode()
        out += struct.pack("<I", len(data)) + data + b"\0"
    elif kind == "g":
        out += bytes([len(value)]) + value.encode() + b"\0"
    elif kind == "v":
        encode(out, "g", value[0])
        encode(out, value[0], value[1])
    elif kind[0] == "(":
        for part, each in zip(split(kind[1:-1]), value, strict=True):
            encode(out, part, each)
    else:
        _encode_array(out, kind[1:], value)


def _encode_array(out: bytearray, kind: str, values: list[Any]) -> None:
    at = len(out)
    out += bytes(4)
    out += bytes(_padded(len(out), ALIGNMENT[kind[0]]) - len(out))  # counted by nobody, even without a value
    start = len(out)
    for value in values:
        encode(out, kind, value)
    out[at : at + 4] = struct.pack("<I", len(out) - start)


def length_of(head: bytes) -> tuple[int, int]:
    """Of a message's first 16 bytes: the length of its body and of its header fields."""
    if head[:1] != b"l":
        raise ValueError("an answer in another byte order")
    body, _serial, fields = struct.unpack_from("<III", head, 4)
    if body > MAX_MESSAGE or fields > MAX_MESSAGE:
        raise ValueError("an answer that is too long")
    return body, fields


def parse(data: bytes) -> tuple[int, dict[int, Any], list[Any]]:
    """(kind, header fields by their code, arguments)."""
    fields, at = decode(data, 12, "a(yv)")
    found = dict(fields)
    at = _padded(at, 8)
    arguments: list[Any] = []
    if data[1] == SIGNAL and found.get(3) != "JobRemoved":
        return SIGNAL, found, arguments  # of no interest, and of types that need not be known
    for part in split(found.get(8, "")):
        value, at = decode(data, at, part)
        arguments.append(value)
    return data[1], found, arguments


def decode(data: bytes, at: int, kind: str) -> tuple[Any, int]:
    """One value and where the next begins. The body starts at a multiple of eight, so that one count serves all."""
    at = _padded(at, ALIGNMENT[kind[0]])
    if kind in ("u", "b"):
        return struct.unpack_from("<I", data, at)[0], at + 4
    if kind == "t":
        return struct.unpack_from("<Q", data, at)[0], at + 8
    if kind == "y":
        return data[at], at + 1
    if kind in ("s", "o"):
        (length,) = struct.unpack_from("<I", data, at)
        return data[at + 4 : at + 4 + length].decode(), at + 5 + length
    if kind == "g":
        return data[at + 1 : at + 1 + data[at]].decode(), at + 2 + data[at]
    if kind == "v":
        inner, at = decode(data, at, "g")
        return decode(data, at, inner)
    if kind[0] == "(":
        values = []
        for part in split(kind[1:-1]):
            value, at = decode(data, at, part)
            values.append(value)
        return tuple(values), at
    (length,) = struct.unpack_from("<I", data, at)
    at = _padded(at + 4, ALIGNMENT[kind[1]])
    end, values = at + length, []
    while at < end:
        before = at
        value, at = decode(data, at, kind[1:])
        if at == before:
            raise ValueError("an array of nothing")
        values.append(value)
    return values, at


def _padded(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment
