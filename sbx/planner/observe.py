"""What the walk learned about each rule: where the kernel's verdict is not exactly the rule's."""

from __future__ import annotations

from sbx.model.plan import Plan, RuleGuarantee
from sbx.model.profile import EffectiveProfile
from sbx.model.records import replace
from sbx.model.rules import Access, Origin, Rule
from sbx.planner.exceptions import sentences, weakest
from sbx.planner.states import MODIFIABLE, Continuation, State

ACCESSES = (Access.READ, Access.MODIFY, Access.EXEC)
_READ, _MODIFY, _EXEC = range(3)


class Observations:
    """Exceptions by rule, `(access, index)`, gathered while walking."""

    def __init__(self, profile: EffectiveProfile) -> None:
        self._profile = profile
        self._found: dict[tuple[int, int], set[str]] = {}
        self._stay: dict[tuple[int, int], set[str]] = {}  # those that no hand outside makes good
        self._done: set[tuple[int, bool, bool]] = set()
        self.unlistable: list[str] = []

    def note(self, access: int, rule: int, exception: str, *, by_hand: bool = False) -> None:
        if rule >= 0:
            self._found.setdefault((access, rule), set()).add(exception)
            if not by_hand:
                self._stay.setdefault((access, rule), set()).add(exception)

    def names_to_come(self, state: State, bound: bool, writable: bool) -> None:
        """Wildcards that could match names which appear later in a directory shown like this."""
        key = (id(state), bound, writable)
        if key in self._done:
            return
        self._done.add(key)
        for access in (_READ, _MODIFY, _EXEC):
            for each in state.below[access].continuations:
                if not each.names:
                    self._later(access, each, bound, writable, "snapshot-grant")

    def missing_name(self, state: State, name: str, bound: bool, writable: bool) -> None:
        """A name that rules spell out and that is not there."""
        for access, each in state.spelling(name):
            self._later(access, each, bound, writable, "missing-grant")

    def _later(self, access: int, each: Continuation, bound: bool, writable: bool, grant: str) -> None:
        if not each.negated:
            if not (writable if access == _MODIFY else bound and access == _READ):
                self.note(access, each.rule, grant, by_hand=bound and access == _MODIFY)
        elif writable:
            self.note(access, each.rule, "snapshot-deny")
        elif bound and access != _MODIFY:
            self.note(access, each.rule, "snapshot-deny-outside")

    def directory_itself(self, state: State, writable: bool, *, by_hand: bool = False) -> None:
        if state.verdict == MODIFIABLE and not writable:
            self.note(_MODIFY, state.winner(_MODIFY), "directory-itself", by_hand=by_hand)

    def file_in_place(self, state: State, *, by_hand: bool = False) -> None:
        self.note(_MODIFY, state.winner(_MODIFY), "mount-point-stays", by_hand=by_hand)

    def exceptions_of(self, access: int, rule: int) -> tuple[str, ...]:
        return tuple(sorted(self._found.get((access, rule), ())))

    def guarantees(self, mechanism: str) -> tuple[RuleGuarantee, ...]:
        """One per rule that is not the baseline's."""
        return tuple(
            self._guarantee(number, index, rule, mechanism)
            for number, access in enumerate(ACCESSES)
            for index, rule in enumerate(self._profile.rules(access))
            if rule.origin is not Origin.BASELINE
        )

    def _guarantee(self, number: int, index: int, rule: Rule, mechanism: str) -> RuleGuarantee:
        ids = self.exceptions_of(number, index)
        made_good = tuple(each for each in ids if each not in self._stay.get((number, index), ()))
        return RuleGuarantee(
            str(rule), rule.access.value, rule.source.place, weakest(ids), mechanism, sentences(ids), ids, made_good
        )


def as_enforced(plan: Plan, *, listening: bool, by_hand: bool) -> Plan:
    """The plan with its rules as exact as they are where a listener judges names made during the run, and a hand
    outside makes those that are granted one by one."""

    def held(each: RuleGuarantee) -> RuleGuarantee:
        made_good = set(each.by_hand) if by_hand else set()
        left = set(each.exceptions) - made_good
        if made_good and not any(sign in each.rule.removesuffix("/**") for sign in "*?["):
            left.add("own-path-link")  # the rule spells its path out
        if listening and each.access != Access.EXEC and "snapshot-deny" in left:
            left = {*left - {"snapshot-deny"}, "snapshot-deny-outside"}  # the command cannot make it, others could
        ids = tuple(sorted(left))
        if ids == each.exceptions:
            return each
        mechanism = f"{each.mechanism} and listener"
        return replace(each, exactness=weakest(ids), mechanism=mechanism, note=sentences(ids), exceptions=ids)

    return replace(plan, guarantees=tuple(held(each) for each in plan.guarantees))
