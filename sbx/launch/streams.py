"""The command's streams where sbx has to look at them: caps, capture, masked live output, bytes for standard input.

A pump moves one stream and is driven by the supervisor's poll loop: it says which descriptor to wait for and why
(`fd`, `events`) and moves what it can without ever waiting itself. The caller's own descriptors are shared with
other processes, so O_NONBLOCK is never set on them; `outlet` knows how to write to each kind without it.
Bytes that nobody has to see are spliced from pipe to pipe and never enter this process.
"""

from __future__ import annotations

import os
import select
import sys

from sbx.launch.outlet import CHUNK, Outlet, enlarge, never_wait, open_outlet, splice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Protocol

    class Mask(Protocol):
        """Masks secret values in a stream of bytes; may hold back what could be the start of one."""

        def feed(self, data: bytes) -> bytes: ...

        def flush(self, cut: bool) -> bytes:
            """The rest at the end of the stream; `cut` when more was coming, so that a secret may have begun."""


POLLIN, POLLOUT = 1, 4  # as everywhere on Unix
EPIPE = 32
READ_SIZE = 65536
DEFAULT_CAPTURE = 1 << 20  # of each stream, where the caller named no cap


def marker(dropped: int, last: bytes) -> bytes:
    """What stands in for the bytes that were cut, on a line of its own. `last` is the last byte that was kept."""
    start = b"" if last in (b"", b"\n") else b"\n"
    return b"%s[TRUNCATED] %d byte%s dropped\n" % (start, dropped, b"" if dropped == 1 else b"s")


class StreamPump:
    """One output stream of the command: from a pipe to the caller (or nowhere), capped, a part of it captured.

    `out_fd` is the caller's descriptor or -1, `cap_bytes` what may pass at all, `capture_bytes` what is kept in memory
    at most. `mask` edits what goes out, never what is captured.
    """

    failure: tuple[str, int, str, bytes] | None = (
        None  # no trouble of an output ends the run: the command itself meets EPIPE
    )

    def __init__(
        self,
        read_fd: int,
        out_fd: int = -1,
        cap_bytes: int | None = None,
        capture_bytes: int = 0,
        mask: Mask | None = None,
    ) -> None:
        self.read_fd = read_fd
        never_wait(read_fd)  # our own end of our own pipe
        self.out: Outlet | None = open_outlet(out_fd) if out_fd >= 0 else None
        self.cap_bytes = cap_bytes
        self.capture_bytes = capture_bytes if cap_bytes is None else min(capture_bytes, cap_bytes)
        self.mask = mask
        self.kept = 0  # bytes within the cap
        self.dropped = 0  # bytes beyond it
        self.error: OSError | None = None  # why the caller's side could not be written to (EPIPE included)
        self.undelivered = 0  # bytes that the caller's side did not take before sbx had to give up
        self._captured = bytearray()
        self._pending = b""  # seen, and not yet written out
        self._last = b""  # the last byte that went out
        self._sink = -1  # /dev/null, once there is something to drop
        self._ended = False
        self._marked = False
        self._blocked = False  # waiting for the caller's side

    @property
    def fd(self) -> int:
        if self._blocked and self.out is not None:
            return self.out.fd
        return self.read_fd

    @property
    def events(self) -> int:
        return POLLOUT if self._blocked else POLLIN

    def ready(self) -> bool:
        """Move what is there; False at the end of the stream, when all of it was delivered."""
        return self._step()

    def finish(self) -> bool:
        """The command is gone: move what is left without waiting for more. False when the caller's side must be
        waited for (`fd`, `events`); call again then."""
        while self.read_fd >= 0:
            before = self.kept + self.dropped
            if not self._step():
                return True
            if self._blocked:
                return False
            if self.kept + self.dropped == before and not self._pending:
                self._ended = True  # a writer beyond our reach holds the pipe; there is nothing more in it
        return True

    def give_up(self) -> None:
        """Nobody waits for the caller's side any longer: count what it did not take."""
        self.undelivered += len(self._pending)
        if self.read_fd >= 0 and not self._ended and self.out is not None:
            try:
                self.undelivered += len(os.read(self.read_fd, CHUNK))  # the pipe holds no more than that
            except BlockingIOError:
                pass
        self._close()

    def captured(self) -> bytes:
        """What was captured, with the marker when that is not all there was."""
        data = bytes(self._captured)
        missing = self.capture_dropped
        return data + marker(missing, data[-1:]) if missing else data

    @property
    def capture_dropped(self) -> int:
        return self.kept + self.dropped - len(self._captured) if self.capture_bytes else 0

    def _step(self) -> bool:
        self._blocked = False
        try:
            while self._move():
                # Only bytes in memory are moved in a loop; a splice is as big as the pipe, and the clock waits.
                if not self._pending:
                    break
        except BlockingIOError:
            self._blocked = self.out is not None and (bool(self._pending) or self._source_has_data())
        except OSError as error:
            self.error = error
            self._close()  # the command meets EPIPE at its next write, as it would have without us
        return self.read_fd >= 0

    def _move(self) -> bool:
        """One move. False when there is nothing to go on with."""
        if self._pending:
            self._write_pending()
            return True
        if self._ended:
            return self._end()
        room = CHUNK if self.cap_bytes is None else self.cap_bytes - self.kept
        to_capture = self.capture_bytes - len(self._captured)
        if room <= 0:
            moved = self._drop()
        elif to_capture > 0 or self._must_look(room):
            moved = self._look(min(room, READ_SIZE, to_capture if to_capture > 0 else READ_SIZE), to_capture > 0)
        elif self.out is None:
            moved = self._discard(min(room, CHUNK))
            self.kept += moved
        else:
            moved = self.out.take(self.read_fd, CHUNK if self.cap_bytes is None else min(room - 1, CHUNK))
            self.kept += moved
        if not moved:
            self._ended = True
            return self._end()
        return True

    def _must_look(self, room: int) -> bool:
        """Also at the last byte before the cap: it says whether the marker needs a new line."""
        return self.out is not None and (self.mask is not None or not self.out.splices or room == 1)

    def _look(self, count: int, capture: bool) -> int:
        data = os.read(self.read_fd, count)
        self.kept += len(data)
        if capture:
            self._captured += data
        if self.out is not None:
            self._pending = self.mask.feed(data) if self.mask is not None else data
        return len(data)

    def _drop(self) -> int:
        moved = self._discard(CHUNK)
        self.dropped += moved
        return moved

    def _discard(self, count: int) -> int:
        if self._sink < 0:
            self._sink = os.open(os.devnull, os.O_WRONLY)  # Python's descriptors close on exec
        return splice(self.read_fd, self._sink, count)

    def _write_pending(self) -> None:
        assert self.out is not None
        written = self.out.write(self._pending)
        if written:
            self._last = self._pending[written - 1 : written]
        self._pending = self._pending[written:]

    def _end(self) -> bool:
        """The stream has ended: what the mask held back, then the marker, whole, then nothing."""
        if not self._marked:
            self._marked = True
            if self.out is not None:
                held = self.mask.flush(self.dropped > 0) if self.mask is not None else b""
                last = held[-1:] or self._last
                self._pending = held + (marker(self.dropped, last) if self.dropped else b"")
            if self._pending:
                return True
        self._close()
        return False

    def _source_has_data(self) -> bool:
        if sys.platform == "win32":
            return True
        else:
            poll = select.poll()
            poll.register(self.read_fd, POLLIN)
            return bool(poll.poll(0))

    def _close(self) -> None:
        self._blocked = False
        self._pending = b""
        for descriptor in (self.read_fd, self._sink):
            if descriptor >= 0:
                os.close(descriptor)
        self.read_fd = self._sink = -1
        if self.out is not None:
            self.out.close()
            self.out = None


class StdinFeeder:
    """Bytes for the command's standard input. `failure` is set when the source of the bytes fails, which ends the
    run; a command that does not want its input (EPIPE) is no failure."""

    def __init__(self, write_fd: int, source: bytes | Iterable[bytes]) -> None:
        self.write_fd = write_fd
        never_wait(write_fd)
        self.failure: tuple[str, int, str, bytes] | None = None
        self._pieces: Iterator[bytes] = iter((source,) if isinstance(source, bytes) else source)
        self._pending = memoryview(b"")

    @property
    def fd(self) -> int:
        return self.write_fd

    @property
    def events(self) -> int:
        return POLLOUT

    def ready(self) -> bool:
        try:
            if not self._pending:
                self._pending = memoryview(next(self._pieces))
            if self._pending:
                self._pending = self._pending[os.write(self.write_fd, self._pending[:CHUNK]) :]
        except StopIteration:
            self._close()
        except BlockingIOError:
            pass
        except Exception as error:  # whatever a caller's iterator raises: the run must end with its words
            if not (isinstance(error, OSError) and error.errno == EPIPE):
                number = (error.errno or 0) if isinstance(error, OSError) else 0
                self.failure = ("write its standard input", number, str(error) or type(error).__name__, b"")
            self._close()
        return self.write_fd >= 0

    def finish(self) -> bool:
        self._close()
        return True

    def give_up(self) -> None:
        self._close()

    def _close(self) -> None:
        if self.write_fd >= 0:
            os.close(self.write_fd)
        self.write_fd = -1


def same_file(first: int, second: int) -> bool:
    """Do two descriptors lead to the same place, where order matters? In /dev/null it does not."""
    try:
        one, two = _identity(os.fstat(first)), _identity(os.fstat(second))
    except OSError:
        return False
    return one == two != _identity(os.stat(os.devnull))


def _identity(found: os.stat_result) -> tuple[int, ...]:
    """A device is the same device under each of its names."""
    device: int = getattr(found, "st_rdev", 0)
    return (found.st_mode & 0o170000, device) if device else (found.st_dev, found.st_ino)


class Streams:
    """The descriptors the command gets for 0, 1 and 2, and the pumps behind them.

    `caps` and `out` speak of (stdout, stderr). A stream that nobody looks at is the caller's own descriptor. When both
    lead to the same file and are looked at in the same way, one pipe serves both, so that their order is kept: then all
    of it counts, and is captured, as standard output. If only one of them has a cap, the cap wins over the order.
    """

    def __init__(
        self,
        *,
        stdin: int | bytes | Iterable[bytes] = 0,
        out: tuple[int, int] = (1, 2),
        caps: tuple[int | None, int | None] = (None, None),
        capture: tuple[int, int] = (0, 0),
        masks: tuple[Mask | None, Mask | None] = (None, None),
    ) -> None:
        self._close_after_start: list[int] = []
        self.stdin: StdinFeeder | None = None
        self.stdout: StreamPump | None = None
        self.stderr: StreamPump | None = None
        self.merged = False
        try:
            first = self._open_stdin(stdin)
            second, third = self._open_outputs(out, caps, capture, masks)
        except OSError:
            self.close()
            raise
        self.child = (first, second, third)

    @property
    def pumps(self) -> tuple[StreamPump | StdinFeeder, ...]:
        return tuple(pump for pump in (self.stdin, self.stdout, self.stderr) if pump is not None)

    def started(self) -> None:
        """The command has its ends: let go of ours, so that the end of a stream can be seen."""
        for descriptor in self._close_after_start:
            os.close(descriptor)
        self._close_after_start = []

    def close(self) -> None:
        """After a failed start: nothing stays open."""
        self.started()
        for pump in self.pumps:
            pump.give_up()

    def _open_stdin(self, stdin: int | bytes | Iterable[bytes]) -> int:
        if isinstance(stdin, int):
            return stdin if stdin >= 0 else self._null(os.O_RDONLY)
        if stdin == b"":
            return self._null(os.O_RDONLY)
        read_fd, write_fd = os.pipe()
        self._close_after_start.append(read_fd)
        self.stdin = StdinFeeder(write_fd, stdin)
        return read_fd

    def _null(self, flags: int) -> int:
        descriptor = os.open(os.devnull, flags)
        self._close_after_start.append(descriptor)
        return descriptor

    def _open_outputs(
        self,
        out: tuple[int, int],
        caps: tuple[int | None, int | None],
        capture: tuple[int, int],
        masks: tuple[Mask | None, Mask | None],
    ) -> tuple[int, int]:
        looked_at = [
            caps[each] is not None or capture[each] > 0 or masks[each] is not None or out[each] < 0 for each in (0, 1)
        ]
        one_cap = (caps[0] is None) != (caps[1] is None)
        if any(looked_at) and min(out) >= 0 and not one_cap and same_file(*out):
            self.merged = True
            cap = None if caps[0] is None or caps[1] is None else caps[0] + caps[1]
            write_fd, self.stdout = self._pump(out[0], cap, sum(capture), masks[0])
            return write_fd, write_fd
        ends = [out[0], out[1]]
        if looked_at[0]:
            ends[0], self.stdout = self._pump(out[0], caps[0], capture[0], masks[0])
        if looked_at[1]:
            ends[1], self.stderr = self._pump(out[1], caps[1], capture[1], masks[1])
        return ends[0], ends[1]

    def _pump(self, out_fd: int, cap: int | None, capture: int, mask: Mask | None) -> tuple[int, StreamPump]:
        read_fd, write_fd = os.pipe()
        self._close_after_start.append(write_fd)
        enlarge(read_fd)
        return write_fd, StreamPump(read_fd, out_fd, cap, capture, mask)
