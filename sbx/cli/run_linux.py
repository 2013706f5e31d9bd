"""`sbx run` on Linux, on the compile side: make the plan, keep it, run it, say how it went."""

from __future__ import annotations

import os
import sys

from sbx.errors import SbxError, SetupFailed, UsageError
from sbx.launch import store
from sbx.launch.main import carry_out, get_ready_to_record, is_plain, is_plain_success, options_are_plain
from sbx.supervise.compile import compile_run
from sbx.supervise.run_options import working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.supervise.compile import Compiled
    from sbx.supervise.execute import Done

# Thousands of small things, which nobody has to take apart: the process ends soon after the command.
_held_to_the_end: list[Compiled] = []


def command(options: dict[str, Any], words: list[str]) -> int:
    """The whole run, from the options as given. Raises SbxError only before anything was started."""
    environ = {os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}
    done: dict[str, Any] | Done
    try:
        if not words:
            raise UsageError("no command to run", remedy="write it after the options: sbx run -- make -j4")
        cwd = working_directory(options)
        compiled = compile_run(options, cwd=cwd, environ=dict(os.environ), command=words)
        if compiled.notes:
            from sbx.report.run import tell

            tell(compiled.notes, options)
        if options.get("trace"):
            from sbx.report.view import view_of

            compiled.prepared["view"] = view_of(compiled.profile, compiled.policy).entry()
        _held_to_the_end.append(compiled)
        key = None if compiled.dependencies is None else store.make_key(options, os.getcwdb(), environ)
        if options.get("verbose"):
            say_what_it_is_made_from(compiled, options)
        if is_plain(compiled.prepared) and options_are_plain(options):
            done = run_plainly(compiled, key, options, environ)
        else:
            done = run_in_full(compiled, key, options, environ)
        outcome = done["outcome"] if isinstance(done, dict) else done.outcome
        if outcome["failure"] is not None and not outcome["started"]:
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
    if isinstance(done, dict):
        if is_plain_success(done):
            from sbx.launch.audit_line import record_success

            if done["recorded"] or record_success(done):
                return 0
        return finish_fast(done)
    from sbx.cli.finish import finish

    return finish(done)


def say_what_it_is_made_from(compiled: Compiled, options: dict[str, Any]) -> None:
    from sbx.report.run import tell
    from sbx.report.verbose import machine_lines, policy_lines

    kept = compiled.dependencies is not None
    lines = policy_lines(compiled.policy, compiled.profile)
    tell((*lines, *machine_lines(compiled.enforced, len(compiled.plan.operations), kept)), options)


def forget_what_was_probed() -> None:
    from sbx.backends import capability_cache

    capability_cache.forget()


def run_plainly(
    compiled: Compiled, key: bytes | None, options: dict[str, Any], environ: dict[bytes, bytes]
) -> dict[str, Any]:
    """As the hot path runs it, from the plan that was just made."""
    prepared, command = compiled.prepared, list(compiled.command)
    if not code_is_kept():
        keep(compiled, key, environ)
        return carry_out(prepared, options, command, environ, meanwhile=get_ready_to_record)

    def meanwhile() -> None:
        keep_plan(compiled, key, environ)
        get_ready_to_record()

    return carry_out(prepared, options, command, environ, meanwhile=meanwhile)


def run_in_full(compiled: Compiled, key: bytes | None, options: dict[str, Any], environ: dict[bytes, bytes]) -> Done:
    """With everything around it that some option or limit asks for."""
    keep(compiled, key, environ)
    from sbx.supervise.execute import execute

    return execute(compiled.prepared, options, list(compiled.command), environ)


def keep(compiled: Compiled, key: bytes | None, environ: dict[bytes, bytes]) -> None:
    """The plan and both sides' modules, for the next start."""
    if not keep_plan(compiled, key, environ) or code_is_kept():
        return
    if not came_from_the_bundle():
        from sbx.launch.bundle import write_bundle

        write_bundle(environ)
    from sbx.launch import compile_side

    compile_side.keep(environ)


def keep_plan(compiled: Compiled, key: bytes | None, environ: dict[bytes, bytes]) -> bool:
    if key is None or compiled.dependencies is None:
        return False
    return store.save(key, compiled.dependencies, dict(compiled.prepared), environ)


def code_is_kept() -> bool:
    """Did both sides' modules come from where they are kept, or does nobody want them there?"""
    if not sys.flags.no_site:
        return True
    from sbx.launch.compile_side import is_loaded

    return came_from_the_bundle() and is_loaded()


def came_from_the_bundle() -> bool:
    return sys.modules["sbx"].__spec__ is None


def record_failure(error: SbxError, options: dict[str, Any], words: list[str]) -> None:
    from sbx.cli.finish import record_failure

    record_failure(error, options, words)


def refused_by_the_system(error: OSError) -> SetupFailed:
    """No descriptors, processes or memory left, a file that went away: the command was not started."""
    from sbx.launch.exhausted import remedy_for
    from sbx.report.words import visible

    where = f" ({visible(os.fsdecode(error.filename))})" if isinstance(error.filename, str | bytes) else ""
    remedy = remedy_for(error.errno or 0)
    return SetupFailed(f"could not start the sandbox: {error.strerror or error}{where}", remedy=remedy)


def finish_fast(done: dict[str, Any]) -> int:
    """It ran as on the hot path, and it was not plain."""
    from sbx.cli.finish import finish
    from sbx.supervise.execute import Done

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
