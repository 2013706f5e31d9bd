"""sbx: run one command under a policy that the kernel enforces.

The public names resolve on first use, because importing them all would cost more than a run.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.backends.wrapped import WrappedCommand as WrappedCommand
    from sbx.errors import CommandFailed as CommandFailed
    from sbx.errors import Denied as Denied
    from sbx.errors import PolicyError as PolicyError
    from sbx.errors import SandboxUnavailable as SandboxUnavailable
    from sbx.errors import SbxError as SbxError
    from sbx.errors import SetupFailed as SetupFailed
    from sbx.errors import UnknownProfile as UnknownProfile
    from sbx.errors import UntrustedPolicy as UntrustedPolicy
    from sbx.errors import UsageError as UsageError
    from sbx.library.api import aprobe as aprobe
    from sbx.library.api import arun as arun
    from sbx.library.api import decide as decide
    from sbx.library.api import enforce as enforce
    from sbx.library.api import probe as probe
    from sbx.library.api import run as run
    from sbx.library.ending import shutdown as shutdown
    from sbx.library.pytests import SandboxPolicy as SandboxPolicy
    from sbx.library.pytests import SandboxResultV2 as SandboxResultV2
    from sbx.library.pytests import run_pytests as run_pytests
    from sbx.library.pytests import run_pytests_v2 as run_pytests_v2
    from sbx.library.session import Session as Session
    from sbx.library.types import Enforcement as Enforcement
    from sbx.library.types import OnUnavailable as OnUnavailable
    from sbx.library.types import SandboxProfile as SandboxProfile
    from sbx.model.decide import Decision as Decision
    from sbx.model.guarantee import Applied as Applied
    from sbx.model.profile import Limits as Limits
    from sbx.model.result import Denial as Denial
    from sbx.model.result import Result as Result
    from sbx.model.result import Status as Status
    from sbx.model.result import Usage as Usage
    from sbx.model.rules import Access as Access

    __version__: str

_PLACES = {
    "sbx.backends.wrapped": ("WrappedCommand",),
    "sbx.errors": (
        "CommandFailed", "Denied", "PolicyError", "SandboxUnavailable", "SbxError", "SetupFailed", "UnknownProfile",
        "UntrustedPolicy", "UsageError",
    ),
    "sbx.library.api": ("aprobe", "arun", "decide", "enforce", "probe", "run"),
    "sbx.library.ending": ("shutdown",),
    "sbx.library.pytests": ("SandboxPolicy", "SandboxResultV2", "run_pytests", "run_pytests_v2"),
    "sbx.library.session": ("Session",),
    "sbx.library.types": ("Enforcement", "OnUnavailable", "SandboxProfile"),
    "sbx.model.decide": ("Decision",),
    "sbx.model.guarantee": ("Applied",),
    "sbx.model.profile": ("Limits",),
    "sbx.model.result": ("Denial", "Result", "Status", "Usage"),
    "sbx.model.rules": ("Access",),
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "__version__":
        from sbx.version import VERSION

        return VERSION
    for place, names in _PLACES.items():
        if name in names:
            value: object = getattr(__import__(place, fromlist=[name]), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module 'sbx' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *(name for names in _PLACES.values() for name in names)})
