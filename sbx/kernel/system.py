"""The `os` module without its price: the system's own functions under their usual names.

Importing `os` builds the abstract base classes for `os.environ` and costs as much as the namespaces of a sandbox. The
hot path imports this as `os`; anything that only the real module has is fetched from there on first use.
"""

from __future__ import annotations

import sys

if sys.platform == "win32":
    from nt import *  # noqa: F403
    from nt import lstat as _lstat
    from nt import stat as _stat
    from os import _exit as _exit
else:
    from posix import *  # noqa: F403
    from posix import _exit as _exit
    from posix import lstat as _lstat
    from posix import stat as _stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

devnull = "/dev/null"


def fsencode(name: str | bytes) -> bytes:
    return name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name


def fsdecode(name: str | bytes) -> str:
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name


def lexists(name: str | bytes) -> bool:
    try:
        _lstat(name)
    except OSError:
        return False
    return True


def is_directory(name: str | bytes) -> bool:
    try:
        return _stat(name).st_mode & 0o170000 == 0o040000
    except OSError:
        return False


def __getattr__(name: str) -> Any:
    import os

    return getattr(os, name)
