"""The result of a run, made from everything that is known of it, and its JSON form, written whole or not at all."""

from __future__ import annotations

import functools
import os
import sys

from sbx.errors import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, SbxError, UsageError
from sbx.launch.environment import secret_names
from sbx.launch.redact import Redactor, redactor_for
from sbx.model.guarantee import Applied
from sbx.model.records import asdict
from sbx.model.result import RESULT_VERSION, Result, Status, Usage
from sbx.supervise.outcome import judge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.launch.streams import StreamPump, Streams
    from sbx.supervise.execute import Done

PARTIAL = "PARTIAL_ENFORCEMENT"
S_IFMT, S_IFREG = 0o170000, 0o100000


class ResultNotWritten(SbxError):
    """The JSON record could not be stored; an older one at its place is untouched."""

    slug = "result_not_written"


def new_trace_id() -> str:
    return os.urandom(16).hex()


def redactor_of(done: Done) -> Redactor:
    """Masks what this run must not tell: values of the caller's variables, and of those set for the command."""
    if done.redactor is not None:
        return done.redactor
    environ = {**done.environ, **done.run["env"]}
    return redactor_for(environ, secret_names=secret_names(done.prepared["env"], environ))


def make_result(done: Done) -> Result:
    redactor = redactor_of(done)
    ended = judge(done.outcome, done.prepared["limits"])
    enforced = dict(_applied(done.prepared["enforced"]))
    done.notes.extend(stream_notes(done.streams))
    streams = done.streams
    return Result(
        status=ended.status,
        rc=ended.rc,
        exit_code=ended.exit_code,
        signal=ended.signal,
        reason=redactor.text(ended.reason + partial_words(enforced)),
        duration_ms=round(done.outcome["duration_s"] * 1000),
        cmd=tuple(redactor.argv(done.command)),
        cwd=os.fsdecode(done.prepared["launch"]["cwd"]),
        profile=done.prepared["profile"],
        trace_id=new_trace_id(),
        backend=done.prepared["backend"],
        stdout=_captured(streams.stdout if streams else None),
        stderr=_captured(streams.stderr if streams else None),
        truncated=_truncated(streams),
        usage=Usage(round(done.outcome["cpu_s"] * 1000), done.outcome["max_rss_bytes"], done.pids_peak),
        denials=done.denials,
        network=done.network,
        enforced=enforced,
    )


@functools.lru_cache(maxsize=16)
def _applied(rows: tuple[tuple[str, bool, bool, str], ...]) -> dict[str, Applied]:
    """The same for every run of a plan."""
    return {row[0]: Applied(row[1], row[2], row[3]) for row in rows}


def failed_result(error: SbxError, options: dict[str, Any], command: list[str]) -> Result:
    """Nothing was run."""
    status = {EXIT_NOT_FOUND: Status.NOT_FOUND, EXIT_NOT_EXECUTABLE: Status.NOT_EXECUTABLE}
    redactor = redactor_for({os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()})
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = ""
    return Result(
        status=status.get(error.exit_code, Status.INTERNAL_ERROR),
        rc=error.exit_code,
        exit_code=None,
        signal=None,
        reason=redactor.text(str(error)),
        duration_ms=0,
        cmd=tuple(redactor.argv(command)),
        cwd=str(options.get("cwd", cwd)),
        profile=str(options.get("profile", "unrestricted")),
        trace_id=new_trace_id(),
        backend="none",
    )


def partial_words(enforced: dict[str, Applied]) -> str:
    lacking = [f"{name} ({each.details})" for name, each in enforced.items() if each.requested and not each.applied]
    return f"; {PARTIAL}: not applied: {', '.join(lacking)}" if lacking else ""


def stream_notes(streams: Streams | None) -> list[str]:
    """What happened to the output on its way to the caller."""
    notes = []
    for name, pump in _outputs(streams):
        if pump.error is not None and pump.error.errno != 32:  # EPIPE: the reader had enough, as readers do
            notes.append(f"{name} could not be written on: {pump.error.strerror}")
        if pump.undelivered:
            notes.append(f"{name}: {pump.undelivered} bytes were not taken by the reader in time")
        if pump.dropped:
            notes.append(f"{name} was cut at its limit: {pump.dropped} bytes dropped")
    return notes


def _outputs(streams: Streams | None) -> list[tuple[str, StreamPump]]:
    if streams is None:
        return []
    named = (("standard output", streams.stdout), ("standard error", streams.stderr))
    return [(name, pump) for name, pump in named if pump is not None]


def _captured(pump: StreamPump | None) -> bytes:
    return pump.captured() if pump is not None and pump.capture_bytes else b""


def _truncated(streams: Streams | None) -> dict[str, int]:
    """Stream -> bytes that are missing: from what the caller got, or else from the capture."""
    found = {}
    for name, pump in (("stdout", streams.stdout), ("stderr", streams.stderr)) if streams else ():
        if pump is not None and (pump.dropped or pump.capture_dropped):
            found[name] = max(pump.dropped, pump.capture_dropped)
    return found


def to_json(result: Result, redactor: Redactor | None = None) -> dict[str, Any]:
    """The record's fields, by their names in it. Secrets are masked in the captured streams, too."""
    redactor = redactor or Redactor()
    stdout, stderr = redactor.data(result.stdout), redactor.data(result.stderr)
    binary = [name for name, data in (("stdout", stdout), ("stderr", stderr)) if not _is_text(data)]
    note = f"; bytes of {' and '.join(binary)} that are not UTF-8 are replaced here" if binary else ""
    return {
        "version": RESULT_VERSION,
        "status": result.status.value,
        "rc": result.rc,
        "exit_code": result.exit_code,
        "signal": result.signal,
        "reason": _text(result.reason + note),
        "duration_ms": result.duration_ms,
        "cmd": [_text(word) for word in result.cmd],
        "cwd": _text(result.cwd),
        "profile": result.profile,
        "traceId": result.trace_id,
        "backend": result.backend,
        "stdout": stdout.decode("utf-8", "replace"),
        "stderr": stderr.decode("utf-8", "replace"),
        "truncated": dict(result.truncated),
        "usage": asdict(result.usage),
        "denials": [{key: _plain(value) for key, value in asdict(each).items()} for each in result.denials],
        "network": [{key: _plain(value) for key, value in each.items()} for each in result.network],
        "enforced": {
            name: {"requested": each.requested, "applied": each.applied, "details": each.details}
            for name, each in result.enforced.items()
        },
    }


def _is_text(data: bytes) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _text(text: str) -> str:
    """JSON knows no lone surrogates: a name that is not UTF-8 gets replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _plain(value: Any) -> Any:
    return _text(value) if isinstance(value, str) else value


class JsonTarget:
    """Where the record goes, opened before the command runs.

    Afterwards would be too late: the command may have put a symlink there, and sbx, outside, would follow it. So the
    folder is held open, and the record replaces whatever has that name in it.
    """

    def __init__(self, path: str) -> None:
        import json  # noqa: F401  # there when the run is over, whatever is left to open then

        self.path = path
        self._folder = self._special = -1
        if path == "-":
            raise UsageError(
                "--json - would write to standard output, which belongs to the command",
                remedy="name a file, or another descriptor as /dev/fd/3",
            )
        try:
            self._open(path)
        except OSError as error:
            raise self._error(error) from None

    def _open(self, path: str) -> None:
        self._mode = -1
        try:
            found = os.stat(path)
        except FileNotFoundError:
            real = os.path.join(os.path.realpath(os.path.dirname(path) or "."), os.path.basename(path))
        else:
            real = os.path.realpath(path)
            if found.st_mode & S_IFMT != S_IFREG:
                self._open_special(path, found)
                return
            self._mode = found.st_mode & 0o777
        folder, self._name = os.path.split(real)
        self._folder = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0))
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, os.strerror(13), folder)

    def _open_special(self, path: str, found: os.stat_result) -> None:
        """A pipe, a terminal, another descriptor: nothing to replace."""
        try:
            mine = os.fstat(1)
        except OSError:
            mine = None
        nowhere = os.stat(os.devnull)
        same = mine is not None and (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)
        if same and (found.st_dev, found.st_ino) != (nowhere.st_dev, nowhere.st_ino):
            raise UsageError(f"--json {path} is standard output, which belongs to the command", remedy="name a file")
        self._special = os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_CLOEXEC", 0))

    def write(self, result: Result, redactor: Redactor | None = None) -> None:
        """Raises ResultNotWritten; then nothing has changed."""
        import json

        data = json.dumps(to_json(result, redactor), indent=2).encode() + b"\n"
        try:
            if self._special >= 0:
                _write_all(self._special, data)
            else:
                self._replace(data)
        except OSError as error:
            raise self._error(error) from None

    def close(self) -> None:
        for descriptor in (self._folder, self._special):
            if descriptor >= 0:
                os.close(descriptor)
        self._folder = self._special = -1

    def _replace(self, data: bytes) -> None:
        draft = f".{self._name[:200]}.{os.getpid()}.{os.urandom(4).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(draft, flags, 0o666, dir_fd=self._folder)
        try:
            try:
                if self._mode >= 0 and sys.platform != "win32":
                    os.fchmod(descriptor, self._mode)
                _write_all(descriptor, data)
            finally:
                os.close(descriptor)
            os.rename(draft, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except OSError:
            os.unlink(draft, dir_fd=self._folder)
            raise

    def _error(self, error: OSError) -> ResultNotWritten:
        words = error.strerror or str(error)
        remedy = "make room or name another file" if error.errno in (28, 122) else "name a file that can be written"
        return ResultNotWritten(f"could not write the result to {self.path}: {words}", remedy=remedy)


def write_json(result: Result, path: str, redactor: Redactor | None = None) -> None:
    """At once, where nothing was run; a run opens its JsonTarget first."""
    target = JsonTarget(path)
    try:
        target.write(result, redactor)
    finally:
        target.close()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
