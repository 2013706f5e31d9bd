"""`sbx` with a tracer that breaks when the command looks at a certain name: what is forked has it from here."""

from __future__ import annotations

import runpy
import sys
from typing import Any

from sbx.launch.observe import Observer

MARK = b"break-the-tracer"
FAULT = sys.argv.pop(1)
_first = Observer.first


def first(self: Observer, number: int, operation: str, flags: int, base: bytes, path: bytes, pid: int) -> Any:
    if path.endswith(MARK):
        raise MemoryError if FAULT == "memory" else RuntimeError("broken by the test")
    return _first(self, number, operation, flags, base, path, pid)


Observer.first = first  # type: ignore[method-assign]
runpy.run_module("sbx", run_name="__main__", alter_sys=True)
