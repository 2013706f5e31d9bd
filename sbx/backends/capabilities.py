"""What this machine can enforce: a value that can be printed, stored and compared, with the reason for every lack."""

from __future__ import annotations

from sbx.model.records import asdict, dataclass
from sbx.policy.digest import sha256_hex

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAMESPACES = ("userns", "mount_ns", "pid_ns", "net_ns", "ipc_ns", "uts_ns", "cgroup_ns")
# Without one of these the private root cannot be built as designed.
PRIVATE_ROOT = ("mounts", "pivot_root", "proc_mount")


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a mechanism is missing: the kernel's own answer, what it means here, and what to do."""

    mechanism: str
    errno: str  # ENOSYS, EPERM, …; empty where no call failed
    words: str
    remedy: str = ""
    needs: str = ""  # not tried: this other mechanism, which is missing, comes first


@dataclass(frozen=True, slots=True)
class Capabilities:
    kernel: str = ""
    machine: str = ""
    uid: int = 0
    in_container: bool = False
    userns: bool = False
    mount_ns: bool = False
    pid_ns: bool = False
    net_ns: bool = False
    ipc_ns: bool = False
    uts_ns: bool = False
    cgroup_ns: bool = False
    mounts: bool = False  # tmpfs and read-only binds
    mount_api: bool = False  # open_tree, move_mount and mount_setattr: recursive read-only in one call
    pivot_root: bool = False
    proc_mount: bool = False  # a /proc of the new pid namespace
    landlock_abi: int = 0
    seccomp: bool = False
    user_notif: bool = False
    notif_flags: tuple[str, ...] = ()  # addfd, addfd_send, sync_wake_up, wait_killable
    cgroup_path: str = ""  # a cgroup v2 folder in which sbx may make its own
    cgroup_mechanism: str = ""  # direct | systemd (a scope for each run) | ""
    cgroup_controllers: tuple[str, ...] = ()  # those a folder made there gets
    pidfd: bool = False
    close_range: bool = False
    reasons: tuple[Reason, ...] = ()

    @property
    def namespaces(self) -> bool:
        """The private root with its own processes and network can be built."""
        return all(getattr(self, name) for name in (*NAMESPACES, *PRIVATE_ROOT) if name != "cgroup_ns")

    @property
    def landlock(self) -> bool:
        return self.landlock_abi > 0

    @property
    def backend(self) -> str:
        """namespaces | landlock | none: the strongest way to hold a command to a policy here."""
        if self.namespaces and self.seccomp:
            return "namespaces"
        return "landlock" if self.landlock and self.seccomp else "none"

    @property
    def full(self) -> bool:
        """Can everything a profile may ask of files, network and processes be enforced? Limits have their own ways."""
        return self.backend == "namespaces"

    def reason(self, mechanism: str) -> Reason | None:
        return next((reason for reason in self.reasons if reason.mechanism == mechanism), None)

    def to_tuple(self) -> tuple[Any, ...]:
        """Plain values in field order, for `marshal`."""
        plain = [getattr(self, name) for name in self.__slots__ if name != "reasons"]
        return (
            *plain,
            tuple((each.mechanism, each.errno, each.words, each.remedy, each.needs) for each in self.reasons),
        )

    @classmethod
    def from_tuple(cls, values: tuple[Any, ...]) -> Capabilities:
        """The reverse; ValueError for what another version wrote."""
        if len(values) != len(cls.__slots__):
            raise ValueError("these capabilities were stored by another version")
        named = dict(zip(cls.__slots__, values, strict=True))
        return cls(**{**named, "reasons": tuple(Reason(*each) for each in values[-1])})

    def to_json(self) -> str:
        import json

        summary = {"full": self.full, "backend": self.backend}
        return json.dumps({**summary, **asdict(self)}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Capabilities:
        import json

        data = json.loads(text)
        values = {name: data[name] for name in cls.__slots__}
        for name in ("notif_flags", "cgroup_controllers"):
            values[name] = tuple(values[name])
        values["reasons"] = tuple(Reason(**each) for each in values["reasons"])
        return cls(**values)

    def fingerprint(self) -> str:
        """Equal for equal abilities: a stored plan is good while this is unchanged. The words do not count."""
        return sha256_hex(repr(self.to_tuple()[:-1]).encode())[:32]
