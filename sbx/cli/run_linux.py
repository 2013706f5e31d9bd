"""`sbx run` on Linux, on the compile side: make the plan, keep it, run it, say how it went."""

from __future__ import annotations

import os
import sys

from sbx.audit import environ_bytes
from sbx.cli.finish import finish, record_failure
from sbx.errors import SbxError, SetupFailed, UsageError
from sbx.launch import store
from sbx.report.run import tell
from sbx.report.words import visible
from sbx.supervise.compile import compile_run
from sbx.supervise.execute import Done, execute
from sbx.supervise.run_options import working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def command(options: dict[str, Any], words: list[str]) -> int:
    """The whole run, from the options as given. Raises SbxError only before anything was started."""
    environ = environ_bytes()
    try:
        if not words:
            raise UsageError("no command to run", remedy="write it after the options: sbx run -- make -j4")
        cwd = working_directory(options)
        compiled = compile_run(options, cwd=cwd, environ=dict(os.environ), command=words)
        tell(compiled.notes, options)
        kept = False
        if options.get("trace"):
            from sbx.report.view import view_of

            compiled.prepared["view"] = view_of(compiled.profile, compiled.policy).entry()
        if compiled.dependencies is not None:
            key = store.make_key(options, os.getcwdb(), environ)
            if kept := store.save(key, compiled.dependencies, dict(compiled.prepared), environ):
                keep_code(environ)
        if options.get("verbose"):
            from sbx.report.verbose import machine_lines, policy_lines

            said = policy_lines(compiled.policy, compiled.profile)
            tell((*said, *machine_lines(compiled.enforced, len(compiled.plan.operations), kept)), options)
        done = execute(compiled.prepared, options, list(compiled.command), environ)
        if done.outcome["failure"] is not None and not done.outcome["started"]:
            forget_what_was_probed()
    except SbxError as error:
        record_failure(error, options, words)
        raise
    except OSError as error:
        failed = refused_by_the_system(error)
        record_failure(failed, options, words)
        raise failed from error
    except Exception as error:
        mistake = f"a mistake in sbx itself: {type(error).__name__}: {error}"
        record_failure(SbxError(mistake, remedy="please report it"), options, words)
        raise
    return finish(done)


def forget_what_was_probed() -> None:
    from sbx.backends import capability_cache

    capability_cache.forget()


def keep_code(environ: dict[bytes, bytes]) -> None:
    """Both sides' modules, for the next start."""
    if sys.flags.no_site:
        from sbx.launch.bundle import write_bundle
        from sbx.launch.compile_side import keep

        write_bundle(environ)
        keep(environ)


def refused_by_the_system(error: OSError) -> SetupFailed:
    """No descriptors, processes or memory left, a file that went away: the command was not started."""
    where = f" ({visible(os.fsdecode(error.filename))})" if isinstance(error.filename, str | bytes) else ""
    from sbx.launch.exhausted import remedy_for

    remedy = remedy_for(error.errno or 0)
    return SetupFailed(f"could not start the sandbox: {error.strerror or error}{where}", remedy=remedy)


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
