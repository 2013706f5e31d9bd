"""Plans made ready once and used often: the compiled policy, its template, and what both were made from."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbx.launch import root, store
from sbx.launch.rlimits import RLIMIT_NPROC
from sbx.launch.template import fits
from sbx.library.launcher import Template
from sbx.library.shared import Spares
from sbx.supervise.compile import Compiled, capabilities_for_a_guest, compile_run

assert sys.platform == "linux"  # for type checkers on other platforms

if TYPE_CHECKING:
    from sbx.launch.perform import Prepared
    from sbx.model.profile import EffectiveProfile

SETTLED_S = 3  # a folder that changed less ago may change again without its clock moving on
KEPT = 8  # templates of one process: each is a small process that holds some mounts

Place = tuple[bytes, tuple[int, int] | None]


class Absences:
    """Names that a plan depends on not being there: folder by folder, since a folder that did not change has no new
    ones. `others` are the plan's other dependencies."""

    def __init__(self, dependencies: tuple[tuple[Any, ...], ...]) -> None:
        self.others = tuple(each for each in dependencies if each[0] != store.ABSENT)
        self._folders: dict[bytes, list[tuple[Any, ...]]] = {}
        for each in dependencies:
            if each[0] == store.ABSENT:
                self._folders.setdefault(each[1].rpartition(b"/")[0] or b"/", []).append(each)
        self._seen: dict[bytes, tuple[int, int, int]] = {}

    def hold(self, environ: dict[bytes, bytes]) -> bool:
        for folder, names in self._folders.items():
            try:
                found = os.stat(folder)
            except OSError:
                continue  # no folder, no names
            stamp = (found.st_ctime_ns, found.st_ino, found.st_dev)
            if self._seen.get(folder) == stamp:
                continue
            if not store.unchanged(tuple(names), environ):
                return False
            if time.time() - found.st_ctime > SETTLED_S:
                self._seen[folder] = stamp
        return True


@dataclass(eq=False)
class ReadyPlan:
    """`places` are the bound files and folders as they were: one that was replaced meanwhile must be bound anew."""

    prepared: Prepared
    profile: EffectiveProfile
    dependencies: tuple[tuple[Any, ...], ...] | None
    places: tuple[Place, ...]
    fits: bool  # can sandboxes be made from a template?
    spares: Spares = field(default_factory=Spares)
    environment: Any = None  # what the last caller's environment became (see running)
    _absences: Absences = field(init=False)
    _template: Template | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._absences = Absences(self.dependencies or ())

    def current(self, environ: dict[bytes, bytes]) -> bool:
        """Is everything it was made from as it was?"""
        if self.dependencies is None or not store.unchanged(self._absences.others, environ):
            return False
        if not self._absences.hold(environ):
            return False
        return all(identity(path) == known for path, known in self.places)

    def template(self, *, renew: bool = False) -> Template | None:
        """Where fresh sandboxes come from; None where each has to be built from the ground."""
        if not self.fits:
            return None
        with self._lock:
            if self._template is None or renew or not self._template.alive():
                self._template = Template(dict(self.prepared["launch"]))
            return self._template

    @property
    def watched(self) -> bool:
        """Does a run need more around it than a sandbox: a cgroup, sampling, a proxy?"""
        prepared = self.prepared
        return bool(prepared["cgroup"] or prepared["sample"] or prepared["network"][0] == "allow")


def identity(path: bytes) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino)


def make_ready(compiled: Compiled) -> ReadyPlan:
    binds = (root.BIND_RO, root.BIND_RW, root.PIN)
    operations = compiled.prepared["launch"]["operations"]
    sources = {source or path for code, path, source, _ in operations if code in binds}
    places = tuple((source, identity(source)) for source in sorted(sources))
    # RLIMIT_NPROC counts per user namespace: sandboxes of one template would count together.
    counts_together = any(row[0] == RLIMIT_NPROC for row in compiled.prepared["rlimits"])
    fitting = not counts_together and fits(compiled.prepared["launch"])
    return ReadyPlan(compiled.prepared, compiled.profile, compiled.dependencies, places, fitting)


def compile_plan(options: Mapping[str, Any], cwd: str, environ: Mapping[str, str]) -> ReadyPlan:
    return make_ready(compile_run(options, cwd=cwd, environ=environ, machine=capabilities_for_a_guest()))


class PlanCache:
    """The plans of `sbx.run`, the most recently used ones."""

    def __init__(self) -> None:
        self._plans: OrderedDict[bytes, ReadyPlan] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, options: dict[str, Any], cwd: str, environ: dict[bytes, bytes]) -> ReadyPlan | None:
        """One that is there and still good."""
        key = store.make_key(options, os.fsencode(cwd), environ)
        with self._lock:
            plan = self._plans.get(key)
        return plan if plan is not None and plan.current(environ) else None

    def get(self, options: dict[str, Any], cwd: str, environ: dict[bytes, bytes]) -> ReadyPlan:
        """Raises SbxError; nothing was started."""
        key = store.make_key(options, os.fsencode(cwd), environ)
        with self._lock:
            plan = self._plans.get(key)
        if plan is None or not plan.current(environ):
            text = {os.fsdecode(name): os.fsdecode(value) for name, value in environ.items()}
            plan = compile_plan(options, cwd, text)
            with self._lock:
                gone = [self._plans.pop(key)] if key in self._plans else []
                self._plans[key] = plan
                while len(self._plans) > KEPT:
                    gone.append(self._plans.popitem(last=False)[1])
            for old in gone:
                old.spares.close()
        with self._lock:
            if key in self._plans:
                self._plans.move_to_end(key)
        return plan

    def clear(self) -> None:
        with self._lock:
            gone = list(self._plans.values())
            self._plans.clear()
        for old in gone:
            old.spares.close()


PLANS = PlanCache()
