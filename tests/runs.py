"""`sbx run` as a caller sees it, on a host with namespaces and on one that has only Landlock."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.realpath(sys.executable)
# The interpreter of the tests may live anywhere, also where no profile looks.
READ_PYTHON = ("--read", sys.base_prefix + "/**")
PATIENCE_S = 60  # for what has to happen; nothing is asserted about how long it takes


def python(code: str, *arguments: str) -> tuple[str, ...]:
    """The end of a command line that runs Python inside."""
    return (*READ_PYTHON, "--", PYTHON, "-I", "-c", code, *arguments)


@dataclass(frozen=True)
class Host:
    """A host to run on: the words to put before everything else, and what has to be allowed."""

    name: str
    prefix: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = field(default=())

    def argv(self, *arguments: str, word: str = "run") -> list[str]:
        options = self.options if word in ("run", "sh") else ()
        return [*self.prefix, *self.command, word, *options, *arguments]

    def run(
        self, *arguments: str, word: str = "run", env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.CompletedProcess[bytes]:
        more.setdefault("stdin", subprocess.DEVNULL if "input" not in more else None)
        if "input" in more:
            more.pop("stdin")
        streams = {} if {"stdout", "stderr"} & more.keys() else {"capture_output": True}
        return subprocess.run(
            self.argv(*arguments, word=word),
            env={**os.environ, **(env or {})},
            timeout=PATIENCE_S,
            check=False,
            **streams,
            **more,
        )

    def result(self, folder: Path, *arguments: str, **more: Any) -> dict[str, Any]:
        """Run with --json; the record, with the exit status the caller saw as `seen`."""
        file = folder / "result.json"
        file.unlink(missing_ok=True)
        done = self.run("--json", str(file), *arguments, **more)
        assert file.exists(), f"no record; {done.stderr.decode(errors='replace')}"
        found: dict[str, Any] = json.loads(file.read_text())
        file.unlink()
        found["seen"] = done.returncode
        found["words"] = done.stderr.decode(errors="replace")
        return found

    @contextmanager
    def started(self, *arguments: str, **more: Any) -> Iterator[subprocess.Popen[bytes]]:
        """A run that is under way. Ended whatever happens."""
        env = {**os.environ, **more.pop("env", {})}
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        # Unbuffered: what was read ahead could not be waited for.
        process = subprocess.Popen(self.argv(*arguments), env=env, bufsize=0, **more)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
            process.wait(PATIENCE_S)


NAMESPACES = Host("namespaces")
LANDLOCK = Host(
    "landlock",
    (sys.executable, os.path.join(HERE, "children.py"), "clone=EPERM", "unshare=EPERM", "--"),
    ("--partial",),
)
BOTH = [
    pytest.param(NAMESPACES, id="namespaces", marks=requires("userns")),
    pytest.param(LANDLOCK, id="landlock", marks=requires("seccomp", landlock=3)),
]


def with_command(host: Host, command: list[str]) -> Host:
    return Host(host.name, host.prefix, host.options, tuple(command))


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """The next line the command wrote; fails if it ended instead."""
    assert process.stdout is not None
    poll = select.poll()
    poll.register(process.stdout, select.POLLIN)
    assert poll.poll(PATIENCE_S * 1000), "the command said nothing"
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        pytest.fail(f"the command ended: {process.stderr.read().decode(errors='replace')}")
    return line
