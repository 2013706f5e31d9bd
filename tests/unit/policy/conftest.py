"""A policy from text, as the workspace's own file that was named on the command line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sbx.model.decide import decide
from sbx.model.profile import EffectiveProfile
from sbx.model.rules import Access
from sbx.policy.document import NO_OPTIONS, Policy, RunRules
from sbx.policy.layers import effective_profile, load_policy

NO_SYSTEM_FILE = "/nonexistent/sbx/policy.yaml"


class Asking:
    """Short questions to one effective profile."""

    def __init__(self, profile: EffectiveProfile) -> None:
        self.profile = profile

    def reads(self, path: str | Path) -> bool:
        return decide(self.profile, str(path), Access.READ).allowed

    def modifies(self, path: str | Path) -> bool:
        return decide(self.profile, str(path), Access.MODIFY).allowed

    def executes(self, path: str | Path) -> bool:
        return decide(self.profile, str(path), Access.EXEC).allowed

    def modifies_itself(self, path: str | Path) -> bool:
        """The name as it is, without following it: what unlink and rename act on."""
        return decide(self.profile, str(path), Access.MODIFY, follow=False).allowed


@pytest.fixture
def load(workspace) -> Callable[..., Policy]:
    def load(text: str = "", *, environ: dict[str, str] | None = None) -> Policy:
        path = workspace.policy("schemaVersion: 2\n" + text) if text else None
        return load_policy(
            str(workspace.root),
            policy_file=None if path is None else str(path),
            environ={**os.environ, **(environ or {})},
            system_file=NO_SYSTEM_FILE,
        )

    return load


@pytest.fixture
def ask() -> type[Asking]:
    return Asking


@pytest.fixture
def asking(load: Callable[..., Policy]) -> Callable[..., Asking]:
    """`asking('read: ["./**"]')` is a profile with these keys, ready to be asked."""

    def asking(
        keys: str, top: str = "", *, options: RunRules = NO_OPTIONS, environ: dict[str, str] | None = None
    ) -> Asking:
        indented = "".join(f"    {line}\n" for line in keys.splitlines())
        policy = load(f"{top}\nfsProfiles:\n  p:\n{indented}", environ=environ)
        return Asking(effective_profile(policy, "p", options))

    return asking
