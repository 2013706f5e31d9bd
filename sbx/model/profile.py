"""The effective profile: everything one run is held to, with nothing left to look up."""

from __future__ import annotations

from sbx.model.records import dataclass, field, replace
from sbx.model.rules import Access, Rule
from sbx.model.source import Source
from sbx.model.str_enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.model.verdict import Judge


class NetworkMode(StrEnum):
    NONE = "none"
    HOST = "host"
    ALLOW = "allow"


@dataclass(frozen=True, slots=True)
class Network:
    """What the command may reach. `allow` entries are normalized `host:port` texts with their sources."""

    mode: NetworkMode = NetworkMode.NONE
    allow: tuple[tuple[str, Source], ...] = ()
    source: Source | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Which variables reach the command. Names in `pass_names` and `secret` may be globs (`CARGO_*`)."""

    pass_names: tuple[str, ...] = ()
    set_values: tuple[tuple[str, str], ...] = ()
    secret: tuple[str, ...] = ()
    pass_all: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """None is "no limit", except for `grace_s`, which has a default of its own."""

    wall_s: float | None = None
    cpu_s: float | None = None
    memory_bytes: int | None = None
    pids: int | None = None
    nofile: int | None = None
    stdout_bytes: int | None = None
    stderr_bytes: int | None = None
    grace_s: float | None = None

    def over(self, weaker: Limits) -> Limits:
        """These limits, and those of `weaker` where these say nothing."""
        mine = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        return replace(weaker, **mine)


DEFAULT_GRACE_S = 5.0
# Fewer open files, and the sandbox cannot be set up around the command, or the command's own libraries not be loaded.
LEAST_NOFILE = 16


class Require(StrEnum):
    FULL = "full"
    PARTIAL = "partial"


class FutureDenies(StrEnum):
    """What if a deny cannot be held for names that appear during the run?"""

    BEST = "best"  # report it as a snapshot
    REQUIRED = "required"  # refuse to run


@dataclass(frozen=True, slots=True)
class EffectiveProfile:
    """The rule lists in order of evaluation, and the rest of the policy for one run."""

    name: str
    workspace: str
    read: tuple[Rule, ...]
    modify: tuple[Rule, ...]
    exec: tuple[Rule, ...] | None = None
    description: str = ""
    source: Source | None = None
    network: Network = Network()
    env: Environment = Environment()
    limits: Limits = Limits()
    require: Require = Require.FULL
    future_denies: FutureDenies = FutureDenies.BEST
    policy_files: tuple[str, ...] = ()  # the files in force, weakest first
    variables: tuple[tuple[str, str | None], ...] = ()  # what ${VAR} and ~ were expanded from
    resolved: tuple[tuple[str, str], ...] = ()  # rule prefix as written -> its real location
    judge: Judge = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        execs = None if self.exec is None else tuple(rule.compiled for rule in self.exec)
        lists = (tuple(rule.compiled for rule in self.read), tuple(rule.compiled for rule in self.modify), execs)
        object.__setattr__(self, "judge", lists)

    def rules(self, access: Access) -> tuple[Rule, ...]:
        if access is Access.READ:
            return self.read
        if access is Access.MODIFY:
            return self.modify
        return self.exec if self.exec is not None else ()
