"""Windows: a job object that dies with sbx, and a restricted token at low integrity. Importable everywhere.

What needs Windows itself is in `windows_run`; here is what can be decided without it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

from sbx.errors import CommandNotExecutable, SandboxUnavailable
from sbx.kernel.windows_types import JOBOBJECT_EXTENDED_LIMIT_INFORMATION, job_limits
from sbx.model.guarantee import Applied
from sbx.model.plan import Plan
from sbx.model.profile import EffectiveProfile, Limits, NetworkMode, Require
from sbx.planner.windows import plan

_BATCH = (".bat", ".cmd")


def prepare(profile: EffectiveProfile, cwd: str, *, partial: bool = False) -> Plan:
    """The plan, or the refusal: Windows cannot hold everything that a profile asks for."""
    made = plan(profile, cwd)
    if made.refusals and profile.require is Require.FULL and not partial:
        raise SandboxUnavailable(
            f"the profile {profile.name!r} asks for what Windows cannot enforce",
            remedy="run with --partial, or set 'require: partial', to accept that",
            details=made.refusals,
            platform="windows",
            reason=made.refusals[0],
        )
    unavailable = probe()
    if unavailable is not None:
        raise unavailable
    return made


def probe(platform: str = sys.platform) -> SandboxUnavailable | None:
    """None on Windows; else the refusal to raise."""
    if platform == "win32":
        return None
    return SandboxUnavailable(
        "no sandbox on this machine: this is not Windows",
        remedy="use 'sbx plan --platform windows' to see what would be done",
        platform="windows",
        reason="this is not Windows",
    )


def limits_of(limits: Limits) -> JOBOBJECT_EXTENDED_LIMIT_INFORMATION:
    return job_limits(active_processes=limits.pids, memory_bytes=limits.memory_bytes, user_time_s=limits.cpu_s)


def command_line(argv: Sequence[str]) -> str:
    """One string, quoted as the C runtime reads it back. Batch files are refused: cmd.exe reads quotes differently."""
    if argv[0].lower().rstrip(". ").endswith(_BATCH):
        raise CommandNotExecutable(
            f"{argv[0]} is a batch file: its arguments cannot be passed safely",
            remedy="call cmd.exe /c with arguments that you trust",
        )
    return subprocess.list2cmdline(argv)


def environment_block(variables: Mapping[str, str]) -> str:
    """NAME=VALUE strings, each ended by a NUL, in the order Windows wants; the block ends with one more."""
    for name, value in variables.items():
        if "\0" in name + value or not name or "=" in name[1:]:
            raise ValueError(f"the variable {name!r} cannot be passed on")
    ordered = sorted(variables.items(), key=lambda item: item[0].upper())
    return "".join(f"{name}={value}\0" for name, value in ordered) + "\0"


def enforced(profile: EffectiveProfile) -> dict[str, Applied]:
    """What of the profile holds here, and by what."""
    limits = profile.limits
    network = profile.network.mode is not NetworkMode.HOST
    return {
        "filesystem": Applied(True, False, "low integrity: writes are held, reads are not"),
        "exec": Applied(profile.exec is not None, False, "no mechanism"),
        "future_denies": Applied(True, False, "no mechanism"),
        "network": Applied(network, not network, "needs administrators' rights on the filtering platform"),
        "processes": Applied(True, True, "job object: ended with its last handle, no breakaway"),
        "syscalls": Applied(False, False, "Windows has no filter of system calls for programs to use"),
        "privileges": Applied(True, True, "restricted token without privileges, low integrity"),
        "environment": Applied(True, True, "built by sbx"),
        "terminal": Applied(True, True, "user-interface limits of the job"),
        "wall": Applied(limits.wall_s is not None, True, "supervisor"),
        "cpu": Applied(limits.cpu_s is not None, True, "job: user time of the tree"),
        "memory": Applied(limits.memory_bytes is not None, True, "job: committed memory of the tree"),
        "pids": Applied(limits.pids is not None, True, "job: active processes"),
        "nofile": Applied(limits.nofile is not None, False, "Windows has no such limit"),
        "stdout": Applied(limits.stdout_bytes is not None, True, "supervisor"),
        "stderr": Applied(limits.stderr_bytes is not None, True, "supervisor"),
    }
