"""The end of a run on the command line: result, JSON record, audit log, report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from sbx import audit
from sbx.errors import EXIT_INTERNAL, SbxError
from sbx.supervise.result import ResultNotWritten, failed_result, make_result, redactor_of, write_json

if TYPE_CHECKING:
    from sbx.supervise.execute import Done


def finish(done: Done) -> int:
    """Result, JSON, audit, report. Returns the exit code of `sbx run`."""
    from sbx.report.denials import traced
    from sbx.report.run import report

    traced(done)
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
    return code


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
