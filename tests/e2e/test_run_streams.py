"""Bytes on their way in and out: all of them, in order, without anybody waiting for nothing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest
from runs import PATIENCE_S, Host, python

if TYPE_CHECKING:
    from conftest import Workspace

pytestmark = pytest.mark.usefixtures("workspace")

EVERY_BYTE = bytes(range(256))
MANY = 100 << 20
WAYS = ["plain", "json", "cap"]


def looked_at(way: str) -> tuple[str, ...]:
    """Options under which the stream is the caller's own, captured, or counted."""
    return {"plain": (), "json": ("--json", "result.json"), "cap": ("--max-stdout", "1GiB", "--max-stderr", "1GiB")}[
        way
    ]


@pytest.mark.parametrize("way", WAYS)
def test_binary_in_and_out(host: Host, way: str) -> None:
    data = EVERY_BYTE * 1000
    done = host.run(*looked_at(way), "--", "cat", input=data)
    assert (done.returncode, done.stdout == data) == (0, True)


@pytest.mark.parametrize("way", WAYS)
def test_a_hundred_megabytes_in_and_out(host: Host, way: str) -> None:
    block = EVERY_BYTE * 4096
    digest = hashlib.sha256()
    with host.started(*looked_at(way), "--", "cat", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def feed() -> None:
            assert process.stdin is not None
            for _ in range(MANY // len(block)):
                process.stdin.write(block)
            process.stdin.close()

        feeder = threading.Thread(target=feed)
        feeder.start()
        count = 0
        while data := process.stdout.read(1 << 20):
            digest.update(data)
            count += len(data)
        feeder.join(PATIENCE_S)
        assert process.wait(PATIENCE_S) == 0
    expected = hashlib.sha256()
    for _ in range(MANY // len(block)):
        expected.update(block)
    assert (count, digest.hexdigest()) == (MANY, expected.hexdigest())


@pytest.mark.parametrize("way", WAYS)
def test_one_file_for_both_keeps_the_order(host: Host, workspace: Workspace, way: str) -> None:
    text = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    with open(workspace.root / "log", "wb") as log:
        host.run("--report", "never", *looked_at(way), "--", "sh", "-c", text, stdout=log, stderr=subprocess.STDOUT)
    expected = "".join(f"out {number}\nerr {number}\n" for number in range(200))
    assert (workspace.root / "log").read_text() == expected


@pytest.mark.parametrize("way", WAYS)
def test_one_pipe_for_both_keeps_the_order(here: Host, way: str) -> None:
    text = "i=0; while [ $i -lt 200 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"
    done = here.run(*looked_at(way), "--", "sh", "-c", text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.stdout.decode() == "".join(f"out {number}\nerr {number}\n" for number in range(200))


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_had_enough_ends_the_command(host: Host, way: str) -> None:
    """sbx run yes | head -1"""
    with host.started(*looked_at(way), "--", "yes", stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"y\n"
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 128 + 13  # SIGPIPE, as without sbx


def test_a_command_that_handles_epipe_goes_on(host: Host, workspace: Workspace) -> None:
    code = (
        "import os, signal\n"
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n"
        "try:\n"
        "    while True: os.write(1, b'y' * 4096)\n"
        "except BrokenPipeError: open('saw', 'w').close()\n"
    )
    with host.started(*python(code)) as process:
        assert process.stdout is not None
        process.stdout.read(1)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0
    assert (workspace.root / "saw").exists()


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("way", WAYS)
def test_descriptors_that_are_closed_at_the_start(host: Host, workspace: Workspace, closed: str, way: str) -> None:
    """The command finds something there, and none of sbx's own pipes."""
    code = (
        "import os\n"
        "kinds = [os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)]\n"
        "open('kinds', 'w').write(' '.join(kinds) + f' {os.read(0, 1)!r}')\n"
    )
    words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in host.argv(*looked_at(way), *python(code)))
    done = subprocess.run(["sh", "-c", f"{words} {closed}"], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = (workspace.root / "kinds").read_text().split()
    assert kinds[3] == "b''"
    if way == "plain":
        for number in (0, 1, 2):
            if f"{number}{'<' if number == 0 else '>'}&-" in closed:
                assert kinds[number] == "/dev/null"


def test_nothing_else_is_inherited(host: Host) -> None:
    secret = os.open("/", os.O_RDONLY)
    os.set_inheritable(secret, True)
    try:
        # ls itself holds one more, for the folder it lists.
        done = host.run("--", "ls", "/proc/self/fd", close_fds=False)
    finally:
        os.close(secret)
    assert done.stdout.split() == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_directory_is_refused(here: Host, number: int) -> None:
    folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    streams[("stdin", "stdout", "stderr")[number]] = folder
    try:
        done = here.run("--", "true", **streams)
    finally:
        os.close(folder)
    assert done.returncode == 125
    if number != 2:
        assert b"is a directory" in done.stderr


def test_a_cap_cuts_with_a_marker(host: Host, workspace: Workspace) -> None:
    done = host.run("--max-stdout", "10", "--max-stderr", "4", "--json", "result.json", "--",
                    "sh", "-c", "printf 123456789012345; printf abcdefgh >&2")  # fmt: skip
    assert done.stdout == b"1234567890\n[TRUNCATED] 5 bytes dropped\n"
    assert done.stderr.startswith(b"abcd\n[TRUNCATED] 4 bytes dropped\n")
    assert done.returncode == 0
    found = json.loads((workspace.root / "result.json").read_text())
    assert found["truncated"] == {"stdout": 5, "stderr": 4}
    assert found["stdout"] == done.stdout.decode()


def test_a_cap_of_the_profile_holds_every_time(host: Host, workspace: Workspace) -> None:
    """Also when the plan is stored already."""
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  small: {read: ['./**'], limits: {stdout: 5B}}\n")
    options = ("--policy", str(workspace.root / "sbx.yaml"), "--profile", "small")
    for _ in range(3):
        done = host.run(*options, "--", "echo", "0123456789")
        assert done.stdout == b"01234\n[TRUNCATED] 6 bytes dropped\n"


def test_a_cap_never_blocks_the_command(host: Host) -> None:
    done = host.run("--max-stdout", "1k", "--", "sh", "-c", "head -c 50000000 /dev/zero; echo end >&2")
    assert (done.returncode, len(done.stdout) < 2000) == (0, True)
    assert done.stderr.startswith(b"end\n")


def test_a_record_keeps_the_beginning(host: Host, workspace: Workspace) -> None:
    found = host.result(workspace.root, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert found["stdout"].startswith("x" * (1 << 20))
    assert found["stdout"].endswith(f"[TRUNCATED] {3_000_000 - (1 << 20)} bytes dropped\n")


def test_a_slow_reader_gets_everything(here: Host) -> None:
    with here.started("--max-stdout", "1GiB", "--", "head", "-c", "3000000", "/dev/zero") as process:
        assert process.stdout is not None
        process.stdout.read(1)
        # The command is long done; what it wrote waits for whoever reads.
        rest = b""
        while data := process.stdout.read(65536):
            rest += data
        assert (len(rest), process.wait(PATIENCE_S)) == (2_999_999, 0)


def test_an_open_standard_input_does_not_keep_the_run(host: Host) -> None:
    with host.started("--", "true", stdin=subprocess.PIPE) as process:
        assert process.wait(PATIENCE_S) == 0
