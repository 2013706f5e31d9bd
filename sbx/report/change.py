"""What change would allow it: a line for the right file, an option for one run, or why nothing can."""

from __future__ import annotations

import os

from sbx.model.glob import escape, split_path
from sbx.report.words import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbx.report.view import Row, View

    Change = tuple[str, str]  # kind (policy, option, none) and text

# Denies come after every profile: no rule of a profile or an option can follow them.
FINAL = ("shipped deny", "deny", "always")


def changes(
    view: View, location: str, denied: Sequence[tuple[str, Row | None]], *, whole: bool | None = None
) -> tuple[Change, ...]:
    """What would lift each denial. `denied` names the lists that denied, each with the rule that decided. `whole`: with
    all that is below; otherwise that is so for folders."""
    final = [row for _, row in denied if row is not None and row.origin in FINAL]
    if final:
        return tuple(dict.fromkeys(_lift_deny(row) for row in final))
    if whole is not False and is_above_home(view, split_path(location)):
        return (("none", f"grant what is needed below it: a rule for all of {visible(location)} would open too much"),)
    rule = rule_for(view, location, whole=whole)
    keys = [name for name, _ in denied]
    option = "--modify" if "modify" in keys else "--read"
    quoted = "'" + rule.replace("'", "'\\''") + "'"
    return (_policy_line(view, keys, rule), ("option", f"for one run: sbx run {option} {quoted}"))


def is_above_home(view: View, names: Sequence[str]) -> bool:
    """The home folder, or a folder that it is in?"""
    return tuple(split_path(view.home)[: len(names)]) == tuple(names) if view.home else not names


def has_file(view: View) -> bool:
    """Is there a file that a rule could be added to?"""
    file, _line, layer = view.profile_place
    return bool(view.workspace_file or (file and layer in ("workspace", "user", "system")))


def rule_for(view: View, location: str, *, whole: bool | None = None) -> str:
    """The narrowest rule that names this place, as a person would write it."""
    names = split_path(location)
    text = escape(location)
    for folder, prefix in ((view.workspace, "."), (view.home, "~")):
        start = split_path(folder)
        if folder and start and names[: len(start)] == start:
            text = "/".join((prefix, *(escape(name) for name in names[len(start) :])))
            break
    if whole is None:
        whole = os.path.isdir(location)
    return f"{text.rstrip('/')}/**" if whole else text


def _policy_line(view: View, keys: Sequence[str], rule: str) -> Change:
    quoted = '"' + rule.replace("\\", "\\\\").replace('"', '\\"') + '"'
    lines = ", ".join(f"{key}: [{quoted}]" for key in keys)
    file, line, layer = view.profile_place
    if layer in ("workspace", "user", "system") and file:
        added = " and ".join(keys)
        return ("policy", f"add {quoted} at the end of {added} of profile {view.name} in {file}:{line}")
    target = view.workspace_file or os.path.join(view.workspace, "sbx.yaml")
    new = "" if view.workspace_file else " (made by 'sbx init')"
    return ("policy", f"in {target}{new}: fsProfiles: {{{view.name}: {{extends: {view.name}, {lines}}}}}")


def _lift_deny(row: Row) -> Change:
    text = visible(row.text)
    where = f"{row.file}:{row.line}" if row.line else row.file
    if row.origin == "always":
        return ("none", "cannot be undone: sbx protects its own files and the policy files in force")
    if row.origin == "shipped deny":
        return (
            "policy",
            f"{text} is a deny that comes with sbx and no profile can undo; "
            "only 'shippedDenies: false' in your own or the system's policy drops all of them",
        )
    if row.layer == "option":
        return ("option", f"leave out {row.file} {text.removeprefix('!')}")
    return ("policy", f"cannot be undone by a profile: remove or narrow the deny {text} in {where}")
