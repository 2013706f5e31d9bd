"""The hot path's modules in one file, for a start that does not look for twenty.

Finding, checking and reading a module costs the import system a tenth of a millisecond, twenty times over. So the
compile side keeps their compiled code in the user's private cache, and `console.py` loads it from there as long as the
installation is the one it was made from. Like the stored plans it is treated as code: owner- and mode-checked, and
deleting it only costs time.
"""

from __future__ import annotations

import ast
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
    "sbx.launch.turns",
    "sbx.launch.setup",
    "sbx.launch.inside",
    "sbx.launch.hearing",
    "sbx.model",
    "sbx.launch.environment",
    "sbx.launch.rlimits",
    "sbx.launch.attend",
    "sbx.launch.start",
    "sbx.launch.perform",
    "sbx.launch.overhear",
    "sbx.launch.main",
    "sbx.__main__",
)
# Needed later or not in every run: wait and audit while the sandbox is built, the rest where calls are judged or seen.
LATER_MODULES = (
    "sbx.errors",
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
    "sbx.kernel.watch",
    "sbx.launch.seen",
    "sbx.launch.observe",
    "sbx.launch.tracing",
    "sbx.launch.hand",
    "sbx.launch.outlet",
    "sbx.launch.streams",
    "sbx.launch.compile_side",
)

LENGTH = 8  # bytes that say how much is to be read at once
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
    draft = final + b".%d" % os.getpid()
    try:
        store.write_whole(draft, bundle(package, stamp))
        os.rename(draft, final)
    except OSError:
        return False
    return True


def bundle(package: str, stamp: tuple[str | int | None, ...]) -> bytes:
    """The later modules each at a place of its own, behind what is needed at once: one value, its size before it."""
    rows = tuple(_row(name, package) for name in MODULES)
    pieces = {name: marshal.dumps(_row(name, package)) for name in LATER_MODULES}
    whole = LENGTH
    while True:  # where the pieces lie depends on the size of the value that says where they lie
        index, place = {}, whole
        for name, piece in pieces.items():
            index[name] = (place, len(piece))
            place += len(piece)
        at_once = marshal.dumps((stamp, extension_file("_ctypes"), rows, index))
        if whole == LENGTH + len(at_once):
            return len(at_once).to_bytes(LENGTH, "little") + at_once + b"".join(pieces.values())
        whole = LENGTH + len(at_once)


def extension_file(name: str) -> str | None:
    """Where the interpreter found one of its own modules, so that the next start need not look; None if built in."""
    origin = getattr(sys.modules.get(name), "__file__", None)
    return origin if isinstance(origin, str) and os.path.isabs(origin) else None


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
    tree = ast.fix_missing_locations(_WithoutTypes().visit(ast.parse(source, origin)))
    code = compile(tree, origin, "exec", dont_inherit=True, optimize=2)
    return (name, origin, is_package, _without_lines(code))


class _WithoutTypes(ast.NodeTransformer):
    """What only the type checker reads: half of what a module does when it is loaded."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        for each in (*named, arguments.vararg, arguments.kwarg):
            if each is not None:
                each.annotation = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        self.generic_visit(node)
        return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        return ast.Pass() if node.module == "__future__" else node

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return ast.If(ast.Constant(True), node.orelse, []) if node.orelse else ast.Pass()
        return node


def _without_lines(code: CodeType) -> CodeType:
    """Smaller by a third. Whatever goes wrong on the hot path is met again, with lines, by the compile side."""
    constants = tuple(_without_lines(each) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_linetable=b"", co_consts=constants)
