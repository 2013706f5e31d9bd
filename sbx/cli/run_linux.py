"""`sbx run` on Linux, on the compile side: make the plan, keep it, run it, say how it went."""

from __future__ import annotations

import os
from typing import Any

from sbx.cli.finish import finish, record_failure
from sbx.errors import SbxError, UsageError
from sbx.launch import store
from sbx.launch.bundle import write_bundle
from sbx.report.run import tell
from sbx.report.view import view_of
from sbx.supervise.compile import compile_run
from sbx.supervise.execute import Done, execute
from sbx.supervise.run_options import working_directory


def command(options: dict[str, Any], words: list[str]) -> int:
    """The whole run, from the options as given. Raises SbxError only before anything was started."""
    environ = dict(os.environb)
    try:
        if not words:
            raise UsageError("no command to run", remedy="write it after the options: sbx run -- make -j4")
        cwd = working_directory(options)
        compiled = compile_run(options, cwd=cwd, environ=dict(os.environ), command=words)
        tell(compiled.notes, options)
        if options.get("trace"):
            compiled.prepared["view"] = view_of(compiled.profile, compiled.policy).entry()
        if compiled.dependencies is not None:
            key = store.make_key(options, os.getcwdb(), environ)
            if store.save(key, compiled.dependencies, dict(compiled.prepared), environ):
                write_bundle(environ)
        done = execute(compiled.prepared, options, list(compiled.command), environ)
    except SbxError as error:
        record_failure(error, options, words)
        raise
    return finish(done)


def finish_fast(done: dict[str, Any]) -> int:
    """The hot path ran it, and it was not plain."""
    return finish(
        Done(
            prepared=done["prepared"],
            options=done["options"],
            command=done["command"],
            run=done["run"],
            outcome=done["outcome"],
            environ=done["environ"],
            streams=done["streams"],
            errors_at=done["errors_at"],
        )
    )
