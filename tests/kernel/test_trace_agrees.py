"""Traced runs over random policies: every denial that a probe provokes is told with its rule, and none invented."""

from __future__ import annotations

import errno
import marshal
import os
import tempfile
from pathlib import Path

import pytest
from agreement import PROBE, Comparison, Need
from capabilities import requires
from file_operations import Operation, perform
from hypothesis import HealthCheck, assume, example, given, note, settings
from random_policies import DIRECTORY, FILE, SYMLINK, Case, Node, cases
from sandboxed import PYTHON, Rules, run_compiled

from sbx.errors import PolicyError
from sbx.model.decide import ACCESSES, decide_location
from sbx.model.result import Denial
from sbx.model.verdict import READ
from sbx.report.denials import access_of, judged
from sbx.report.view import view_of

POLICIES = 200

# What was denied has another kind, or other permissions, when the run is over and its denials are judged.
SOMETHING_ELSE_AFTERWARDS = Case(
    (*(Node(name, FILE) for name in (b"a", b"b", b"c", b"d")), Node(b"e", DIRECTORY), Node(b"f", DIRECTORY)),
    Rules(modify=("./**",), exec=("/**", "!./**")),
    (
        *(("execute", name) for name in (b"a", b"b", b"c", b"d", b"e")),
        ("unlink", b"a"),
        ("rename", b"f", b"a"),
        ("unlink", b"b"),
        ("symlink", b"b", b"c"),
        ("chmod", b"c"),
        ("exchange", b"d", b"e"),
        ("execute", b"e"),
    ),
)

# The same operation on the same path: first in vain, since there is nothing, then refused by the rules.
IN_VAIN_AND_THEN_DENIED = Case(
    (Node(b"a", FILE), Node(b"b", DIRECTORY), Node(b"b/b", DIRECTORY)),
    Rules(read=("./b/b", "./a"), modify=("./a", "./b/b")),
    (("rename", b"b/c", b"a"), ("rename-noreplace", b"a", b"b/c")),
)

# The folder has become a link that leads nowhere.
THE_FOLDER_IS_A_LINK_BY_NOW = Case(
    (Node(b"b", DIRECTORY), Node(b"c", SYMLINK, b"../nowhere")),
    Rules(read=("./**", "!./**/a"), modify=("./**",)),
    (("mkfifo", b"b/a"), ("exchange", b"c", b"b")),
)


class Traced(Comparison):
    """The same case, with the listener looking on."""

    trace = True

    def faults(self) -> list[str]:
        """What was missed, and what was invented."""
        request = marshal.dumps((os.fsencode(self.workspace), list(self.case.operations)))
        ended = run_compiled(self.compiled, [*PYTHON, "-c", PROBE], stdin=request)
        assert ended.status == 0, (ended.status, ended.stderr.decode(errors="replace"))
        counts, unseen, left_out = ended.outcome["counted"]
        assert (unseen, left_out) == (0, 0)
        view = view_of(self.profile, self.compiled.policy)
        denials, _ = judged(view, ended.outcome.get("denied", []), counts, "/usr")
        told = {(access_of(each.operation), each.path): each for each in denials if self._is_ours(each.path)}
        found = [fault for each in told.values() for fault in self._wrong_rule(each)]
        refused: set[tuple[int, str]] = set()
        for operation, inside in zip(self.case.operations, marshal.loads(ended.stdout), strict=True):
            denied = {(ACCESSES.index(need.access), need.place) for need in self._denied(operation)}
            if inside and operation[0] == "bind":  # the probe enters the folder first, which may be what is denied
                above = {(READ, os.path.dirname(need.place)) for need in self.needs(operation)}
                refused |= above
                denied |= above if denied else set()
            if denied and inside:
                refused |= denied
                if not denied & told.keys() and self._would(operation) == 0:
                    found.append(f"missed: {operation} {errno.errorcode.get(inside, inside)}, denied {sorted(denied)}")
            elif inside == 0:
                perform(os.fsencode(self.copy), operation)
        return found + [f"invented: {told[key]}" for key in sorted(told.keys() - refused)]

    def _is_ours(self, path: str) -> bool:
        return path == self.workspace or path.startswith(self.workspace + "/")

    def _denied(self, operation: Operation) -> list[Need]:
        return [need for need in self.needs(operation) if not self.allows(need)]

    def _wrong_rule(self, denial: Denial) -> list[str]:
        decision = decide_location(self.profile, denial.path, ACCESSES[access_of(denial.operation)])
        rule = "" if decision.winner is None else str(decision.winner)
        place = "" if decision.winner is None else f"{decision.winner.source.file}:{decision.winner.source.line}"
        if decision.allowed or denial.rule != rule or denial.place != place:
            return [f"wrong rule: {denial}, not {rule} at {place}"]
        return []


@requires("userns", "seccomp", landlock=1)
@pytest.mark.timeout(3600)
def test_every_denial_is_told_and_none_invented() -> None:
    @settings(max_examples=POLICIES, suppress_health_check=list(HealthCheck))
    @example(case=SOMETHING_ELSE_AFTERWARDS)
    @example(case=IN_VAIN_AND_THEN_DENIED)
    @example(case=THE_FOLDER_IS_A_LINK_BY_NOW)
    @given(case=cases(new_names=True))
    def told(case: Case) -> None:
        with tempfile.TemporaryDirectory() as folder:
            try:
                traced = Traced(case, Path(folder), None)
            except PolicyError:
                assume(False)
            found = traced.faults()
        for node in case.nodes:
            note(f"{node}")
        note(f"{case.rules}")
        assert found == []

    told()
