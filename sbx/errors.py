"""Every error a person can meet: what, where, why, what to do now.

Raised anywhere, printed only by `sbx.__main__`. Plain classes without dataclasses or enum, because the launch side
imports this file on every start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbx.model.result import Result
    from sbx.model.source import Source

EXIT_USAGE = 2  # commands other than run and sh
EXIT_INTERNAL = 125  # run and sh: any failure of sbx itself
EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127


class SbxError(Exception):
    """A failure with words for people. `str(error)` is one line: `file:line:column: what; remedy`."""

    slug = "error"
    exit_code = EXIT_INTERNAL

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        source: Source | None = None,
        details: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.source = source
        self.details = tuple(details)

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source is not None else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{where}{self.message}{remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.remedy, self.source, self.details))


def _rebuild(
    kind: type[SbxError], message: str, remedy: str, source: Source | None, details: Sequence[str]
) -> SbxError:
    return kind(message, remedy=remedy, source=source, details=details)


class UsageError(SbxError):
    """The command line itself is wrong."""

    slug = "usage"


class PolicyError(SbxError):
    """A policy file that cannot be used: nothing of it is applied."""

    slug = "policy_invalid"


class UntrustedPolicy(SbxError):
    """A workspace policy that nobody approved yet."""

    slug = "policy_untrusted"


class UnknownProfile(SbxError):
    slug = "profile_unknown"


class SandboxUnavailable(SbxError):
    """The platform cannot enforce what was asked for."""

    slug = "spawn_sandbox_unavailable"

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        source: Source | None = None,
        details: Sequence[str] = (),
        platform: str = "",
        reason: str = "",
    ) -> None:
        super().__init__(message, remedy=remedy, source=source, details=details)
        self.platform = platform
        self.reason = reason


class SetupFailed(SbxError):
    """A set-up step of the sandbox failed; the command was not started."""

    slug = "sandbox_setup_failed"


class CommandNotFound(SbxError):
    slug = "command_not_found"
    exit_code = EXIT_NOT_FOUND


class CommandNotExecutable(SbxError):
    slug = "command_not_executable"
    exit_code = EXIT_NOT_EXECUTABLE


class Denied(SbxError):
    """Raised by `sbx.enforce()`: the policy does not allow this access."""

    slug = "denied"
    exit_code = 1


class CommandFailed(SbxError):
    """Raised by the library with `check=True`: the command ended in another way than with status 0."""

    slug = "command_failed"

    def __init__(self, result: Result) -> None:
        super().__init__(f"{result.cmd[0]}: {result.reason}", remedy="its output is in the error's result")
        self.result = result
        self.exit_code = result.rc

    def __reduce__(self) -> tuple[object, ...]:
        return (CommandFailed, (self.result,))


class Interrupted(SbxError):
    """sbx was stopped by a signal before the command ran."""

    slug = "interrupted"
