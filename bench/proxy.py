"""Throughput and connections per second: direct, through the sbx proxy, through tinyproxy where it is installed.

Only loopback addresses. Rounds are interleaved, so that a busy machine slows all of them alike; ratios are of medians.

    python bench/proxy.py [--rounds N] [--megabytes N] [--connections N]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import pwd
import select
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sbx.network.hosts import parse_rules
from sbx.network.settings import ProxySettings, proxy_argv

Address = tuple[str, int]
PIECE = 1 << 18


def in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        work()
    finally:
        os._exit(0)


def stream_server(listener: socket.socket) -> None:
    """Says N bytes to whoever sends ``N\\n``."""
    data = memoryview(bytes(PIECE))
    while True:
        sock, _ = listener.accept()
        left = int(sock.makefile("rb").readline())
        while left:
            left -= sock.send(data[: min(left, PIECE)])
        sock.close()


def echo_server(listener: socket.socket) -> None:
    """Answers one small message per connection, on epoll: as cheap as Python can."""
    listener.setblocking(False)
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    open_sockets: dict[int, socket.socket] = {}
    while True:
        for fd, _ in poll.poll():
            if fd == listener.fileno():
                with contextlib.suppress(BlockingIOError):
                    while True:
                        sock, _ = listener.accept()
                        sock.setblocking(False)
                        open_sockets[sock.fileno()] = sock
                        poll.register(sock, select.EPOLLIN)
                continue
            sock = open_sockets[fd]
            with contextlib.suppress(OSError):
                message = sock.recv(4096)
                if message:
                    sock.send(message)
                    continue
            del open_sockets[fd]
            sock.close()


def connect(target: Address, proxy: Address | None) -> socket.socket:
    sock = socket.create_connection(proxy or target)
    if proxy is not None:
        sock.sendall(f"CONNECT {target[0]}:{target[1]} HTTP/1.1\r\nHost: {target[0]}:{target[1]}\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = sock.recv(4096)
            if not piece:
                raise RuntimeError("the proxy closed the connection")
            answer += piece
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeError(answer.decode())
    return sock


def bytes_per_second(target: Address, proxy: Address | None, size: int) -> float:
    sock = connect(target, proxy)
    start = time.perf_counter()
    sock.sendall(b"%d\n" % size)
    buffer = bytearray(PIECE)
    left = size
    while left:
        count = sock.recv_into(buffer)
        if not count:
            raise RuntimeError("the stream ended early")
        left -= count
    elapsed = time.perf_counter() - start
    sock.close()
    return size / elapsed


def connections_per_second(target: Address, proxy: Address | None, count: int) -> float:
    """One after the other: connect, a small message, its echo, close. What a package manager does all day."""
    start = time.perf_counter()
    for _ in range(count):
        sock = connect(target, proxy)
        sock.sendall(b"ping")
        if sock.recv(64) != b"ping":
            raise RuntimeError("wrong echo")
        sock.close()
    return count / (time.perf_counter() - start)


def parallel_connections(target: Address, proxy: Address | None, count: int) -> float:
    """The same from several clients at once, so that the proxy and not the round trip is the limit."""
    start = time.perf_counter()
    clients = [in_child(lambda: void(connections_per_second(target, proxy, count // 4))) for _ in range(4)]
    for pid in clients:
        os.waitpid(pid, 0)
    return count / (time.perf_counter() - start)


def void(_: object) -> None:
    pass


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0), backlog=4096)


@contextlib.contextmanager
def sbx_proxy(rules: list[str]) -> Iterator[tuple[Address, int]]:
    listener = listening()
    lifeline_read, lifeline_write = os.pipe()
    argv = proxy_argv(listener.fileno(), lifeline_fd=lifeline_read, event_fd=2)
    fds = (listener.fileno(), lifeline_read)
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, pass_fds=fds)
    assert process.stdin is not None
    process.stdin.write(ProxySettings(parse_rules(rules)).to_json())
    process.stdin.close()
    os.close(lifeline_read)
    address = listener.getsockname()
    listener.close()
    try:
        yield address, process.pid
    finally:
        os.close(lifeline_write)
        process.wait(30)


@contextlib.contextmanager
def tinyproxy() -> Iterator[tuple[Address, int] | None]:
    program = shutil.which("tinyproxy")
    if program is None:
        yield None
        return
    with listening() as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "tinyproxy.conf"
        user = pwd.getpwuid(os.getuid()).pw_name
        config.write_text(
            f"User {user}\nPort {port}\nListen 127.0.0.1\nTimeout 600\nMaxClients 1000\nLogLevel Critical\n"
            f'LogFile "{folder}/log"\n'
        )
        process = subprocess.Popen([program, "-d", "-c", str(config)], stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 10
            while time.monotonic() < end:
                with contextlib.suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
            yield ("127.0.0.1", port), process.pid
        finally:
            process.terminate()
            process.wait(30)


def cpu_seconds(pid: int) -> float:
    """Of the process itself: what one byte or one connection costs, whatever else the machine does."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return None


def measure(options: argparse.Namespace) -> dict[str, object]:
    stream, echo = listening(), listening()
    children = [in_child(lambda: stream_server(stream)), in_child(lambda: echo_server(echo))]
    targets = {"stream": stream.getsockname(), "echo": echo.getsockname()}
    size, count = options.megabytes << 20, options.connections
    rows: dict[str, Callable[[Address | None], float]] = {
        "bytes_per_second": lambda proxy: bytes_per_second(targets["stream"], proxy, size),
        "connections_per_second": lambda proxy: connections_per_second(targets["echo"], proxy, count),
        "connections_per_second_4_clients": lambda proxy: parallel_connections(targets["echo"], proxy, count),
    }
    rules = [f"127.0.0.1:{address[1]}" for address in targets.values()]
    try:
        with sbx_proxy(rules) as ours, tinyproxy() as theirs:
            ways: dict[str, tuple[Address, int] | None] = {"direct": None, "sbx": ours}
            if theirs is not None:
                ways["tinyproxy"] = theirs
            samples: dict[str, dict[str, list[float]]] = {row: {way: [] for way in ways} for row in rows}
            cpu: dict[str, dict[str, float]] = {row: dict.fromkeys(ways, 0.0) for row in rows}
            for _ in range(options.rounds + 1):
                for row, run in rows.items():
                    for way, proxy in ways.items():
                        before = cpu_seconds(proxy[1]) if proxy else 0.0
                        samples[row][way].append(run(proxy[0] if proxy else None))
                        cpu[row][way] += cpu_seconds(proxy[1]) - before if proxy else 0.0
            memory = {way: memory_kib(proxy[1]) for way, proxy in ways.items() if proxy}
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return summarize(samples, cpu, memory, options)


def summarize(
    samples: dict[str, dict[str, list[float]]],
    cpu: dict[str, dict[str, float]],
    memory: dict[str, int | None],
    options: argparse.Namespace,
) -> dict[str, object]:
    result: dict[str, object] = {
        "machine": {"kernel": platform.release(), "cores": os.cpu_count(), "python": platform.python_version()},
        "options": vars(options),
        "pss_kib": memory,
    }
    for row, ways in samples.items():
        medians = {way: statistics.median(values[1:]) for way, values in ways.items()}  # the first round warms up
        result[row] = {
            way: {
                "median": round(medians[way]),
                "best": round(max(values[1:])),
                "of_direct": round(medians[way] / medians["direct"], 3),
                "cpu_s": round(cpu[row][way], 2),
            }
            for way, values in ways.items()
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--connections", type=int, default=2000)
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
