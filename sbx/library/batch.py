"""Many commands: jobs from JSON lines, bounded parallelism, one JSON line for each result, resumable.

A job is an object with `cmd`, and optionally `id`, `cwd`, `profile`, `policy`, `env`, `extra_env`, `stdin`, `timeout`,
`limits`, `read`, `modify`, `deny`, `net`. Each runs in a fresh sandbox. A result is the record of `sbx run --json` with
the job's `id` in front.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sbx.errors import SbxError, UsageError
from sbx.library.api import run
from sbx.library.types import words_of
from sbx.model.profile import Limits
from sbx.model.source import Source
from sbx.model.units import BadUnit, parse_count, parse_duration, parse_size
from sbx.supervise.result import failed_result, to_json

FIELDS = (
    "cmd", "id", "cwd", "profile", "policy", "env", "extra_env", "stdin", "timeout", "limits", "read", "modify", "deny",
    "net",
)  # fmt: skip
LIMITS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "wall": ("wall_s", parse_duration),
    "cpu": ("cpu_s", parse_duration),
    "grace": ("grace_s", parse_duration),
    "memory": ("memory_bytes", parse_size),
    "pids": ("pids", parse_count),
    "nofile": ("nofile", parse_count),
    "stdout": ("stdout_bytes", parse_size),
    "stderr": ("stderr_bytes", parse_size),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One line, validated. Plain values only: a cluster carries it to its workers."""

    id: str
    cmd: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)  # keyword arguments of sbx.run


class Engine(Protocol):
    """Where jobs run. `run` yields each job's record once, in any order."""

    def run(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]: ...

    def close(self) -> None: ...


def read_jobs(lines: Iterable[str], name: str, defaults: dict[str, Any] | None = None) -> list[Job]:
    """Raises UsageError with the line of whatever is wrong: nothing is run of a list that is not whole."""
    jobs: list[Job] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        source = Source(name, number)
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise UsageError(f"not JSON: {error}", source=source, remedy='write {"cmd": ["true"]}') from None
        job = _job(fields, str(number), defaults or {}, source)
        if job.id in seen:
            raise UsageError(
                f"the id {job.id!r} is taken by line {seen[job.id]}", source=source, remedy="give each job its own id"
            )
        seen[job.id] = number
        jobs.append(job)
    return jobs


def _job(fields: Any, number: str, defaults: dict[str, Any], source: Source) -> Job:
    if not isinstance(fields, dict):
        raise UsageError("a job is an object", source=source, remedy='write {"cmd": ["true"]}')
    unknown = [name for name in fields if name not in FIELDS]
    if unknown:
        from sbx.policy.nearest import did_you_mean

        raise UsageError(f"unknown field {unknown[0]!r}", source=source, remedy=did_you_mean(unknown[0], FIELDS))
    try:
        command = tuple(words_of(_list_of_text("cmd", fields.get("cmd", ()))))
        options = {name: _checked(name, value) for name, value in {**defaults, **fields}.items() if value is not None}
    except (BadUnit, SbxError) as error:
        words = error.message if isinstance(error, SbxError) else str(error)
        remedy = error.remedy if isinstance(error, SbxError) else "write 30s, 512MiB or a number"
        raise UsageError(words, source=source, remedy=remedy) from None
    identity = str(options.pop("id", number))
    options.pop("cmd", None)
    return Job(identity, command, options)


def _checked(name: str, value: Any) -> Any:
    if name in ("read", "modify", "deny") or (name == "net" and not isinstance(value, str)):
        return _list_of_text(name, value)
    if name == "timeout":
        return parse_duration(str(value))
    if name == "limits":
        return _limits(value)
    if name == "stdin":
        return str(value).encode()
    if name == "extra_env" or (name == "env" and value != "all"):
        if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
            raise UsageError(f"{name} is an object of texts", remedy='write {"CI": "1"}')
        return value
    if name in ("cmd", "id", "env"):
        return value
    if not isinstance(value, str):
        raise UsageError(f"{name} is a text", remedy=f'write "{name}": "…"')
    return value


def _list_of_text(name: str, value: Any) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{name} is a list of texts", remedy=f'write "{name}": ["…"]')
    return list(value)


def _limits(value: Any) -> Limits:
    if not isinstance(value, dict):
        raise UsageError("limits is an object", remedy='write {"memory": "512MiB"}')
    found: dict[str, Any] = {}
    for name, text in value.items():
        if name not in LIMITS:
            from sbx.policy.nearest import did_you_mean

            raise UsageError(f"unknown limit {name!r}", remedy=did_you_mean(name, LIMITS))
        attribute, parse = LIMITS[name]
        found[attribute] = parse(str(text))
    return Limits(**found)


def run_job(job: Job) -> dict[str, Any]:
    """One job here and now, as its record. A job that cannot be run has a record, too."""
    try:
        result = run(job.cmd, **job.options)
    except SbxError as error:
        result = failed_result(error, {}, list(job.cmd))
    return {"id": job.id, **to_json(result)}


class LocalEngine:
    """Threads, as many as commands may run at once. Each waits for its command and does next to nothing itself."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._stopping = False

    def run(self, jobs: Sequence[Job]) -> Iterator[dict[str, Any]]:
        import queue

        done: queue.SimpleQueue[dict[str, Any] | BaseException] = queue.SimpleQueue()
        waiting = iter(jobs)
        lock = threading.Lock()

        def work() -> None:
            while not self._stopping:
                with lock:
                    job = next(waiting, None)
                if job is None:
                    return
                try:
                    record: dict[str, Any] | BaseException = run_job(job)
                except BaseException as error:  # a mistake of ours must not become a job without a result
                    record = error
                if not self._stopping:
                    done.put(record)

        threads = [threading.Thread(target=work, name=f"sbx-batch-{number}") for number in range(self.jobs)]
        for thread in threads:
            thread.start()
        try:
            for _ in jobs:
                record = done.get()
                if isinstance(record, BaseException):
                    raise record
                yield record
        finally:
            self.close()
            for thread in threads:
                thread.join()

    def close(self) -> None:
        """Commands that still run are killed, and have no result."""
        if not self._stopping:
            self._stopping = True
            from sbx.library.ending import shutdown

            shutdown()


class ResultFile:
    """Where the records go: appended one whole line at a time, so that a batch can go on where it was interrupted."""

    def __init__(self, path: str, *, resume: bool) -> None:
        self.path = path
        self.done: set[str] = set()
        flags = os.O_RDWR | os.O_CREAT | (0 if resume else os.O_EXCL) | getattr(os, "O_CLOEXEC", 0)
        try:
            self._fd = os.open(path, flags, 0o666)
        except FileExistsError:
            raise UsageError(f"{path} exists", remedy="go on with --resume, or name another file with --out") from None
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", remedy="name a file that can be written") from None
        if resume:
            self._read()

    def _read(self) -> None:
        """The ids that have a result. A line that was cut short has none, and goes."""
        with open(self.path, "rb") as file:
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self.done.add(str(json.loads(line)["id"]))
            except (ValueError, KeyError, TypeError):
                raise UsageError(
                    "not a result of a batch", source=Source(self.path, number), remedy="name the file of this batch"
                ) from None
        os.truncate(self.path, len(whole))
        os.lseek(self._fd, 0, os.SEEK_END)

    def write(self, record: dict[str, Any]) -> None:
        view = memoryview(json.dumps(record).encode() + b"\n")
        while view:
            view = view[os.write(self._fd, view) :]

    def close(self) -> None:
        os.close(self._fd)
