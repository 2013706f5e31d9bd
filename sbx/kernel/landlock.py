"""Landlock: the table of rights by ABI, and one function per call. Structures are written as bytes.

A right that the running kernel does not know makes the whole ruleset fail with EINVAL, so every mask goes through
`handled()` or `rights_mask()` first; what falls away there is for the caller to report.
"""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

from sbx.kernel.call import NUMBERS, syscall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

# (ABI that brought it, bit) by name, in the kernel's spelling
FS_RIGHTS = {
    "EXECUTE": (1, 1 << 0),
    "WRITE_FILE": (1, 1 << 1),
    "READ_FILE": (1, 1 << 2),
    "READ_DIR": (1, 1 << 3),
    "REMOVE_DIR": (1, 1 << 4),
    "REMOVE_FILE": (1, 1 << 5),
    "MAKE_CHAR": (1, 1 << 6),
    "MAKE_DIR": (1, 1 << 7),
    "MAKE_REG": (1, 1 << 8),
    "MAKE_SOCK": (1, 1 << 9),
    "MAKE_FIFO": (1, 1 << 10),
    "MAKE_BLOCK": (1, 1 << 11),
    "MAKE_SYM": (1, 1 << 12),
    "REFER": (2, 1 << 13),  # link and rename between directories; before ABI 2 always refused under Landlock
    "TRUNCATE": (3, 1 << 14),
    "IOCTL_DEV": (5, 1 << 15),
    "RESOLVE_UNIX": (9, 1 << 16),  # connecting to a socket with a path, made outside the domain
}
NET_RIGHTS = {
    "BIND_TCP": (4, 1 << 0),
    "CONNECT_TCP": (4, 1 << 1),
    "BIND_UDP": (10, 1 << 2),
    "CONNECT_SEND_UDP": (10, 1 << 3),
}
SCOPES = {
    "ABSTRACT_UNIX_SOCKET": (6, 1 << 0),
    "SIGNAL": (6, 1 << 1),
}
NEWEST_ABI = 10  # of this table; a newer kernel keeps accepting all of it

# The kernel refuses a rule on anything but a directory that carries other rights than these.
FILE_RIGHTS = 0
for _name in ("EXECUTE", "WRITE_FILE", "READ_FILE", "TRUNCATE", "IOCTL_DEV", "RESOLVE_UNIX"):
    FILE_RIGHTS |= FS_RIGHTS[_name][1]

# landlock_restrict_self() flags
LOG_SAME_EXEC_OFF = 1 << 0  # ABI 7
LOG_NEW_EXEC_ON = 1 << 1  # ABI 7
LOG_SUBDOMAINS_OFF = 1 << 2  # ABI 7
TSYNC = 1 << 3  # ABI 8: all threads of the process
_FLAG_ABI = ((LOG_SAME_EXEC_OFF, 7), (LOG_NEW_EXEC_ON, 7), (LOG_SUBDOMAINS_OFF, 7), (TSYNC, 8))

_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1
_RULE_NET_PORT = 2


def rights_mask(names: Iterable[str], abi: int) -> int:
    """The bits of these file system rights as far as `abi` has them. KeyError for a name that is no right."""
    mask = 0
    for name in names:
        since, bit = FS_RIGHTS[name]
        if since <= abi:
            mask |= bit
    return mask


def handled(abi: int) -> tuple[int, int, int]:
    """(file system, network, scopes): everything that `abi` can restrict."""
    return _all(FS_RIGHTS, abi), _all(NET_RIGHTS, abi), _all(SCOPES, abi)


def missing(abi: int) -> tuple[str, ...]:
    """What this table knows and `abi` cannot restrict, by name."""
    return tuple(name for table in (FS_RIGHTS, NET_RIGHTS, SCOPES) for name, (since, _) in table.items() if since > abi)


def restrict_flags(flags: int, abi: int) -> int:
    """Those of `flags` that `abi` knows."""
    for flag, since in _FLAG_ABI:
        if since > abi:
            flags &= ~flag
    return flags


def _all(table: dict[str, tuple[int, int]], abi: int) -> int:
    mask = 0
    for since, bit in table.values():
        if since <= abi:
            mask |= bit
    return mask


def ruleset_attr(fs: int, net: int = 0, scoped: int = 0) -> bytes:
    """struct landlock_ruleset_attr, as short as its content allows: an older kernel refuses longer ones (E2BIG)."""
    attr = fs.to_bytes(8, "little")
    if net or scoped:
        attr += net.to_bytes(8, "little")
    if scoped:
        attr += scoped.to_bytes(8, "little")
    return attr


def path_beneath_attr(access: int, parent_fd: int) -> bytes:
    """struct landlock_path_beneath_attr is packed: 12 bytes, where a compiler's own layout would make 16."""
    return access.to_bytes(8, "little") + parent_fd.to_bytes(4, "little", signed=True)


def net_port_attr(access: int, port: int) -> bytes:
    return access.to_bytes(8, "little") + port.to_bytes(8, "little")


def abi() -> int:
    """The running kernel's ABI. OSError ENOSYS: not built in; EOPNOTSUPP: built in but not enabled at boot."""
    return syscall("landlock_create_ruleset", NUMBERS["landlock_create_ruleset"], "lll", 0, 0, _CREATE_RULESET_VERSION)


def create_ruleset(fs: int, net: int = 0, scoped: int = 0) -> int:
    """A descriptor (close-on-exec) of a new ruleset that denies all of these until rules allow them."""
    attr = ruleset_attr(fs, net, scoped)
    return syscall("landlock_create_ruleset", NUMBERS["landlock_create_ruleset"], "zll", attr, len(attr), 0)


def add_path(ruleset_fd: int, path_fd: int, access: int, *, is_dir: bool = True, subject: object = "") -> None:
    """Allow `access` at and below `path_fd`. For a file, rights that only directories can have are left out."""
    if not is_dir:
        access &= FILE_RIGHTS
    if not access:
        return  # an empty rule is ENOMSG, and says nothing
    attr = path_beneath_attr(access, path_fd)
    number = NUMBERS["landlock_add_rule"]
    syscall("landlock_add_rule", number, "llzl", ruleset_fd, _RULE_PATH_BENEATH, attr, 0, subject=subject)


def add_port(ruleset_fd: int, port: int, access: int) -> None:
    attr = net_port_attr(access, port)
    number = NUMBERS["landlock_add_rule"]
    syscall("landlock_add_rule", number, "llzl", ruleset_fd, _RULE_NET_PORT, attr, 0, subject=port)


def restrict_self(ruleset_fd: int, flags: int = 0) -> None:
    """From here on this thread and its children are held to the ruleset. Needs no_new_privs."""
    syscall("landlock_restrict_self", NUMBERS["landlock_restrict_self"], "ll", ruleset_fd, flags)
