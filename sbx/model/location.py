"""Where a path really is. Rules and questions meet at real locations, never at spellings."""

from __future__ import annotations

import os


def real_location(path: str, cwd: str, *, follow: bool = True) -> str | None:
    """The absolute path with symlinks resolved; None for a symlink loop, which nothing can reach.

    Names that do not exist yet keep their spelling below the part that does. With `follow=False` the last name is
    taken as it is: the location of a symlink itself, which is what unlink and rename act on.
    """
    absolute = os.path.join(cwd, path)
    if not follow:
        trimmed = absolute.rstrip("/")
        parent, name = os.path.split(trimmed)
        if name not in ("", ".", ".."):
            real_parent = _real(parent)
            return None if real_parent is None else os.path.join(real_parent, name)
    return _real(absolute)


def _real(path: str) -> str | None:
    try:
        real = os.path.realpath(path)
    except OSError:
        return None
    # realpath leaves the rest of a loop unresolved instead of failing: a link that is still a link is a loop.
    current = real
    while current != "/":
        if os.path.islink(current):
            return None
        parent = os.path.dirname(current)
        if os.path.lexists(parent):
            return None if os.path.islink(parent) else real
        current = parent
    return real
