"""Random trees and random policies over them, for the tests that hold the kernel against decide()."""

from __future__ import annotations

import os
from dataclasses import dataclass

from file_operations import GARBAGE, Operation
from hypothesis import strategies as st
from sandboxed import Rules

from sbx.model.glob import escape

DIRECTORY, FILE, SYMLINK, HARD_LINK = "directory", "file", "symlink", "hard link"

NAMES = (b"a", b"b", b"c", b"d e", b"x.env", b".env", b"n\nl", b"\xff\xfe", b"s*r", b"[x]", b"{y,z}", b"!q", b"b\\s")
NEW_NAMES = (b"a", b"b", b"new", b"y.env", b"n\nw", b"\xfd", b"*")


@dataclass(frozen=True)
class Node:
    path: bytes  # relative
    kind: str
    target: bytes = b""  # SYMLINK: its text; HARD_LINK: the path of the file it shares


@dataclass(frozen=True)
class Case:
    """One tree, one policy, and what a command tries."""

    nodes: tuple[Node, ...]
    rules: Rules
    operations: tuple[Operation, ...]

    def build(self, folder: str) -> None:
        top = os.fsencode(folder)
        for node in self.nodes:
            path = os.path.join(top, node.path)
            if node.kind == DIRECTORY:
                os.mkdir(path, 0o755)
            elif node.kind == FILE:
                with open(path, "wb") as file:
                    file.write(GARBAGE + node.path)
                os.chmod(path, 0o755)
            elif node.kind == SYMLINK:
                os.symlink(node.target, path)
            else:
                os.link(os.path.join(top, node.target), path)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Node, ...]:
    folders, files, nodes = [b""], [], {}
    for _ in range(draw(st.integers(2, 12))):
        parent = draw(st.sampled_from(folders))
        name = draw(st.sampled_from(NAMES))
        path = parent + b"/" + name if parent else name
        if path in nodes or path.count(b"/") > 3:
            continue
        kind = draw(st.sampled_from((DIRECTORY, DIRECTORY, FILE, FILE, SYMLINK, HARD_LINK)))
        target = b""
        if kind == HARD_LINK and not files:
            kind = FILE
        if kind == DIRECTORY:
            folders.append(path)
        elif kind == FILE:
            files.append(path)
        elif kind == HARD_LINK:
            target = draw(st.sampled_from(files))
        else:
            other = draw(st.sampled_from([*nodes, *(each + b"/new" for each in folders if each), b"missing"]))
            target = os.path.relpath(b"/" + other, b"/" + parent)
        nodes[path] = Node(path, kind, target)
    return tuple(nodes.values())


def glob_of(path: bytes) -> str:
    """A rule text for just this path; what a rule may not spell becomes a wildcard."""
    return "".join("?" if ord(char) < 32 else escape(char) for char in os.fsdecode(path))


@st.composite
def patterns(draw: st.DrawFn, paths: tuple[bytes, ...]) -> str:
    names = [glob_of(name) for name in draw(st.sampled_from(paths)).split(b"/")]
    shape = draw(st.sampled_from(("exact", "exact", "subtree", "subtree", "inside", "wild", "any", "deep", "braces")))
    if shape == "wild":
        names[draw(st.integers(0, len(names) - 1))] = draw(st.sampled_from(("*", "?", "[a-c]", "*.env", "[!.]*", "?*")))
    if shape == "any":
        names[:] = [
            "**",
            names[-1],
        ]  # below the workspace: a search of all of /usr would take the time of a hundred cases
    if shape == "deep":
        names[-1:] = ["**", names[-1]]
    if shape == "braces":
        names[-1] = draw(st.sampled_from(("{a,b}", "{a,*.env}", "{new,c}")))
    if shape in ("subtree", "inside") or (shape in ("wild", "braces") and draw(st.booleans())):
        names.append("*" if shape == "inside" else "**")
    return "./" + "/".join(names)


@st.composite
def policies(draw: st.DrawFn, nodes: tuple[Node, ...]) -> Rules:
    folders = [node.path for node in nodes if node.kind == DIRECTORY]
    absent = [b"/".join(filter(None, (folder, name))) for folder in [b"", *folders] for name in NEW_NAMES]
    paths = (*(node.path for node in nodes), *(node.path for node in nodes), *absent)
    signed = st.tuples(st.sampled_from(("", "", "", "!", "!")), patterns(paths)).map("".join)
    read = draw(st.lists(signed, max_size=3))
    modify = draw(st.lists(signed, max_size=4))
    if draw(st.integers(0, 3)):
        read.insert(0, "./**")
    if draw(st.integers(0, 2)) == 0:
        modify.insert(0, "./**")
    # Modify needs read: a grant is in both lists, at its own place in each.
    for text in modify:
        if not text.startswith("!") and text not in read:
            read.insert(draw(st.integers(0, len(read))), text)
    execs = None
    if draw(st.integers(0, 3)) == 0:
        execs = ("/**", "!./**", *draw(st.lists(signed, max_size=3)))
    deny = st.lists(patterns(paths), max_size=2)
    return Rules(tuple(read), tuple(modify), execs, tuple(draw(deny)), tuple(draw(deny)))


def sweep(nodes: tuple[Node, ...], *, new_names: bool) -> list[Operation]:
    """Everything that can be tried on every path without changing which names there are, then new names everywhere."""
    found: list[Operation] = []
    for node in nodes:
        found += [(kind, node.path) for kind in ("read", "list", "readlink", "execute")]
    for node in nodes:
        found += [(kind, node.path) for kind in ("write", "chmod", "utime", "open-create", "truncate")]
    if new_names:
        folders = [b"", *(node.path + b"/" for node in nodes if node.kind == DIRECTORY)]
        for number, path in enumerate(folder + name for folder in folders for name in NEW_NAMES):
            kind = ("create", "mkdir", "mkfifo", "open-create", "bind", "symlink")[number % 6]
            extra = (b"a",) if kind == "symlink" else ()
            found += [(kind, path, *extra), ("rmdir" if kind == "mkdir" else "unlink", path)]
    return found


MAKING = ("create", "open-create", "mkdir", "mkfifo", "bind")
CHANGING = ("unlink", "rmdir", "write", "chmod", "truncate", "read", "list", "execute")
MOVING = ("rename", "rename", "rename-noreplace", "exchange", "link", "nameless", "symlink")


@st.composite
def cases(draw: st.DrawFn, *, new_names: bool = False) -> Case:
    nodes = draw(trees())
    rules = draw(policies(nodes))
    folders = [b"", *(node.path for node in nodes if node.kind == DIRECTORY)]
    absent = [b"/".join(filter(None, (folder, name))) for folder in folders for name in (*NEW_NAMES, *NAMES[:4])]
    known = [node.path for node in nodes] or absent
    anywhere = st.one_of(st.sampled_from(known), st.sampled_from(absent))
    operations = sweep(nodes, new_names=new_names)
    for _ in range(draw(st.integers(0, 25 if new_names else 10))):
        kind = draw(st.sampled_from((*MAKING, *CHANGING, *MOVING, *MOVING)))
        first, second = draw(anywhere), draw(anywhere)
        if kind == "nameless":
            first = draw(st.sampled_from(folders)) or b"."
        if kind == "symlink":
            second = os.path.relpath(b"/" + second, os.path.dirname(b"/" + first))
        operations.append((kind, first, second) if kind in MOVING else (kind, first))
    for node in sorted(nodes, key=lambda node: (-node.path.count(b"/"), node.path)):
        operations.append(("rmdir" if node.kind == DIRECTORY else "unlink", node.path))
    return Case(nodes, rules, tuple(operations))
