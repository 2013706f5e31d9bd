"""The proxy variables, and the quoting that git and ssh each undo once."""

from __future__ import annotations

import shlex

from sbx.network.environment import git_ssh_command, proxy_environment


def test_every_proxy_variable_has_both_cases() -> None:
    environment = proxy_environment(3128)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        assert environment[name] == environment[name.lower()]
    assert environment["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert environment["NODE_USE_ENV_PROXY"] == "1"


def test_java_options_are_added_to_what_is_there() -> None:
    options = proxy_environment(3128, java_options="-Xmx1g")["JAVA_TOOL_OPTIONS"].split()
    assert options[0] == "-Xmx1g"
    assert {"-Dhttp.proxyHost=127.0.0.1", "-Dhttp.proxyPort=3128", "-Dhttps.proxyPort=3128"} <= set(options)


def test_without_a_helper_ssh_is_left_alone() -> None:
    assert "GIT_SSH_COMMAND" not in proxy_environment(3128, ssh_helper=None)


def test_paths_with_spaces_quotes_and_percent_signs_survive() -> None:
    python, helper = "/opt/my python/bin/python3", "/home/o'neil/100%/ssh_connect.py"
    outer = shlex.split(git_ssh_command(python, helper))
    assert outer[:2] == ["ssh", "-o"]
    command = outer[2].removeprefix("ProxyCommand=")
    # What ssh does: percent tokens first, then its own shell.
    expanded = command.replace("%%", "\0").replace("%h", "api.example.com").replace("%p", "22").replace("\0", "%")
    assert shlex.split(expanded) == [python, "-I", helper, "api.example.com", "22"]
