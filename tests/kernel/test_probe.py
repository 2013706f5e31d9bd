"""The probe on this kernel, and on hosts that lack something: calls made to fail by a filter around it."""

from __future__ import annotations

import sys

import pytest
from capabilities import landlock_abi, requires
from children import run_denied

from sbx.backends.capabilities import NAMESPACES, Capabilities
from sbx.backends.probe_linux import probe
from sbx.kernel.machine import machine_key

SCRIPT = "from sbx.backends.probe_linux import probe; print(probe().to_json())"
NO_NAMESPACES = ("clone", "unshare")


def probe_denied(**calls: str) -> Capabilities:
    done = run_denied(calls, [sys.executable, "-c", SCRIPT])
    assert done.stderr == ""
    assert done.returncode == 0
    return Capabilities.from_json(done.stdout)


def test_two_probes_say_the_same() -> None:
    assert probe() == probe()


def test_every_lack_has_a_reason() -> None:
    found = probe()
    for name in (*NAMESPACES, "mounts", "pivot_root", "proc_mount", "mount_api", "seccomp", "user_notif"):
        assert getattr(found, name) == (found.reason(name) is None), name
    assert found.landlock == (found.reason("landlock") is None)
    assert found.landlock_abi == landlock_abi()


@requires("userns")
def test_a_host_with_user_namespaces_is_found_to_have_them() -> None:
    assert probe().userns
    assert probe().mount_ns


@requires("seccomp", "notify")
def test_the_listener_is_tried_for_real() -> None:
    found = probe()
    assert found.seccomp and found.user_notif
    assert "addfd" in found.notif_flags


@requires("seccomp", landlock=1)
@pytest.mark.parametrize("name", ["ENOSYS", "EOPNOTSUPP", "EPERM"])
def test_without_landlock(name: str) -> None:
    calls = dict.fromkeys(("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self"), name)
    found = probe_denied(**calls)
    assert found.landlock_abi == 0
    reason = found.reason("landlock")
    assert reason is not None
    assert reason.errno == name


@requires("seccomp", landlock=1)
def test_landlock_that_answers_but_does_not_restrict_counts_as_missing() -> None:
    found = probe_denied(landlock_restrict_self="EPERM")
    assert found.landlock_abi == 0


@requires("seccomp", "userns")
@pytest.mark.parametrize("name", ["ENOSYS", "EPERM", "ENOSPC", "EINVAL"])
def test_without_user_namespaces(name: str) -> None:
    found = probe_denied(**dict.fromkeys(NO_NAMESPACES, name))
    assert not any(getattr(found, each) for each in NAMESPACES)
    reason = found.reason("userns")
    assert reason is not None
    assert reason.errno == name
    assert {each.needs for each in found.reasons if each.mechanism in ("mount_ns", "mounts", "proc_mount")} == {
        "userns"
    }
    assert found.backend == ("landlock" if found.landlock else "none")


@requires("seccomp", "userns")
@pytest.mark.parametrize(("call", "lost"), [("mount", "mounts"), ("pivot_root", "pivot_root")])
def test_without_a_mount_call(call: str, lost: str) -> None:
    found = probe_denied(**{call: "EPERM"})
    assert found.userns and found.mount_ns
    assert not getattr(found, lost)
    assert not found.full


@requires("seccomp", "userns")
def test_without_the_newer_mount_calls_the_classic_ones_serve() -> None:
    before = probe()
    found = probe_denied(open_tree="ENOSYS", move_mount="ENOSYS", mount_setattr="ENOSYS")
    assert not found.mount_api
    assert found.full == before.full


@requires("seccomp")
def test_without_seccomp_nothing_can_be_run() -> None:
    found = probe_denied(seccomp="EPERM", prctl="EPERM")
    assert not found.seccomp and not found.user_notif
    assert found.backend == "none"


@requires("seccomp", "notify")
def test_under_a_filter_that_knows_prctl_only_there_is_no_listener() -> None:
    found = probe_denied(seccomp="ENOSYS")
    assert found.seccomp
    assert not found.user_notif


@requires("seccomp")
def test_older_kernels_lack_single_calls() -> None:
    found = probe_denied(pidfd_open="ENOSYS", close_range="ENOSYS")
    assert not found.pidfd and not found.close_range


def test_the_key_is_stable_here_and_differs_under_a_filter() -> None:
    assert machine_key() == machine_key()
    done = run_denied(
        {"acct": "EPERM"}, [sys.executable, "-c", "import sbx.kernel.machine as m; print(m.machine_key())"]
    )
    assert done.stdout.strip() != str(machine_key())
