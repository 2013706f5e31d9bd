"""The compile side's modules in one file, for the first run of a new policy: as `bundle` is for every other run.

Kept in the store, under a key of the installation and with the stamps of its folders, so whatever holds for a stored
plan holds for it. As in the bundle the code lacks its lines; with SBX_DEBUG the files are imported, which have them.
"""

from __future__ import annotations

import marshal
import sys

from sbx.kernel import system as os
from sbx.launch import store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType, ModuleType
    from typing import Any

    Row = tuple[str, bool, bytes]  # file, is it a package, its marshalled code: most runs need only some of them

# What a plain first run imports beyond the hot path (a test compares), roughly in the order of the imports.
MODULES = (
    "sbx.cli", "sbx.cli.main", "sbx.cli.commands", "sbx.cli.run",
    "sbx.supervise", "sbx.backends", "sbx.model.records", "sbx.policy", "sbx.policy.digest",
    "sbx.backends.capabilities", "sbx.kernel.machine", "sbx.kernel.own_folder", "sbx.policy.folders",
    "sbx.backends.capability_cache", "sbx.kernel.bpf", "sbx.kernel.syscalls_table", "sbx.kernel.seccomp_filter",
    "sbx.backends.kept_filter", "sbx.model.str_enum", "sbx.model.guarantee",
    "sbx.model.source", "sbx.model.rules", "sbx.model.profile", "sbx.model.plan", "sbx.network",
    "sbx.network.environment", "sbx.planner", "sbx.planner.grants", "sbx.backends.linux", "sbx.planner.exceptions",
    "sbx.planner.states", "sbx.planner.specials", "sbx.planner.links", "sbx.planner.walk", "sbx.planner.making",
    "sbx.planner.observe", "sbx.planner.mounts", "sbx.planner.sockets", "sbx.planner.linux", "sbx.policy.document",
    "sbx.policy.nodes", "sbx.policy.schema", "sbx.model.units", "sbx.policy.nearest", "sbx.policy.rule_text",
    "sbx.policy.validate", "sbx.policy.build", "sbx.policy.cover", "sbx.policy.expand", "sbx.policy.git",
    "sbx.policy.git_identity",
    "sbx.policy.effective", "sbx.policy.agent_runs", "sbx.policy.private_files", "sbx.policy.read_file",
    "sbx.policy.cache", "sbx.policy.trust", "sbx.policy.layers", "sbx.policy.wide",
    "sbx.supervise.run_options", "sbx.supervise.compile",
    "sbx.cli.run_linux", "sbx.policy.yaml_parts", "sbx.policy.load", "sbx.backends.limits",
)  # fmt: skip
# Where there is something to watch, or to report.
MODULES_OF_OTHER_RUNS = (
    "sbx.audit", "sbx.cli.finish", "sbx.model.location", "sbx.model.result", "sbx.report", "sbx.report.denials",
    "sbx.report.plain", "sbx.report.run", "sbx.report.said", "sbx.report.words", "sbx.supervise.execute",
    "sbx.supervise.limits", "sbx.supervise.outcome", "sbx.supervise.result",
)  # fmt: skip
STANDARD = ("__future__", "warnings")
# See `policy.yaml_parts`: never imported, only executed there.
YAML_PARTS = tuple(
    f"ruamel.yaml.{part}"
    for part in ("error", "docinfo", "compat", "tag", "tokens", "events", "scanner", "parser", "reader")
)


class Kept:
    """Found by the import system before it looks at the disk."""

    def __init__(self, rows: dict[str, Row]) -> None:
        self.rows = rows

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        row = self.rows.get(name)
        if row is None or name in YAML_PARTS:
            return None
        spec = sys.modules["_frozen_importlib"].ModuleSpec(name, self, origin=row[0], is_package=row[1])
        if row[1]:
            spec.submodule_search_locations.append(row[0][: row[0].rindex("/")])
        spec.has_location = True
        return spec

    def create_module(self, spec: Any) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(marshal.loads(self.rows[module.__name__][2]), module.__dict__)

    def load_all(self) -> None:
        """What a plain first run needs, without asking the import system for one after the other."""
        modules = sys.modules
        for name in MODULES:
            row = self.rows.get(name)
            if row is None or name in modules:
                continue
            origin, is_package, code = row
            module = modules[name] = type(sys)(name)
            above, _, last = name.rpartition(".")
            module.__file__ = origin
            module.__package__ = name if is_package else above
            if is_package:
                module.__path__ = [origin[: origin.rindex("/")]]
            try:
                exec(marshal.loads(code), module.__dict__)
            except BaseException:
                del modules[name]
                raise
            setattr(modules[above], last, module)

    def kept_code(self, name: str) -> CodeType | None:
        row = self.rows.get(name)
        return None if row is None else marshal.loads(row[2])


def load(environ: dict[bytes, bytes]) -> bool:
    """Put what was kept before the disk, if it is of this installation."""
    rows = None if b"SBX_DEBUG" in environ else store.load(_key(), environ)
    if rows is not None:
        sys.meta_path.insert(0, Kept(rows))
    return rows is not None


def load_all() -> None:
    for each in sys.meta_path:
        if isinstance(each, Kept):
            each.load_all()


def is_loaded() -> bool:
    return any(isinstance(each, Kept) for each in sys.meta_path)


def keep(environ: dict[bytes, bytes]) -> bool:
    """For the next first run; False where that is not wanted, or not possible."""
    if not sys.flags.no_site or is_loaded():
        return False  # not started by the sbx command, or by one that found it kept
    rows: dict[str, Row] = {}
    folders: set[str] = set()
    for name in (*MODULES, *MODULES_OF_OTHER_RUNS, *STANDARD, *YAML_PARTS):
        found = _spec(name)
        code = None if found is None else found.loader.get_code(name)
        if code is None:
            continue
        bare = marshal.dumps(_without_lines(code))
        rows[name] = (found.origin, found.submodule_search_locations is not None, bare)
        folders.add(found.origin[: found.origin.rindex("/")])
    return store.save(_key(), tuple(_stamp(folder) for folder in sorted(folders)), rows, environ)


def _without_lines(code: CodeType) -> CodeType:
    constants = tuple(_without_lines(each) if isinstance(each, type(code)) else each for each in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=constants)


def _spec(name: str) -> Any:
    """Where the import system finds a module: of sbx, of ruamel.yaml beside it, and of the standard library."""
    above = name.rpartition(".")[0]
    package = _package()
    folder = package[: package.rindex("/")]
    path = [f"{folder}/{above.replace('.', '/')}"] if above else [folder] if name == "sbx" else None
    return sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name, path)


def _stamp(folder: str) -> store.Dependency:
    """An installer that changes a file makes it anew in its folder."""
    now = os.stat(folder)
    stamp = (now.st_mtime_ns, now.st_ino, now.st_dev, now.st_size, now.st_ctime_ns)
    return (store.FILE, folder.encode(), stamp)


def _package() -> str:
    return __file__[: __file__.rindex("/launch/")]


def _key() -> bytes:
    return marshal.dumps(("compile side", store.FORMAT, sys.hexversion, sys.implementation.cache_tag, _package()), 2)
