"""decide(): the one answer to "may it?", with the reasons."""

from __future__ import annotations

from sbx.model.glob import split_path
from sbx.model.location import real_location
from sbx.model.profile import EffectiveProfile
from sbx.model.records import dataclass
from sbx.model.rules import Access, Rule
from sbx.model.verdict import consult

ACCESSES = (Access.READ, Access.MODIFY, Access.EXEC)  # in the order of a judge


@dataclass(frozen=True, slots=True)
class ListVerdict:
    """What one rule list says: every rule that matched in order, and the last of them, which decides."""

    access: Access
    allowed: bool
    winner: Rule | None
    matches: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict on one path for one access. `lists` holds each rule list that was asked; all must allow."""

    path: str  # as asked
    location: str | None  # the real location; None when a symlink loop makes it unreachable
    access: Access
    allowed: bool
    lists: tuple[ListVerdict, ...]

    @property
    def failed(self) -> ListVerdict | None:
        """The first list that denied."""
        return next((verdict for verdict in self.lists if not verdict.allowed), None)

    @property
    def winner(self) -> Rule | None:
        """The rule that decided: of the list that denied, or of the access asked about."""
        failed = self.failed
        if failed is not None:
            return failed.winner
        return self.lists[-1].winner if self.lists else None


def decide(
    profile: EffectiveProfile, path: str, access: Access, *, cwd: str | None = None, follow: bool = True
) -> Decision:
    """May `access` to `path` happen under `profile`? Relative paths start at `cwd` (default: the workspace)."""
    location = real_location(path, profile.workspace if cwd is None else cwd, follow=follow)
    if location is None:
        return Decision(path, None, access, False, ())
    return decide_location(profile, location, access, asked=path)


def decide_location(profile: EffectiveProfile, location: str, access: Access, *, asked: str | None = None) -> Decision:
    """The same for a path whose real location is known."""
    lists = []
    for position, allowed, winner, matched in consult(profile.judge, ACCESSES.index(access), split_path(location)):
        rules = profile.rules(ACCESSES[position])
        decided_by = rules[winner] if winner >= 0 else None
        lists.append(ListVerdict(ACCESSES[position], allowed, decided_by, tuple(rules[index] for index in matched)))
    allowed = all(verdict.allowed for verdict in lists)
    return Decision(location if asked is None else asked, location, access, allowed, tuple(lists))
