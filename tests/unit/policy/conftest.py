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

PRIVATE = ("/tmp/**", "/var/tmp/**", "/dev/shm/**")
TOOL_VARIABLES = ("PYENV_", "UV_", "NVM_", "CARGO_", "RUSTUP_", "GO", "JAVA_", "CONDA_", "CODEX_", "CLAUDE_")
NO_SYSTEM_FILE = "/nonexistent/sbx/policy.yaml"


class Asking:
    """Short questions to one effective profile.

    `reads` and `modifies` are about what the machine has at a path. Tests live below /tmp, where every profile may do
    everything, but in a private folder that shows nothing of the machine: that answer is `is_private`.
    """

    def __init__(self, profile: EffectiveProfile) -> None:
        self.profile = profile

    def _ask(self, path: str | Path, access: Access, *, follow: bool = True) -> bool:
        decision = decide(self.profile, str(path), access, follow=follow)
        return decision.allowed and (decision.winner is None or decision.winner.text not in PRIVATE)

    def reads(self, path: str | Path) -> bool:
        return self._ask(path, Access.READ)

    def modifies(self, path: str | Path) -> bool:
        return self._ask(path, Access.MODIFY)

    def executes(self, path: str | Path) -> bool:
        return self._ask(path, Access.EXEC)

    def modifies_itself(self, path: str | Path) -> bool:
        """The name as it is, without following it: what unlink and rename act on."""
        return self._ask(path, Access.MODIFY, follow=False)

    def is_private(self, path: str | Path) -> bool:
        decision = decide(self.profile, str(path), Access.MODIFY)
        return decision.allowed and decision.winner is not None and decision.winner.text in PRIVATE


@pytest.fixture
def load(workspace) -> Callable[..., Policy]:
    # The developer's own tools may live anywhere: the tests say where theirs are.
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(TOOL_VARIABLES)}

    def load(text: str = "", *, environ: dict[str, str] | None = None) -> Policy:
        path = workspace.policy("schemaVersion: 2\n" + text) if text else None
        return load_policy(
            str(workspace.root),
            policy_file=None if path is None else str(path),
            environ={**quiet, **(environ or {})},
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
