"""Every message that sbx can raise, collected from its code: each has a next step, and all speak with one voice."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import sbx

PACKAGE = Path(sbx.__file__).parent

# Messages whose next step is in the text itself, which somebody else wrote: file and function.
REMEDY_ELSEWHERE: frozenset[tuple[str, str]] = frozenset(
    {
        ("supervise/run_options.py", "_limits"),  # the words of BadUnit say what to write
        ("library/api.py", "checked"),  # the result, whose own words say what to do
        # The tables of agents and of tools' folders come with sbx: no user meets these.
        ("policy/agents.py", "parse_agents"),
        ("policy/agents.py", "_agent"),
        ("policy/nodes.py", "entries_of"),
        ("policy/nodes.py", "texts_of"),
        ("policy/tool_folders.py", "parse_tool_folders"),
        ("policy/tool_folders.py", "_anywhere"),
        ("policy/tool_folders.py", "_stand_ins"),
    }
)

# Names and codes that keep their capitals at the start of a message.
CAPITALS = ("Landlock", "SBPL", "SIG", "Windows", "macOS", "Linux", "PATH", "JSON", "{")


@dataclass(frozen=True)
class Site:
    """One construction of an error in the source."""

    file: str
    line: int
    function: str
    message: str | None  # None: not written here as a text
    remedy: str | None  # None: none given
    has_details: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def error_classes(trees: Iterable[ast.AST]) -> dict[str, ast.ClassDef]:
    """SbxError and every class below it, by reading: some files are for other platforms."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    found: dict[str, ast.ClassDef] = {}
    names = {"SbxError"}
    while True:
        new = {
            each.name: each
            for each in classes
            if each.name in names or names & {base_name(base) for base in each.bases}
        }
        if new == found:
            return found
        found = new
        names |= set(new)


def base_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def text_of(node: ast.expr | None) -> str | None:
    """The text as far as it is written out; what is filled in becomes `{}`."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.JoinedStr(values=values):
            return "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            one, other = text_of(left), text_of(right)
            return (one or "{}") + (other or "{}") if one or other else None
        case ast.IfExp(body=body, orelse=orelse):
            return text_of(body) or text_of(orelse)
    return None


def sites(path: Path, names: frozenset[str], top: Path = PACKAGE) -> Iterator[Site]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    owner: dict[ast.AST, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for inner in ast.walk(node):
                owner[inner] = node.name
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if called not in names:
            continue
        given = {each.arg: each.value for each in node.keywords}
        remedy = given.get("remedy")
        yield Site(
            file=str(path.relative_to(top)),
            line=node.lineno,
            function=owner.get(node, ""),
            message=text_of(node.args[0] if node.args else given.get("message")),
            remedy=None if remedy is None else text_of(remedy) or "{}",
            has_details="details" in given,
        )


PATHS = sorted(PACKAGE.rglob("*.py"))
CLASSES = error_classes(ast.parse(path.read_text(encoding="utf-8")) for path in PATHS)
NAMES = frozenset(CLASSES)
SITES = [site for path in PATHS for site in sites(path, NAMES)]


def test_there_is_something_to_look_at() -> None:
    assert len(SITES) > 50
    assert {"SbxError", "UsageError", "PolicyError", "SandboxUnavailable"} <= NAMES
    assert sum(site.message is not None for site in SITES) > 0.8 * len(SITES)


def test_every_message_comes_with_a_next_step() -> None:
    bare = [str(site) for site in SITES if not site.remedy and (site.file, site.function) not in REMEDY_ELSEWHERE]
    assert bare == []


def test_the_exceptions_are_still_needed() -> None:
    seen = {(site.file, site.function) for site in SITES if not site.remedy}
    assert seen >= REMEDY_ELSEWHERE


@pytest.mark.parametrize("part", ["message", "remedy"])
def test_all_speak_with_one_voice(part: str) -> None:
    odd = []
    for site in SITES:
        text = getattr(site, part)
        if not text:
            continue
        if text[0].isupper() and not text.startswith(CAPITALS):
            odd.append(f"{site}: starts with a capital: {text}")
        if text.endswith((".", "!")) and not text.endswith("..."):
            odd.append(f"{site}: ends with a full stop: {text}")
        if "  " in text or text != text.strip():
            odd.append(f"{site}: stray spaces: {text}")
        if "\n" in text:
            odd.append(f"{site}: more than one line: {text!r}")
        if any(word in text.lower().split() for word in ("sorry", "oops", "invalid", "illegal", "failed!")):
            odd.append(f"{site}: says less than it could: {text}")
        if len(text) > 200:
            odd.append(f"{site}: too long to be read: {text}")
    assert odd == []


def test_every_kind_of_error_has_a_name_of_its_own() -> None:
    slugs = [
        inner.value.value
        for each in CLASSES.values()
        for inner in each.body
        if isinstance(inner, ast.Assign)
        and isinstance(inner.targets[0], ast.Name)
        and inner.targets[0].id == "slug"
        and isinstance(inner.value, ast.Constant)
    ]
    assert len(slugs) == len(CLASSES), "each kind of error names itself"
    assert len(set(slugs)) == len(slugs)
    assert all(str(slug).replace("_", "").isalpha() and str(slug).islower() for slug in slugs)


def test_the_collector_sees_a_bare_message(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "def f():\n    raise UsageError(f'no {x} ' + y)\nclass Own(UsageError): pass\nOwn('a', remedy='b')\n"
    )
    tree = ast.parse(file.read_text())
    known = frozenset(error_classes([tree, ast.parse("class SbxError: ...\nclass UsageError(SbxError): ...")]))
    assert known == {"SbxError", "UsageError", "Own"}
    bare, complete = sorted(sites(file, known, tmp_path), key=lambda site: site.line)
    assert (bare.function, bare.message, bare.remedy) == ("f", "no {} {}", None)
    assert (complete.message, complete.remedy) == ("a", "b")
