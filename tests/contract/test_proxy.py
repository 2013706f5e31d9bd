"""The proxy process as a client meets it: what is let through, what is refused and how, what is never passed on."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from running_proxy import TIMEOUT_S, RunningProxy, Server, echo, read_all, read_head

from sbx.network.settings import Caps, proxy_argv

ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


@pytest.fixture
def echo_server() -> Iterator[Server]:
    with Server(echo) as server:
        yield server


def http_answer(sock: socket.socket) -> None:
    """Tell each request's head back as the body; close when asked to, or after the client is gone."""
    while True:
        head = read_head(sock)
        if not head:
            return
        length = 0
        for line in head.split(b"\r\n"):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        body = head
        while length:
            piece = sock.recv(length)
            body += piece
            length -= len(piece)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Server: real\r\n\r\n" % len(body) + body)


@pytest.fixture
def http_server() -> Iterator[Server]:
    with Server(http_answer) as server:
        yield server


def named(port: int, *more: str) -> dict[str, object]:
    """Settings for a name that leads to loopback, which has to be listed as such."""
    return {
        "rules": [f"api.example.com:{port}", f"127.0.0.1:{port}", *more],
        "resolve": {"api.example.com": ("127.0.0.1",)},
    }


def start(settings: dict[str, object], **more: object) -> RunningProxy:
    return RunningProxy(**settings, **more)  # type: ignore[arg-type]


def connect_head(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()


# -- CONNECT --


@pytest.mark.parametrize("spelling", ["api.example.com", "API.EXAMPLE.COM", "api.example.com.", "u:p@api.example.com"])
def test_connect(echo_server: Server, spelling: str) -> None:
    with start(named(echo_server.port)) as proxy:
        for _ in range(2):  # the second comes out of the memory of heads
            with proxy.connect() as sock:
                sock.sendall(connect_head(spelling, echo_server.port))
                assert read_head(sock) == ESTABLISHED
                sock.sendall(b"hello")
                assert sock.recv(100) == b"hello"
                sock.shutdown(socket.SHUT_WR)
                assert read_all(sock) == b""
    first, second = proxy.decisions
    assert first.pop("time") <= second.pop("time")
    assert (
        first
        == second
        == {
            "event": "network",
            "verdict": "allow",
            "host": "api.example.com",
            "port": echo_server.port,
            "method": "CONNECT",
            "rule": f"api.example.com:{echo_server.port}",
            "reason": f"rule api.example.com:{echo_server.port}",
            "remedy": "",
        }
    )
    assert proxy.events[-1]["event"] == "network-end"
    assert proxy.events[-1]["allowed"] == 2


def test_a_miss_is_403_with_a_reason(echo_server: Server) -> None:
    with start(named(echo_server.port)) as proxy:
        answer = proxy.ask(connect_head("evil.example.net", 443))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 ")
    assert b"X-Sbx-Reason: network: denied evil.example.net:443, no rule" in head
    assert b"--net evil.example.net:443" in body
    assert [(event["verdict"], event["host"], event["port"]) for event in proxy.decisions] == [
        ("deny", "evil.example.net", 443)
    ]
    assert echo_server.accepted == 0


def test_an_empty_list_is_no_network(echo_server: Server) -> None:
    with RunningProxy([]) as proxy:
        assert proxy.ask(connect_head("127.0.0.1", echo_server.port)).startswith(b"HTTP/1.1 403 ")
    assert echo_server.accepted == 0


@pytest.mark.parametrize(
    "addresses", [("127.0.0.1",), ("::1",), ("169.254.169.254", "10.0.0.1"), ("::ffff:127.0.0.1",)]
)
def test_a_name_that_leads_inside_is_refused(echo_server: Server, addresses: tuple[str, ...]) -> None:
    rules = [f"api.example.com:{echo_server.port}"]
    with RunningProxy(rules, resolve={"api.example.com": addresses}) as proxy:
        answer = proxy.ask(connect_head("api.example.com", echo_server.port))
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"resolves to" in answer
    assert [event["verdict"] for event in proxy.decisions] == ["deny"]
    assert echo_server.accepted == 0


def test_only_the_listed_address_of_a_name_is_dialled(echo_server: Server) -> None:
    settings = named(echo_server.port)
    settings["resolve"] = {"api.example.com": ("169.254.169.254", "127.0.0.1")}
    with start(settings) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("api.example.com", echo_server.port) + b"early")
        assert read_head(sock) == ESTABLISHED
        assert sock.recv(100) == b"early"


def test_localhost_is_looked_up_by_the_system(echo_server: Server) -> None:
    with RunningProxy([f"localhost:{echo_server.port}"]) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("localhost", echo_server.port) + b"x")
        assert read_head(sock) == ESTABLISHED
        assert sock.recv(1) == b"x"


def test_an_unknown_name_is_502(echo_server: Server) -> None:
    with RunningProxy(["api.example.com:443"], resolve={"api.example.com": ()}) as proxy:
        answer = proxy.ask(connect_head("api.example.com", 443))
    assert answer.startswith(b"HTTP/1.1 502 ") and b"no address" in answer


def test_a_closed_port_is_502() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with RunningProxy([f"127.0.0.1:{port}"]) as proxy:
        answer = proxy.ask(connect_head("127.0.0.1", port))
    assert answer.startswith(b"HTTP/1.1 502 ") and b"refused" in answer


def test_the_second_address_is_tried_when_the_first_fails(echo_server: Server) -> None:
    settings = named(echo_server.port, f"127.0.0.2:{echo_server.port}")
    settings["resolve"] = {"api.example.com": ("127.0.0.2", "127.0.0.1")}
    with start(settings) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("api.example.com", echo_server.port))
        assert read_head(sock) == ESTABLISHED


def test_what_follows_a_connect_belongs_to_the_tunnel(echo_server: Server) -> None:
    second = connect_head("evil.example.net", 443)
    with start(named(echo_server.port)) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("api.example.com", echo_server.port) + second)
        sock.shutdown(socket.SHUT_WR)
        assert read_all(sock) == ESTABLISHED + second
    assert len(proxy.decisions) == 1


def test_what_follows_a_refusal_is_not_a_request(echo_server: Server) -> None:
    with start(named(echo_server.port)) as proxy:
        answer = proxy.ask(connect_head("evil.example.net", 443) + connect_head("api.example.com", echo_server.port))
    assert answer.count(b"HTTP/1.1") == 1
    assert echo_server.accepted == 0


def test_a_large_stream_arrives_whole_both_ways() -> None:
    size = 48 << 20
    data = os.urandom(1 << 20) * (size >> 20)

    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"]) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("127.0.0.1", server.port))
        assert read_head(sock) == ESTABLISHED

        def send() -> None:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        received = read_all_fast(sock)
        sender.join()
    assert received == data


def read_all_fast(sock: socket.socket) -> bytes:
    pieces = []
    while piece := sock.recv(1 << 20):
        pieces.append(piece)
    return b"".join(pieces)


def test_a_reset_does_not_look_like_an_end() -> None:
    def rude(sock: socket.socket) -> None:
        sock.recv(1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")

    with Server(rude) as server, RunningProxy([f"127.0.0.1:{server.port}"]) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("127.0.0.1", server.port))
        assert read_head(sock) == ESTABLISHED
        sock.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            read_all(sock)


def test_ipv6() -> None:
    try:
        server = Server(echo, "::1")
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    with server, RunningProxy([f"[::1]:{server.port}"]) as proxy, proxy.connect() as sock:
        sock.sendall(connect_head("[0:0:0:0:0:0:0:1]", server.port) + b"six")
        assert read_head(sock) == ESTABLISHED
        assert sock.recv(10) == b"six"


# -- SOCKS --


def socks_request(kind: int, address: bytes, port: int, command: int = 1) -> bytes:
    return bytes((5, command, 0, kind)) + address + port.to_bytes(2, "big")


def socks_name(name: bytes) -> bytes:
    return bytes((len(name),)) + name


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("kind", "address"),
    [(3, socks_name(b"Api.Example.com.")), (3, socks_name(b"127.0.0.1")), (1, b"\x7f\0\0\x01")],
)
def test_socks5(echo_server: Server, kind: int, address: bytes, at_once: bool) -> None:
    request = socks_request(kind, address, echo_server.port)
    with start(named(echo_server.port)) as proxy, proxy.connect() as sock:
        if at_once:
            sock.sendall(b"\x05\x01\x00" + request + b"early")
        else:
            sock.sendall(b"\x05")
            sock.sendall(b"\x02\x02\x00")
        assert receive(sock, 2) == b"\x05\x00"
        if not at_once:
            for byte in request + b"early":
                sock.sendall(bytes((byte,)))
        assert receive(sock, 10) == b"\x05\x00\x00\x01" + bytes(6)
        assert receive(sock, 5) == b"early"
    assert [(event["method"], event["verdict"]) for event in proxy.decisions] == [("SOCKS5", "allow")]


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece
        data += piece
    return data


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [
        (socks_request(3, socks_name(b"evil.example.net"), 443), 2),
        (socks_request(3, socks_name(b"\xff\xfe"), 443), 2),
        (socks_request(3, socks_name(b""), 443), 2),
        (socks_request(1, b"\x08\x08\x08\x08", 443), 2),
        (socks_request(4, bytes(15) + b"\x01", 443), 2),
        (socks_request(3, socks_name(b"api.example.com"), 443, command=2), 7),
        (socks_request(3, socks_name(b"api.example.com"), 443, command=3), 7),
        (socks_request(9, b"\0\0\0\0", 443), 8),
    ],
)
def test_socks5_refusals(echo_server: Server, request_bytes: bytes, code: int) -> None:
    with start(named(echo_server.port)) as proxy:
        answer = proxy.ask(b"\x05\x01\x00" + request_bytes)
    assert answer == b"\x05\x00" + bytes((5, code, 0, 1)) + bytes(6)
    assert echo_server.accepted == 0


def test_socks5_without_a_method_we_have() -> None:
    with RunningProxy([]) as proxy:
        assert proxy.ask(b"\x05\x01\x02") == b"\x05\xff"


def test_socks4_is_refused_in_its_own_words() -> None:
    with RunningProxy([]) as proxy:
        assert proxy.ask(b"\x04\x01\x01\xbb\x00\x00\x00\x01user\x00api.example.com\x00") == b"\x00\x5b" + bytes(6)


# -- plain HTTP --


def test_forwarding_keeps_the_connection_and_judges_every_request(http_server: Server) -> None:
    port = http_server.port
    with start(named(port)) as proxy, proxy.connect() as sock:
        for number in range(3):
            sock.sendall(b"GET http://API.example.com:%d/p%d?q=1 HTTP/1.1\r\nHost: other\r\n\r\n" % (port, number))
            head, body = read_response(sock)
            assert b"X-Server: real" in head or b"x-server: real" in head
            assert body.startswith(b"GET /p%d?q=1 HTTP/1.1\r\n" % number)
            assert b"\r\nHost: api.example.com:%d\r\n" % port in body
            assert b"other" not in body
        sock.sendall(b"GET http://evil.example.net/ HTTP/1.1\r\nHost: api.example.com:%d\r\n\r\n" % port)
        assert read_all(sock).startswith(b"HTTP/1.1 403 ")
    assert http_server.accepted == 1
    assert [event["verdict"] for event in proxy.decisions] == ["allow"] * 3 + ["deny"]


def read_response(sock: socket.socket) -> tuple[bytes, bytes]:
    head = read_head(sock)
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return head, receive(sock, length)


def test_hop_by_hop_headers_stay_here(http_server: Server) -> None:
    port = http_server.port
    request = (
        b"POST http://api.example.com:%d HTTP/1.1\r\nHost: x\r\nConnection: X-Mine, content-length, keep-alive\r\n"
        b"X-Mine: secret\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nKeep-Alive: 5\r\n"
        b"TE: trailers\r\nUpgrade: h2c\r\nX-Theirs: kept\r\nContent-Length: 4\r\n\r\nbody" % port
    )
    with start(named(port)) as proxy, proxy.connect() as sock:
        sock.sendall(request)
        _, body = read_response(sock)
    head = body.lower()
    assert head.startswith(b"post / http/1.1\r\n") and body.endswith(b"\r\n\r\nbody")
    for gone in (b"secret", b"x-mine", b"proxy-", b"keep-alive", b"trailers", b"h2c"):
        assert gone not in head
    assert b"x-theirs: kept" in head and b"via: 1.1 sbx" in head


def test_pipelined_requests_are_answered_in_order(http_server: Server) -> None:
    port = http_server.port
    requests = b"".join(b"GET http://api.example.com:%d/%d HTTP/1.1\r\nHost: x\r\n\r\n" % (port, n) for n in range(5))
    with start(named(port)) as proxy, proxy.connect() as sock:
        sock.sendall(requests)
        for number in range(5):
            assert read_response(sock)[1].startswith(b"GET /%d " % number)


def test_a_chunked_upload_is_framed_anew() -> None:
    seen: list[bytes] = []

    def server_talk(sock: socket.socket) -> None:
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += sock.recv(65536)
        seen.append(data)
        sock.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")

    with Server(server_talk) as server, start(named(server.port)) as proxy, proxy.connect() as sock:
        sock.sendall(
            b"PUT http://api.example.com:%d/f HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"5;ext=1\r\nhello\r\n0\r\nTrailer: dropped\r\n\r\n" % server.port
        )
        head = read_head(sock)
        assert b"chunked" in head.lower()
        assert receive(sock, 13) == b"3\r\nabc\r\n0\r\n\r\n"
    assert seen[0].partition(b"\r\n\r\n")[2] == b"5\r\nhello\r\n0\r\n\r\n"


def test_a_kept_server_connection_that_closed_is_replaced() -> None:
    def once(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    with Server(once) as server, start(named(server.port)) as proxy, proxy.connect() as sock:
        for _ in range(3):
            sock.sendall(b"GET http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)
            assert read_response(sock)[1] == b"ok"
        assert server.accepted == 3


@pytest.mark.parametrize(
    ("answer", "status"),
    [(b"", b"502"), (b"not http at all\r\n\r\n", b"502"), (b"HTTP/1.1 200 OK\r\nContent-Len", b"502")],
)
def test_a_broken_server_is_502(answer: bytes, status: bytes) -> None:
    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(answer)

    with Server(talk) as server, start(named(server.port)) as proxy:
        request = b"POST http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % server.port
        assert proxy.ask(request).split(b" ")[1] == status


def test_a_response_that_breaks_off_is_not_completed() -> None:
    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\npartial")

    with Server(talk) as server, start(named(server.port)) as proxy, pytest.raises(ConnectionResetError):
        proxy.ask(b"GET http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)


def test_expect_100_continue_reaches_both_sides() -> None:
    def talk(sock: socket.socket) -> None:
        assert b"100-continue" in read_head(sock)
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert receive(sock, 4) == b"body"
        sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    with Server(talk) as server, start(named(server.port)) as proxy, proxy.connect() as sock:
        sock.sendall(
            b"PUT http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
            % server.port
        )
        assert read_head(sock).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"body")
        assert read_head(sock).startswith(b"HTTP/1.1 204 ")


GET = b"GET http://api.example.com:%d/ HTTP/1.1\r\n"
SMUGGLING = {
    "length and coding": GET + b"Host: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": GET + b"Host: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nbody",
    "two equal lengths": GET + b"Host: x\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\nbody",
    "a list of lengths": GET + b"Host: x\r\nContent-Length: 4, 4\r\n\r\nbody",
    "a signed length": GET + b"Host: x\r\nContent-Length: +4\r\n\r\nbody",
    "two codings": GET + b"Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
    "an odd coding": GET + b"Host: x\r\nTransfer-Encoding: xchunked\r\n\r\n",
    "a list of codings": GET + b"Host: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "a folded line": GET + b"Host: x\r\nX-A: b\r\n Content-Length: 4\r\n\r\n",
    "a lone return": GET + b"Host: x\r\nX-A: b\rContent-Length: 4\r\n\r\n",
    "a lone newline": GET + b"Host: x\nX-A: b\r\n\r\n",
    "a NUL": GET + b"Host: x\r\nX-A: b\0\r\n\r\n",
    "a space before the colon": GET + b"Host: x\r\nContent-Length : 4\r\n\r\n",
    "no host": GET + b"\r\n",
    "no version": b"GET http://api.example.com:%d/\r\n\r\n",
    "another version": b"GET http://api.example.com:%d/ HTTP/2.0\r\nHost: x\r\n\r\n",
    "origin form": b"GET /:%d HTTP/1.1\r\nHost: api.example.com\r\n\r\n",
    "another scheme": b"GET https://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "a fragment": b"GET http://api.example.com:%d/#x HTTP/1.1\r\nHost: x\r\n\r\n",
    "two users": b"GET http://a@b@api.example.com:%d/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT with a body": b"CONNECT api.example.com:%d HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody",
    "CONNECT chunked": b"CONNECT api.example.com:%d HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
    "CONNECT to a path": b"CONNECT http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS to the proxy": b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03%d\r\n\r\n",
}


@pytest.mark.parametrize("shape", SMUGGLING)
def test_shapes_with_two_meanings_are_400(http_server: Server, shape: str) -> None:
    with start(named(http_server.port)) as proxy:
        answer = proxy.ask(SMUGGLING[shape] % http_server.port)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"X-Sbx-Reason") == 1
    assert http_server.accepted == 0


def test_a_request_hidden_behind_a_body_is_judged_like_any_other(http_server: Server) -> None:
    port = http_server.port
    with start(named(port)) as proxy:
        answer = proxy.ask(
            b"POST http://api.example.com:%d/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"
            b"GET http://evil.example.net/ HTTP/1.1\r\nHost: x\r\n\r\n" % port
        )
    assert b"403 Forbidden" in answer
    assert [event["verdict"] for event in proxy.decisions] == ["allow", "deny"]


# -- life --


def test_it_ends_when_its_starter_dies() -> None:
    """The starter is killed without a chance to say anything; the pipe that the proxy alone still holds must end."""
    script = (
        "import os, socket, subprocess, sys, time\n"
        "from sbx.network.settings import proxy_argv\n"
        "listener = socket.create_server(('127.0.0.1', 0))\n"
        "lifeline, keep = os.pipe()\n"
        "argv = proxy_argv(listener.fileno(), event_fd=1, lifeline_fd=lifeline)\n"
        "p = subprocess.Popen(argv, stdin=subprocess.PIPE, pass_fds=(listener.fileno(), lifeline))\n"
        "p.stdin.write(b'{}'); p.stdin.close()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    root = proxy_argv(0)[4]
    starter = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    # run() returns only when the proxy, which shares stdout, has closed it too.
    assert starter.returncode == -9
    assert b"network-end" in starter.stdout


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (b"", "Expecting value"),
        (b"[]", "not an object"),
        (b'{"rule": []}', "unknown proxy setting"),
        (b'{"rules": ["example.com"]}', "needs a port"),
        (b'{"caps": {"idle_s": -1}}', "positive"),
        (b'{"caps": {"idle": 1}}', "unknown proxy cap"),
        (b'{"resolve": {"a.example": 7}}', "not texts"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_served(settings: bytes, says: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = subprocess.run(
            proxy_argv(listener.fileno()),
            input=settings,
            pass_fds=(listener.fileno(),),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 125
    assert says in done.stderr.decode() and "Traceback" not in done.stderr.decode()


def test_the_caps_have_sane_defaults() -> None:
    caps = Caps()
    # What all connections together can make the proxy hold in its own memory.
    assert caps.max_connections * max(caps.max_header_bytes, 2 * (32 << 10)) <= 256 << 20
