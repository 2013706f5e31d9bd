"""What one policy file says, and what all of them say together. Nothing here is expanded or resolved yet."""

from __future__ import annotations

from sbx.model.profile import Environment, FutureDenies, Limits, Network, Require
from sbx.model.records import dataclass, field
from sbx.model.source import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Layers, weakest first. `option` is the command line, `sbx` is what the program itself adds.
SHIPPED, SYSTEM, USER, WORKSPACE = "shipped", "system", "user", "workspace"
BASELINE, OPTION, SBX = "baseline", "option", "sbx"

NO_ENVIRONMENT = Environment()
NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Written:
    """A text and the place it was written at: a rule, a profile's name in `extends`."""

    text: str
    source: Source


@dataclass(frozen=True, slots=True)
class ProfileSource:
    """One profile as a layer wrote it. None and empty mean "says nothing", so that `extends` can fill in."""

    name: str
    layer: str
    source: Source
    description: str = ""
    extends: Written | None = None
    read: tuple[Written, ...] = ()
    modify: tuple[Written, ...] = ()
    exec: tuple[Written, ...] | None = None
    state_folders: tuple[Written, ...] = ()
    network: Network | None = None
    env: Environment = NO_ENVIRONMENT
    limits: Limits = NO_LIMITS
    require: Require | None = None
    future_denies: FutureDenies | None = None
    replaces: ProfileSource | None = None  # the profile of this name in the weaker layers


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One entry of `tests:`: what the policy's author expects."""

    profile: str
    path: str
    read: bool | None
    modify: bool | None
    source: Source


@dataclass(frozen=True, slots=True)
class Specials:
    """Places the planner makes instead of showing the host's: data of the baseline."""

    proc: tuple[str, ...] = ()
    dev: tuple[str, ...] = ()
    tmpfs: tuple[str, ...] = ()  # private, empty, writable


@dataclass(frozen=True, slots=True)
class Baseline:
    read: tuple[Written, ...] = ()
    modify: tuple[Written, ...] = ()
    env: Environment = NO_ENVIRONMENT
    specials: Specials = Specials()


@dataclass(frozen=True, slots=True)
class FileStamp:
    """Which file was read, and how it looked then: enough to know that it is unchanged."""

    path: str
    dev: int
    ino: int
    mtime_ns: int
    ctime_ns: int
    size: int


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """One policy file, validated. `sha256` is of the very bytes that were parsed."""

    path: str
    layer: str
    sha256: str
    stamp: FileStamp
    profiles: tuple[ProfileSource, ...] = ()
    deny_read: tuple[Written, ...] = ()
    deny_modify: tuple[Written, ...] = ()
    shipped_denies: bool | None = None
    tests: tuple[PolicyTest, ...] = ()
    baseline: Baseline | None = None
    racy: bool = False  # changed so shortly before it was read that its stamp may not tell a second change


@dataclass(frozen=True, slots=True)
class RunRules:
    """What the command line adds for one run. None leaves the profile's own."""

    read: tuple[str, ...] = ()
    modify: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()  # onto both lists
    allow: tuple[Written, ...] = ()  # narrow write allowances after the shipped denies: a coding agent's side roots
    network: Network | None = None
    env: Environment = NO_ENVIRONMENT
    limits: Limits = NO_LIMITS
    require: Require | None = None
    future_denies: FutureDenies | None = None


@dataclass(frozen=True, slots=True)
class Adapted:
    """A command as sbx runs it: its arguments, the allowances they ask for, and what to tell the caller."""

    argv: tuple[str, ...]
    modify_rules: tuple[str, ...]  # rule texts: allowances, after the shipped denies
    notes: tuple[str, ...]


NO_OPTIONS = RunRules()


@dataclass(frozen=True, slots=True)
class Policy:
    """All layers, merged by name; the rules still as written."""

    workspace: str  # real path
    cwd: str
    files: tuple[PolicyFile, ...]  # weakest first
    profiles: dict[str, ProfileSource]
    trusted: bool = True  # False only when loaded with trust=False and nobody approved the workspace's file
    workspace_file: str | None = None
    missing_files: tuple[str, ...] = ()  # looked for and absent: their appearance changes the policy
    own_folders: tuple[tuple[str, str], ...] = ()  # (what, path): sbx's configuration, trust, cache, audit
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def baseline(self) -> Baseline:
        return next((file.baseline for file in self.files if file.baseline is not None), Baseline())

    @property
    def baseline_specials(self) -> Specials:
        return self.baseline.specials

    @property
    def shipped_denies(self) -> bool:
        """Only the system's and the user's file may say no; the schema refuses it elsewhere."""
        said = [file.shipped_denies for file in self.files if file.shipped_denies is not None]
        return said[-1] if said else True

    @property
    def paths(self) -> tuple[str, ...]:
        """The files a person wrote, weakest first."""
        return tuple(file.path for file in self.files if file.layer != SHIPPED)
