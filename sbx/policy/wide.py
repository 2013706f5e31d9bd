"""A workspace that is no project: somebody's whole home folder, or the whole file system.

It happens by itself, since a terminal opens at home and without a policy the workspace is where one stands.
"""

from __future__ import annotations

from sbx.model.glob import split_path
from sbx.model.verdict import allows
from sbx.policy.folders import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbx.model.profile import EffectiveProfile

ANY_NAME = "some file of theirs"


def what_it_is(folder: str, environ: Mapping[str, str]) -> str:
    """In words; empty for a folder like any other."""
    if folder == "/":
        return "the whole file system"
    return "your whole home folder" if folder == home_folder(environ) else ""


def too_wide(profile: EffectiveProfile, environ: Mapping[str, str]) -> str:
    """What a command under this profile sees of it, if that is nearly all."""
    what = what_it_is(profile.workspace, environ)
    rules = tuple(rule.compiled for rule in profile.read)
    if what and allows(rules, (*split_path(profile.workspace), ANY_NAME)):
        return f"the workspace is {what}, and profile {profile.name} lets a command read it"
    return ""
