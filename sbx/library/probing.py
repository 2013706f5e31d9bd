"""What this machine can do, as one word for each capability."""

from __future__ import annotations

import sys

from sbx.backends.capabilities import Capabilities
from sbx.library.types import Enforcement
from sbx.model.guarantee import CAPABILITIES
from sbx.model.profile import Limits

NEW_NAMES = {"addfd_send", "wait_killable"}  # what judging names made during the run needs


def strengths() -> dict[str, Enforcement]:
    if sys.platform != "linux":
        return dict.fromkeys(CAPABILITIES, Enforcement.NONE)
    from sbx.supervise.compile import capabilities_for_a_guest

    return strengths_of(capabilities_for_a_guest())


def strengths_of(machine: Capabilities) -> dict[str, Enforcement]:
    """Pure: the same for the same capabilities."""
    full, supervised = Enforcement.FULL, Enforcement.SUPERVISED
    partial, none = Enforcement.PARTIAL, Enforcement.NONE
    if machine.backend == "none":
        return dict.fromkeys(CAPABILITIES, none)
    private = machine.backend == "namespaces"
    from sbx.backends.limits import choose_limits

    sampled = choose_limits(Limits(cpu_s=1, memory_bytes=1, pids=1), machine).sample
    judged = private and machine.user_notif and set(machine.notif_flags) >= NEW_NAMES
    found = dict.fromkeys(CAPABILITIES, full)
    found |= dict.fromkeys(("wall", "cpu", "stdout", "stderr"), supervised)
    found |= dict.fromkeys((name for name in ("memory", "pids") if name in sampled), supervised)
    found["future_denies"] = full if judged else partial
    found["exec"] = full if machine.landlock else partial
    if not private:
        found |= dict.fromkeys(("filesystem", "network", "processes"), partial)
    return found
