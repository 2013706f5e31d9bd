"""What the manual says and no table of the code holds: statuses, variables, files."""

from __future__ import annotations

from sbx.model.result import Status

DATE = "2026-11-18"  # of the last change of these pages that a reader would notice

# In the order of their exit codes. A test asks that every status is here.
STATUSES: tuple[tuple[Status, str, str], ...] = (
    (Status.OK, "0", "the command succeeded"),
    (Status.EXIT, "its own", "the command exited non-zero by itself"),
    (Status.TIMEOUT, "124", "the wall-clock limit was reached"),
    (Status.INTERNAL_ERROR, "125", "sbx itself failed: usage, policy, set-up, or no sandbox to be had here"),
    (Status.NOT_EXECUTABLE, "126", "the command cannot be executed"),
    (Status.NOT_FOUND, "127", "the command was not found"),
    (Status.MEM_LIMIT, "137", "the tree reached its memory limit, or the kernel ran out of memory"),
    (Status.KILLED_KILL, "137", "the command was killed by SIGKILL"),
    (Status.KILLED_TERM, "143", "the command was ended by SIGTERM, or sbx was told to stop by one"),
    (Status.KILLED_SIGNAL, "128+n", "the command died of signal n, or sbx was told to stop by it (130 for Ctrl-C)"),
    (Status.CPU_LIMIT, "152", "the tree used up its CPU time"),
    (Status.FORBIDDEN_SYSCALL, "159", "a system call that sbx refuses was answered with SIGSYS"),
)

VARIABLES: tuple[tuple[str, str], ...] = (
    ("SBX_TRUST_WORKSPACE", "1 is consent to whatever policy the workspace holds; for CI."),
    ("SBX_DEBUG", "1 shows a traceback for a mistake in sbx itself."),
    ("SBX_CGROUP", "A delegated cgroup v2 folder to hold runs in, instead of the one sbx finds by itself."),
    ("NO_COLOR", "When set, no colours."),
    ("XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_CACHE_HOME", "Where the files below are kept, as usual."),
)

FILES: tuple[tuple[str, str], ...] = (
    ("sbx.yaml", "The workspace's policy: the nearest one at or above the working directory. Its folder is the "
     "workspace."),
    ("~/.config/sbx/policy.yaml", "The user's own policy."),
    ("/etc/sbx/policy.yaml", "The system's policy."),
    ("~/.local/state/sbx/trust/", "Which policies were approved, by content."),
    ("~/.local/state/sbx/", "The audit log, readable by its owner only."),
    ("~/.cache/sbx/", "Stored plans. Deleting it at any time only costs time."),
)  # fmt: skip
