"""Landlock rules over the operations: a second layer that never denies what the mounts allow."""

from __future__ import annotations

from sbx.model.plan import Op, Operation, PathGrant
from sbx.model.profile import EffectiveProfile
from sbx.model.verdict import may_modify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# Names as in the kernel's ABI table; those that a kernel does not know are dropped by whoever applies them.
READ_TREE = ("READ_FILE", "READ_DIR")
WRITE_TREE = (
    "WRITE_FILE",
    "REMOVE_DIR",
    "REMOVE_FILE",
    "MAKE_DIR",
    "MAKE_REG",
    "MAKE_SOCK",
    "MAKE_FIFO",
    "MAKE_SYM",
    "REFER",
    "TRUNCATE",
    "RESOLVE_UNIX",
)
READ_ONE = ("READ_FILE",)
WRITE_ONE = ("WRITE_FILE", "TRUNCATE", "RESOLVE_UNIX")
DEVICES = ("READ_FILE", "READ_DIR", "WRITE_FILE", "TRUNCATE", "IOCTL_DEV")


def rights(*, is_dir: bool, writable: bool, executable: bool) -> tuple[str, ...]:
    """The rights of one shown path. The kernel refuses directory rights on a file."""
    found: tuple[str, ...] = READ_TREE if is_dir else READ_ONE
    if writable:
        found += WRITE_TREE if is_dir else WRITE_ONE
    return (*found, "EXECUTE") if executable else found


def grants_over(operations: Iterable[Operation], profile: EffectiveProfile) -> tuple[PathGrant, ...]:
    """One grant per operation that shows something. Landlock cannot subtract: what is masked below, the mount masks."""
    found = []
    for each in operations:
        wanted = _rights_of(each, profile)
        if wanted:
            found.append(PathGrant(each.path, wanted))
    return tuple(found)


def _rights_of(operation: Operation, profile: EffectiveProfile) -> tuple[str, ...]:
    executable = not operation.noexec
    match operation.op:
        case Op.BIND_RO | Op.BIND_RW:
            if operation.is_link:
                return ()  # a link has no content; Landlock judges where it leads
            writable = operation.op is Op.BIND_RW
            return rights(is_dir=operation.is_dir, writable=writable, executable=executable)
        case Op.TMPFS:
            return rights(is_dir=True, writable=True, executable=executable)
        case Op.PROC:
            # Landlock cannot tell a process's folder from /proc/sys, which the launch makes read-only by a mount.
            own = (*(name for name in operation.path.split("/") if name), "1", "comm")
            return (*READ_TREE, "WRITE_FILE") if may_modify(profile.judge, own) else READ_TREE
        case Op.DEV:
            return DEVICES
        case Op.SKELETON | Op.MASK:
            return ("READ_DIR",) if operation.listable and operation.is_dir else ()
        case Op.PIN | Op.SYMLINK | Op.MAKE_DIR:
            return ()
