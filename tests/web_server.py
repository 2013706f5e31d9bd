"""A web server on loopback for tests: pages from memory, and git repositories; with TLS if it gets a certificate."""

from __future__ import annotations

import http.server
import os
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

TIMEOUT_S = 60


class Site(http.server.BaseHTTPRequestHandler):
    """Files from memory, and git repositories through git's own CGI program."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, tuple[str, bytes]] = {"/hello": ("text/plain", b"hello from the server\n")}
    repositories = ""

    def do_GET(self) -> None:
        if self.path.startswith("/git/"):
            self._git(b"")
            return
        kind, body = self.pages.get(self.path, ("text/plain", b""))
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self._git(body)

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.removeprefix("/git").partition("?")
        done = subprocess.run(
            ["git", "http-backend"],
            input=body,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={
                **os.environ,
                "GIT_PROJECT_ROOT": self.repositories,
                "GIT_HTTP_EXPORT_ALL": "1",
                "REQUEST_METHOD": self.command,
                "PATH_INFO": path,
                "QUERY_STRING": query,
                "CONTENT_TYPE": self.headers.get("Content-Type", ""),
                "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
                "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            },
        )
        head, _, answer = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        pass


class WebServer:
    def __init__(self, context: ssl.SSLContext | None = None, **attributes: object) -> None:
        handler = type("Handler", (Site,), attributes)
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def __enter__(self) -> WebServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def make_certificate(folder: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """A certificate of its own for `name` (as `DNS:…` or `IP:…`), and the server's side of it."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", "/CN=test", "-addext", f"subjectAltName={name}"],
        check=True, capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context
