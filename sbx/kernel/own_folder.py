"""Making the folders that sbx keeps its own things in.

Not simply makedirs: a home that does not exist must not come into being by a run, and what root makes in another
user's home (`sudo` may leave HOME as it is) would lock that user out of it.
"""

from __future__ import annotations

import errno
import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond

# Where the folders lie when no XDG variable says otherwise: what stands before these is the home.
BELOW_HOME = (b"/.cache/sbx", b"/.local/state/sbx", b"/.config/sbx")


def make_own_folder(folder: str | bytes) -> None:
    """The folder and what is missing above it, closed to others. Raises OSError where it is not ours to make."""
    path = os.fsencode(folder)
    missing: list[bytes] = []
    while not os.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    if sys.platform != "win32" and os.geteuid() == 0 and os.stat(path).st_uid != 0:
        raise PermissionError(errno.EPERM, "it belongs to another user", os.fsdecode(path))
    home = _home_above(os.fsencode(folder))
    if home in missing:
        raise FileNotFoundError(errno.ENOENT, "the home folder does not exist", os.fsdecode(home))
    for each in reversed(missing):
        try:
            os.mkdir(each, 0o700)
        except FileExistsError:
            pass  # somebody was faster


def _home_above(folder: bytes) -> bytes:
    for ending in BELOW_HOME:
        home, found, rest = folder.partition(ending)
        if found and rest[:1] in (b"", b"/"):
            return home
    return b""
