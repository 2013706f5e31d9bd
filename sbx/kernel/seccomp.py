"""seccomp(2): one function per call. The programs come from `seccomp_filter`, at compile time."""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

from sbx.kernel.call import NUMBERS, Buffer, address_of, syscall

SECCOMP_SET_MODE_FILTER = 1
SECCOMP_GET_ACTION_AVAIL = 2
SECCOMP_GET_NOTIF_SIZES = 3

FLAG_TSYNC = 1 << 0
FLAG_LOG = 1 << 1
# Not asked for: before 5.16, without it, whoever is under a filter runs with mitigations against speculation, which may
# cost some percent; what runs in a sandbox is just what they were meant for. Since 5.16 it changes nothing.
FLAG_SPEC_ALLOW = 1 << 2
FLAG_NEW_LISTENER = 1 << 3
FLAG_TSYNC_ESRCH = 1 << 4
FLAG_WAIT_KILLABLE_RECV = 1 << 5  # 5.19: a judged call that was received is only interrupted by a fatal signal

_SET_FLAGS = 0x40082104  # of a listener
_SYNC_WAKE_UP = 1
_ENOSYS = 38
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2


def install(program: bytes, flags: int = 0) -> int:
    """Put this thread under the filter; needs no_new_privs. The listener's descriptor if one was asked for, else 0."""
    # struct sock_fprog: u16 count, padding, pointer
    fprog = (len(program) // 8).to_bytes(8, "little") + address_of(program).to_bytes(8, "little")
    try:
        return syscall("seccomp", NUMBERS["seccomp"], "llz", SECCOMP_SET_MODE_FILTER, flags, fprog)
    except OSError as error:
        if error.errno != _ENOSYS or flags & ~FLAG_SPEC_ALLOW:
            raise
        # An outer filter that knows only the older way in (some container runtimes).
        return syscall("prctl", NUMBERS["prctl"], "llzll", _PR_SET_SECCOMP, _MODE_FILTER, fprog, 0, 0)


def wake_up_in_step(listener: int) -> None:
    """Linux 6.6: hand the processor over to the waiting process and back, a tenth of the time."""
    try:
        syscall("ioctl(NOTIF_SET_FLAGS)", NUMBERS["ioctl"], "lll", listener, _SET_FLAGS, _SYNC_WAKE_UP)
    except OSError:
        pass  # older: slower, not different


def action_available(action: int) -> bool:
    """Does this kernel know the action (USER_NOTIF, KILL_PROCESS)?"""
    try:
        syscall("seccomp", NUMBERS["seccomp"], "llz", SECCOMP_GET_ACTION_AVAIL, 0, action.to_bytes(4, "little"))
    except OSError:
        return False
    return True


def notification_sizes() -> tuple[int, int, int]:
    """The running kernel's sizes of seccomp_notif, seccomp_notif_resp and seccomp_data."""
    sizes = Buffer(6)
    syscall("seccomp", NUMBERS["seccomp"], "lll", SECCOMP_GET_NOTIF_SIZES, 0, sizes.address)
    data = sizes.read()
    return tuple(int.from_bytes(data[at : at + 2], "little") for at in (0, 2, 4))  # type: ignore[return-value]
