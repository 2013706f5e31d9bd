"""The variables that make ordinary programs use the proxy."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from sbx.network.hosts import HostRule

SSH_CONNECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ssh_connect.py")

PROXY_PORT = 3128  # in a network namespace of its own every port is free

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def proxy_environment(
    port: int,
    rules: Iterable[HostRule] = (),
    *,
    python: str = "",
    ssh_helper: str | None = SSH_CONNECT,
    java_options: str = "",
) -> dict[str, str]:
    """For a proxy at 127.0.0.1:``port`` as seen by the command.

    Loopback goes past the proxy, to servers inside the sandbox, except for what a rule lists: ``localhost:8000`` in
    a policy means the host's. ``python`` and ``ssh_helper`` are paths as the command sees them; without a
    helper, git over ssh is left alone. ``java_options`` is what JAVA_TOOL_OPTIONS holds already.
    """
    listed = {rule.host for rule in rules}
    direct = [name for name in _LOOPBACK if name not in listed]
    # ALL_PROXY is http and not socks5h although both are served: a client that reads ALL_PROXY at start-up but has no
    # SOCKS support installed fails at once (Python's httpx), while all that speak SOCKS speak CONNECT too.
    proxy = f"http://127.0.0.1:{port}"
    variables = {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy, "ALL_PROXY": proxy, "NO_PROXY": ",".join(direct)}
    variables |= {name.lower(): value for name, value in variables.items()}
    variables["NODE_USE_ENV_PROXY"] = "1"
    variables["JAVA_TOOL_OPTIONS"] = " ".join([java_options, *_java_options(port, direct)]).strip()
    if ssh_helper is not None:
        variables["GIT_SSH_COMMAND"] = git_ssh_command(python or sys.executable, ssh_helper)
    return variables


def _java_options(port: int, direct: list[str]) -> list[str]:
    direct = [f"[{name}]" if ":" in name else name for name in direct]
    options = [f"-D{scheme}.proxy{what}" for scheme in ("http", "https") for what in ("Host=127.0.0.1", f"Port={port}")]
    # One list for both schemes. Without it Java has a default of its own, which is loopback as a whole.
    return [*options, "-Dhttp.nonProxyHosts=" + "|".join(direct)]


def git_ssh_command(python: str, ssh_helper: str) -> str:
    """``ssh`` through the proxy. Quoted twice: for the shell that git starts, and for the one that ssh starts."""
    import shlex

    helper = " ".join(shlex.quote(word.replace("%", "%%")) for word in (python, "-I", ssh_helper))
    return "ssh -o " + shlex.quote(f"ProxyCommand={helper} %h %p")
