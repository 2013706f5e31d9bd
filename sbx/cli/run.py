"""`sbx run` and `sbx sh` on the compile side: make the plan, keep it, run it, say how it went."""

from __future__ import annotations

import os
from typing import Any

from sbx.errors import SbxError, UsageError
from sbx.launch import store
from sbx.launch.main import environ_bytes
from sbx.supervise.compile import compile_run, working_directory
from sbx.supervise.execute import execute, finish


def run(options: dict[str, Any], command: list[str]) -> int:
    """The whole run, from the options as given. Raises SbxError only before anything was started."""
    if not command:
        raise UsageError("no command to run", remedy="write it after the options: sbx run -- make -j4")
    environ = environ_bytes()
    try:
        cwd = working_directory(options)
        compiled = compile_run(options, cwd=cwd, environ=dict(os.environ))
        if compiled.dependencies is not None:
            key = store.make_key(options, os.getcwdb(), environ)
            store.save(key, compiled.dependencies, dict(compiled.prepared), environ)
        done = execute(compiled.prepared, options, command, environ)
    except SbxError as error:
        from sbx.supervise.execute import record_failure

        record_failure(error, options, command)
        raise
    return finish(done)
