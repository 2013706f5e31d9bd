"""How strongly a thing is enforced: partial enforcement is a value, never a log line."""

from __future__ import annotations

from sbx.model.records import dataclass
from sbx.model.str_enum import StrEnum


class Exactness(StrEnum):
    EXACT = "exact"  # the kernel's verdict equals decide(), also for names made during the run
    SNAPSHOT = "snapshot"  # holds for what existed at the start
    STRICTER = "stricter"  # the kernel denies more than the rule asks (never less)
    CONTENT = "content only"  # holds for what is inside; that it exists, or its owner, mode and times, is not covered
    NOT_ENFORCED = "not enforced"


@dataclass(frozen=True, slots=True)
class Applied:
    """One capability of one run: was it asked for, was it applied, by what."""

    requested: bool
    applied: bool
    details: str


# The capabilities that `enforced` reports, in the order of the report.
CAPABILITIES = (
    "filesystem",
    "exec",
    "future_denies",
    "network",
    "processes",  # nothing survives, nothing outside can be signalled or traced
    "syscalls",
    "privileges",  # no_new_privs, no capabilities
    "environment",
    "terminal",
    "wall",
    "cpu",
    "memory",
    "pids",
    "nofile",
    "stdout",
    "stderr",
)
