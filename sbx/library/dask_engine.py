"""Jobs on an existing Dask cluster: each worker sandboxes locally, and the records come back.

A worker that is lost takes its running jobs with it; the scheduler gives them to another one. Each job may be lost
once; its record says so in `notes` and `attempts`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from sbx.errors import SbxError, UsageError
from sbx.library.batch import Job, run_job
from sbx.supervise.result import failed_result, to_json

MAX_ATTEMPTS = 2
AT_ONCE = 1000  # futures; further jobs follow as results come in


def run_on_worker(job: Job, topic: str) -> dict[str, Any]:
    """On a worker: say that it starts, so that a second start is known as one."""
    from distributed import get_client, get_worker

    before = [str(event[1]) for event in get_client().get_events(topic)]
    here = str(get_worker().address)
    if len(before) >= MAX_ATTEMPTS:
        return lost(job, before)
    get_worker().log_event(topic, here)
    record = run_job(job)
    record["attempts"] = len(before) + 1
    record["worker"] = here
    if before:
        record["notes"] = [f"the worker {before[-1]} was lost while it ran this job; run again on {here}"]
    return record


def lost(job: Job, workers: Sequence[str]) -> dict[str, Any]:
    places = " and ".join(workers) or "its workers"
    error = SbxError(f"{places} were lost while they ran this job", remedy="it may use up more than a worker has")
    return {"id": job.id, **to_json(failed_result(error, {}, list(job.cmd))), "attempts": len(workers)}


class DaskEngine:
    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise UsageError("the Dask engine is not installed", remedy="pip install 'sbx[dask]'") from None
        try:
            self.client: Any = Client(address, timeout="10s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"no Dask scheduler at {address}: {error}", remedy="check the address") from None
        self._name = f"sbx-batch-{os.urandom(8).hex()}"

    def run(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        from distributed import as_completed

        waiting = iter(jobs)
        pending: dict[str, Job] = {}
        results: Any = as_completed(loop=self.client.loop)

        def submit() -> None:
            job = next(waiting, None)
            if job is not None:
                future = self.client.submit(
                    run_on_worker, job, f"{self._name}-{job.id}", key=f"{self._name}-{job.id}", pure=False, retries=0
                )
                pending[future.key] = job
                results.add(future)

        for _ in range(min(AT_ONCE, len(jobs))):
            submit()
        while pending:
            future = next(results)
            job = pending.pop(future.key)
            error = future.exception()
            if error is None:
                yield future.result()
            else:
                yield self._failed(job, error)
            future.release()
            submit()

    def _failed(self, job: Job, error: BaseException) -> dict[str, Any]:
        from distributed.scheduler import KilledWorker

        if isinstance(error, KilledWorker):
            return lost(job, [str(event[1]) for event in self.client.get_events(f"{self._name}-{job.id}")])
        words = (
            error
            if isinstance(error, SbxError)
            else SbxError(f"{type(error).__name__}: {error}", remedy="see the worker's log")
        )
        return {"id": job.id, **to_json(failed_result(words, {}, list(job.cmd)))}

    def close(self) -> None:
        self.client.close()
