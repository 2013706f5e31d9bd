"""Ordinary programs, told of the proxy by its environment variables and nothing else, against real local servers."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from running_proxy import TIMEOUT_S, RunningProxy, Server, echo
from web_server import WebServer, make_certificate

from sbx.network.environment import SSH_CONNECT, proxy_environment
from sbx.network.hosts import parse_rules

HOST = "api.example.com"
EVIL = "evil.example.net"


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    return make_certificate(tmp_path, f"DNS:{HOST}")


def proxy_for(port: int) -> RunningProxy:
    return RunningProxy([f"{HOST}:{port}", f"127.0.0.1:{port}"], resolve={HOST: ("127.0.0.1",)})


def run(
    proxy: RunningProxy, *command: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """The command with the proxy's variables and the little that a program needs besides."""
    base = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR")}
    environment = base | proxy_environment(proxy.port) | variables
    return subprocess.run(
        [str(word) for word in command],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def plain() -> Iterator[tuple[RunningProxy, int]]:
    with WebServer() as server, proxy_for(server.port) as proxy:
        yield proxy, server.port


@requires(tools=["curl"])
@pytest.mark.parametrize("extra", [(), ("--proxytunnel",), ("--preproxy", "socks5h")])
def test_curl(plain: tuple[RunningProxy, int], extra: tuple[str, ...]) -> None:
    proxy, port = plain
    if "--preproxy" in extra:
        extra = ("--proxy", f"socks5h://127.0.0.1:{proxy.port}")
    done = run(proxy, "curl", "-sS", "--fail", *extra, f"http://{HOST}:{port}/hello", f"http://{HOST}:{port}/hello")
    assert (done.returncode, done.stdout) == (0, "hello from the server\n" * 2), done.stderr
    denied = run(proxy, "curl", "-sS", *extra[:2], f"http://{EVIL}:{port}/hello")
    assert "hello" not in denied.stdout
    assert denied.returncode != 0 or f"denied {EVIL}:{port}, no rule" in denied.stdout


@requires(tools=["curl", "openssl"])
def test_curl_over_tls_sees_the_servers_own_certificate(certificate: tuple[Path, ssl.SSLContext]) -> None:
    cert, context = certificate
    with WebServer(context) as server, proxy_for(server.port) as proxy:
        url = f"https://{HOST}:{server.port}/hello"
        done = run(proxy, "curl", "-sS", "--fail", "--cacert", cert, url)
        assert (done.returncode, done.stdout) == (0, "hello from the server\n"), done.stderr
        unknown = run(proxy, "curl", "-sS", "--fail", url)
        assert unknown.returncode == 60  # nobody put a certificate of their own in between
        denied = run(proxy, "curl", "-sS", "--cacert", cert, f"https://{EVIL}:{server.port}/hello")
        assert denied.returncode != 0 and "403" in denied.stderr


@requires(tools=["wget"])
def test_wget(plain: tuple[RunningProxy, int]) -> None:
    proxy, port = plain
    done = run(proxy, "wget", "-q", "-O", "-", f"http://{HOST}:{port}/hello")
    assert (done.returncode, done.stdout) == (0, "hello from the server\n"), done.stderr


@requires(tools=["openssl"])
def test_python_urllib(certificate: tuple[Path, ssl.SSLContext]) -> None:
    cert, context = certificate
    script = "import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode(), end='')"
    with WebServer(context) as server, proxy_for(server.port) as proxy:
        url = f"https://{HOST}:{server.port}/hello"
        done = run(proxy, sys.executable, "-c", script, url, SSL_CERT_FILE=str(cert))
        assert done.stdout == "hello from the server\n", done.stderr
        denied = run(proxy, sys.executable, "-c", script, url.replace(HOST, EVIL), SSL_CERT_FILE=str(cert))
        assert "403 Forbidden" in denied.stderr


@requires(tools=["git", "openssl"])
def test_git_clone_and_push_over_https(certificate: tuple[Path, ssl.SSLContext], tmp_path: Path) -> None:
    cert, context = certificate
    bare, clone = tmp_path / "repositories" / "project.git", tmp_path / "clone"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], check=True)
    subprocess.run(["git", "-C", bare, "config", "http.receivepack", "true"], check=True)
    with WebServer(context, repositories=str(bare.parent)) as server, proxy_for(server.port) as proxy:
        url = f"https://{HOST}:{server.port}/git/project.git"
        identity = {f"GIT_{who}_{what}": f"t@{HOST}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        known = {"GIT_SSL_CAINFO": str(cert), "GIT_TERMINAL_PROMPT": "0", **identity}
        assert run(proxy, "git", "clone", "-q", url, clone, **known).returncode == 0
        (clone / "file").write_bytes(os.urandom(3 << 20))  # over http.postBuffer, so that the push is chunked
        for words in (["checkout", "-q", "-B", "main"], ["add", "file"], ["commit", "-qm", "one"]):
            assert run(proxy, "git", *words, cwd=clone, **known).returncode == 0
        pushed = run(proxy, "git", "push", "-q", "origin", "main", cwd=clone, **known)
        assert pushed.returncode == 0, pushed.stderr
        listed = run(proxy, "git", "ls-remote", url, **known)
        assert "refs/heads/main" in listed.stdout
        denied = run(proxy, "git", "ls-remote", url.replace(HOST, EVIL), **known)
        assert denied.returncode != 0 and "403" in denied.stderr
    assert {event["verdict"] for event in proxy.decisions if event["host"] == HOST} == {"allow"}


@requires(tools=["git", "ssh"])
def test_git_over_ssh_goes_through_the_helper() -> None:
    """No ssh server here: ssh's first words must arrive at the right one, and the refusal at the user."""
    words: list[bytes] = []

    def talk(sock: Any) -> None:
        sock.sendall(b"SSH-2.0-test\r\n")
        words.append(sock.recv(200))

    with Server(talk) as server, proxy_for(server.port) as proxy:
        run(proxy, "git", "ls-remote", f"ssh://git@{HOST}:{server.port}/project.git")
        denied = run(proxy, "git", "ls-remote", f"ssh://git@{EVIL}:{server.port}/project.git")
    assert [word[:8] for word in words] == [b"SSH-2.0-"]
    assert f"denied {EVIL}:{server.port}, no rule" in denied.stderr


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_the_ssh_helper_by_itself(scheme: str) -> None:
    data = os.urandom(2 << 20)
    with Server(echo) as server, proxy_for(server.port) as proxy:
        environment = {"ALL_PROXY": f"{scheme}://127.0.0.1:{proxy.port}"}
        command = [sys.executable, "-I", SSH_CONNECT, HOST, str(server.port)]
        done = subprocess.run(command, env=environment, input=data, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == data
        command[3] = EVIL
        denied = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert denied.returncode == 1
        assert b"no rule" in denied.stderr or b"not allowed" in denied.stderr
        nowhere = subprocess.run(command, env={}, capture_output=True, timeout=TIMEOUT_S, check=False)
        assert nowhere.returncode == 1 and b"no proxy is set" in nowhere.stderr


@requires(tools=["npm"])
def test_npm(tmp_path: Path) -> None:
    page = json.dumps({"name": "left", "dist-tags": {"latest": "1.2.3"}, "versions": {"1.2.3": {"name": "left"}}})
    with WebServer(pages={"/left": ("application/json", page.encode())}) as server, proxy_for(server.port) as proxy:
        registry = f"--registry=http://{HOST}:{server.port}/"
        done = run(proxy, "npm", "view", "left", "dist-tags.latest", registry, cwd=tmp_path)
        assert done.stdout.strip() == "1.2.3", done.stderr


def test_pip(tmp_path: Path) -> None:
    name = "left-1.0-py3-none-any.whl"
    with zipfile.ZipFile(tmp_path / name, "w") as wheel:
        wheel.writestr("left-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: left\nVersion: 1.0\n")
        wheel.writestr("left-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("left-1.0.dist-info/RECORD", "")
    pages = {
        "/simple/left/": ("text/html", f'<a href="/{name}">{name}</a>'.encode()),
        f"/{name}": ("application/octet-stream", (tmp_path / name).read_bytes()),
    }
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("this Python has no pip")
    with WebServer(pages=pages) as server, proxy_for(server.port) as proxy:
        index = f"http://{HOST}:{server.port}/simple/"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--trusted-host", HOST, "-i", index]
        command += ["--disable-pip-version-check", "-d", str(tmp_path / "got"), "left"]
        done = run(proxy, *command)
        assert (tmp_path / "got" / name).exists(), done.stderr


NODE_CONNECT = """
const http = require("http"), [proxy, host] = process.argv.slice(1).map(u => new URL(u));
const request = http.request({host: proxy.hostname, port: proxy.port, method: "CONNECT", path: host.host});
request.on("connect", (response, socket) => {
  http.get({createConnection: () => socket, host: host.hostname, path: host.pathname}, r => r.pipe(process.stdout));
}).on("error", e => { console.error(e); process.exit(1); }).end();
"""


@requires(tools=["node"])
def test_node_tunnel(plain: tuple[RunningProxy, int]) -> None:
    proxy, port = plain
    done = run(proxy, "node", "-e", NODE_CONNECT, proxy.url, f"http://{HOST}:{port}/hello")
    assert done.stdout == "hello from the server\n", done.stderr


@requires(tools=["node"])
def test_node_fetch(plain: tuple[RunningProxy, int]) -> None:
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    numbers = tuple(int(part) for part in version.lstrip("v").split(".")[:2])
    if not (numbers >= (24, 0) or (22, 21) <= numbers < (23, 0)):
        pytest.skip(f"node {version} does not know NODE_USE_ENV_PROXY")
    proxy, port = plain
    script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
    done = run(proxy, "node", "-e", script, f"http://{HOST}:{port}/hello")
    assert done.stdout == "hello from the server\n", done.stderr


JAVA = """
import java.io.*; import java.net.*;
public class Fetch { public static void main(String[] a) throws Exception {
  try (InputStream in = new URL(a[0]).openStream()) { in.transferTo(System.out); } System.out.flush(); } }
"""


@requires(tools=["java", "javac"])
def test_java(plain: tuple[RunningProxy, int], tmp_path: Path) -> None:
    proxy, port = plain
    (tmp_path / "Fetch.java").write_text(JAVA)
    done = run(proxy, "java", tmp_path / "Fetch.java", f"http://{HOST}:{port}/hello")
    assert done.stdout == "hello from the server\n", done.stderr


GO = """
package main
import ("io"; "net/http"; "os")
func main() { r, err := http.Get(os.Args[1]); if err != nil { panic(err) }; io.Copy(os.Stdout, r.Body) }
"""


@requires(tools=["go"])
def test_go(plain: tuple[RunningProxy, int], tmp_path: Path) -> None:
    proxy, port = plain
    (tmp_path / "fetch.go").write_text(GO)
    done = run(proxy, "go", "run", tmp_path / "fetch.go", f"http://{HOST}:{port}/hello")
    assert done.stdout == "hello from the server\n", done.stderr


def test_loopback_goes_past_the_proxy_unless_it_is_listed() -> None:
    assert proxy_environment(3128)["NO_PROXY"] == "localhost,127.0.0.1,::1"
    rules = parse_rules(["localhost:8000"])
    environment = proxy_environment(3128, rules)
    assert environment["NO_PROXY"] == environment["no_proxy"] == "127.0.0.1,::1"
    assert "localhost" not in environment["JAVA_TOOL_OPTIONS"]
