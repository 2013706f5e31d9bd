"""`sbx doctor` as a person or a script calls it."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pexpect
import pytest
from capabilities import requires
from children import run_denied

if TYPE_CHECKING:
    from conftest import Sbx


def test_text_and_exit_status_agree(sbx: Sbx) -> None:
    done = sbx("doctor")
    assert done.stderr == ""
    assert f"full enforcement: {'yes' if done.rc == 0 else 'no'}" in done.stdout
    assert done.rc in (0, 1)
    assert os.uname().release in done.stdout
    assert "\x1b" not in done.stdout  # a pipe gets no colours


def test_json(sbx: Sbx) -> None:
    done = sbx("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["full"] == (done.rc == 0)
    assert found["machine"] == os.uname().machine
    assert found["uid"] == os.geteuid()
    assert {"userns", "landlock_abi", "seccomp", "reasons", "backend"} <= set(found)


@requires("seccomp", "userns")
@pytest.mark.parametrize(
    ("name", "words"),
    [("ENOSPC", "max_user_namespaces"), ("EPERM", "user namespaces (EPERM)"), ("ENOSYS", "user namespaces (ENOSYS)")],
)
def test_a_host_without_user_namespaces(sbx: Sbx, name: str, words: str) -> None:
    done = run_denied({"clone": name, "unshare": name}, [*sbx.command, "doctor"])
    assert done.returncode == 1
    assert "full enforcement: no" in done.stdout
    assert words in done.stdout
    assert "to do:" in done.stdout
    assert "Traceback" not in done.stderr


@requires("seccomp", landlock=1)
def test_a_kernel_without_landlock_enabled(sbx: Sbx) -> None:
    done = run_denied({"landlock_create_ruleset": "EOPNOTSUPP"}, [*sbx.command, "doctor"])
    assert "landlock: Landlock is built into this kernel but not enabled (EOPNOTSUPP)" in done.stdout
    assert "lsm=" in done.stdout


def test_colours_on_a_terminal_unless_refused(sbx: Sbx) -> None:
    def on_terminal(**more: str) -> str:
        env = {**os.environ, "TERM": "xterm", **more}
        output = pexpect.run(" ".join([*sbx.command, "doctor"]), env=env, encoding="utf-8", timeout=60)
        assert isinstance(output, str)
        return output

    assert "\x1b[3" in on_terminal()
    assert "\x1b[3" not in on_terminal(NO_COLOR="1")  # bold is no colour
