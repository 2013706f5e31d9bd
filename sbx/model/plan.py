"""The plan: what will be done to the platform, as a value that prints and round-trips through JSON."""

from __future__ import annotations

from sbx.model.guarantee import Exactness
from sbx.model.profile import Environment, Limits, Network, Require
from sbx.model.records import dataclass
from sbx.model.str_enum import StrEnum


class Op(StrEnum):
    """One step of building the private root, in order. Paths are absolute, as the command will see them."""

    TMPFS = "tmpfs"  # a private empty directory, writable (/tmp, /dev/shm)
    PROC = "proc"
    DEV = "dev"  # /dev with the harmless nodes only
    SKELETON = "skeleton"  # a directory that exists only to lead somewhere; `listable` says whether it may be listed
    SYMLINK = "symlink"  # `source` is the link's text (/bin -> usr/bin)
    BIND_RO = "bind-ro"
    BIND_RW = "bind-rw"
    MASK = "mask"  # something exists here that may not be read
    MAKE_DIR = "make-dir"  # created in the real tree before the binds: a modify rule names it and it is not there
    PIN = "pin"  # bind a writable ancestor of a protected path onto itself, so that it cannot be renamed away


@dataclass(frozen=True, slots=True)
class Operation:
    op: Op
    path: str
    source: str = ""  # BIND_*: the real path on the host when it differs from `path`; SYMLINK: the link's text
    is_dir: bool = True
    listable: bool = True  # SKELETON, MASK: may it be listed?
    noexec: bool = False
    optional: bool = False  # skip when it has vanished meanwhile (snapshot entries)
    is_link: bool = False  # BIND_RO: the symlink itself, never its target, so that it cannot be removed or replaced
    populated: bool = False  # MASK: later operations stand inside it, so it needs a tmpfs of its own
    why: str = ""  # the deciding rule's text
    place: str = ""  # its file:line


@dataclass(frozen=True, slots=True)
class PathGrant:
    """A Landlock rule in words: rights are the names of the ABI table (READ_FILE, MAKE_REG, …)."""

    path: str
    rights: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuleGuarantee:
    """How exactly one rule is enforced on this platform."""

    rule: str
    access: str
    place: str
    exactness: Exactness
    mechanism: str
    note: str = ""
    exceptions: tuple[str, ...] = ()  # ids of sbx.planner.exceptions
    by_hand: tuple[str, ...] = ()  # those of them that are none where single names are made by hand


@dataclass(frozen=True, slots=True)
class DirectoryStamp:
    """A directory whose content the plan depends on, and how it looked.

    `ctime_ns` is -1 when the directory was changed so recently that its ctime proves nothing: never up to date.
    """

    path: str
    dev: int
    ino: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything one launch does, for one platform. Data only: no descriptors, no callables."""

    platform: str
    backend: str  # namespaces | landlock | sandbox-exec | job-object
    profile: str
    workspace: str
    cwd: str
    operations: tuple[Operation, ...]
    grants: tuple[PathGrant, ...]
    network: Network
    env: Environment
    limits: Limits
    require: Require
    guarantees: tuple[RuleGuarantee, ...] = ()
    looked_at: tuple[DirectoryStamp, ...] = ()
    missing: tuple[str, ...] = ()  # paths that were looked for and absent: their appearance makes the plan stale
    # Shown read-only, though some names in them may be modified: what a hand outside does, where there is one.
    single_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()  # why `require: full` cannot run this plan
