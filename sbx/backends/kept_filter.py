"""The system call filter as it was built before: the same for every policy, and dear to build.

Kept in the store beside the plans, which hold such filters anyway, under all that it is built from.
"""

from __future__ import annotations

import marshal
import os
import sys

from sbx.kernel import bpf, seccomp_filter, syscalls_table
from sbx.launch import store
from sbx.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BUILDERS = (bpf, seccomp_filter, syscalls_table)


def kept_filter(machine: str, **how: Any) -> bytes:
    """What `seccomp_filter.build_filter` returns for the same arguments."""
    environ = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    key = marshal.dumps(("filter", VERSION, sys.hexversion, machine, tuple(sorted(how.items()))), 2)
    entry = store.load(key, environ)
    if entry is not None:
        found: bytes = entry["filter"]
        return found
    built = seccomp_filter.build_filter(machine, **how)
    try:
        store.save(key, tuple(_stamp(module.__file__ or "") for module in BUILDERS), {"filter": built}, environ)
    except OSError:
        pass  # an installation whose files are not where they say: it is built every time
    return built


def _stamp(path: str) -> store.Dependency:
    now = os.stat(path)
    return (store.FILE, os.fsencode(path), (now.st_mtime_ns, now.st_ino, now.st_dev, now.st_size, now.st_ctime_ns))
