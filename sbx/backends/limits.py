"""Which mechanism holds each limit here: cgroup v2, then rlimits, then the supervisor's own sampling. Pure."""

from __future__ import annotations

import math

from sbx.backends.capabilities import Capabilities
from sbx.launch.rlimits import RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_NPROC
from sbx.model.guarantee import Applied
from sbx.model.profile import Limits
from sbx.model.records import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.launch.cgroup import Settings

SAMPLED = "sampled every 100 ms; over the limit the whole tree is killed"
# Since this kernel RLIMIT_NPROC counts per user namespace, so that the user's other programs do not count.
NPROC_PER_NAMESPACE = (5, 14)


@dataclass(frozen=True, slots=True)
class LimitChoice:
    """`sample` names the limits that only sampling can hold. `enforced` speaks of the limits that were asked for."""

    rlimits: tuple[tuple[int, int, int], ...] = ()
    cgroup: Settings | None = None
    sample: tuple[str, ...] = ()
    enforced: dict[str, Applied] = field(default_factory=dict)


def choose_limits(limits: Limits, capabilities: Capabilities) -> LimitChoice:
    """The best that is there for each. RLIMIT_AS is never used: programs that only reserve address space would fail."""
    rlimits: list[tuple[int, int, int]] = []
    sample: list[str] = []
    enforced: dict[str, Applied] = {}
    cgroup = _cgroup(limits, capabilities)
    if limits.wall_s is not None and limits.wall_s != math.inf:
        enforced["wall"] = _applied("the supervisor's clock")
    if limits.cpu_s is not None:
        # The rlimit counts one process, so it comes later than the count of the tree, which decides the status.
        backstop = math.ceil(limits.cpu_s) + 1
        rlimits.append((RLIMIT_CPU, backstop, backstop + 1))
        if cgroup is not None:
            enforced["cpu"] = _applied("cgroup v2 cpu.stat of the whole tree; RLIMIT_CPU for each process")
        else:
            sample.append("cpu")
            enforced["cpu"] = _applied(f"{SAMPLED}; RLIMIT_CPU for each process")
    if limits.memory_bytes is not None:
        if cgroup is not None and cgroup["memory_bytes"] is not None:
            enforced["memory"] = _applied("cgroup v2 memory.max of the whole tree, no swap")
        else:
            sample.append("memory")
            enforced["memory"] = _applied(SAMPLED)
    if limits.pids is not None:
        if cgroup is not None and cgroup["pids"] is not None:
            enforced["pids"] = _applied("cgroup v2 pids.max")
        elif _nproc_holds(capabilities):
            rlimits.append((RLIMIT_NPROC, limits.pids + 1, limits.pids + 1))  # and the sandbox's own first process
            enforced["pids"] = _applied("RLIMIT_NPROC of the sandbox's own user namespace")
        else:
            sample.append("pids")
            enforced["pids"] = _applied(SAMPLED)
    if limits.nofile is not None:
        rlimits.append((RLIMIT_NOFILE, limits.nofile, limits.nofile))
        enforced["nofile"] = _applied("RLIMIT_NOFILE of each process")
    for name, cap in (("stdout", limits.stdout_bytes), ("stderr", limits.stderr_bytes)):
        if cap is not None:
            enforced[name] = _applied("a pipe that is cut at the limit")
    return LimitChoice(tuple(rlimits), cgroup, tuple(sample), enforced)


def _applied(details: str) -> Applied:
    return Applied(True, True, details)


def _cgroup(limits: Limits, capabilities: Capabilities) -> Settings | None:
    by_systemd = capabilities.cgroup_mechanism == "systemd"
    if not by_systemd and (capabilities.cgroup_mechanism != "direct" or not capabilities.cgroup_path):
        return None
    controllers = capabilities.cgroup_controllers
    memory = limits.memory_bytes if "memory" in controllers else None
    pids = limits.pids if "pids" in controllers else None
    if memory is None and pids is None and limits.cpu_s is None:
        return None
    # Empty: known when the user's systemd has made the run's scope.
    parent = b"" if by_systemd else capabilities.cgroup_path.encode("utf-8", "surrogateescape")
    return {"parent": parent, "memory_bytes": memory, "pids": pids, "cpu_s": limits.cpu_s}


def _nproc_holds(capabilities: Capabilities) -> bool:
    """Root is exempt from RLIMIT_NPROC, and without a user namespace it counts everything the user runs."""
    if not capabilities.namespaces or capabilities.uid == 0:
        return False
    digits = capabilities.kernel.split("-")[0].split(".")
    try:
        return (int(digits[0]), int(digits[1])) >= NPROC_PER_NAMESPACE
    except (IndexError, ValueError):
        return False
