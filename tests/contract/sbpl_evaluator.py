"""A second opinion on sandbox profiles: TinyScheme reads them, this file decides. Knows nothing of sbx.

Apple's compiler embeds the same family of interpreter. The prelude binds the operations and filters that macOS knows;
anything else is an unbound variable, and the profile is refused, as are syntax errors.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TINYSCHEME = shutil.which("tinyscheme")

OPERATIONS = tuple(
    name
    for line in (
        "default file* file-clone file-ioctl file-link file-map-executable file-mknod file-mount file-read*",
        "file-read-data file-read-metadata file-read-xattr file-revoke file-search file-test-existence file-write*",
        "file-write-acl file-write-create file-write-data file-write-flags file-write-mode file-write-owner",
        "file-write-setugid file-write-times file-write-unlink file-write-xattr iokit-open ipc* ipc-posix*",
        "ipc-posix-sem* ipc-posix-shm* mach* mach-lookup mach-priv* mach-priv-task-port mach-register network*",
        "network-bind network-inbound network-outbound process* process-exec* process-exec-interpreter process-fork",
        "process-info* pseudo-tty signal sysctl* sysctl-read sysctl-write system* system-info system-socket",
        "user-preference* user-preference-read",
    )
    for name in line.split()
)

STRING_FILTERS = ("literal", "subpath", "regex", "global-name", "sysctl-name", "sysctl-name-prefix")
PATH_FILTERS = ("literal", "subpath", "regex", "vnode-type")

PRELUDE = (
    """
(define (fail what) (display "REFUSED ") (display what) (newline) (quit 3))
(define (show-string s) (display "{\\"s\\":") (write s) (display "}"))
(define (show value)
  (cond ((string? value) (show-string value))
        ((symbol? value) (display "\\"") (display value) (display "\\""))
        ((or (pair? value) (null? value))
         (display "[")
         (let loop ((rest value) (first #t))
           (if (pair? rest)
               (begin (if (not first) (display ",")) (show (car rest)) (loop (cdr rest) #f))))
         (display "]"))
        (else (fail "a value that is neither operation, filter nor string"))))
(define (rule action arguments)
  (if (null? arguments) (fail "a rule without an operation"))
  (let loop ((rest arguments) (filters #f))
    (if (pair? rest)
        (cond ((and (symbol? (car rest)) (not filters)) (loop (cdr rest) #f))
              ((and (pair? (car rest)) (not (eq? rest arguments))) (loop (cdr rest) #t))
              (else (fail "a rule is operations, then filters")))))
  (show (cons action arguments))
  (newline))
(define (version number) (if (not (= number 1)) (fail "version")) (show '(version)) (newline))
(define (allow . arguments) (rule 'allow arguments))
(define (deny . arguments) (rule 'deny arguments))
(define (need-filters name filters)
  (if (or (null? filters) (not (apply-and pair? filters))) (fail name)))
(define (apply-and test items) (or (null? items) (and (test (car items)) (apply-and test (cdr items)))))
(define (require-all . filters) (need-filters "require-all" filters) (cons 'require-all filters))
(define (require-any . filters) (need-filters "require-any" filters) (cons 'require-any filters))
(define (require-not filter) (need-filters "require-not" (list filter)) (list 'require-not filter))
(define DIRECTORY 'DIRECTORY)
(define REGULAR-FILE 'REGULAR-FILE)
(define (vnode-type kind) (list 'vnode-type kind))
(define tcp 'tcp)
(define (remote kind where) (if (string? where) (list 'remote kind where) (fail "remote")))
(define same-sandbox 'same-sandbox)
(define (target who) (list 'target who))
"""
    + "".join(
        f'(define ({name} . values) (if (apply-and string? values) (cons \'{name} values) (fail "{name}")))\n'
        for name in STRING_FILTERS
    )
    + "".join(f"(define {name} '{name})\n" for name in OPERATIONS)
)


class Refused(Exception):
    """The profile would not compile."""


@dataclass(frozen=True)
class Clause:
    allow: bool
    operations: tuple[str, ...]
    filters: tuple[Any, ...]


@dataclass(frozen=True)
class SandboxProfile:
    clauses: tuple[Clause, ...]

    def allows(self, operation: str, path: str, *, folder: bool = False) -> bool:
        """The verdict: of the most specific operation that has a matching rule, the last such rule."""
        for level in _levels(operation):
            for clause in reversed(self.clauses):
                if level in clause.operations and _any(clause.filters, path, folder):
                    return clause.allow
        raise AssertionError("a profile without a default")

    def allows_by_order_alone(self, operation: str, path: str, *, folder: bool = False) -> bool:
        """The verdict if specific operations had no precedence: a profile should not depend on which it is."""
        levels = set(_levels(operation))
        for clause in reversed(self.clauses):
            if levels & set(clause.operations) and _any(clause.filters, path, folder):
                return clause.allow
        raise AssertionError("a profile without a default")

    def mentions(self, operation: str) -> list[Clause]:
        return [clause for clause in self.clauses if operation in clause.operations]


def read_profile(text: str) -> SandboxProfile:
    """Compile the text. Raises Refused."""
    assert TINYSCHEME is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("prelude.scm", "profile.sb", "end.scm")]
        files[0].write_text(PRELUDE)
        files[1].write_bytes(text.encode())
        files[2].write_text('(display "[\\"end\\"]")(newline)')
        for _ in range(50):
            done = subprocess.run(
                [TINYSCHEME, *map(str, files)], stdin=subprocess.DEVNULL, capture_output=True, check=False
            )
            # Its collector crashes now and then, by where memory happens to lie. A crash is no opinion: ask again.
            if done.returncode >= 0:
                break
    lines = done.stdout.decode("latin-1").split("\n")[:-1]  # one character a byte
    if done.returncode or done.stderr or not lines or lines[-1] != '["end"]' or _depth(text):
        raise Refused(f"{done.returncode} {done.stdout[-400:]!r} {done.stderr!r}")
    try:
        forms = [json.loads(line) for line in lines[:-1]]
    except ValueError as error:
        raise Refused(str(error)) from error
    if not forms or forms[0] != ["version"]:
        raise Refused("the profile does not begin with (version 1)")
    clauses = tuple(_clause(form) for form in forms[1:])
    if not clauses or clauses[0] != Clause(False, ("default",), ()):
        raise Refused("the profile does not deny by default")
    return SandboxProfile(clauses)


def _clause(form: list[Any]) -> Clause:
    operations = tuple(item for item in form[1:] if isinstance(item, str))
    filters = tuple(_filter(item, operations) for item in form[1:] if not isinstance(item, str))
    return Clause(form[0] == "allow", operations, filters)


def _filter(item: list[Any], operations: tuple[str, ...]) -> Any:
    """Strings decoded, regular expressions compiled; a filter must suit its operations, as the compiler insists."""
    kind, *values = item
    if kind.startswith("require-"):
        return (kind, *(_filter(value, operations) for value in values))
    on_files = all(name.startswith(("file", "process-exec", "network", "default")) for name in operations)
    if (kind in PATH_FILTERS) and not on_files:
        raise Refused(f"{kind} does not suit {operations}")
    decoded = [value["s"].encode("latin-1") if isinstance(value, dict) else value for value in values]
    if kind in ("literal", "subpath"):
        for value in decoded:
            if not value.startswith(b"/") or (value != b"/" and value.endswith(b"/")) or b"//" in value:
                raise Refused(f"{value!r} is not a normalized absolute path")
    if kind == "regex":
        return (kind, *(compile_regex(value) for value in decoded))
    return (kind, *decoded)


_REGEX_TOKENS = re.compile(
    rb"\\[.^$*+?()\[\]{}|\\]|\[\^?[^\]\[\\]+\]|[()|*+?]|[^\\\[\]{}.^$()|*+?]|\$\Z|(?<!.)\^", re.S
)


@functools.lru_cache(maxsize=4096)
def compile_regex(text: bytes) -> re.Pattern[bytes]:
    """The small common dialect: escapes of special characters, simple classes, groups, `|`, `*`, `+`, `?`, anchors."""
    tokens: list[bytes] = []
    position = 0
    while position < len(text):
        token = _REGEX_TOKENS.match(text, position)
        if token is None:
            raise Refused(f"{text!r}: not in the dialect at {position}")
        if token[0] in (b"*", b"+", b"?") and tokens[-1:] in ([], [b"("], [b"|"], [b"^"], [b"*"], [b"+"], [b"?"]):
            raise Refused(f"{text!r}: nothing to repeat at {position}")
        tokens.append(token[0])
        position = token.end()
    anchors = {b"^": rb"\A", b"$": rb"\Z"}
    try:
        return re.compile(b"".join(anchors.get(token, token) for token in tokens))
    except re.error as error:
        raise Refused(f"{text!r}: {error}") from error


def _levels(operation: str) -> list[str]:
    """From the operation itself over its wildcards to the default, most specific first."""
    pieces = operation.split("-")
    wildcards = ["-".join(pieces[:count]) + "*" for count in range(len(pieces), 0, -1)]
    return [operation, *(name for name in wildcards if name != operation), "default"]


def _any(filters: tuple[Any, ...], path: str, folder: bool) -> bool:
    return not filters or any(_matches(each, path.encode(), folder) for each in filters)


def _matches(item: Any, path: bytes, folder: bool) -> bool:
    kind, *values = item
    if kind == "literal":
        return path in values
    if kind == "subpath":
        return any(path == value or path.startswith(value.rstrip(b"/") + b"/") for value in values)
    if kind == "regex":
        return any(value.search(path) is not None for value in values)
    if kind == "vnode-type":
        return folder is (values == ["directory"])  # the reader folds symbols
    if kind == "require-all":
        return all(_matches(value, path, folder) for value in values)
    if kind == "require-any":
        return any(_matches(value, path, folder) for value in values)
    if kind == "require-not":
        return not _matches(values[0], path, folder)
    return False  # a filter of another kind of operation


def _depth(text: str) -> int:
    """Parentheses left open: TinyScheme ends such a file without a word."""
    depth, position = 0, 0
    while position < len(text):
        char = text[position]
        if char == ";":
            position = text.find("\n", position) % (len(text) + 1)
        elif char == '"':
            position += 1
            while text[position] != '"':
                position += 2 if text[position] == "\\" else 1
        elif char in "()":
            depth += 1 if char == "(" else -1
        position += 1
    return depth
