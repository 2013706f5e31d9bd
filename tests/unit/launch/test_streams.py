"""Pumps by themselves: real processes and pipes, driven by a poll loop like the supervisor's."""

from __future__ import annotations

import errno
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbx.launch.redact import LiveMask
from sbx.launch.streams import StdinFeeder, StreamPump, Streams, marker, same_file

Command = subprocess.Popen[bytes]


def start(streams: Streams, *argv: str) -> Command:
    first, second, third = streams.child
    child = subprocess.Popen(argv, stdin=first, stdout=second, stderr=third)
    streams.started()
    return child


def python(text: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-c", text)


def drive(*pumps: StreamPump | StdinFeeder) -> None:
    """Until every stream has ended."""
    left = list(pumps)
    while left:
        poll = select.poll()
        for pump in left:
            poll.register(pump.fd, pump.events)
        ready = {descriptor for descriptor, _ in poll.poll(60_000)}
        assert ready, "a pump waits for something that does not happen"
        left = [pump for pump in left if pump.fd not in ready or pump.ready()]


class Reader:
    """The caller's end of a pipe, read by a thread."""

    def __init__(self) -> None:
        read_fd, self.fd = os.pipe()
        self.data = bytearray()
        self._thread = threading.Thread(target=self._read, args=(read_fd,))
        self._thread.start()

    def _read(self, read_fd: int) -> None:
        while piece := os.read(read_fd, 65536):
            self.data += piece
        os.close(read_fd)

    def result(self) -> bytes:
        os.close(self.fd)
        self._thread.join()
        return bytes(self.data)


def through(script: str, *, cap: int | None = None, capture: int = 0) -> tuple[bytes, StreamPump]:
    reader = Reader()
    streams = Streams(stdin=-1, out=(reader.fd, 2), caps=(cap, None), capture=(capture, 0))
    assert streams.stdout is not None and streams.stderr is None
    child = start(streams, *python(script))
    drive(*streams.pumps)
    assert child.wait() == 0
    return reader.result(), streams.stdout


BINARY = "import os, sys; data = bytes(range(256)) * 40_000; sys.stdout.buffer.write(data)"
BINARY_DATA = bytes(range(256)) * 40_000


@pytest.mark.parametrize("capture", [0, 1, 100, 65536, 20_000_000])
def test_bytes_pass_unchanged_whatever_is_captured(capture: int) -> None:
    out, pump = through(BINARY, capture=capture, cap=1 << 40)
    assert out == BINARY_DATA
    assert pump.captured()[:capture] == BINARY_DATA[:capture]
    assert pump.capture_dropped == max(0, len(BINARY_DATA) - capture) * (capture > 0)
    assert pump.dropped == 0


@pytest.mark.parametrize("cap", [0, 1, 99, 4096, 65536, 1 << 20, (1 << 20) + 1, len(BINARY_DATA) - 1])
def test_over_its_cap_a_stream_is_cut_with_one_whole_marker(cap: int) -> None:
    out, pump = through(BINARY, cap=cap)
    kept = BINARY_DATA[:cap]
    assert out == kept + marker(len(BINARY_DATA) - cap, kept[-1:])
    assert pump.dropped == len(BINARY_DATA) - cap


def test_exactly_at_its_cap_nothing_is_cut() -> None:
    out, pump = through(BINARY, cap=len(BINARY_DATA))
    assert (out, pump.dropped) == (BINARY_DATA, 0)


def test_the_marker_has_a_line_of_its_own() -> None:
    assert through("print('one'); print('two')", cap=4)[0] == b"one\n[TRUNCATED] 4 bytes dropped\n"
    assert through("print('one'); print('two')", cap=7)[0] == b"one\ntwo\n[TRUNCATED] 1 byte dropped\n"
    assert through("print('one'); print('two')", cap=0)[0] == b"[TRUNCATED] 8 bytes dropped\n"


def test_a_captured_stream_that_was_cut_carries_the_marker() -> None:
    _, pump = through("print('x' * 99)", cap=10, capture=1000)
    assert pump.captured() == b"x" * 10 + b"\n[TRUNCATED] 90 bytes dropped\n"


def test_capture_without_an_outlet() -> None:
    streams = Streams(stdin=-1, out=(-1, -1), capture=(1000, 1000))
    child = start(streams, *python("import sys; print('out'); print('err', file=sys.stderr)"))
    drive(*streams.pumps)
    child.wait()
    assert streams.stdout is not None and streams.stderr is not None
    assert (streams.stdout.captured(), streams.stderr.captured()) == (b"out\n", b"err\n")


def test_a_cut_stream_never_blocks_the_command() -> None:
    """The caller reads nothing at all, and the command still ends: only the kept bytes wait."""
    read_fd, write_fd = os.pipe()
    streams = Streams(stdin=-1, out=(write_fd, 2), caps=(10, None))
    child = start(streams, *python("print('x' * 3_000_000)"))
    drive(*streams.pumps)
    assert child.wait() == 0
    os.close(write_fd)
    assert os.read(read_fd, 4096) == b"x" * 10 + b"\n[TRUNCATED] 2999991 bytes dropped\n"
    os.close(read_fd)


def test_a_slow_caller_holds_the_command_back_but_not_the_loop() -> None:
    read_fd, write_fd = os.pipe()
    streams = Streams(stdin=-1, out=(write_fd, 2), caps=(1 << 40, None))
    assert streams.stdout is not None
    pump = streams.stdout
    child = start(streams, *python("import sys; sys.stdout.buffer.write(b'y' * 5_000_000)"))
    while pump.events == select.POLLIN:
        poll = select.poll()
        poll.register(pump.fd, pump.events)
        poll.poll()
        assert pump.ready()
    assert pump.fd == write_fd, "the loop is told to wait for the caller's side"
    assert child.poll() is None
    assert os.get_blocking(write_fd), "the caller's descriptor is shared and must stay as it is"
    total = 0
    left = True
    while left or select.select([read_fd], [], [], 0)[0]:
        if select.select([read_fd], [], [], 0)[0]:
            total += len(os.read(read_fd, 1 << 20))
        left = left and pump.ready()
    assert total == 5_000_000
    assert child.wait() == 0
    os.close(read_fd)
    os.close(write_fd)


def test_epipe_reaches_the_command() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    streams = Streams(stdin=-1, out=(write_fd, 2), capture=(100, 0))
    script = "import signal, os\nsignal.signal(signal.SIGPIPE, signal.SIG_DFL)\nwhile True: os.write(1, b'x' * 4096)"
    child = start(streams, *python(script))
    drive(*streams.pumps)
    assert child.wait() == -signal.SIGPIPE
    assert streams.stdout is not None and streams.stdout.error is not None
    assert streams.stdout.error.errno == errno.EPIPE
    os.close(write_fd)


def test_a_full_disk_reaches_the_command_as_a_closed_pipe() -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        streams = Streams(stdin=-1, out=(full.fileno(), 2), capture=(100, 0))
        child = start(streams, *python("import os\ntry:\n while 1: os.write(1, b'x' * 4096)\nexcept OSError: pass"))
        drive(*streams.pumps)
        assert child.wait() == 0
    assert streams.stdout is not None and streams.stdout.error is not None
    assert streams.stdout.error.errno == errno.ENOSPC


@pytest.mark.parametrize("append", [False, True])
def test_into_a_file(tmp_path: Path, append: bool) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"before\n")
    with path.open("ab" if append else "r+b") as file:
        streams = Streams(stdin=-1, out=(file.fileno(), 2), caps=(1 << 30, None))
        child = start(streams, *python(BINARY))
        drive(*streams.pumps)
        child.wait()
    assert path.read_bytes() == (b"before\n" if append else b"") + BINARY_DATA


def test_into_a_socket_that_is_read_slowly() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        streams = Streams(stdin=-1, out=(ours.fileno(), 2), capture=(10, 0))
        child = start(streams, *python(BINARY))
        received = bytearray()
        pump = streams.stdout
        assert pump is not None
        left = True
        while left:
            poll = select.poll()
            poll.register(pump.fd, pump.events)
            poll.register(theirs.fileno(), select.POLLIN)
            for descriptor, _ in poll.poll(60_000):
                if descriptor == theirs.fileno():
                    received += theirs.recv(1000_000)
                else:
                    left = pump.ready()
        ours.shutdown(socket.SHUT_WR)
        while piece := theirs.recv(1 << 20):
            received += piece
        child.wait()
        assert bytes(received) == BINARY_DATA
        assert ours.getblocking()


def test_into_a_terminal_without_making_it_non_blocking() -> None:
    master, slave = os.openpty()
    streams = Streams(stdin=-1, out=(slave, 2), capture=(1 << 20, 0))
    child = start(streams, *python("print('z' * 200)"))
    drive(*streams.pumps)
    child.wait()
    assert os.get_blocking(slave)
    os.close(slave)
    assert os.read(master, 4096).rstrip() == b"z" * 200
    os.close(master)


def test_stdout_and_stderr_of_one_file_stay_in_order() -> None:
    reader = Reader()
    other = os.dup(reader.fd)
    streams = Streams(stdin=-1, out=(reader.fd, other), capture=(1000, 1000))
    assert streams.merged
    script = "import os\nfor i in range(500): os.write(1 + i % 2, b'%d\\n' % i)"
    child = start(streams, *python(script))
    drive(*streams.pumps)
    child.wait()
    os.close(other)
    assert reader.result() == b"".join(b"%d\n" % i for i in range(500))


def test_one_file_with_one_cap_keeps_the_cap() -> None:
    reader = Reader()
    streams = Streams(stdin=-1, out=(reader.fd, reader.fd), caps=(3, None))
    assert not streams.merged
    child = start(streams, *python("import os; os.write(2, b'whole'); os.write(1, b'abcdef')"))
    drive(*streams.pumps)
    child.wait()
    assert sorted(reader.result()) == sorted(b"whole" + b"abc\n[TRUNCATED] 3 bytes dropped\n")


def test_same_file() -> None:
    read_fd, write_fd = os.pipe()
    with open(os.devnull, "wb") as one, open(os.devnull, "wb") as two:
        assert not same_file(one.fileno(), two.fileno())
        assert same_file(write_fd, write_fd)
        assert not same_file(write_fd, one.fileno())
    os.close(read_fd)
    os.close(write_fd)
    assert not same_file(write_fd, write_fd)


def test_what_nobody_looks_at_is_the_callers_own() -> None:
    streams = Streams(stdin=0, out=(1, 2))
    assert streams.child == (0, 1, 2)
    assert streams.pumps == ()


def test_finish_takes_what_is_there_although_somebody_holds_the_pipe_open() -> None:
    read_fd, write_fd = os.pipe()
    pump = StreamPump(read_fd, capture_bytes=1000)
    os.write(write_fd, b"last words")
    assert pump.finish()
    assert pump.captured() == b"last words"
    os.close(write_fd)


def test_finish_waits_for_a_slow_caller_and_give_up_counts_the_rest() -> None:
    out_read, out_write = os.pipe()
    read_fd, write_fd = os.pipe()
    os.set_blocking(out_write, False)
    filled = os.write(out_write, bytes(1 << 20))
    os.set_blocking(out_write, True)
    pump = StreamPump(read_fd, out_write, cap_bytes=1 << 30)
    os.write(write_fd, b"w" * 5000)
    os.close(write_fd)
    assert not pump.finish()
    assert (pump.fd, pump.events) == (out_write, select.POLLOUT)
    pump.give_up()
    assert pump.undelivered == 5000
    assert len(os.read(out_read, 1 << 20)) == filled
    os.close(out_read)
    os.close(out_write)


def test_stdin_of_a_hundred_megabytes() -> None:
    data = os.urandom(1 << 20) * 100
    streams = Streams(stdin=data, out=(-1, 2), capture=(1000, 0))
    script = "import hashlib, sys; print(hashlib.file_digest(sys.stdin.buffer, 'sha256').hexdigest())"
    child = start(streams, *python(script))
    drive(*streams.pumps)
    child.wait()
    assert streams.stdout is not None
    assert streams.stdout.captured().decode().strip() == hashlib.sha256(data).hexdigest()


def test_a_command_that_does_not_want_its_input_is_no_failure() -> None:
    streams = Streams(stdin=b"x" * 10_000_000, out=(1, 2))
    child = start(streams, *python("pass"))
    drive(*streams.pumps)
    assert child.wait() == 0
    assert streams.stdin is not None and streams.stdin.failure is None


def test_a_source_that_fails_is_a_failure_with_its_words() -> None:
    def source() -> Iterator[bytes]:
        yield b"first"
        raise ValueError("the other end is on fire")

    streams = Streams(stdin=source(), out=(-1, 2), capture=(100, 0))
    child = start(streams, *python("import sys; sys.stdout.write(sys.stdin.read())"))
    drive(*streams.pumps)
    child.wait()
    assert streams.stdin is not None and streams.stdout is not None
    assert streams.stdin.failure == ("write its standard input", 0, "the other end is on fire", b"")
    assert streams.stdout.captured() == b"first"


def test_live_output_is_masked_even_when_a_secret_is_split() -> None:
    reader = Reader()
    streams = Streams(stdin=-1, out=(reader.fd, 2), capture=(1000, 0), masks=(LiveMask((b"hunter2hunter2",)), None))
    assert streams.stdout is not None
    pump = streams.stdout
    # One byte at a time, each of them moved before the next is written.
    write_fd = streams.child[1]
    for byte in b"say hunter2hunter2 twice":
        os.write(write_fd, bytes((byte,)))
        assert pump.ready()
    streams.started()
    drive(pump)
    assert reader.result() == b"say [REDACTED] twice"
    assert pump.captured() == b"say hunter2hunter2 twice"


def test_nothing_stays_open() -> None:
    before = set(os.listdir("/proc/self/fd"))
    through(BINARY, cap=10, capture=5)
    streams = Streams(stdin=b"abc", out=(-1, -1))
    streams.close()
    assert set(os.listdir("/proc/self/fd")) == before
