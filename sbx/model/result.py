"""The result of a run: the JSON's fields, and what a caller may hang on them."""

from __future__ import annotations

from enum import StrEnum

from sbx.model.guarantee import Applied
from sbx.model.records import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RESULT_VERSION = 1


class Status(StrEnum):
    OK = "OK"
    EXIT = "EXIT"
    TIMEOUT = "TIMEOUT"
    INTERNAL_ERROR = "INTERNAL_ERROR"
    NOT_EXECUTABLE = "NOT_EXECUTABLE"
    NOT_FOUND = "NOT_FOUND"
    MEM_LIMIT = "MEM_LIMIT"
    KILLED_KILL = "KILLED_KILL"
    KILLED_TERM = "KILLED_TERM"
    KILLED_SIGNAL = "KILLED_SIGNAL"
    CPU_LIMIT = "CPU_LIMIT"
    FORBIDDEN_SYSCALL = "FORBIDDEN_SYSCALL"


@dataclass(frozen=True, slots=True)
class Usage:
    cpu_ms: int = 0
    max_rss_bytes: int = 0
    pids: int | None = None  # processes and threads at once; None where nobody counted


@dataclass(frozen=True, slots=True)
class Denial:
    """One distinct thing the command was refused."""

    operation: str
    path: str
    program: str = ""
    count: int = 1
    rule: str = ""
    place: str = ""  # file:line of the deciding rule
    remedy: str = ""
    likely: bool = False  # concluded from the command's own words, not observed


@dataclass(slots=True)
class Result:
    """How a run ended. `rc` is what `sbx run` exits with; `exit_code` is the command's own, None on a timeout."""

    status: Status
    rc: int
    exit_code: int | None
    signal: int | None
    reason: str
    duration_ms: int
    cmd: tuple[str, ...]
    cwd: str
    profile: str
    trace_id: str
    backend: str
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: dict[str, int] = field(default_factory=dict)  # stream -> bytes dropped
    usage: Usage = Usage()
    denials: tuple[Denial, ...] = ()
    network: tuple[dict[str, Any], ...] = ()
    enforced: dict[str, Applied] = field(default_factory=dict)
    output: Any = None  # free for the caller's parsed payload

    @property
    def success(self) -> bool:
        return self.status is Status.OK
