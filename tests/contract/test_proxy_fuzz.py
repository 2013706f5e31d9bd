"""Any bytes at all to a live proxy: an answer or a close, never a crash, and the next client is served."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_proxy import TIMEOUT_S, RunningProxy, Server, echo, read_head

from sbx.network.settings import Caps

# Longer than the client waits: what is answered is answered for what was said, not because time ran out.
PATIENT = Caps(header_s=300, keepalive_s=300, idle_s=300, dial_s=300, linger_s=300)
IMPATIENT = Caps(header_s=1.0, keepalive_s=1.0, linger_s=1.0)

# Words that the parsers know, so that random input gets past the first byte.
WORDS = st.sampled_from(
    [
        b"CONNECT ", b"GET ", b"POST ", b"OPTIONS ", b"http://", b"https://", b"api.example.com", b"127.0.0.1",
        b"[::1]", b":443", b":%(port)d", b":0443", b"/", b"?", b"#", b"@", b" HTTP/1.1", b" HTTP/1.0", b" HTTP/0.9",
        b"\r\n", b"\r", b"\n", b"\r\n\r\n", b"Host: x\r\n", b"Content-Length: 3\r\n",
        b"Content-Length: 99999999999\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
        b"Expect: 100-continue\r\n", b"3\r\nabc\r\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n", b"\x05\x01\x00",
        b"\x05\x01\x00\x03", b"\x0fapi.example.com", b"\x05\x01\x00\x01\x7f\x00\x00\x01", b"\x01\xbb",
        b"\x04\x01", b"\0", b"\xff", b" ", b"\t", b"%%00", b"x" * 5000,
    ]
)  # fmt: skip
MESSAGES = st.lists(st.one_of(WORDS, st.binary(max_size=30)), max_size=25)


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[RunningProxy, int]]:
    yield from serve(PATIENT)


@pytest.fixture(scope="module")
def served_in_a_hurry() -> Iterator[tuple[RunningProxy, int]]:
    yield from serve(IMPATIENT)


def serve(caps: Caps) -> Iterator[tuple[RunningProxy, int]]:
    with Server(echo) as server:
        port = server.port
        rules = [f"127.0.0.1:{port}", f"api.example.com:{port}", "api.example.com:443"]
        resolve = {"api.example.com": ("127.0.0.1",)}
        with RunningProxy(rules, resolve=resolve, caps=caps) as proxy:
            yield proxy, port


def talk(proxy: RunningProxy, pieces: list[bytes], *, close: bool) -> None:
    """Say it, then wait for the end. Fails by time-out if the proxy neither answers nor closes."""
    with proxy.connect() as sock:
        try:
            for piece in pieces:
                sock.sendall(piece)
            if close:
                sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except TimeoutError:
            raise
        except OSError:
            pass  # a close that came while we were still talking


def assert_serves(proxy: RunningProxy, port: int) -> None:
    assert proxy.process.poll() is None
    with socket.create_connection(proxy.address, TIMEOUT_S) as sock:
        sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\nping" % port)
        assert read_head(sock).startswith(b"HTTP/1.1 200 ")
        assert sock.recv(4) == b"ping"


@given(pieces=MESSAGES, whole=st.booleans())
def test_any_bytes(served: tuple[RunningProxy, int], pieces: list[bytes], whole: bool) -> None:
    proxy, port = served
    pieces = [piece.replace(b"%(port)d", b"%d" % port) for piece in pieces]
    talk(proxy, [b"".join(pieces)] if whole else pieces, close=True)
    assert_serves(proxy, port)


HEADERS = st.tuples(
    st.sampled_from([b"Host", b"Content-Length", b"Transfer-Encoding", b"Connection", b"Expect", b"Upgrade", b"X"]),
    st.one_of(
        st.sampled_from([b"x", b"3", b"chunked", b"close", b"keep-alive", b"100-continue"]), st.binary(max_size=9)
    ),
)
SHAPE = st.tuples(
    st.sampled_from([b"GET", b"POST", b"CONNECT", b"OPTIONS"]),
    st.sampled_from([b"http://127.0.0.1:%(port)d/", b"127.0.0.1:%(port)d", b"http://api.example.com/", b"*", b"/"]),
    st.lists(HEADERS, max_size=5),
    st.binary(max_size=40),
)


@given(requests=st.lists(SHAPE, min_size=1, max_size=3))
def test_requests_that_are_nearly_right(
    served: tuple[RunningProxy, int], requests: list[tuple[bytes, bytes, list[tuple[bytes, bytes]], bytes]]
) -> None:
    proxy, port = served
    data = b""
    for method, target, headers, body in requests:
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        data += method + b" " + target.replace(b"%(port)d", b"%d" % port) + b" HTTP/1.1\r\n" + lines + b"\r\n" + body
    talk(proxy, [data], close=True)
    assert_serves(proxy, port)


@pytest.mark.parametrize("cut", [0, 1, 8, 33, 57])
def test_silence_in_the_middle_is_survived(served_in_a_hurry: tuple[RunningProxy, int], cut: int) -> None:
    """It ends in an answer or a close of the proxy's own accord."""
    proxy, port = served_in_a_hurry
    request = b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n" % port
    talk(proxy, [request[:cut]] if cut else [], close=False)
    assert_serves(proxy, port)
