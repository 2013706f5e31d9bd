"""One run on Windows: a job object and a restricted token."""

from __future__ import annotations

import sys
import time

from sbx.backends import windows
from sbx.model.result import Result, Usage
from sbx.supervise.elsewhere import Job, Outcome, environment, result_of

assert sys.platform == "win32"

from sbx.backends import windows_run  # noqa: E402  only there


def run(job: Job) -> tuple[Result, list[str]]:
    windows.prepare(job.profile, job.cwd)
    began = time.monotonic()
    ended = windows_run.run(job.command, env=environment(job, {}), cwd=job.cwd, limits=job.profile.limits)
    verdict = ended.verdict
    fields = (verdict.status, verdict.rc, verdict.exit_code, verdict.signal, verdict.reason)
    usage = Usage(cpu_ms=ended.cpu_ms, pids=ended.processes)
    outcome = Outcome(*fields, ended.stdout, ended.stderr, ended.dropped, usage)
    return result_of(job, outcome, "job-object", windows.enforced(job.profile), began, ()), []
