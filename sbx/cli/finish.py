"""The end of a run on the command line: result, JSON record, audit log, report."""

from __future__ import annotations

import sys

from sbx import audit
from sbx.errors import EXIT_INTERNAL, SbxError
from sbx.supervise.result import ResultNotWritten, failed_result, make_result, redactor_of, write_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.supervise.execute import Done

TYPED = (2, 3)  # SIGINT, SIGQUIT


def finish(done: Done) -> int:
    """Result, JSON, audit, report. Returns the exit code of `sbx run`."""
    from sbx.report.denials import traced
    from sbx.report.run import report

    traced(done)
    overhear(done)
    result = make_result(done)
    code = result.rc
    if done.json_target is not None:
        try:
            done.json_target.write(result, redactor_of(done))
        except SbxError as error:
            print(f"sbx: {error}", file=sys.stderr)
            code = code or EXIT_INTERNAL
    if "no-audit" not in done.options:
        audit.record(result, done)
    report(result, done)
    interrupt_the_job(done)
    return code


def overhear(done: Done) -> None:
    """What the command's own error lines say of paths that are really denied, beyond what a trace saw."""
    pump = None if done.streams is None else done.streams.stderr
    text = pump.captured() if pump is not None and pump.capture_bytes else b""
    done.overheard = done.errors_at >= 0 or (pump is not None and pump.capture_bytes > 0)
    if pump is not None and "json" not in done.options:
        pump.capture_bytes = 0  # it was kept for this alone
    if done.outcome["status"] == 0 or not done.outcome["started"]:
        return
    if done.errors_at >= 0:
        from sbx.launch.overhear import errors_since

        text = errors_since(done.errors_at)
    done.said = text
    from sbx.report.said import is_worth_reading, likely_denials

    if is_worth_reading(text):
        import os

        from sbx.policy.layers import effective_profile, load_policy
        from sbx.report.view import view_of
        from sbx.supervise.run_options import option_rules

        cwd = os.fsdecode(done.prepared["launch"]["cwd"])
        try:
            policy = load_policy(cwd, policy_file=done.options.get("policy"), environ=os.environ)
            profile = effective_profile(policy, done.options.get("profile"), option_rules(done.options))
        except SbxError:
            return  # the policy was changed meanwhile: there is nothing to hold the lines against
        seen = {each.path for each in done.denials}
        said = likely_denials(view_of(profile, policy), text, cwd)
        done.denials = (*done.denials, *(each for each in said if each.path not in seen))


def interrupt_the_job(done: Done) -> None:
    """Ctrl-C, typed while the command had the terminal to itself: the kernel told the command's group only. The rest of
    the caller's job (a script, a loop, make) stops as well, as it would without sbx. Ends this process, too: a shell
    goes on after a command that merely exited, since that one must have had a use for the key."""
    seen = done.outcome
    if seen["typed"]:
        number, whole_job = seen["stop_signal"] or 0, False
    else:
        number, whole_job = (seen["status"] or 0) & 0x7F, True
        if not done.run["foreground"] or seen["timed_out"] or seen["limit"] is not None or seen["stop_signal"]:
            return
    if number not in TYPED or sys.platform == "win32":
        return
    import os
    import resource
    import signal

    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # SIGQUIT: it is not sbx that should leave a core file
    signal.signal(number, signal.SIG_DFL)
    if whole_job:
        os.killpg(0, number)
    os.kill(os.getpid(), number)


def record_failure(error: SbxError, options: dict[str, Any], command: list[str]) -> None:
    """Nothing was run: the JSON and the audit log say so all the same."""
    result = failed_result(error, options, command)
    if "json" in options and options["json"] != "-" and not isinstance(error, ResultNotWritten):
        try:
            write_json(result, options["json"])
        except SbxError as trouble:
            print(f"sbx: {trouble}", file=sys.stderr)
    if "no-audit" not in options:
        audit.record_unavailable(result, error)
