"""A disagreement that random policies found, kept as it was: a link between folders, one of them not granted whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agreement import compare
from capabilities import requires
from random_policies import Case, Node
from sandboxed import Rules, without_namespaces


@requires("seccomp", landlock=3)
def test_with_landlock_alone_a_file_granted_by_itself_is_linked_nowhere() -> None:
    case = Case(
        nodes=(Node(path=b"a", kind="file", target=b""), Node(path=b"b", kind="directory", target=b"")),
        rules=Rules(read=("./*/**", "./a"), modify=("./a", "./*/**"), exec=("/**", "!./**")),
        operations=(("link", b"a", b"b/a"),),
    )
    with tempfile.TemporaryDirectory() as folder:
        assert compare(case, Path(folder), without_namespaces()) == []
