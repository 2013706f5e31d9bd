"""What is promised of the network, by mechanism; and the ports that Landlock holds without a network namespace."""

from __future__ import annotations

import pytest

from sbx.backends.linux import launch_ports, network_account
from sbx.model.plan import Plan
from sbx.model.profile import EffectiveProfile, Environment, Limits, Network, NetworkMode, Require

CONNECT_AND_BIND = 3


def asked(mode: NetworkMode, backend: str, abi: int) -> int:
    network = Network(mode)
    profile = EffectiveProfile("p", "/w", (), (), network=network)
    plan = Plan("linux", backend, "p", "/w", "/w", (), (), network, Environment(), Limits(), Require.FULL)
    return launch_ports(profile, plan, abi)


@pytest.mark.parametrize(
    ("mode", "backend", "abi", "rights"),
    [
        (NetworkMode.ALLOW, "landlock", 7, CONNECT_AND_BIND),
        (NetworkMode.ALLOW, "landlock", 4, CONNECT_AND_BIND),
        (NetworkMode.ALLOW, "landlock", 3, 0),
        (NetworkMode.NONE, "landlock", 7, 0),  # no socket can be made in the first place
        (NetworkMode.HOST, "landlock", 7, 0),
        (NetworkMode.ALLOW, "namespaces", 7, 0),  # the command's own ports are its own business there
    ],
)
def test_ports_held_by_landlock(mode: NetworkMode, backend: str, abi: int, rights: int) -> None:
    assert asked(mode, backend, abi) == rights


@pytest.mark.parametrize(
    ("mode", "namespaces", "abi", "requested", "applied", "words"),
    [
        (NetworkMode.NONE, True, 7, True, True, "own network namespace"),
        (NetworkMode.ALLOW, True, 0, True, True, "own network namespace and a proxy"),
        (NetworkMode.HOST, True, 7, False, True, "host network"),
        (NetworkMode.NONE, False, 1, True, True, "refused by seccomp"),
        (NetworkMode.ALLOW, False, 4, True, False, "its port alone, but on every host"),
        (NetworkMode.ALLOW, False, 3, True, False, "may pass by"),
    ],
)
def test_the_account(mode: NetworkMode, namespaces: bool, abi: int, requested: bool, applied: bool, words: str) -> None:
    found = network_account(mode, namespaces, abi)
    assert (found.requested, found.applied) == (requested, applied)
    assert words in found.details
