"""The proxy under clients that mean harm or do not care: every resource has an end, and the next client is served."""

from __future__ import annotations

import resource
import socket
import threading
from pathlib import Path

import pytest
from running_proxy import RunningProxy, Server, echo, read_all, read_head

from sbx.network.settings import Caps

QUICK = Caps(header_s=0.4, keepalive_s=0.4, idle_s=0.4, dial_s=0.4, linger_s=0.4)


def tunnel(proxy: RunningProxy, port: int) -> socket.socket:
    sock = proxy.connect()
    sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    assert read_head(sock).startswith(b"HTTP/1.1 200 ")
    return sock


def assert_serves(proxy: RunningProxy, port: int) -> None:
    with tunnel(proxy, port) as sock:
        sock.sendall(b"still here")
        assert sock.recv(100) == b"still here"


def resident_bytes(proxy: RunningProxy) -> int:
    status = Path(f"/proc/{proxy.process.pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize("said", [b"", b"G", b"GET http://api.example.com/ HTTP/1.1\r\nHost: x\r\n", b"\x05\x01"])
def test_a_header_that_never_ends_is_cut_off(said: bytes) -> None:
    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=QUICK) as proxy:
        answer = proxy.ask(said)
        assert answer.startswith(b"HTTP/1.1 408 ") if said[:1] == b"G" else answer == b""
        assert_serves(proxy, server.port)


def test_a_header_has_a_largest_size() -> None:
    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"]) as proxy:
        answer = proxy.ask(b"GET http://api.example.com/ HTTP/1.1\r\n" + b"X-A: " + b"a" * 200_000)
        assert answer.startswith(b"HTTP/1.1 431 ")
        answer = proxy.ask(b"GET http://api.example.com/ HTTP/1.1\r\n" + b"X-A: a\r\n" * 20_000 + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert_serves(proxy, server.port)


def test_an_idle_tunnel_is_closed() -> None:
    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=QUICK) as proxy:
        with tunnel(proxy, server.port) as sock, pytest.raises(ConnectionResetError):
            read_all(sock)
        assert_serves(proxy, server.port)


def test_an_idle_kept_connection_is_closed() -> None:
    def talk(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        read_all(sock)

    with Server(talk) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=QUICK) as proxy:
        answer = proxy.ask(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)
        assert answer.startswith(b"HTTP/1.1 204 ")


def test_a_server_that_never_answers_is_504() -> None:
    with Server(read_all) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=QUICK) as proxy:
        answer = proxy.ask(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)
        assert answer.startswith(b"HTTP/1.1 504 ")


def test_a_dial_that_hangs_is_504() -> None:
    """A listener whose queue is full leaves the next connection without an answer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        waiting = []
        with RunningProxy([f"127.0.0.1:{port}"], caps=QUICK) as proxy:
            for _ in range(4):
                sock = socket.socket()
                sock.setblocking(False)
                sock.connect_ex(("127.0.0.1", port))
                waiting.append(sock)
            answer = proxy.ask(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
            for sock in waiting:
                sock.close()
    assert answer.startswith(b"HTTP/1.1 504 ")


def test_connections_beyond_the_cap_get_503() -> None:
    caps = Caps(max_connections=8)
    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=caps) as proxy:
        held = [tunnel(proxy, server.port) for _ in range(8)]
        for _ in range(100):
            sock = proxy.connect()
            assert read_all(sock).startswith(b"HTTP/1.1 503 ")
            sock.close()
        for sock in held:
            sock.sendall(b"x")
            assert sock.recv(1) == b"x"
            sock.close()
        end_of_file_everywhere(proxy)
        assert_serves(proxy, server.port)


def end_of_file_everywhere(proxy: RunningProxy) -> None:
    """Come back when the proxy has room again: connections are taken in order, so an answer that is not 503 says it."""
    while proxy.ask(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 503 "):
        pass


def test_ten_thousand_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 10_000
    if hard < wanted + 200:
        pytest.skip(f"{wanted} sockets need a higher limit of open files than {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    socks: list[socket.socket] = []
    try:
        with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"]) as proxy:
            before = resident_bytes(proxy)
            for _ in range(wanted):
                sock = proxy.connect()
                sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nX-Slow: " % server.port)
                socks.append(sock)
            assert resident_bytes(proxy) - before < 64 << 20
            assert read_head(socks[-1]).startswith(b"HTTP/1.1 503 ")
            for sock in socks:
                sock.close()
            end_of_file_everywhere(proxy)
            assert_serves(proxy, server.port)
        assert proxy.events[-1]["connections"] > wanted
    finally:
        for sock in socks:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def flood(sock: socket.socket) -> None:
    data = bytes(1 << 20)
    while True:
        sock.sendall(data)


@pytest.mark.parametrize("way", ["CONNECT", "GET"])
def test_clients_that_never_read_cost_no_memory(way: str) -> None:
    def talk(sock: socket.socket) -> None:
        if way == "GET":
            read_head(sock)
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        flood(sock)

    with Server(talk) as server, Server(echo) as other:
        rules = [f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"]
        with RunningProxy(rules) as proxy:
            before = resident_bytes(proxy)
            socks = []
            for _ in range(64):
                sock = proxy.connect()
                if way == "GET":
                    sock.sendall(b"GET http://127.0.0.1:%d/ HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)
                else:
                    sock.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % server.port)
                read_head(sock)
                socks.append(sock)
            for _ in range(20):
                assert_serves(proxy, other.port)
            assert resident_bytes(proxy) - before < 64 << 20
            for sock in socks:
                sock.close()


def test_more_streams_than_pipes_are_all_served() -> None:
    size = 4 << 20
    data = bytes(range(256)) * (size // 256)
    caps = Caps(max_pipes=2)
    with Server(echo) as server, RunningProxy([f"127.0.0.1:{server.port}"], caps=caps) as proxy:
        results: list[bytes] = []

        def one() -> None:
            with tunnel(proxy, server.port) as sock:
                sender = threading.Thread(target=lambda: (sock.sendall(data), sock.shutdown(socket.SHUT_WR)))
                sender.start()
                pieces = []
                while piece := sock.recv(1 << 16):
                    pieces.append(piece)
                sender.join()
                results.append(b"".join(pieces))

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [data] * 8


def test_half_open_connections_carry_the_rest() -> None:
    """The client has said all and closed its side; a slow, large answer still arrives whole."""
    size = 24 << 20

    def talk(sock: socket.socket) -> None:
        assert read_all(sock) == b"question"
        sock.sendall(bytes(size))

    with Server(talk) as server, RunningProxy([f"127.0.0.1:{server.port}"]) as proxy:
        with tunnel(proxy, server.port) as sock:
            sock.sendall(b"question")
            sock.shutdown(socket.SHUT_WR)
            got = 0
            while piece := sock.recv(10_000):
                got += len(piece)
        assert got == size


def test_events_nobody_reads_are_counted_and_stop_nothing() -> None:
    caps = Caps(max_events=50)
    with Server(echo) as server:
        proxy = RunningProxy([f"127.0.0.1:{server.port}"], caps=caps, read_events=False)
        denied = 2000
        for _ in range(denied):
            assert proxy.ask(b"CONNECT evil.example.net:443 HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 403 ")
        assert_serves(proxy, server.port)
        reader = threading.Thread(target=proxy.stop)
        reader.start()
        reader.join()
    told = len(proxy.decisions)
    end = [event for event in proxy.events if event["event"] == "network-end"]
    assert 0 < told < denied
    if end:  # the last line needs room as well
        assert told + end[0]["dropped"] == denied + 1
        assert end[0]["denied"] == denied
