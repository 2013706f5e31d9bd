"""Resource limits as this caller can have them: the plan's numbers, never above what the caller itself is held to."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    Rlimits: TypeAlias = tuple[tuple[int, int, int], ...]

# Numbers of the kernel, the same on x86-64 and aarch64.
RLIMIT_CPU, RLIMIT_NPROC, RLIMIT_NOFILE = 0, 6, 7


def clamp(rlimits: Rlimits) -> Rlimits:
    """(resource, soft, hard) with both at most the caller's hard limit: raising it is refused, and a lower one holds
    what was asked for as well."""
    if not rlimits:
        return rlimits
    if sys.platform == "win32":
        return rlimits
    else:
        import resource

        clamped = []
        for number, soft, hard in rlimits:
            ceiling = resource.getrlimit(number)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            clamped.append((number, soft, hard))
        return tuple(clamped)
