"""Nothing is reachable but what was named: every way out of `none`, ordinary programs through an allow-list."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from capabilities import requires
from running_proxy import Server
from runs import LANDLOCK, PATIENCE_S, PYTHON, READ_PYTHON, Host, python, read_line, with_command
from web_server import WebServer, make_certificate

if TYPE_CHECKING:
    from conftest import Workspace

HELLO = "hello from the server\n"
EVIL = "evil.example.net"


@pytest.fixture
def web() -> Iterator[WebServer]:
    with WebServer() as server:
        yield server


def denied(result: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["host"], each["port"]) for each in result["network"] if each["verdict"] == "deny"]


def allowed(result: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["host"], each["port"]) for each in result["network"] if each["verdict"] == "allow"]


# --- none

WAYS_OUT = r"""
import socket, sys
tcp, udp, abstract = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def attempt(name, work):
    try: work()
    except OSError as error: print(name, "refused", flush=True)
    else: print(name, "POSSIBLE", flush=True)
def tcp4(): socket.create_connection(("127.0.0.1", tcp), 5).close()
def datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(0.5)
        sock.sendto(b"out", ("127.0.0.1", udp))
        sock.recv(10)
def far():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock: sock.connect(("192.0.2.1", 53))
def far6():
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock: sock.connect(("2001:db8::1", 53))
def hidden():
    with socket.socket(socket.AF_UNIX) as sock: sock.connect("\0" + abstract)
def hidden_datagram():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock: sock.sendto(b"x", "\0" + abstract + "-d")
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close()
def packet(): socket.socket(17, socket.SOCK_RAW, 0x300).close()
def vsock(): socket.socket(40, socket.SOCK_STREAM).close()
def crypto(): socket.socket(38, socket.SOCK_SEQPACKET).close()
def netfilter(): socket.socket(16, socket.SOCK_RAW, 12).close()
def audit(): socket.socket(16, socket.SOCK_RAW, 9).close()
def bluetooth(): socket.socket(31, socket.SOCK_RAW, 1).close()
def route():
    # RTM_NEWADDR: an address for the loopback interface needs a capability that nobody has inside.
    with socket.socket(16, socket.SOCK_RAW, 0) as sock:
        body = bytes([2, 24, 0, 0]) + (1).to_bytes(4, "little") + (8).to_bytes(2, "little") + (2).to_bytes(2, "little")
        body += socket.inet_aton("192.0.2.7")
        head = (16 + len(body)).to_bytes(4, "little") + (20).to_bytes(2, "little") + (0x605).to_bytes(2, "little")
        sock.send(head + bytes(8) + body)
        answer = sock.recv(4096)
        code = int.from_bytes(answer[16:20], "little", signed=True)
        if code: raise OSError(-code, "refused")
for name, work in list(globals().items()):
    if callable(work) and name != "attempt" and getattr(work, "__module__", "") == "__main__": attempt(name, work)
"""


def test_none_leaves_no_way_out(host: Host, web: WebServer, workspace: Workspace) -> None:
    name = f"sbx-test-{os.getpid()}"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
    ):
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        abstract.bind("\0" + name)
        abstract.listen()
        datagrams.bind("\0" + name + "-d")
        done = host.run("--net", "none", *python(WAYS_OUT, str(web.port), str(udp.getsockname()[1]), name))
        with pytest.raises(BlockingIOError):
            udp.recv(10)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    assert len(lines) == 14
    assert [line for line in lines if not line.endswith(" refused")] == []


def test_none_is_the_default_and_said(host: Host, web: WebServer, workspace: Workspace) -> None:
    result = host.result(workspace.root, *python(WAYS_OUT, str(web.port), "9", "sbx-nobody"))
    assert "POSSIBLE" not in result["stdout"]
    assert result["enforced"]["network"]["requested"] is True
    assert result["enforced"]["network"]["applied"] is True
    assert result["network"] == []


TALK_TO_ITSELF = """
import socket, threading
for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
    server = socket.create_server((address, 0), family=family)
    def serve():
        sock, _ = server.accept()
        sock.sendall(b"from inside"); sock.close()
    thread = threading.Thread(target=serve); thread.start()
    print(socket.create_connection(server.getsockname()[:2], 10).recv(100).decode()); thread.join()
"""


@requires("userns")
@pytest.mark.parametrize("net", ["none", "api.example.com:443"])
def test_a_server_and_its_client_in_one_run(net: str, here: Host) -> None:
    done = here.run("--net", net, *python(TALK_TO_ITSELF))
    assert done.stdout.decode() == "from inside\nfrom inside\n", done.stderr.decode()


@requires("userns")
def test_two_runs_do_not_meet(here: Host) -> None:
    """The same port twice at once, each in its own network."""
    code = (
        "import socket, sys; s = socket.create_server(('127.0.0.1', 4711)); print('mine', flush=True); sys.stdin.read()"
    )
    with (
        here.started(*python(code), stdin=subprocess.PIPE) as first,
        here.started(*python(code), stdin=subprocess.PIPE) as second,
    ):
        assert read_line(first) == read_line(second) == b"mine\n"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()
            assert process.wait(PATIENCE_S) == 0


# --- allow


@requires(tools=["curl"])
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "LOCALHOST."])
def test_curl_reaches_what_is_named_and_nothing_else(
    host: Host, web: WebServer, workspace: Workspace, name: str
) -> None:
    rule = name.lower().rstrip(".")
    with WebServer() as other:
        script = (
            f"curl -sS --fail http://{name}:{web.port}/hello; curl -sS http://{name}:{other.port}/hello; "
            f"curl -sS http://{EVIL}/; curl -sS https://{EVIL}/; true"
        )
        found = host.result(workspace.root, "--net", f"{rule}:{web.port}", "--", "sh", "-c", script)
    assert found["stdout"].startswith(HELLO)
    assert found["stdout"].count("hello") == 1
    assert "403" in found["stderr"]
    assert f"denied {EVIL}:80, no rule" in found["stdout"]
    assert allowed(found) == [(rule, web.port)]
    assert denied(found) == [(rule, other.port), (EVIL, 80), (EVIL, 443)]
    assert found["status"] == "OK"
    assert f"network: denied {EVIL}:443, no rule; to allow it: add --net {EVIL}:443\n" in found["words"]
    assert f"network: denied {rule}:{other.port}, no rule for this port, only for {web.port}" in found["words"]


@requires(tools=["curl", "openssl"])
def test_tls_is_the_servers_own(host: Host, workspace: Workspace) -> None:
    cert, context = make_certificate(workspace.root, "IP:127.0.0.1")
    with WebServer(context) as server:
        url = f"https://127.0.0.1:{server.port}/hello"
        net = ("--net", f"127.0.0.1:{server.port}")
        assert host.run(*net, "--", "curl", "-sS", "--cacert", str(cert), url).stdout.decode() == HELLO
        assert host.run(*net, "--", "curl", "-sS", url).returncode == 60  # nobody put a certificate in between
        fetch = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1]).read().decode())"
        done = host.run(*net, "--env", f"SSL_CERT_FILE={cert}", *python(fetch, url))
        assert done.stdout.decode() == HELLO, done.stderr.decode()
        refused = host.run(*net, *python(fetch, f"https://{EVIL}/"))
        assert b"403 Forbidden" in refused.stderr


@requires("userns", tools=["git", "openssl"])
def test_git_over_https(here: Host, workspace: Workspace, tmp_path: Path) -> None:
    cert, context = make_certificate(workspace.root, "IP:127.0.0.1")
    bare = tmp_path / "repositories" / "project.git"
    subprocess.run(["git", "init", "-q", "--bare", "-b", "main", bare], check=True)
    subprocess.run(["git", "-C", bare, "config", "http.receivepack", "true"], check=True)
    with WebServer(context, repositories=str(bare.parent)) as server:
        url = f"https://127.0.0.1:{server.port}/git/project.git"
        script = f"""
            set -e
            git clone -q {url} clone 2>/dev/null; cd clone; git checkout -q -B main
            echo text > file; git add file
            git -c user.name=t -c user.email=t@example.com commit -qm one
            git push -q origin main; git ls-remote {url}
        """
        env = ("--env", f"GIT_SSL_CAINFO={cert}", "--env", "GIT_TERMINAL_PROMPT=0")
        done = here.run("--net", f"127.0.0.1:{server.port}", *env, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr.decode()
    assert b"refs/heads/main" in done.stdout


@requires("userns", tools=["git", "ssh"])
def test_git_over_ssh_finds_its_helper_inside(here: Host) -> None:
    """ssh's first words arrive at the host's server, through the Python and the program that the sandbox shows."""
    words: list[bytes] = []

    def talk(sock: Any) -> None:
        sock.sendall(b"SSH-2.0-test\r\n")
        words.append(sock.recv(200))

    with Server(talk) as server:
        url = f"ssh://git@127.0.0.1:{server.port}/project.git"
        here.run("--net", f"127.0.0.1:{server.port}", "--", "git", "ls-remote", url)
        refused = here.run("--net", f"127.0.0.1:{server.port}", "--", "git", "ls-remote", f"ssh://git@{EVIL}/x.git")
    assert [word[:8] for word in words] == [b"SSH-2.0-"]
    assert f"denied {EVIL}:22, no rule" in refused.stderr.decode()


@requires("userns")
def test_requests_and_node(here: Host, web: WebServer, workspace: Workspace) -> None:
    """What is installed of them: urllib3's users, and node's fetch where it knows the environment."""
    net = ("--net", f"127.0.0.1:{web.port}")
    url = f"http://127.0.0.1:{web.port}/hello"
    tried = []
    vendored = (
        "from pip._vendor import requests; import sys; sys.stdout.write(requests.get(sys.argv[1], timeout=50).text)"
    )
    if not subprocess.run([sys.executable, "-c", "import pip"], capture_output=True, check=False).returncode:
        tried.append("requests")
        done = here.run(*net, "--read", sys.prefix + "/**", *READ_PYTHON, "--", sys.executable, "-c", vendored, url)
        assert done.stdout.decode() == HELLO, done.stderr.decode()
    node = shutil.which("node")
    version = subprocess.run([node, "--version"], capture_output=True, text=True, check=True).stdout if node else "v0.0"
    numbers = tuple(int(part) for part in version.strip().lstrip("v").split(".")[:2])
    if numbers >= (24, 0) or (22, 21) <= numbers < (23, 0):
        tried.append("node")
        script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))"
        done = here.run(*net, "--", "node", "-e", script, url)
        assert done.stdout.decode() == HELLO, done.stderr.decode()
    if not tried:
        pytest.skip(f"neither requests nor a node that knows NODE_USE_ENV_PROXY (this one is {version.strip()})")


def test_the_environment_names_the_proxy(host: Host, web: WebServer) -> None:
    env = dict(
        line.split("=", 1)
        for line in host.run("--net", f"localhost:{web.port}", "--", "env").stdout.decode().splitlines()
    )
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert env[name] == env[name.lower()]
        assert env[name].startswith("http://127.0.0.1:")
    assert env["NO_PROXY"] == env["no_proxy"] == "127.0.0.1,::1"
    assert "HTTP_PROXY" not in host.run("--net", "none", "--", "env").stdout.decode()


# --- from a policy

POLICY = """
schemaVersion: 2
fsProfiles:
  listed: {{read: ["./**"], network: {{allow: ["127.0.0.1:{port}"]}}}}
  empty: {{read: ["./**"], network: {{allow: []}}}}
  wild: {{read: ["./**"], network: {{allow: ["*.example.invalid:443"]}}}}
  open: {{read: ["./**"], network: host}}
"""


@requires("userns", tools=["curl"])
def test_the_policys_list(here: Host, web: WebServer, workspace: Workspace, tmp_path: Path) -> None:
    workspace.policy(POLICY.format(port=web.port))
    trusted = {"SBX_TRUST_WORKSPACE": "1"}
    url = f"http://127.0.0.1:{web.port}/hello"

    def curl(*options: str, url: str = url) -> dict[str, Any]:
        return here.result(tmp_path, *options, "--", "curl", "-sS", url, env=trusted)

    assert curl("--profile", "listed")["stdout"] == HELLO
    missed = curl("--profile", "listed", url=f"http://{EVIL}/")
    assert denied(missed) == [(EVIL, 80)]
    assert f'to allow it: add "{EVIL}:80" to network: {{allow: [...]}} of profile listed' in missed["words"]
    empty = curl("--profile", "empty")
    assert empty["status"] == "EXIT" and empty["stdout"] == ""
    assert curl("--profile", "open")["stdout"] == HELLO
    # The option beats the profile, in both directions.
    assert curl("--profile", "open", "--net", "none")["stdout"] == ""
    assert curl("--profile", "listed", "--net", "api.example.com:443")["stdout"] == ""
    wild = curl("--profile", "wild", url="https://deep.down.example.invalid/")
    assert allowed(wild) == [("deep.down.example.invalid", 443)]
    assert [each["rule"] for each in wild["network"]] == ["*.example.invalid:443"]
    assert denied(curl("--profile", "wild", url="https://example.invalid/")) == [("example.invalid", 443)]


# --- records


@requires("userns", tools=["curl"])
def test_decisions_are_audited(here: Host, web: WebServer, workspace: Workspace, sbx: Any) -> None:
    script = f"for i in 1 2 3; do curl -s http://{EVIL}/; done; curl -s http://127.0.0.1:{web.port}/hello"
    found = here.result(workspace.root, "--net", f"127.0.0.1:{web.port}", "--", "sh", "-c", script)
    assert [each["count"] for each in found["network"]] == [3, 1]
    record = json.loads(sbx("audit", "--denied", "--json", "--last", "1").stdout)
    record = record[0] if isinstance(record, list) else record
    assert [(each["verdict"], each["host"], each["port"]) for each in record["network"]] == [
        ("deny", EVIL, 80),
        ("allow", "127.0.0.1", web.port),
    ]


@requires("userns")
def test_a_flood_of_decisions_stays_bounded(here: Host, workspace: Workspace) -> None:
    code = """
import os, socket
port = int(os.environ["HTTP_PROXY"].rpartition(":")[2])
for number in range(1300):
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.sendall(b"CONNECT h%d.example.net:443 HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n" % number)
        assert sock.recv(20).startswith(b"HTTP/1.1 4"), number
"""
    found = here.result(workspace.root, "--net", "api.example.com:443", *python(code))
    assert found["status"] == "OK", found["stderr"]
    assert len(found["network"]) == 1000
    assert "300 further network decisions were made" in found["words"]
    assert found["words"].count("network: denied") < 20


# --- the proxy's life


def proxies(of: int) -> list[int]:
    """The proxy processes that this process started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                stat = Path("/proc", name, "stat").read_text()
                words = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == of and b"sbx.network.proxy" in words:
                found.append(int(name))
    return found


WAIT_THEN_ASK = """
import os, sys, urllib.request, urllib.error
print("ready", flush=True)
sys.stdin.read()
try: print(urllib.request.urlopen(sys.argv[1], timeout=30).read().decode(), end="")
except OSError as error: print("no answer", flush=True)
sys.exit(7)
"""


@requires("userns")
@pytest.mark.parametrize("kill", [True, False])
def test_the_proxy_may_die_and_never_outlives_the_run(here: Host, web: WebServer, kill: bool) -> None:
    arguments = ("--net", f"127.0.0.1:{web.port}", *python(WAIT_THEN_ASK, f"http://127.0.0.1:{web.port}/hello"))
    with here.started(*arguments, stdin=subprocess.PIPE) as process:
        assert read_line(process) == b"ready\n"
        [proxy] = proxies(process.pid)
        if kill:
            os.kill(proxy, signal.SIGKILL)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 7  # the command's own
    assert out.decode() == ("no answer\n" if kill else HELLO)
    assert (b"the network proxy was killed by signal 9" in err) == kill
    assert not os.path.exists(f"/proc/{proxy}")


@requires("userns")
def test_the_proxy_goes_with_a_killed_sbx(here: Host) -> None:
    with here.started("--net", "api.example.com:443", *python(WAIT_THEN_ASK, ""), stdin=subprocess.PIPE) as process:
        assert read_line(process) == b"ready\n"
        [proxy] = proxies(process.pid)
        gone = os.pidfd_open(proxy)
        process.kill()
        process.wait(PATIENCE_S)
        assert select.select([gone], [], [], PATIENCE_S)[0], "the proxy is still there"
        os.close(gone)


def test_the_proxys_variables_are_not_the_callers(here: Host, web: WebServer) -> None:
    """A proxy of the caller's own is no way out of the list, nor is the caller's word about it."""
    lying = {"HTTP_PROXY": f"http://127.0.0.1:{web.port}", "NO_PROXY": "*"}
    done = here.run("--net", f"127.0.0.1:{web.port}", "--env-all", "--", "env", env=lying)
    env = dict(line.split("=", 1) for line in done.stdout.decode().splitlines() if "=" in line)
    assert env["HTTP_PROXY"] == "http://127.0.0.1:3128"
    assert env["NO_PROXY"] == "localhost,::1"


# --- where there is no network namespace

LANDLOCK_ONLY = requires("seccomp", landlock=4)


@LANDLOCK_ONLY
def test_without_namespaces_a_list_is_refused_unless_partial(here: Host, web: WebServer, workspace: Workspace) -> None:
    host = with_command(LANDLOCK, list(here.command))
    strict = Host(host.name, host.prefix, (), host.command)
    refused = strict.run("--net", f"127.0.0.1:{web.port}", "--", "true")
    assert refused.returncode == 125
    assert b"network: no network namespace" in refused.stderr
    direct = (
        "import socket, sys\n"
        "for port in sys.argv[1:]:\n"
        "    try: socket.create_connection(('127.0.0.1', int(port)), 5); print('reached')\n"
        "    except PermissionError: print('refused')\n"
        "try: socket.create_server(('127.0.0.1', 0)); print('listening')\n"
        "except PermissionError: print('refused')\n"
    )
    found = host.result(workspace.root, "--net", f"127.0.0.1:{web.port}", *python(direct, str(web.port)))
    assert found["stdout"] == "refused\nrefused\n", found["stderr"]
    assert found["enforced"]["network"]["applied"] is False
    assert "its port alone" in found["enforced"]["network"]["details"]
    assert "PARTIAL_ENFORCEMENT" in found["reason"]


def test_an_odd_rule_is_a_usage_error(here: Host) -> None:
    for entry in ("example.com", "example.com:*", "https://example.com:443", "10.0.0.256:1", "*:443"):
        done = here.run("--net", entry, "--", "true")
        assert done.returncode == 125, entry
        assert b"--net" in done.stderr
    mixed = here.run("--net", "none", "--net", "example.com:443", "--", "true")
    assert mixed.returncode == 125 and b"stands alone" in mixed.stderr


# --- sockets with a path

CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(50).decode())"


@pytest.fixture
def service() -> Iterator[Path]:
    """A service of the host, outside of the workspace. The address of a socket is short."""
    folder = Path(tempfile.mkdtemp()).resolve()
    path = folder / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    return
                with sock:
                    sock.sendall(b"service of the host")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            shutil.rmtree(folder)


def connects(host: Host, path: Path, *options: str) -> bool:
    code = f"import os; os.chdir({str(path.parent)!r})\n" + CONNECT.replace("; ", "\n")
    done = host.run(*options, *READ_PYTHON, "--", PYTHON, "-I", "-c", code, path.name)
    assert done.returncode in (0, 1), done.stderr
    return b"service of the host" in done.stdout


@requires("userns")
def test_a_socket_is_reachable_only_if_its_path_may_be_modified(
    here: Host, workspace: Workspace, service: Path
) -> None:
    assert not connects(here, service)
    assert not connects(here, service, "--read", f"{service.parent}/**")
    assert not connects(here, service, "--read", str(service.parent), "--read", str(service))
    assert connects(here, service, "--modify", f"{service.parent}/**")
    assert connects(here, service, "--read", str(service.parent), "--modify", str(service))
