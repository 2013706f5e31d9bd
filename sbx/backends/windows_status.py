"""How a Windows process ended, in the words and numbers of the contract. Pure."""

from __future__ import annotations

from sbx.errors import CommandNotExecutable, CommandNotFound, SbxError, SetupFailed
from sbx.kernel.windows_types import (
    JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT,
    JOB_OBJECT_MSG_END_OF_JOB_TIME,
    JOB_OBJECT_MSG_JOB_MEMORY_LIMIT,
)
from sbx.model.profile import Limits
from sbx.model.records import dataclass
from sbx.model.result import Status

ERROR_NOT_ENOUGH_QUOTA = 1816  # the exit code of processes that a job's time limit ended
TERMINATED_BY_SBX = 0x5B58  # what the supervisor gives to TerminateJobObject

# NTSTATUS -> (name, the signal a Unix program would have died of)
NTSTATUS = {
    0x80000003: ("STATUS_BREAKPOINT", 5),
    0xC0000005: ("STATUS_ACCESS_VIOLATION", 11),
    0xC0000006: ("STATUS_IN_PAGE_ERROR", 7),
    0xC0000017: ("STATUS_NO_MEMORY", 9),
    0xC000001D: ("STATUS_ILLEGAL_INSTRUCTION", 4),
    0xC0000025: ("STATUS_NONCONTINUABLE_EXCEPTION", 6),
    0xC000008E: ("STATUS_FLOAT_DIVIDE_BY_ZERO", 8),
    0xC0000094: ("STATUS_INTEGER_DIVIDE_BY_ZERO", 8),
    0xC0000096: ("STATUS_PRIVILEGED_INSTRUCTION", 4),
    0xC00000FD: ("STATUS_STACK_OVERFLOW", 11),
    0xC000012D: ("STATUS_COMMITMENT_LIMIT", 9),
    0xC000013A: ("STATUS_CONTROL_C_EXIT", 2),
    0xC0000374: ("STATUS_HEAP_CORRUPTION", 6),
    0xC0000409: ("STATUS_STACK_BUFFER_OVERRUN", 6),
    0xC0000417: ("STATUS_INVALID_CRUNTIME_PARAMETER", 6),
}
# the loader's refusals: the program never began
LOADER = {
    0xC0000022: "STATUS_ACCESS_DENIED",
    0xC000007B: "STATUS_INVALID_IMAGE_FORMAT",
    0xC0000135: "STATUS_DLL_NOT_FOUND",
    0xC0000138: "STATUS_ORDINAL_NOT_FOUND",
    0xC0000139: "STATUS_ENTRYPOINT_NOT_FOUND",
    0xC0000142: "STATUS_DLL_INIT_FAILED",
}
OUT_OF_MEMORY = (0xC0000017, 0xC000012D)


@dataclass(frozen=True, slots=True)
class Verdict:
    status: Status
    rc: int
    exit_code: int | None
    signal: int | None
    reason: str


def ended(code: int, messages: frozenset[int], limits: Limits, *, timed_out: bool) -> Verdict:
    """From the exit code, what the job reported, and whether the wall clock ended it."""
    if timed_out:
        return Verdict(Status.TIMEOUT, 124, None, None, f"process timed out after {limits.wall_s or 0:g} s")
    if code == 0:
        return Verdict(Status.OK, 0, 0, None, "")
    if limits.cpu_s is not None and (JOB_OBJECT_MSG_END_OF_JOB_TIME in messages or code == ERROR_NOT_ENOUGH_QUOTA):
        return Verdict(Status.CPU_LIMIT, 152, code, None, f"CPU limit of {limits.cpu_s:g} s reached (job time)")
    if limits.memory_bytes is not None and (JOB_OBJECT_MSG_JOB_MEMORY_LIMIT in messages or code in OUT_OF_MEMORY):
        return Verdict(
            Status.MEM_LIMIT, 137, code, None, f"memory limit of {limits.memory_bytes} bytes reached (job memory)"
        )
    noted = "; a process was refused: active-process limit" if JOB_OBJECT_MSG_ACTIVE_PROCESS_LIMIT in messages else ""
    if code in LOADER:
        return Verdict(
            Status.NOT_EXECUTABLE,
            126,
            code,
            None,
            f"the program could not be loaded: {LOADER[code]} 0x{code:08X}{noted}",
        )
    if code in NTSTATUS:
        name, number = NTSTATUS[code]
        return Verdict(Status.KILLED_SIGNAL, 128 + number, code, number, f"{name} 0x{code:08X}{noted}")
    if code >= 0xC0000000:
        return Verdict(Status.KILLED_SIGNAL, 128 + 6, code, 6, f"NTSTATUS 0x{code:08X}{noted}")
    return Verdict(Status.EXIT, code, code, None, f"exit status {code}{noted}")


SEE_DOCTOR = "'sbx doctor' says what this machine can do"


def not_started(winerror: int, program: str, words: str) -> SbxError:
    """Why a process could not be created."""
    if winerror in (2, 3, 267):  # file, path, directory
        return CommandNotFound(f"{program} was not found", remedy="check the spelling and PATH", details=(words,))
    if winerror in (5, 11, 193, 216, 740):  # access, format, not a program, other machine, wants to be elevated
        return CommandNotExecutable(
            f"{program} cannot be executed: {words}",
            remedy="name a program for this machine that needs no administrator",
        )
    return SetupFailed(f"{program} could not be started: {words}", remedy=SEE_DOCTOR, details=(f"WinError {winerror}",))
