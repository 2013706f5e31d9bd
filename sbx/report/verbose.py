"""`--verbose`: what a run is made from and what will hold it, told before it starts."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbx.model.guarantee import Applied
    from sbx.model.profile import EffectiveProfile
    from sbx.policy.document import Policy


def policy_lines(policy: Policy, profile: EffectiveProfile) -> list[str]:
    """Layers, profile, and what it grants besides files."""
    files = ", ".join(f"{file.path} ({file.layer})" for file in policy.files)
    lines = [
        f"policy: {files}",
        f"profile: {profile.name}, {len(profile.read)} rules for reading, {len(profile.modify)} for modifying",
        f"workspace: {profile.workspace}",
    ]
    reachable = ", ".join(host for host, _ in profile.network.allow) or profile.network.mode.value
    lines.append(f"network: {reachable}")
    some = f"{len(profile.env.pass_names)} names may pass, and what the profile sets"
    lines.append(f"environment: {'everything passes' if profile.env.pass_all else some}")
    return lines


def machine_lines(enforced: Mapping[str, Applied], operations: int, kept: bool) -> list[str]:
    """The plan, and what applies each part of it."""
    lines = [f"plan: {operations} operations; {'kept for the next run' if kept else 'not kept'}"]
    for name, each in enforced.items():
        if each.requested:
            lines.append(f"{'enforced' if each.applied else 'not enforced'}: {name}: {each.details}")
    return lines
