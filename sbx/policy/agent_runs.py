"""A run under the profile `agent`, or one that extends it: what the table of coding agents makes of its command."""

from __future__ import annotations

import os

from sbx.model.source import Source
from sbx.policy.document import OPTION, Adapted, Policy, Written
from sbx.policy.effective import extends_chain, find_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

AGENT_PROFILE = "agent"


def is_agent_profile(policy: Policy, name: str | None) -> bool:
    return any(each.name == AGENT_PROFILE for each in extends_chain(policy.profiles, find_profile(policy, name)))


def agent_names(policy: Policy, name: str | None) -> tuple[str, ...]:
    """The commands whose arguments change a run under this profile."""
    if not is_agent_profile(policy, name):
        return ()
    from sbx.policy.agents import load_agents

    return tuple(load_agents())


def adapt_run(
    policy: Policy, name: str | None, command: Sequence[str], *, keep_inner: bool, cwd: str
) -> tuple[Adapted, tuple[Written, ...]]:
    """The command as it is run, and its side roots as allowances. Under other profiles nothing changes."""
    if not command or not is_agent_profile(policy, name):
        return Adapted(tuple(command), (), ()), ()
    from sbx.policy.agents import adapt, load_agents

    home = policy.environ.get("HOME") or os.path.expanduser("~")
    found = adapt(command, load_agents(), keep_inner, cwd=cwd, home=home)
    source = Source(f"{os.path.basename(command[0])} (side root)", layer=OPTION)
    return found, tuple(Written(text, source) for text in found.modify_rules)
