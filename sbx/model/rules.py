"""A rule: a glob with a sign, an access it speaks of, and the place it was written at."""

from __future__ import annotations

from sbx.model.glob import match
from sbx.model.records import dataclass
from sbx.model.source import Source
from sbx.model.str_enum import StrEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.model.glob import Pattern
    from sbx.model.verdict import CompiledRule


class Access(StrEnum):
    READ = "read"
    MODIFY = "modify"
    EXEC = "exec"


class Origin(StrEnum):
    """Which part of the effective list a rule belongs to; the order is the order of evaluation."""

    BASELINE = "baseline"
    EXTENDS = "extends"
    PROFILE = "profile"
    OPTION = "option"  # --read, --modify for this run
    SHIPPED_DENY = "shipped deny"
    ALLOWANCE = "allowance"  # the shipped agent profile's state folders: after the shipped denies, before the user's
    DENY = "deny"  # denyRead, denyModify of any layer, --deny
    ALWAYS = "always"  # the policy files in force, sbx's own folders


@dataclass(frozen=True, slots=True)
class Rule:
    """One expanded rule. `text` is what the person wrote; `patterns` are absolute and resolved.

    More than one pattern where the text names a symlink: the link's own place and what it points to.
    """

    text: str
    negated: bool
    access: Access
    origin: Origin
    source: Source
    patterns: tuple[Pattern, ...]

    def matches(self, names: tuple[str, ...]) -> bool:
        return any(match(pattern, names) for pattern in self.patterns)

    @property
    def compiled(self) -> CompiledRule:
        return (self.negated, self.patterns)

    def __str__(self) -> str:
        return f"!{self.text}" if self.negated else self.text
