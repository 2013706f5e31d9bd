"""Join stdin and stdout to HOST PORT through the proxy in the environment: a ProxyCommand for ssh, in place of nc.

Runs inside the sandbox, by path, in any Python: nothing but the standard library, and nothing of sbx.

    ssh -o ProxyCommand='python3 -I ssh_connect.py %h %p' git@example.com
"""

from __future__ import annotations

import os
import select
import socket
import sys

VARIABLES = ("ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy")
TIMEOUT_S = 60.0
PIECE = 65536
MAX_ANSWER = 65536
SOCKS_ERRORS = {
    2: "not allowed by the network rules",
    3: "network unreachable",
    4: "host unreachable",
    5: "connection refused",
    6: "timed out",
}


class ConnectError(Exception):
    pass


def find_proxy(environment: dict[str, str]) -> tuple[str, str, int]:
    """(scheme, host, port) of the first proxy variable that is set."""
    for name in VARIABLES:
        value = environment.get(name)
        if not value:
            continue
        scheme, separator, rest = value.partition("://")
        if not separator:
            scheme, rest = "http", value
        host, colon, port = rest.rstrip("/").rpartition("@")[2].rpartition(":")
        if scheme not in ("http", "socks5", "socks5h") or not colon or not port.isdecimal():
            raise ConnectError(f"{name}={value} is not a proxy this program can use")
        return scheme, host.strip("[]"), int(port)
    raise ConnectError("no proxy is set: " + ", ".join(VARIABLES[::2]))


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        if not piece:
            raise ConnectError("the proxy closed the connection")
        data += piece
    return data


def ask_http(sock: socket.socket, host: str, port: int) -> bytes:
    """CONNECT; returns what the server said right behind the proxy's answer."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
    data = b""
    while b"\r\n\r\n" not in data:
        piece = sock.recv(PIECE)
        if not piece or len(data) > MAX_ANSWER:
            raise ConnectError("the proxy's answer is not complete")
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    if status.split(" ")[1:2] != ["200"]:
        reasons = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("x-sbx-reason:")]
        raise ConnectError(reasons[0] if reasons else status)
    return rest


def ask_socks(sock: socket.socket, host: str, port: int) -> bytes:
    sock.sendall(b"\x05\x01\x00")
    if receive_exactly(sock, 2) != b"\x05\x00":
        raise ConnectError("the proxy wants a password")
    name = host.encode()
    if len(name) > 255:
        raise ConnectError("the host name is too long")
    sock.sendall(b"\x05\x01\x00\x03" + bytes((len(name),)) + name + port.to_bytes(2, "big"))
    answer = receive_exactly(sock, 4)
    if answer[1]:
        raise ConnectError(f"{host}:{port}: {SOCKS_ERRORS.get(answer[1], 'the proxy failed')}")
    length = {1: 4, 4: 16}.get(answer[3])
    receive_exactly(sock, (receive_exactly(sock, 1)[0] if length is None else length) + 2)
    return b""


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def relay(sock: socket.socket, source: int, sink: int) -> None:
    """Until the server ends. The end of stdin is passed on, and the answer is still waited for."""
    reading = [sock.fileno(), source]
    while True:
        for fd in select.select(reading, [], [])[0]:
            if fd == source:
                data = os.read(source, PIECE)
                if data:
                    sock.sendall(data)
                else:
                    reading.remove(source)
                    sock.shutdown(socket.SHUT_WR)
            else:
                data = sock.recv(PIECE)
                if not data:
                    return
                write_all(sink, data)


def main() -> int:
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        print("usage: ssh_connect.py HOST PORT", file=sys.stderr)
        return 2
    host, port = sys.argv[1], int(sys.argv[2])
    try:
        if not 0 < port < 65536:
            raise ConnectError(f"{port} is not a port")
        scheme, proxy_host, proxy_port = find_proxy(dict(os.environ))
        with socket.create_connection((proxy_host, proxy_port), TIMEOUT_S) as sock:
            early = (ask_http if scheme == "http" else ask_socks)(sock, host, port)
            sock.settimeout(None)
            write_all(1, early)
            relay(sock, 0, 1)
    except (ConnectError, OSError) as error:
        print(f"sbx: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
