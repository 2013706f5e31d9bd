"""The real proxy process for tests, on loopback, with its events collected."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from sbx.network.hosts import parse_rules
from sbx.network.settings import Caps, ProxySettings, proxy_argv

TIMEOUT_S = 60


class RunningProxy:
    """``with RunningProxy(["api.example.com:443"]) as proxy:``; afterwards ``proxy.events`` holds every line."""

    def __init__(
        self,
        rules: Iterable[str],
        *,
        resolve: Mapping[str, tuple[str, ...]] | None = None,
        caps: Caps | None = None,
        read_events: bool = True,
    ) -> None:
        settings = ProxySettings(parse_rules(rules), caps or Caps(), resolve or {})
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.address: tuple[str, int] = listener.getsockname()
        self.port = self.address[1]
        self.events: list[dict[str, Any]] = []
        self.stderr = ""
        lifeline, self._lifeline = os.pipe()
        events, event_fd = os.pipe()
        fds = (listener.fileno(), lifeline, event_fd)
        argv = proxy_argv(listener.fileno(), lifeline_fd=lifeline, event_fd=event_fd)
        env = {name: os.environ[name] for name in ("PATH", "COVERED_LINES") if name in os.environ}
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=fds, env=env)
        assert self.process.stdin is not None
        self.process.stdin.write(settings.to_json())
        self.process.stdin.close()
        listener.close()
        os.close(lifeline)
        os.close(event_fd)
        self._event_file = open(events, "rb")
        self._reader = threading.Thread(target=self._read)
        self._reading = read_events
        if read_events:
            self._reader.start()

    def _read(self) -> None:
        self.events += [json.loads(line) for line in self._event_file]

    def __enter__(self) -> RunningProxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it by its lifeline, and insist that it had nothing to complain about."""
        if self._lifeline < 0:
            return
        os.close(self._lifeline)
        self._lifeline = -1
        try:
            assert self.process.stderr is not None
            with self.process.stderr as stream:
                self.stderr = stream.read().decode()
            self.process.wait(TIMEOUT_S)
        finally:
            self.process.kill()
            self.process.wait()
            if self._reading:
                self._reader.join()
            else:
                self._read()
            self._event_file.close()
        assert (self.process.returncode, self.stderr) == (0, "")

    @property
    def decisions(self) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == "network"]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, TIMEOUT_S)

    def ask(self, data: bytes) -> bytes:
        """Everything the proxy says to these bytes until it closes."""
        with self.connect() as sock:
            sock.sendall(data)
            return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    answer = b""
    while piece := sock.recv(65536):
        answer += piece
    return answer


def read_head(sock: socket.socket) -> bytes:
    """Up to the end of an HTTP head, byte by byte so that nothing behind it is lost."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        piece = sock.recv(1)
        if not piece:
            break
        head += piece
    return head


class Server:
    """A TCP server on loopback: ``talk`` is called for each connection, on a thread of its own."""

    def __init__(self, talk: Any, host: str = "127.0.0.1") -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self.host = host
        self.accepted = 0
        self._talk = talk
        self._threads: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._one, args=(sock,))
            self._threads.append(thread)
            thread.start()

    def _one(self, sock: socket.socket) -> None:
        with sock:
            sock.settimeout(TIMEOUT_S)
            try:
                self._talk(sock)
            except OSError:
                pass  # the client left, as many tests want it to

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for thread in self._threads:
            thread.join()


def echo(sock: socket.socket) -> None:
    while data := sock.recv(65536):
        sock.sendall(data)
