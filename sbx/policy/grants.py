"""What a policy file would grant, in words: shown before somebody approves it."""

from __future__ import annotations

from sbx.model.profile import NetworkMode
from sbx.policy.document import Policy, PolicyFile, ProfileSource, Written
from sbx.policy.nodes import shown

MAX_SHOWN = 12


def grants_in_words(policy: Policy, file: PolicyFile) -> tuple[str, ...]:
    """One line per fact, for every profile the file defines."""
    lines: list[str] = []
    for profile in file.profiles:
        lines.append(f"profile {shown(profile.name)}{_note(policy, profile)}:")
        lines.extend(f"  {line}" for line in _profile(profile))
    if not file.profiles:
        lines.append("it defines no profile")
    denies = len(file.deny_read) + len(file.deny_modify)
    if denies:
        lines.append(f"it denies {denies} more path{'' if denies == 1 else 's'} in every profile")
    return tuple(lines)


def _note(policy: Policy, profile: ProfileSource) -> str:
    replaced = policy.profiles[profile.name].replaces if profile.name in policy.profiles else None
    return f" (replaces the {replaced.layer} one)" if replaced is not None else ""


def _profile(profile: ProfileSource) -> list[str]:
    lines = []
    if profile.extends is not None:
        lines.append(f"has all that profile {shown(profile.extends.text)} has")
    lines.append(f"may read {_listed(profile.read)}")
    lines.append(f"may modify {_listed(profile.modify)}")
    if profile.exec is not None:
        lines.append(f"may execute only {_listed(profile.exec)}")
    network = profile.network
    if network is not None and network.mode is NetworkMode.HOST:
        lines.append("may reach the whole network of this machine")
    elif network is not None and network.mode is NetworkMode.ALLOW:
        lines.append(f"may reach {_joined([text for text, _ in network.allow])}")
    env = profile.env
    if env.pass_names:
        lines.append(f"gets the variables {_joined(list(env.pass_names))}")
    if env.secret:
        lines.append(f"gets the secrets {_joined(list(env.secret))}")
    if env.set_values:
        lines.append(f"has set {_joined([f'{name}={value}' for name, value in env.set_values])}")
    if profile.require is not None and profile.require.value == "partial":
        lines.append("runs even where something cannot be enforced")
    return lines


def _listed(rules: tuple[Written, ...]) -> str:
    return _joined([rule.text for rule in rules]) if rules else "nothing more"


def _joined(texts: list[str]) -> str:
    words = ", ".join(shown(text)[1:-1] for text in texts[:MAX_SHOWN])
    more = len(texts) - MAX_SHOWN
    return f"{words} and {more} more" if more > 0 else words
