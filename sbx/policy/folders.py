"""Where sbx and its user keep things: the XDG folders, the home, the shipped data."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SYSTEM_FILE = "/etc/sbx/policy.yaml"
WORKSPACE_FILE = "sbx.yaml"


def home_folder(environ: Mapping[str, str]) -> str:
    """The invoking user's home, real path: $HOME, or what the user database says."""
    home = environ.get("HOME", "")
    if not os.path.isabs(home):
        home = _database_home() or "/"
    return os.path.realpath(home)


def database_home() -> str | None:
    """The home in the user database, when it is there; it can differ from $HOME."""
    home = _database_home()
    return os.path.realpath(home) if home and os.path.isabs(home) else None


def _database_home() -> str | None:
    if sys.platform == "win32":
        return os.path.expanduser("~")
    else:
        import pwd

        try:
            return pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None


def _xdg(environ: Mapping[str, str], variable: str, default: str) -> str:
    folder = environ.get(variable, "")
    if not os.path.isabs(folder):  # the XDG specification: a relative one is to be ignored
        folder = os.path.join(home_folder(environ), default)
    return os.path.join(folder, "sbx")


def config_folder(environ: Mapping[str, str]) -> str:
    return _xdg(environ, "XDG_CONFIG_HOME", ".config")


def state_folder(environ: Mapping[str, str]) -> str:
    """Trust and audit."""
    return _xdg(environ, "XDG_STATE_HOME", os.path.join(".local", "state"))


def cache_folder(environ: Mapping[str, str]) -> str:
    return _xdg(environ, "XDG_CACHE_HOME", ".cache")


def turns_lock(environ: Mapping[str, str]) -> str:
    """What all sandboxes of this user lock in turn (see launch.turns): out of every command's reach."""
    return f"{cache_folder(environ)}/turns"


def shipped_folder() -> str:
    """The profiles that come with sbx: in the wheel, or beside the package in a source checkout."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    installed = os.path.join(package, "_data", "profiles")
    if os.path.isdir(installed):
        return installed
    return os.path.join(os.path.dirname(package), "profiles")


def python_prefix() -> str:
    """`sys.prefix` as the site module would set it, which the `sbx` command does without: of a virtual environment."""
    if not sys.flags.no_site:
        return sys.prefix
    beside = os.path.dirname(os.path.abspath(sys.executable))
    above = os.path.dirname(beside)
    if any(os.path.isfile(os.path.join(folder, "pyvenv.cfg")) for folder in (beside, above)):
        return above
    return sys.prefix


def find_workspace_file(cwd: str) -> str | None:
    """The nearest sbx.yaml at or above `cwd`. Anything of that name counts: what it is, is for the reader to say."""
    folder = os.path.realpath(cwd)
    while True:
        candidate = os.path.join(folder, WORKSPACE_FILE)
        if os.path.lexists(candidate):
            return candidate
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent
