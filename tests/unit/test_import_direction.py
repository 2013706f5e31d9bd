"""Lower rooms never import higher ones (docs/interfaces.md), and heavy packages stay in the rooms that own them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sbx

PACKAGE = Path(sbx.__file__).parent

# Lowest first. A room may import itself and what stands before it.
ORDER = (
    "errors", "version", "model", "kernel", "network", "policy", "planner", "launch", "backends", "supervise", "audit",
    "library", "report", "cli", "pytest_plugin", "__main__",
)  # fmt: skip

# The hot path is narrower than its place in the order.
ONLY = {"launch": {"errors", "version", "kernel", "model.glob", "model.verdict", "model.location", "launch"}}

# Who may import what is not in the standard library, in functions too.
OWNERS = {
    "ruamel": ("policy",),
    "rich": ("report",),
    "click": ("cli",),
    "psutil": ("supervise",),
    "h11": ("network",),
    "_ctypes": ("kernel",),
    "ctypes": ("kernel",),
}

# Files that Python runs, which nobody imports: they stand above everything, wherever they lie.
STARTS = {"launch.console": "__main__"}

MODULES = sorted(PACKAGE.rglob("*.py"))


def dotted(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every imported module with its line, whether at the top, in a function or for the type checker alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full"
            module = node.module or ""
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                is_module = module.split(".")[0] == "sbx" and _exists(inner)
                yield node.lineno, inner if is_module else module


def _exists(module: str) -> bool:
    path = PACKAGE.joinpath(*module.split(".")[1:])
    return path.with_suffix(".py").exists() or path.is_dir()


def type_checking_lines(tree: ast.AST) -> set[int]:
    """Lines under `if TYPE_CHECKING:`, which cost nothing and bind nothing at run time."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for inner in node.body:
                lines.update(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    return lines


def violations(path: Path, text: str) -> list[str]:
    name = dotted(path)
    room = STARTS.get(name, name.split(".")[0])
    tree = ast.parse(text)
    typing_only = type_checking_lines(tree)
    found = []
    for line, module in imports(tree):
        head, _, inner = module.partition(".")
        if head == "sbx" and inner and room:
            target = inner.split(".")[0]
            if target not in ORDER:
                found.append(f"{path.name}:{line}: {module} is in no room")
            elif ORDER.index(target) > ORDER.index(room):
                if line not in typing_only:
                    found.append(f"{path.name}:{line}: {room} must not import {module}, which is a higher room")
            elif room in ONLY and line not in typing_only and not _within(inner, ONLY[room]):
                found.append(f"{path.name}:{line}: {room} is the hot path and must not import {module}")
        elif head in OWNERS and room not in OWNERS[head] and line not in typing_only:
            found.append(f"{path.name}:{line}: {head} belongs to {', '.join(OWNERS[head])}")
    return found


def _within(inner: str, allowed: set[str]) -> bool:
    return any(inner == each or inner.startswith(each + ".") for each in allowed)


@pytest.mark.parametrize("path", MODULES, ids=[dotted(path) or "sbx" for path in MODULES])
def test_imports_point_downwards(path: Path) -> None:
    assert violations(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("model/x.py", "import sbx.policy.layers"),
        ("model/x.py", "def late():\n    from sbx.policy import layers"),
        ("launch/x.py", "from sbx.model.decide import decide"),
        ("launch/x.py", "from sbx.policy.layers import load_policy"),
        ("policy/x.py", "import rich.console"),
        ("planner/x.py", "import ctypes"),
        ("report/x.py", "from sbx import cli"),
    ],
)
def test_a_climbing_import_is_seen(room: str, text: str) -> None:
    assert len(violations(PACKAGE / room, text)) == 1


def test_nobody_imports_a_start() -> None:
    for path in MODULES:
        found = {module.removeprefix("sbx.") for _, module in imports(ast.parse(path.read_text(encoding="utf-8")))}
        assert not found & set(STARTS), path


def test_every_room_is_in_the_order() -> None:
    rooms = {dotted(path).split(".")[0] for path in MODULES} - {""}
    assert rooms <= set(ORDER), "a new room needs its place in ORDER and in docs/interfaces.md"
