"""Sandboxes of one user take turns where names are judged: no folder moves while a name in it is judged and made.

Within one sandbox nothing else makes or moves names meanwhile: all such calls come to the same process. Two sandboxes
on one tree (`make -j` with sbx as its shell) could together do what each is denied: one makes a name in a folder while
the other moves that folder to where the name is denied. So each judges and acts under a lock of the user's: renames
alone, everything else side by side.

A record lock, not flock(): it belongs to a process, also where the descriptor was inherited from a template.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, syscall

assert sys.platform == "linux"  # for type checkers on other platforms

F_SETLK, F_SETLKW = 6, 7
_SHARED, _ALONE, _FREE = (kind.to_bytes(2, "little") + bytes(30) for kind in (0, 1, 2))  # struct flock: the whole file

lock = -1  # this process's, where there is one


def open_lock(path: bytes) -> None:
    """Before the pivot. Where the file cannot be had (a home that may not be written) there are no turns to take."""
    global lock
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        return
    try:
        _fcntl(F_SETLK, _FREE)
    except OSError:  # a file system without locks
        os.close(lock)
        lock = -1


def begin(alone: bool) -> None:
    """Wait for it, and hold it. Whoever is killed lets go of it."""
    if lock >= 0:
        _fcntl(F_SETLKW, _ALONE if alone else _SHARED)


def end() -> None:
    if lock >= 0:
        _fcntl(F_SETLK, _FREE)


def _fcntl(command: int, kind: bytes) -> None:
    syscall("fcntl", NUMBERS["fcntl"], "llz", lock, command, kind)
