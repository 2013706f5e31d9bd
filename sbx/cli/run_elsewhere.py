"""`sbx run` where Linux is not: prepare, run, then streams, record, audit log and report."""

from __future__ import annotations

import os
import sys
from typing import Any

from sbx.audit import fields_of
from sbx.cli.finish import record_failure
from sbx.errors import EXIT_INTERNAL, SbxError, UsageError
from sbx.launch.audit_line import append
from sbx.model.result import Result
from sbx.report.plain import facts, is_worth_telling
from sbx.report.run import print_facts, tell
from sbx.report.verbose import policy_lines
from sbx.supervise import elsewhere
from sbx.supervise.result import write_json
from sbx.supervise.run_options import working_directory


def command(options: dict[str, Any], words: list[str]) -> int:
    try:
        if not words:
            raise UsageError("no command to run", remedy="write it after the options: sbx run -- make -j4")
        job = elsewhere.prepare(options, words, cwd=working_directory(options), environ=dict(os.environ))
        tell(job.notes, options)
        if options.get("verbose"):
            tell(tuple(policy_lines(job.policy, job.profile)), options)
        result, notes = elsewhere.perform(job, sys.platform)
    except SbxError as error:
        record_failure(error, options, words)
        raise
    return finish(result, notes, options)


def finish(result: Result, notes: list[str], options: dict[str, Any]) -> int:
    """What was captured goes to the caller's streams, then everything else that a run ends with."""
    for number, data in ((1, result.stdout), (2, result.stderr)):
        view = memoryview(data)
        while view:
            view = view[os.write(number, view) :]
    code = result.rc
    if "json" in options:
        try:
            write_json(result, options["json"])
        except SbxError as error:
            print(f"sbx: {error}", file=sys.stderr)
            code = code or EXIT_INTERNAL
    if "no-audit" not in options and (trouble := append(fields_of(result), elsewhere.environ_bytes())):
        notes.append(f"no audit record was written: {trouble}")
    when = options.get("report", "auto")
    if when == "always" or (when == "auto" and is_worth_telling(result, notes)):
        print_facts(facts(result, notes, ()))
    return code
