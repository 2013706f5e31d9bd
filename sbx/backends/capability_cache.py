"""The stored answer of the last probe, good for as long as the machine's key is the same.

Private to the user like the rest of the store: a file that is not theirs, that others can write, or that does not load
is not used, and deleting it costs one probe.
"""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

import marshal
import os
import stat

from sbx.backends.capabilities import Capabilities
from sbx.kernel.machine import machine_key
from sbx.kernel.own_folder import make_own_folder
from sbx.launch.store import write_whole
from sbx.policy.folders import cache_folder
from sbx.version import VERSION

FILE = "capabilities"


def _key() -> tuple[str, ...]:
    return (VERSION, sys.version, *machine_key())


def load_cached(folder: str | None = None) -> Capabilities | None:
    """What was probed before on this machine as it is now, or None."""
    folder = cache_folder(os.environ) if folder is None else folder
    data = _read_private(f"{folder}/{FILE}")
    if data is None:
        return None
    try:
        key, values = marshal.loads(data)
        return Capabilities.from_tuple(values) if key == _key() else None
    except (ValueError, EOFError, TypeError):
        return None


def store(capabilities: Capabilities, folder: str | None = None) -> None:
    """Remember for the next time. A folder that cannot be written is no error: it will be probed again."""
    folder = cache_folder(os.environ) if folder is None else folder
    temporary = f"{folder}/{FILE}.{os.getpid()}"
    try:
        make_own_folder(folder)
        write_whole(temporary, marshal.dumps((_key(), capabilities.to_tuple())))
        os.replace(temporary, f"{folder}/{FILE}")
    except OSError:
        return


def forget(folder: str | None = None) -> None:
    """What was probed did not hold: a step of the set-up failed. What confines this process may have changed in a way
    that its key does not show, such as a filter of system calls."""
    folder = cache_folder(os.environ) if folder is None else folder
    try:
        os.unlink(f"{folder}/{FILE}")
    except OSError:
        pass


def _read_private(path: str) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        folder = os.stat(os.path.dirname(path))
        for each in (found, folder):
            if each.st_uid != os.geteuid() or each.st_mode & 0o022:
                return None
        return os.read(descriptor, 1 << 20) if stat.S_ISREG(found.st_mode) else None
    finally:
        os.close(descriptor)
