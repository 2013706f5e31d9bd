"""The audit log's writer: one JSON line for each run, appended with a single write, without the json module.

Concurrent writers need no lock: the kernel appends each write as a whole. Only the rare rotation takes one. Trouble
with the log is returned as words and never fails a run.
"""

from __future__ import annotations

import sys
import time

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.environment import secret_names
from sbx.launch.redact import redactor_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

NAME = b"audit.jsonl"
LOCK = b"audit.lock"
ROTATE_AT = 4 << 20
KEEP = 3  # rotated files: audit.jsonl.1 is the youngest
START = '{"time":'  # how each line starts: the reader finds the next record after a torn one by it

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def encode(value: Any) -> str:
    """JSON of None, bool, int, str, list, tuple and dict."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_string(str(key))}:{encode(each)}" for key, each in value.items()) + "}"
    return "[" + ",".join(encode(each) for each in value) + "]"


def _string(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_character(char) for char in text) + '"'


def _character(char: str) -> str:
    code = ord(char)
    if 0x20 <= code < 0x7F:
        return _ESCAPES.get(char, char)
    if char in _ESCAPES:
        return _ESCAPES[char]
    if 0xD800 <= code <= 0xDFFF:  # a byte of a name that is not UTF-8
        return "\\ufffd"
    if code > 0xFFFF:
        code -= 0x10000
        return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
    return f"\\u{code:04x}"


def stamp(seconds: float) -> str:
    """UTC, in milliseconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"


def record_success(done: dict[str, Any]) -> bool:
    """After the hot path's plain success. False: it could not be written, which the report has to say."""
    if "no-audit" in done["options"]:
        return True
    prepared, outcome, environ = done["prepared"], done["outcome"], done["environ"]
    env = done["run"]["env"]  # with what --env and the profile set
    declared = {*secret_names(prepared["env"], environ), *secret_names(prepared["env"], env)}
    redactor = redactor_for(environ, env, secret_names=declared)
    fields = run_fields(
        trace_id=os.urandom(16).hex(),
        argv=redactor.argv(done["command"]),
        cwd=os.fsdecode(prepared["launch"]["cwd"]),
        profile=prepared["profile"],
        backend=prepared["backend"],
        status="OK",
        rc=0,
        reason="exited with status 0",
        duration_ms=round(outcome["duration_s"] * 1000),
        enforced=prepared["enforced"],
    )
    return append(fields, environ) is None


def run_fields(
    *,
    trace_id: str,
    argv: list[str],
    cwd: str,
    profile: str,
    backend: str,
    status: str,
    rc: int,
    reason: str,
    duration_ms: int,
    enforced: tuple[tuple[str, bool, bool, str], ...],
) -> dict[str, Any]:
    """What every record of a run holds. `enforced` names what was applied and by what, `lacking` what was not."""
    return {
        "event": "run",
        "traceId": trace_id,
        "platform": sys.platform,
        "argv": argv,
        "cwd": cwd,
        "profile": profile,
        "backend": backend,
        "status": status,
        "rc": rc,
        "reason": reason,
        "duration_ms": duration_ms,
        "enforced": {name: details for name, _, applied, details in enforced if applied},
        "lacking": {name: details for name, wanted, applied, details in enforced if wanted and not applied},
    }


def folder_of(environ: Mapping[bytes, bytes]) -> bytes | None:
    base = environ.get(b"XDG_STATE_HOME", b"")
    if base.startswith(b"/"):
        return base + b"/sbx"
    home = environ.get(b"HOME", b"")
    if sys.platform == "win32":
        home = os.fsencode(os.path.expanduser("~"))
    elif not home.startswith(b"/"):
        import pwd

        try:
            home = os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
        except KeyError:
            return None
    return home + b"/.local/state/sbx"


def append(fields: dict[str, Any], environ: Mapping[bytes, bytes], encode: Callable[[Any], str] = encode) -> str | None:
    """Write one record. Returns what went wrong, or None."""
    folder = folder_of(environ)
    if folder is None:
        return "no home folder to keep it in"
    line = START + _string(stamp(time.time())) + "," + encode(fields)[1:] + "\n"
    try:
        descriptor = _open(folder)
        try:
            data = line.encode("ascii")
            if os.write(descriptor, data) != len(data):
                return "the disk is full"
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size > ROTATE_AT:
            _rotate(folder)
    except OSError as error:
        return f"{os.fsdecode(folder)}: {error.strerror}"
    return None


def _open(folder: bytes) -> int:
    flags = os.O_WRONLY | os.O_APPEND
    if sys.platform != "win32":
        flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    path = folder + b"/" + NAME
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileNotFoundError:
        from sbx.kernel.own_folder import make_own_folder

        make_own_folder(folder)
        descriptor = os.open(path, flags | os.O_CREAT, 0o600)
    found = os.fstat(descriptor)
    if found.st_mode & 0o170000 != 0o100000:
        os.close(descriptor)
        raise OSError(22, "the audit log is not a file")
    if sys.platform != "win32" and found.st_uid != os.geteuid():  # sudo that kept HOME
        os.close(descriptor)
        raise OSError(1, "the audit log belongs to another user")
    if sys.platform != "win32" and found.st_mode & 0o077:
        os.fchmod(descriptor, 0o600)
    return descriptor


def _rotate(folder: bytes) -> None:
    """One of those who notice does it; a writer that still has the old file open finishes its line there."""
    if sys.platform == "win32":
        return  # a file that others have open cannot be renamed there
    else:
        import fcntl

        lock = os.open(folder + b"/" + LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path = folder + b"/" + NAME
            if os.stat(path).st_size <= ROTATE_AT:
                return  # somebody was faster
            for number in range(KEEP, 0, -1):
                older = path + b".%d" % (number - 1) if number > 1 else path
                try:
                    os.rename(older, path + b".%d" % number)
                except FileNotFoundError:
                    pass
        except BlockingIOError:
            pass  # somebody is at it
        finally:
            os.close(lock)
