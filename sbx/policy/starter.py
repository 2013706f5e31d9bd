"""A first policy for a folder, from what lies in it: text with comments, for people to read and change."""

from __future__ import annotations

import os

from sbx.model.glob import escape
from sbx.model.records import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A way of building, known by its files. `keep` is what a build reads and has no business to change."""

    name: str
    files: tuple[str, ...]
    keep: tuple[str, ...]
    build: str = ""
    test: str = ""
    install: str = ""


KINDS = (
    Kind("Makefile", ("GNUmakefile", "makefile", "Makefile"), (), "make -j4", "make test"),
    Kind("CMake", ("CMakeLists.txt",), (), "cmake --build build", "ctest --test-dir build"),
    Kind("Python", ("pyproject.toml",), ("setup.py", "setup.cfg"), "", "python3 -m pytest", "pip install -e ."),
    Kind("Node", ("package.json",), (".npmrc",), "npm run build", "npm test", "npm ci"),
    Kind("Rust", ("Cargo.toml",), ("build.rs",), "cargo build --offline", "cargo test --offline", "cargo fetch"),
    Kind("Go", ("go.mod",), ("go.sum",), "go build ./...", "go test ./...", "go mod download"),
)

# Folders of sources and of definitions that something outside the sandbox runs later.
KEEP_FOLDERS = ("src", ".github", ".ci")


def look_at(folder: str) -> tuple[Kind, ...]:
    """The kinds whose files are here."""
    return tuple(kind for kind in KINDS if any(os.path.isfile(os.path.join(folder, name)) for name in kind.files))


def starter(folder: str, kinds: tuple[Kind, ...]) -> str:
    """The text of sbx.yaml. It passes `sbx check`, its own tests included."""
    keep = _kept(folder, kinds)
    lines = [
        "# What commands run by sbx in this folder may touch. 'sbx check' validates this file,",
        "# 'sbx explain PATH' says what it means for a path, 'sbx profiles show build' lists every rule.",
        "# For completion in editors: 'sbx check --schema > .sbx.schema.json', and as the first line of this file",
        "#   # yaml-language-server: $schema=.sbx.schema.json",
        "schemaVersion: 2",
        "",
        "# Denied in every profile, whatever else is said; nothing can undo it.",
        "# Credentials in your home folder (~/.ssh and the like) are denied without being named here.",
        'denyRead: ["./**/*.env"]',
        "",
        "fsProfiles:",
        *_build(kinds, keep),
        "",
        *_test(kinds),
        *_install(kinds),
        "",
        "# What this policy is meant to do: 'sbx check' asks these, so that a later change cannot break them unseen.",
        "tests:",
        "  - {profile: build, path: .env, read: deny}",
        "  - {profile: build, path: .git/config, modify: deny}",
        *(f"  - {{profile: build, path: {_quoted(path)}, read: allow, modify: deny}}" for path, _ in keep[:2]),
    ]
    return "\n".join(lines) + "\n"


def _kept(folder: str, kinds: tuple[Kind, ...]) -> list[tuple[str, str]]:
    """(path, rule) of what is here and should stay as it is."""
    names = [name for kind in kinds for name in (*kind.files, *kind.keep)]
    found = [(name, f"!./{escape(name)}") for name in names if os.path.isfile(os.path.join(folder, name))]
    found += [(name, f"!./{name}/**") for name in KEEP_FOLDERS if os.path.isdir(os.path.join(folder, name))]
    return found


def _build(kinds: tuple[Kind, ...], keep: list[tuple[str, str]]) -> list[str]:
    commands = [kind.build for kind in kinds if kind.build]
    lines = [
        *(f"  # sbx run --profile build -- {command}" for command in commands or ["COMMAND"]),
        "  build:",
        "    description: Build this project",
        "    extends: build          # the one that comes with sbx: reads and writes here, but not .git; no network",
    ]
    if keep:
        lines += ["    # A build has no business to change its own definition or its sources.", "    modify:"]
        lines += [f"      - {_quoted(rule)}" for _, rule in keep]
    return lines


def _test(kinds: tuple[Kind, ...]) -> list[str]:
    commands = [kind.test for kind in kinds if kind.test]
    return [
        *(f"  # sbx run --profile test -- {command}" for command in commands or ["COMMAND"]),
        "  test:",
        "    description: Test this project, with a bound on time and memory",
        "    extends: build          # the one above",
        "    limits: {wall: 30m, memory: 4GiB}",
    ]


def _install(kinds: tuple[Kind, ...]) -> list[str]:
    commands = [kind.install for kind in kinds if kind.install]
    if not commands:
        return []
    return [
        "",
        "  # Fetching packages needs a network. Name the hosts, and nothing else can be reached:",
        *(f"  #   sbx run --profile install -- {command}" for command in commands),
        "  # install:",
        "  #   extends: install",
        '  #   network: {allow: ["packages.example.com:443"]}',
    ]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
