"""What the Windows backend decides without Windows: limits, command lines, statuses, refusals, path rules."""

from __future__ import annotations

import sys

import pytest

from sbx.backends import windows
from sbx.backends.windows_status import ERROR_NOT_ENOUGH_QUOTA, NTSTATUS, ended, not_started
from sbx.errors import CommandNotExecutable, CommandNotFound, PolicyError, SandboxUnavailable, SetupFailed
from sbx.kernel import windows_types as win
from sbx.model.glob import parse
from sbx.model.guarantee import CAPABILITIES, Exactness
from sbx.model.profile import EffectiveProfile, Limits, Network, NetworkMode, Require
from sbx.model.result import Status
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source
from sbx.planner.windows import plan, windows_form

SOURCE = Source("sbx.yaml", 4)
NOTHING: frozenset[int] = frozenset()


def rule(text: str, access: Access) -> Rule:
    negated = text.startswith("!")
    return Rule(text.lstrip("!"), negated, access, Origin.PROFILE, SOURCE, (parse(text.lstrip("!")),))


def profile(
    read: tuple[str, ...] = ("C:/w/**",), modify: tuple[str, ...] = ("C:/w/**",), **more: object
) -> EffectiveProfile:
    return EffectiveProfile(
        "p",
        "C:/w",
        tuple(rule(text, Access.READ) for text in read),
        tuple(rule(text, Access.MODIFY) for text in modify),
        **more,  # type: ignore[arg-type]
    )


def test_a_job_always_dies_with_sbx_and_never_lets_go() -> None:
    for limits in (Limits(), Limits(pids=3, memory_bytes=1 << 20, cpu_s=1.5)):
        flags = windows.limits_of(limits).BasicLimitInformation.LimitFlags
        assert flags & win.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
        assert not flags & (win.JOB_OBJECT_LIMIT_BREAKAWAY_OK | win.JOB_OBJECT_LIMIT_SILENT_BREAKAWAY_OK)


def test_limits_are_set_only_where_they_are_asked_for() -> None:
    made = windows.limits_of(Limits(pids=3, memory_bytes=1 << 20, cpu_s=1.5))
    assert made.BasicLimitInformation.ActiveProcessLimit == 3
    assert made.JobMemoryLimit == 1 << 20
    assert made.BasicLimitInformation.PerJobUserTimeLimit == 15_000_000
    optional = win.JOB_OBJECT_LIMIT_ACTIVE_PROCESS | win.JOB_OBJECT_LIMIT_JOB_MEMORY | win.JOB_OBJECT_LIMIT_JOB_TIME
    assert made.BasicLimitInformation.LimitFlags & optional == optional
    assert not windows.limits_of(Limits()).BasicLimitInformation.LimitFlags & optional


def test_all_user_interface_limits_are_one_number() -> None:
    names = [name for name in vars(win) if name.startswith("JOB_OBJECT_UILIMIT_") and not name.endswith("_ALL")]
    assert sum(getattr(win, name) for name in names) == win.JOB_OBJECT_UILIMIT_ALL


@pytest.mark.parametrize("name", ["x.bat", "X.CMD", "C:\\w\\x.cmd. "])
def test_batch_files_are_refused(name: str) -> None:
    with pytest.raises(CommandNotExecutable, match="batch file"):
        windows.command_line([name, "a"])


def test_command_lines_are_quoted() -> None:
    assert (
        windows.command_line(["C:\\a b\\x.exe", 'say "hi"', "c:\\end\\"]) == '"C:\\a b\\x.exe" "say \\"hi\\"" c:\\end\\'
    )


def test_environment_blocks_are_ordered_and_closed() -> None:
    assert windows.environment_block({"b": "2", "A": "1"}) == "A=1\0b=2\0\0"
    assert windows.environment_block({"=C:": "C:\\w"}) == "=C:=C:\\w\0\0"
    for bad in ({"a": "x\0y"}, {"": "x"}, {"a=b": "c"}):
        with pytest.raises(ValueError, match="cannot be passed on"):
            windows.environment_block(bad)


@pytest.mark.parametrize(
    ("code", "messages", "limits", "status", "rc"),
    [
        (0, NOTHING, Limits(), Status.OK, 0),
        (3, NOTHING, Limits(), Status.EXIT, 3),
        (ERROR_NOT_ENOUGH_QUOTA, NOTHING, Limits(cpu_s=1), Status.CPU_LIMIT, 152),
        (ERROR_NOT_ENOUGH_QUOTA, NOTHING, Limits(), Status.EXIT, ERROR_NOT_ENOUGH_QUOTA),
        (1, frozenset({win.JOB_OBJECT_MSG_END_OF_JOB_TIME}), Limits(cpu_s=1), Status.CPU_LIMIT, 152),
        (1, frozenset({win.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT}), Limits(memory_bytes=9), Status.MEM_LIMIT, 137),
        (0xC0000017, NOTHING, Limits(memory_bytes=9), Status.MEM_LIMIT, 137),
        (0xC0000017, NOTHING, Limits(), Status.KILLED_SIGNAL, 137),
        (0, frozenset({win.JOB_OBJECT_MSG_JOB_MEMORY_LIMIT}), Limits(memory_bytes=9), Status.OK, 0),
        (0xC0000005, NOTHING, Limits(), Status.KILLED_SIGNAL, 139),
        (0xC000013A, NOTHING, Limits(), Status.KILLED_SIGNAL, 130),
        (0xC0000135, NOTHING, Limits(), Status.NOT_EXECUTABLE, 126),
        (0xC0FFEE00, NOTHING, Limits(), Status.KILLED_SIGNAL, 134),
    ],
)
def test_statuses(code: int, messages: frozenset[int], limits: Limits, status: Status, rc: int) -> None:
    verdict = ended(code, messages, limits, timed_out=False)
    assert (verdict.status, verdict.rc) == (status, rc)
    assert verdict.exit_code == code
    if code >= 0xC0000000 and status is not Status.MEM_LIMIT:
        assert f"0x{code:08X}" in verdict.reason


def test_reasons_name_the_cause() -> None:
    assert "STATUS_STACK_OVERFLOW" in ended(0xC00000FD, NOTHING, Limits(), timed_out=False).reason
    refused = ended(1, frozenset({win.JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT}), Limits(pids=1), timed_out=False)
    assert "active-process limit" in refused.reason
    timeout = ended(0x5B58, NOTHING, Limits(wall_s=2), timed_out=True)
    assert (timeout.status, timeout.rc, timeout.exit_code) == (Status.TIMEOUT, 124, None)
    assert all(name.startswith("STATUS_") and 0 < number < 32 for name, number in NTSTATUS.values())


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (2, CommandNotFound),
        (3, CommandNotFound),
        (5, CommandNotExecutable),
        (193, CommandNotExecutable),
        (740, CommandNotExecutable),
        (1450, SetupFailed),
    ],
)
def test_failures_to_start(number: int, kind: type[Exception]) -> None:
    assert type(not_started(number, "x.exe", "words")) is kind


@pytest.mark.parametrize(
    ("glob", "form"),
    [
        ("C:/w/a b/**", "C:\\w\\a b\\**"),
        ("/w/*.c", "\\w\\*.c"),
        ("**/[!a-c]?.env", "**\\[!a-c]?.env"),
        ("C:/w/{a,b}*", "C:\\w\\{a*,b*}"),
        ("C:/", "C:\\"),
    ],
)
def test_rules_in_windows_form(glob: str, form: str) -> None:
    assert windows_form(parse(glob)) == form


@pytest.mark.parametrize(
    "glob", ["C:/w/x.", "C:/w/x ", "C:/w/nul", "C:/w/Com1.txt", "C:/w/a:b", "C:/w/a\\?b", "C:/w/a|b"]
)
def test_names_that_windows_takes_for_others_are_refused(glob: str) -> None:
    with pytest.raises(PolicyError) as caught:
        windows_form(parse(glob), SOURCE)
    assert caught.value.source == SOURCE


def test_full_enforcement_is_refused_and_each_cause_named() -> None:
    made = plan(profile(("C:/w/**", "!C:/w/secret"), ("C:/w/**", "!C:/w/.git/config", "!C:/Users/**"), exec=()), "C:/w")
    held = {(each.rule, each.access): each for each in made.guarantees}
    assert held["!C:/w/secret", "read"].exactness is Exactness.NOT_ENFORCED
    assert held["C:/w/**", "modify"].exactness is Exactness.STRICTER
    assert held["!C:/w/.git/config", "modify"].exactness is Exactness.NOT_ENFORCED
    assert held["!C:/Users/**", "modify"].exactness is Exactness.EXACT
    assert [each.split(":")[0] for each in made.refusals] == ["read", "modify", "network"]
    assert "sbx.yaml:4" in made.refusals[0]
    with pytest.raises(SandboxUnavailable) as caught:
        windows.prepare(profile(), "C:/w")
    assert caught.value.details
    assert "--partial" in caught.value.remedy


def test_a_profile_that_asks_for_nothing_else_is_not_refused() -> None:
    made = plan(profile(("/**",), (), network=Network(NetworkMode.HOST)), "C:/w")
    assert made.refusals == ()


def test_partial_runs_on_windows_only() -> None:
    for accepted in (profile(require=Require.PARTIAL), profile()):
        if sys.platform == "win32":
            assert windows.prepare(accepted, "C:/w", partial=True).backend == "job-object"
        else:
            with pytest.raises(SandboxUnavailable, match="not Windows"):
                windows.prepare(accepted, "C:/w", partial=True)
    assert windows.probe("win32") is None


def test_every_capability_is_reported() -> None:
    report = windows.enforced(profile(limits=Limits(nofile=5)))
    assert set(report) == set(CAPABILITIES)
    assert not report["network"].applied
    assert not report["filesystem"].applied
    assert report["nofile"].requested and not report["nofile"].applied
