"""The hot path's modules in one file, for a start that does not look for twenty.

Finding, checking and reading a module costs the import system a tenth of a millisecond, twenty times over. So the
compile side keeps their compiled code in the user's private cache, and `console.py` loads it from there as long as the
installation is the one it was made from. Like the stored plans it is treated as code: owner- and mode-checked, and
deleting it only costs time.
"""

from __future__ import annotations

import marshal
import os
import sys
from types import CodeType

# In the order of their imports: a module comes after those it imports.
MODULES = (
    "sbx",
    "sbx.kernel",
    "sbx.kernel.system",
    "sbx.version",
    "sbx.errors",
    "sbx.launch",
    "sbx.launch.store",
    "sbx.launch.options",
    "sbx.kernel.signals",
    "sbx.kernel.call",
    "sbx.kernel.process",
    "sbx.kernel.landlock",
    "sbx.kernel.seccomp",
    "sbx.kernel.mounts",
    "sbx.launch.root",
    "sbx.launch.setup",
    "sbx.launch.inside",
    "sbx.launch.hearing",
    "sbx.model",
    "sbx.launch.environment",
    "sbx.launch.rlimits",
    "sbx.launch.start",
    "sbx.launch.perform",
    "sbx.launch.overhear",
    "sbx.launch.main",
    "sbx.__main__",
)
# Needed later or not in every run: wait and audit while the sandbox is built, the rest where names are judged.
LATER_MODULES = (
    "sbx.launch.wait",
    "sbx.launch.redact",
    "sbx.launch.audit_line",
    "sbx.model.glob",
    "sbx.kernel.notify",
    "sbx.model.verdict",
    "sbx.launch.places",
    "sbx.launch.names",
    "sbx.launch.changes",
    "sbx.launch.core_dumps",
    "sbx.launch.listener",
    "sbx.launch.hand",
    "sbx.launch.outlet",
    "sbx.launch.streams",
    "sbx.launch.compile_side",
)

_FUTURE = b"\nfrom __future__ import annotations\n"
STAMPED = ("launch", "kernel", "model", "version.py")  # an installer that changes a file makes it anew in its folder


def write_bundle(environ: dict[bytes, bytes]) -> bool:
    """Keep the modules for the next start; False where that is not possible or not wanted."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not sys.flags.no_site or sys.modules["sbx"].__spec__ is None:
        return False  # not started by the sbx command, or by one that has a good bundle already
    from sbx.launch import store

    folder = store.directory(environ)
    if folder is None or not os.path.isdir(folder):
        return False
    final = os.path.join(os.path.dirname(folder), b"plans", b"hot-path")
    stamp = installation_stamp(package)
    rows = tuple(_row(name, package) for name in (*MODULES, *LATER_MODULES))
    draft = final + b".%d" % os.getpid()
    try:
        later = {row[0]: marshal.dumps(row) for row in rows[len(MODULES) :]}
        store.write_whole(draft, marshal.dumps((stamp, rows[: len(MODULES)], later)))
        os.rename(draft, final)
    except OSError:
        return False
    return True


def installation_stamp(package: str) -> tuple[str | int | None, ...]:
    """What the modules were made from; `console.py` computes the same."""
    found: list[str | int | None] = [sys.implementation.cache_tag, sys.hexversion, package]
    for name in STAMPED:
        now = os.stat(f"{package}/{name}")
        found += [now.st_mtime_ns, now.st_ino]
    return tuple(found)


def _row(name: str, package: str) -> tuple[str, str, bool, CodeType]:
    """(name, file, is it a package, its code without docstrings)."""
    below = f"{package}/{name.partition('.')[2].replace('.', '/')}".rstrip("/")
    is_package = os.path.isdir(below)
    origin = f"{below}/__init__.py" if is_package else f"{below}.py"
    with open(origin, "rb") as file:
        source = file.read()
    # As a flag: the statement would import the module of that name, from the disk.
    flags = 0
    if _FUTURE in source:
        source, flags = source.replace(_FUTURE, b"\n", 1), annotations.compiler_flag
    code = compile(source, origin, "exec", flags, dont_inherit=True, optimize=2)
    return (name, origin, is_package, _without_lines(code))


def _without_lines(code: CodeType) -> CodeType:
    """Smaller by a third. Whatever goes wrong on the hot path is met again, with lines, by the compile side."""
    constants = tuple(_without_lines(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=constants)
