"""The real sandbox-exec: what the evaluator says of a profile, macOS must do. Runs on darwin only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from sbx.backends import macos
from sbx.backends.macos_run import Ended, run
from sbx.model.glob import escape, parse
from sbx.model.profile import EffectiveProfile, Limits
from sbx.model.result import Status
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

pytestmark = pytest.mark.skipif(sys.platform != "darwin", reason="needs macOS: sandbox-exec is not on this system")

SOURCE = Source("sbx.yaml", 1)
NO_LIMITS = Limits()


class Sandbox:
    """A workspace with a policy, and a shell in it."""

    def __init__(self, root: Path, *denies: str, limits: Limits = NO_LIMITS) -> None:
        self.root = root
        whole = parse(escape(str(root)) + "/**")

        def rules(access: Access) -> tuple[Rule, ...]:
            denied = [text if text.startswith("**") else f"{escape(str(root))}/{text}" for text in denies]
            return (
                Rule("./**", False, access, Origin.PROFILE, SOURCE, (whole,)),
                *(Rule(text, True, access, Origin.DENY, SOURCE, (parse(text),)) for text in denied),
            )

        self.profile = EffectiveProfile("p", str(root), rules(Access.READ), rules(Access.MODIFY), limits=limits)
        self.prepared = macos.prepare(self.profile, str(root), partial=True)

    def sh(self, text: str) -> Ended:
        wrapped = macos.wrap(self.prepared, ["/bin/sh", "-c", text], path=os.defpath)
        try:
            return run(wrapped, env={"PATH": os.defpath}, cwd=str(self.root), limits=self.profile.limits)
        finally:
            macos.release(wrapped)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


def test_a_shell_runs_and_writes_in_its_workspace(root: Path) -> None:
    ended = Sandbox(root).sh('echo hello > out && cat out && id -un >/dev/null && date >/dev/null && touch "$TMPDIR/x"')
    assert (ended.status, ended.stdout) == (Status.OK, b"hello\n"), ended.stderr


def test_denied_files_can_neither_be_read_nor_moved(root: Path) -> None:
    (root / "a").mkdir()
    (root / "a" / "secret").write_text("s3cret")
    sandbox = Sandbox(root, "a/secret")
    for text in (
        "cat a/secret",
        "mv a/secret b",
        "mv a b",
        "cp -c a/secret b",
        "cp -Rc a b && cat b/secret",
        "ln a/secret b",
    ):
        ended = sandbox.sh(text)
        assert b"s3cret" not in ended.stdout, text
        assert ended.status is not Status.OK, text
        assert (root / "a" / "secret").read_text() == "s3cret"


def test_other_spellings_of_a_denied_name_are_denied(root: Path) -> None:
    sandbox = Sandbox(root, "**/*.env")
    assert sandbox.sh("echo x > new.env").status is not Status.OK
    if macos.is_case_insensitive(str(root)):
        assert sandbox.sh("echo x > new.ENV").status is not Status.OK
    assert sandbox.sh("echo x > new.txt").status is Status.OK


def test_outside_of_the_workspace_nothing_is_written(root: Path, home: Path) -> None:
    ended = Sandbox(root).sh(f"echo x > '{home}/x'; ls '{home}'; echo x > /private/tmp/sbx-must-not-be")
    assert ended.status is not Status.OK
    assert not (home / "x").exists()
    assert not os.path.exists("/private/tmp/sbx-must-not-be")


def test_the_network_is_closed(root: Path) -> None:
    ended = Sandbox(root).sh("/usr/bin/nc -z -w 2 127.0.0.1 22; /usr/bin/curl -sS -m 5 https://example.com")
    assert ended.status is not Status.OK


def test_nesting_is_refused_with_its_own_words(root: Path) -> None:
    ended = Sandbox(root).sh(f"exec {macos.SANDBOX_EXEC} -p '(version 1) (allow default)' {macos.TRIAL}")
    assert ended.exit_code is not None
    refused = macos.refusal(ended.exit_code, ended.stderr.decode().strip())
    assert refused is not None
    assert "in a sandbox already" in refused.message


def test_limits_hold(root: Path) -> None:
    assert Sandbox(root, limits=Limits(nofile=32)).sh("ulimit -n").stdout == b"32\n"
    ended = Sandbox(root, limits=Limits(cpu_s=1, wall_s=60)).sh("while :; do :; done")
    assert ended.status is Status.CPU_LIMIT
    assert Sandbox(root, limits=Limits(wall_s=0.5, grace_s=0.5)).sh("sleep 100").status is Status.TIMEOUT
