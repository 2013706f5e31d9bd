"""The macOS backend's own decisions, with a stand-in for sandbox-exec where the real one is not needed."""

from __future__ import annotations

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from sbx.backends import macos
from sbx.backends.macos_run import exit_descriptor, run
from sbx.backends.wrapped import WrappedCommand
from sbx.errors import CommandNotExecutable, CommandNotFound, PolicyError, SandboxUnavailable, SetupFailed
from sbx.model.glob import escape, parse
from sbx.model.guarantee import CAPABILITIES
from sbx.model.profile import EffectiveProfile, Limits
from sbx.model.result import Status
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

SOURCE = Source("sbx.yaml", 1)
NO_LIMITS = Limits()


def profile(root: Path, *, limits: Limits = NO_LIMITS, execs: tuple[str, ...] | None = None) -> EffectiveProfile:
    whole = parse(escape(str(root)) + "/**")
    return EffectiveProfile(
        "build",
        str(root),
        (Rule("./**", False, Access.READ, Origin.PROFILE, SOURCE, (whole,)),),
        (Rule("./**", False, Access.MODIFY, Origin.PROFILE, SOURCE, (whole,)),),
        exec=None
        if execs is None
        else tuple(Rule(text, False, Access.EXEC, Origin.PROFILE, SOURCE, (parse(text),)) for text in execs),
        limits=limits,
    )


def accepting(_: str) -> tuple[int, str]:
    return 0, ""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path.resolve()


@pytest.fixture
def tool(root: Path) -> Path:
    path = root / "tool"
    path.write_text('#!/bin/sh\necho "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.skipif(sys.platform == "darwin", reason="for machines without sandbox-exec")
def test_elsewhere_the_refusal_says_so() -> None:
    refused = macos.probe()
    assert refused is not None
    assert refused.slug == "spawn_sandbox_unavailable"
    assert (refused.platform, refused.reason) == ("macos", "this is not macOS")


@pytest.mark.parametrize(
    ("status", "said", "words"),
    [
        (71, "sandbox-exec: sandbox_apply: Operation not permitted", "in a sandbox already"),
        (65, "sandbox-exec: profile.sb:3:7: unbound variable: file-reed*", "does not accept a profile"),
        (1, "", "does not accept a profile"),
    ],
)
def test_each_cause_has_its_own_words(status: int, said: str, words: str) -> None:
    refused = macos.refusal(status, said)
    assert refused is not None
    assert words in refused.message
    assert refused.remedy


def test_a_program_out_of_reach_is_no_refusal() -> None:
    assert macos.refusal(0, "") is None
    assert macos.refusal(71, "sandbox-exec: execvp() of '/usr/bin/true' failed: Operation not permitted") is None


def test_nothing_is_made_when_the_sandbox_is_missing(root: Path) -> None:
    with pytest.raises(SandboxUnavailable):
        macos.prepare(profile(root), str(root), trial=lambda _: (71, "sandbox_apply: Operation not permitted"))


def test_a_profile_that_macos_rejects_stops_the_run(root: Path) -> None:
    def picky(text: str) -> tuple[int, str]:
        return (0, "") if text == macos.ANYTHING else (65, "unbound variable")

    with pytest.raises(SetupFailed) as caught:
        macos.prepare(profile(root), str(root), trial=picky)
    assert caught.value.details == ("unbound variable",)


def test_a_workspace_in_another_spelling_is_refused() -> None:
    macos.check_spelling("/Users/u/w", "/Users/u/w")
    with pytest.raises(SetupFailed, match="/Users/u/W here and /Users/u/w on disk"):
        macos.check_spelling("/Users/u/W", "/Users/u/w")


def test_wrap_writes_a_private_profile_and_release_removes_it(root: Path, tool: Path) -> None:
    prepared = macos.prepare(profile(root), str(root), trial=accepting)
    wrapped = macos.wrap(prepared, [str(tool), "-x", "a b"], path="")
    try:
        assert wrapped.argv[:2] == (macos.SANDBOX_EXEC, "-f")
        assert wrapped.argv[3:] == ("--", str(tool), "-x", "a b")
        file = Path(wrapped.argv[2])
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        tmp = dict(wrapped.env_additions)["TMPDIR"].rstrip("/")
        assert f'(subpath "{tmp}")' in file.read_text()
        assert file.parent == Path(tmp).parent, "the profile itself is out of the command's reach"
        assert os.path.isdir(tmp)
    finally:
        macos.release(wrapped)
    assert not any(os.path.exists(folder) for folder in wrapped.cleanup)


def test_limits_go_through_the_shell_that_becomes_the_sandbox(root: Path, tool: Path) -> None:
    prepared = macos.prepare(
        profile(root, limits=Limits(nofile=64, cpu_s=2.6)), str(root), partial=True, trial=accepting
    )
    wrapped = macos.wrap(prepared, [str(tool)], path="")
    try:
        assert wrapped.argv[:4] == ("/bin/sh", "-c", 'ulimit -n 64 && ulimit -t 3 && exec "$@"', "sbx")
    finally:
        macos.release(wrapped)


def test_programs_are_judged_before_they_are_started(root: Path, tool: Path) -> None:
    prepared = macos.prepare(profile(root, execs=("/usr/bin/**",)), str(root), trial=accepting)
    with pytest.raises(CommandNotExecutable, match="does not let run"):
        macos.wrap(prepared, [str(tool)], path="")
    with pytest.raises(CommandNotFound):
        macos.wrap(prepared, ["no-such-program"], path=str(root))
    (root / "plain").write_text("x")
    with pytest.raises(CommandNotExecutable, match="not executable"):
        macos.wrap(prepared, [str(root / "plain")], path="")


def test_a_failing_wrap_leaves_nothing(root: Path, tool: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(The frame fails on left-over folders.)"""

    def fail(*_: object, **__: object) -> str:
        raise PolicyError("cannot be written")

    prepared = macos.prepare(profile(root), str(root), trial=accepting)
    monkeypatch.setattr(macos, "compile_sbpl", fail)
    with pytest.raises(PolicyError):
        macos.wrap(prepared, [str(tool)], path="")


def test_what_is_not_held_is_said(root: Path) -> None:
    asked = profile(root, limits=Limits(memory_bytes=1 << 20, pids=5, cpu_s=1))
    report = macos.enforced(macos.prepare(asked, str(root), partial=True, trial=accepting))
    assert set(report) == set(CAPABILITIES)
    for name in ("memory", "pids", "cpu"):
        assert report[name].requested and not report[name].applied, name
    assert not report["processes"].applied


def test_and_refused_where_everything_is_required(root: Path) -> None:
    asked = profile(root, limits=Limits(memory_bytes=1 << 20, pids=5, cpu_s=1))
    with pytest.raises(SandboxUnavailable) as caught:
        macos.prepare(asked, str(root), trial=accepting)
    assert [line.split(":")[0] for line in caught.value.details] == ["memory", "pids", "cpu"]
    assert "--partial" in caught.value.remedy


def sh(text: str) -> WrappedCommand:
    return WrappedCommand(("/bin/sh", "-c", text), (("ADDED", "yes"),))


ENV = {"PATH": os.defpath}


def test_run_keeps_streams_apart_and_adds_to_the_environment(root: Path) -> None:
    ended = run(sh('echo "$ADDED"; echo two >&2; exit 3'), env=ENV, cwd=str(root), limits=Limits())
    assert (ended.status, ended.rc, ended.exit_code) == (Status.EXIT, 3, 3)
    assert (ended.stdout, ended.stderr) == (b"yes\n", b"two\n")


def test_run_feeds_stdin_and_survives_a_reader_that_stops(root: Path) -> None:
    data = b"x" * 1_000_000
    assert len(run(sh("cat"), env=ENV, cwd=str(root), limits=Limits(), stdin=data).stdout) == len(data)
    assert run(sh("exec 0<&-; exit 0"), env=ENV, cwd=str(root), limits=Limits(), stdin=data).status is Status.OK


def test_run_cuts_a_stream_at_its_cap(root: Path) -> None:
    ended = run(sh("head -c 5000 /dev/zero"), env=ENV, cwd=str(root), limits=Limits(stdout_bytes=100))
    assert ended.truncated == {"stdout": 4900}
    assert ended.stdout == b"\0" * 100 + b"\n[TRUNCATED] 4900 bytes dropped\n"


def test_run_ends_what_ignores_the_first_signal(root: Path) -> None:
    """The group is told, then killed; the background child holds the pipes open and must not keep us waiting."""
    script = "trap '' TERM; sleep 1000 & echo started; while :; do wait; done"
    ended = run(sh(script), env=ENV, cwd=str(root), limits=Limits(wall_s=0.3, grace_s=0.2))
    assert (ended.status, ended.rc, ended.exit_code) == (Status.TIMEOUT, 124, None)
    assert ended.signal == signal.SIGKILL
    assert "timed out" in ended.reason


def test_run_reports_signals_and_the_cpu_limit(root: Path) -> None:
    assert run(sh("kill -TERM $$"), env=ENV, cwd=str(root), limits=Limits()).status is Status.KILLED_TERM
    assert run(sh("kill -KILL $$"), env=ENV, cwd=str(root), limits=Limits()).rc == 137
    assert run(sh("kill -HUP $$"), env=ENV, cwd=str(root), limits=Limits()).status is Status.KILLED_SIGNAL
    limits = Limits(cpu_s=1)
    wrapped = WrappedCommand((*macos.ulimits(limits), "/bin/sh", "-c", "kill -XCPU $$"))
    ended = run(wrapped, env=ENV, cwd=str(root), limits=limits)
    assert (ended.status, ended.rc) == (Status.CPU_LIMIT, 152)


def test_the_exit_is_an_event() -> None:
    import select

    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 0"], ENV)
    with exit_descriptor(pid) as descriptor:
        assert select.select([descriptor], [], [], 60)[0] == [descriptor]
    os.waitpid(pid, 0)
