"""A policy file with a profile added or extended: comments and layout of the rest stay as they are."""

from __future__ import annotations

import difflib
import io
from typing import TYPE_CHECKING, Any

from sbx.policy.learning import Proposal

if TYPE_CHECKING:
    from collections.abc import Sequence

EMPTY = "# What commands run by sbx in this folder may touch. 'sbx check' validates this file.\nschemaVersion: 2\n"


def patched(text: str, name: str, proposal: Proposal, *, extends: str, description: str) -> str:
    """The new text. `extends` names the profile of a weaker layer that a new one starts from, if any."""
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text or EMPTY)
    profiles = document.get("fsProfiles")
    if profiles is None:
        profiles = document["fsProfiles"] = CommentedMap()
    profile = profiles.get(name)
    if profile is None:
        profile = profiles[name] = CommentedMap()
        profile["description"] = description
        if extends:
            profile["extends"] = extends
    for key, rules in (("read", proposal.read), ("modify", proposal.modify), ("exec", proposal.exec)):
        if not rules:
            continue
        listed = profile.get(key)
        if listed is None:
            listed = profile[key] = CommentedSeq()
        _append(listed, rules)
    left = [f"looks secret, left to you: {path}" for path in proposal.secrets]
    left += [f"denied in every profile: {path}" for path in proposal.denied]
    if left:
        _comment(profile, left[:20])
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _append(listed: Any, rules: Sequence[str]) -> None:
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    for rule in rules:
        if rule not in listed:
            listed.append(DoubleQuotedScalarString(rule))


def _comment(profile: Any, lines: Sequence[str]) -> None:
    """Before the profile's first key, so that it is read together with what was granted."""
    first = next(iter(profile))
    shown = "\n".join(line.encode("unicode_escape").decode("ascii") for line in lines)
    profile.yaml_set_comment_before_after_key(first, before=shown, indent=4)


def difference(path: str, old: str, new: str) -> str:
    """A unified diff that `patch -p1` takes."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{path}" if old else "/dev/null",
        f"b/{path}",
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
