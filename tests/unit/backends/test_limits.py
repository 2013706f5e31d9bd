"""Which mechanism holds which limit, without a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbx.backends.capabilities import NAMESPACES, PRIVATE_ROOT, Capabilities
from sbx.backends.limits import SAMPLED, choose_limits
from sbx.launch.rlimits import RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_NPROC
from sbx.model.profile import Limits
from sbx.supervise.compile import capabilities_for_a_guest

ALL = Limits(
    wall_s=2.0,
    cpu_s=1.5,
    memory_bytes=1 << 20,
    pids=8,
    nofile=64,
    stdout_bytes=10,
    stderr_bytes=20,
    grace_s=1.0,
)
USER = replace(
    Capabilities(kernel="6.12.3-amd64", uid=1000, landlock_abi=6, seccomp=True),
    **dict.fromkeys((*NAMESPACES, *PRIVATE_ROOT), True),
)
DELEGATED = replace(
    USER, cgroup_path="/sys/fs/cgroup/d", cgroup_mechanism="direct", cgroup_controllers=("cpu", "memory", "pids")
)
ROOT = replace(USER, uid=0)


def test_what_was_not_asked_for_is_not_spoken_of() -> None:
    choice = choose_limits(Limits(grace_s=3.0), DELEGATED)
    assert (choice.rlimits, choice.cgroup, choice.sample, choice.enforced) == ((), None, (), {})


def test_everything_asked_for_is_spoken_of() -> None:
    for capabilities in (USER, DELEGATED, ROOT, Capabilities(kernel="5.10.0", uid=1000)):
        choice = choose_limits(ALL, capabilities)
        assert set(choice.enforced) == {"wall", "cpu", "memory", "pids", "nofile", "stdout", "stderr"}
        assert all(each.requested and each.applied and each.details for each in choice.enforced.values())


def test_a_delegated_cgroup_holds_the_tree() -> None:
    choice = choose_limits(ALL, DELEGATED)
    assert choice.cgroup == {"parent": b"/sys/fs/cgroup/d", "memory_bytes": 1 << 20, "pids": 8, "cpu_s": 1.5}
    assert choice.sample == ()
    assert [number for number, _, _ in choice.rlimits] == [RLIMIT_CPU, RLIMIT_NOFILE]


def test_a_scope_of_the_users_systemd_holds_the_tree_of_a_run_but_moves_nobody_elses_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scoped = replace(USER, cgroup_mechanism="systemd", cgroup_controllers=("memory", "pids"))
    choice = choose_limits(ALL, scoped)
    assert choice.cgroup == {"parent": b"", "memory_bytes": 1 << 20, "pids": 8, "cpu_s": 1.5}
    assert choice.sample == ()
    for machine, guest in ((scoped, USER), (DELEGATED, DELEGATED)):
        monkeypatch.setattr("sbx.supervise.compile.capabilities", lambda machine=machine: machine)
        assert capabilities_for_a_guest() == guest


def test_a_controller_that_is_missing_is_made_up_for() -> None:
    choice = choose_limits(ALL, replace(DELEGATED, cgroup_controllers=("pids",)))
    assert choice.cgroup is not None and choice.cgroup["memory_bytes"] is None
    assert choice.sample == ("memory",)


def test_pids_by_rlimit_only_where_it_counts_the_sandbox_alone() -> None:
    assert (RLIMIT_NPROC, 9, 9) in choose_limits(ALL, USER).rlimits
    for capabilities in (
        ROOT,  # exempt
        replace(USER, kernel="5.13.9"),  # counts the user's whole session
        replace(USER, userns=False),
        replace(USER, kernel="odd"),
    ):
        choice = choose_limits(ALL, capabilities)
        assert RLIMIT_NPROC not in [number for number, _, _ in choice.rlimits]
        assert "pids" in choice.sample
        assert choice.enforced["pids"].details == SAMPLED


def test_address_space_is_never_limited() -> None:
    for capabilities in (USER, DELEGATED, ROOT):
        numbers = {number for number, _, _ in choose_limits(ALL, capabilities).rlimits}
        assert numbers <= {RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_NOFILE}


@pytest.mark.parametrize(("cpu_s", "soft"), [(0.1, 2), (1.0, 2), (1.5, 3), (60.0, 61)])
def test_the_backstop_of_one_process_comes_after_the_count_of_the_tree(cpu_s: float, soft: int) -> None:
    assert choose_limits(Limits(cpu_s=cpu_s), USER).rlimits == ((RLIMIT_CPU, soft, soft + 1),)
