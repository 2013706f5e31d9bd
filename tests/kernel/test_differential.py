"""The kernel against decide(): random trees, random policies, every operation on every path.

What may differ is in `sbx.planner.exceptions` and nowhere else. `--deep` runs thousands.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from agreement import compare
from capabilities import requires
from hypothesis import HealthCheck, Phase, assume, given, note, settings
from random_policies import Case, cases
from sandboxed import this_machine, without_namespaces

from sbx.backends.capabilities import Capabilities

POLICIES = 200
NEW_NAME_POLICIES = 500
DEEP_FACTOR = 20


def agree(count: int, machine: Capabilities, config: pytest.Config, *, new_names: bool) -> None:
    """`count` random cases, each in a fresh folder, without one disagreement."""

    @settings(
        max_examples=count * (DEEP_FACTOR if config.getoption("--deep") else 1),
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases(new_names=new_names))
    def check(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = compare(case, Path(folder), machine)
        assume(found is not None)
        for node in case.nodes:
            note(f"{node}")
        note(f"{case.rules}")
        assert found == []

    check()


@requires("userns", "seccomp", landlock=1)
@pytest.mark.timeout(3600)
def test_namespaces_agree_with_decide(pytestconfig: pytest.Config) -> None:
    agree(POLICIES, this_machine(), pytestconfig, new_names=False)


@requires("seccomp", landlock=3)
@pytest.mark.timeout(3600)
def test_landlock_alone_agrees_with_decide(pytestconfig: pytest.Config) -> None:
    agree(POLICIES, without_namespaces(), pytestconfig, new_names=False)


@requires("userns", "seccomp", "notify", landlock=1)
@pytest.mark.timeout(3600)
def test_denies_hold_for_names_made_during_the_run(pytestconfig: pytest.Config) -> None:
    """Create, move, exchange and link names that did not exist at the start; no exception excuses a deny here."""
    agree(NEW_NAME_POLICIES, this_machine(), pytestconfig, new_names=True)
