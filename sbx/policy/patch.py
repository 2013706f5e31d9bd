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
    text = text or EMPTY
    whole = _rewritten(text, name, proposal, extends=extends, description=description)
    lines = _inserted(text, name, proposal, extends=extends, description=description)
    return lines if lines is not None and _content(lines) == _content(whole) else whole


def _content(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return None


# Line by line. A round trip through the parser keeps every comment too, but one that stands before a key belongs to
# what comes before it there, and what is added would come after the comment.


def _inserted(text: str, name: str, proposal: Proposal, *, extends: str, description: str) -> str | None:
    """None where the file is written in a way that has no line to add."""
    from ruamel.yaml import YAML

    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += newline
    document = YAML(typ="rt").compose(text)
    profiles = _value(document, "fsProfiles")
    if profiles is None:
        added = ["fsProfiles:", *_new_profile("  ", "  ", name, proposal, extends, description)]
        edits = [(len(lines), added)]
    elif not _is_block(profiles):
        return None
    else:
        profile = _value(profiles, name)
        margin = " " * profiles.value[0][0].start_mark.column
        if profile is None:
            step = margin or "  "
            edits = [(_end(profiles, lines), _new_profile(margin, step, name, proposal, extends, description))]
        elif not _is_block(profile):
            return None
        else:
            edits = _longer_profile(profile, proposal, lines)
    edits.reverse()  # from below, so that the numbers stay right
    edits.sort(key=lambda edit: edit[0], reverse=True)
    for at, added in edits:
        lines[at:at] = [line + newline for line in added]
    return "".join(lines)


def _new_profile(margin: str, step: str, name: str, proposal: Proposal, extends: str, description: str) -> list[str]:
    inner = margin + step
    found = [f"{margin}{_plain(name)}:", *(f"{inner}# {line}" for line in _left(proposal))]
    found.append(f"{inner}description: {_plain(description)}")
    if extends:
        found.append(f"{inner}extends: {_plain(extends)}")
    for key, rules in _lists(proposal):
        found += [f"{inner}{key}:", *(f"{inner}  - {_quoted(rule)}" for rule in rules)]
    return found


def _longer_profile(profile: Any, proposal: Proposal, lines: list[str]) -> list[tuple[int, list[str]]]:
    """(before which line, what)"""
    first = profile.value[0][0].start_mark
    margin = " " * first.column
    edits = [(first.line, [f"{margin}# {line}" for line in _left(proposal)])]
    missing: list[str] = []
    for key, rules in _lists(proposal):
        listed = _value(profile, key)
        if listed is None:
            missing += [f"{margin}{key}:", *(f"{margin}  - {_quoted(rule)}" for rule in rules)]
            continue
        known = [item.value for item in listed.value]
        new = [_quoted(rule) for rule in rules if rule not in known]
        if _is_block(listed):
            dash = lines[listed.value[-1].start_mark.line].index("-")
            edits.append((_end(listed, lines), [" " * dash + f"- {rule}" for rule in new]))
        elif new:
            _into_brackets(lines, listed.end_mark, new)
    return [*edits, (_end(profile, lines), missing)]


def _into_brackets(lines: list[str], end: Any, rules: list[str]) -> None:
    """`end` is after the closing bracket."""
    line = lines[end.line]
    before = line[: end.column - 1]
    if before.strip():
        before = before.rstrip()
        before += "" if before.endswith("[") else " " if before.endswith(",") else ", "
    lines[end.line] = before + ", ".join(rules) + line[end.column - 1 :]


def _value(mapping: Any, key: str) -> Any:
    return next((value for name, value in mapping.value if name.value == key), None)


def _is_block(node: Any) -> bool:
    return isinstance(node.value, list) and bool(node.value) and not node.flow_style


def _end(node: Any, lines: list[str]) -> int:
    """The number of the line after the last one that belongs to it; comments after it belong to what follows."""
    while _is_block(node):
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    if isinstance(node.value, list) or node.style not in ("|", ">"):
        return int(node.end_mark.line) + 1
    key = lines[node.start_mark.line]
    margin = len(key) - len(key.lstrip())
    for line in range(node.start_mark.line + 1, len(lines)):
        text = lines[line].lstrip()
        if text.strip() and len(lines[line]) - len(text) <= margin:
            return line
    return len(lines)


def _lists(proposal: Proposal) -> list[tuple[str, list[str]]]:
    lists = (("read", proposal.read), ("modify", proposal.modify), ("exec", proposal.exec))
    return [(key, rules) for key, rules in lists if rules]


def _left(proposal: Proposal) -> list[str]:
    """What a person has to decide, as comments."""
    left = [f"looks secret, left to you: {path}" for path in proposal.secrets]
    left += [f"denied in every profile: {path}" for path in proposal.denied]
    return [line.encode("unicode_escape").decode("ascii") for line in left[:20]]


def _quoted(rule: str) -> str:
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    return _dumped(DoubleQuotedScalarString(rule))


def _plain(text: str) -> str:
    return _dumped(text)


def _dumped(value: str) -> str:
    """As the emitter spells it, on one line."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt")
    yaml.width = 1 << 20
    out = io.StringIO()
    yaml.dump([value], out)
    return out.getvalue().removeprefix("- ").rstrip("\n")


# The same through the parser, for files that have no lines to speak of: `fsProfiles: {}`.


def _rewritten(text: str, name: str, proposal: Proposal, *, extends: str, description: str) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.comments import CommentedMap, CommentedSeq

    yaml = YAML(typ="rt")
    yaml.preserve_quotes = True
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    document = yaml.load(text)
    profiles = document.get("fsProfiles")
    if profiles is None:
        profiles = document["fsProfiles"] = CommentedMap()
    profile = profiles.get(name)
    if profile is None:
        profile = profiles[name] = CommentedMap()
        profile["description"] = description
        if extends:
            profile["extends"] = extends
    for key, rules in _lists(proposal):
        listed = profile.get(key)
        if listed is None:
            listed = profile[key] = CommentedSeq()
        _append(listed, rules)
    left = _left(proposal)
    if left:
        profile.yaml_set_comment_before_after_key(next(iter(profile)), before="\n".join(left), indent=4)
    out = io.StringIO()
    yaml.dump(document, out)
    return out.getvalue()


def _append(listed: Any, rules: Sequence[str]) -> None:
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    for rule in rules:
        if rule not in listed:
            listed.append(DoubleQuotedScalarString(rule))


def difference(path: str, old: str, new: str) -> str:
    """A unified diff that `patch -p1` takes."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True),
        new.splitlines(keepends=True),
        f"a/{path}" if old else "/dev/null",
        f"b/{path}",
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)
