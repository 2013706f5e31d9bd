"""A supervised run of a wrapped command: a wall clock, bounded capture, and nothing of its group left.

The exit is an event on a descriptor: of a kqueue on macOS, of a pidfd on Linux, so that the loop runs in the tests of
either. Only the start of the process differs from a plain pipe reader.
"""

from __future__ import annotations

import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from sbx.backends.wrapped import WrappedCommand
from sbx.model.profile import DEFAULT_GRACE_S, Limits
from sbx.model.records import dataclass, field
from sbx.model.result import Status

assert sys.platform != "win32"  # process groups: see sbx.backends.windows for the other way

_CHUNK = 65536


@dataclass(slots=True)
class Stream:
    """What one stream said, up to its cap, and how much more it was."""

    cap: int | None
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def take(self, chunk: bytes) -> None:
        room = len(chunk) if self.cap is None else max(0, self.cap - len(self.data))
        self.data += chunk[:room]
        self.dropped += max(0, len(chunk) - room)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended, in the words of the contract."""

    status: Status
    rc: int
    exit_code: int | None
    signal: int | None
    reason: str
    stdout: bytes
    stderr: bytes
    truncated: dict[str, int]


@contextmanager
def exit_descriptor(pid: int) -> Iterator[int]:
    """A descriptor that becomes readable when the process ends."""
    if sys.platform == "darwin":
        queue = select.kqueue()
        try:
            event = select.kevent(pid, filter=select.KQ_FILTER_PROC, flags=select.KQ_EV_ADD, fflags=select.KQ_NOTE_EXIT)
            try:
                queue.control([event], 0)
            except ProcessLookupError:  # it ended before it could be watched: a closed pipe end is readable at once
                reading, writing = os.pipe()
                os.close(writing)
                try:
                    yield reading
                finally:
                    os.close(reading)
                return
            yield queue.fileno()
        finally:
            queue.close()
    elif sys.platform == "linux":
        descriptor = os.pidfd_open(pid)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
    else:
        raise NotImplementedError(f"no exit events on {sys.platform}")


def run(
    wrapped: WrappedCommand,
    *,
    env: Mapping[str, str],
    cwd: str,
    limits: Limits,
    stdin: bytes = b"",
    inherit: bool = False,
) -> Ended:
    """Start, wait, end. Every way out leaves no member of the group behind. `inherit`: the caller's own streams."""
    streams = {} if inherit else {"stdout": Stream(limits.stdout_bytes), "stderr": Stream(limits.stderr_bytes)}
    end = None if inherit else subprocess.PIPE
    with subprocess.Popen(
        wrapped.argv,
        cwd=cwd,
        env={**env, **dict(wrapped.env_additions)},
        stdin=subprocess.PIPE if stdin else None if inherit else subprocess.DEVNULL,
        stdout=end,
        stderr=end,
        start_new_session=True,
    ) as process:
        try:
            timed_out = _supervise(process, streams, limits, stdin)
        finally:
            _kill_group(process.pid, signal.SIGKILL)
    return _ended(process.returncode, timed_out, streams, limits)


def _supervise(process: subprocess.Popen[bytes], streams: dict[str, Stream], limits: Limits, stdin: bytes) -> bool:
    """Until the command has ended and its pipes are dry. True if the wall clock ended it."""
    deadline = None if limits.wall_s is None else time.monotonic() + limits.wall_s
    grace = DEFAULT_GRACE_S if limits.grace_s is None else limits.grace_s
    timed_out = False
    with exit_descriptor(process.pid) as gone, selectors.DefaultSelector() as selector:
        selector.register(gone, selectors.EVENT_READ, "exit")
        for name in streams:
            pipe = getattr(process, name)
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ, name)
        if process.stdin is not None:
            os.set_blocking(process.stdin.fileno(), False)
            selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        waiting = memoryview(stdin)
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            for key, _ in selector.select(left):
                if key.data == "exit":
                    _kill_group(process.pid, signal.SIGKILL)  # what it left behind holds the pipes open
                    _drain(process, streams)
                    return timed_out
                if key.data == "stdin":
                    waiting = _feed(process, waiting, selector)
                elif not _read(getattr(process, key.data), streams[key.data]):
                    selector.unregister(key.fileobj)
            if deadline is not None and time.monotonic() >= deadline:
                _kill_group(process.pid, signal.SIGKILL if timed_out else signal.SIGTERM)
                deadline = None if timed_out else time.monotonic() + grace
                timed_out = True


def _feed(process: subprocess.Popen[bytes], waiting: memoryview, selector: selectors.BaseSelector) -> memoryview:
    assert process.stdin is not None
    try:
        waiting = waiting[os.write(process.stdin.fileno(), waiting[:_CHUNK]) :]
    except BrokenPipeError:
        waiting = waiting[:0]  # the command does not want the rest
    if not waiting:
        selector.unregister(process.stdin)
        process.stdin.close()
    return waiting


def _read(pipe: IO[bytes], stream: Stream) -> bool:
    """One chunk; False at the end."""
    try:
        chunk = os.read(pipe.fileno(), _CHUNK)
    except BlockingIOError:
        return True
    stream.take(chunk)
    return bool(chunk)


def _drain(process: subprocess.Popen[bytes], streams: dict[str, Stream]) -> None:
    """What is in the pipes already. A daemon in a session of its own may hold them open, so no waiting for the end."""
    for name, stream in streams.items():
        pipe = getattr(process, name)
        before = -1
        while before != len(stream.data) + stream.dropped:
            before = len(stream.data) + stream.dropped
            _read(pipe, stream)


def _kill_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass  # empty already; macOS says EPERM for a group of zombies


def _ended(returncode: int, timed_out: bool, streams: dict[str, Stream], limits: Limits) -> Ended:
    status, rc, reason = _status(returncode, timed_out, limits)
    output = {}
    for name, stream in streams.items():
        mark = f"\n[TRUNCATED] {stream.dropped} bytes dropped\n".encode() if stream.dropped else b""
        output[name] = bytes(stream.data) + mark
    return Ended(
        status,
        rc,
        None if timed_out or returncode < 0 else returncode,
        -returncode if returncode < 0 else None,
        reason,
        output.get("stdout", b""),
        output.get("stderr", b""),
        {name: stream.dropped for name, stream in streams.items() if stream.dropped},
    )


def _status(returncode: int, timed_out: bool, limits: Limits) -> tuple[Status, int, str]:
    if timed_out:
        return Status.TIMEOUT, 124, f"process timed out after {limits.wall_s:g} s"
    if returncode == 0:
        return Status.OK, 0, ""
    if returncode > 0:
        return Status.EXIT, returncode, f"exit status {returncode}"
    number = -returncode
    name = signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"
    if number == signal.SIGXCPU and limits.cpu_s is not None:
        return Status.CPU_LIMIT, 152, f"CPU limit of {limits.cpu_s:g} s reached ({name})"
    known = {signal.SIGKILL: Status.KILLED_KILL, signal.SIGTERM: Status.KILLED_TERM}
    return known.get(signal.Signals(number), Status.KILLED_SIGNAL), 128 + number, f"killed by {name}"
