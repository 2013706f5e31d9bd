"""What a traced run adds to a launch plan: the judge to ask, the calls to look at, and whether this machine can."""

from __future__ import annotations

from collections.abc import Sequence

from sbx.backends.capabilities import Capabilities
from sbx.kernel.path_calls import path_calls
from sbx.kernel.syscalls_table import numbers
from sbx.model.guarantee import Applied

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.model.verdict import Judge


def account_trace(capabilities: Capabilities, *, namespaces: bool) -> Applied:
    if not capabilities.user_notif:
        return Applied(True, False, "this kernel has no seccomp user notification (Linux 5.0)")
    if not namespaces:
        return Applied(True, False, "needs user namespaces: the listener is out of reach only as pid 1 of its own")
    return Applied(True, True, "seccomp listener looks at the calls that name files")


def launch_trace(
    judge: Judge, machine: str, *, learning: bool, judged: Sequence[tuple[str, int, int]]
) -> tuple[Any, ...]:
    """Plain values for `launch.tracing`. `judged` are the calls that the listener answers itself."""
    table = numbers(machine)
    performed = {table[name]: (argument, mask) for name, argument, mask in judged if name in table}
    return (judge, learning, path_calls(machine), performed)
