"""A supervised run on Windows: started suspended, put into its job, resumed, waited for, and nothing left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence

from sbx.backends.windows import command_line, environment_block, limits_of
from sbx.backends.windows_status import SEE_DOCTOR, TERMINATED_BY_SBX, Verdict, ended, not_started
from sbx.errors import CommandNotFound, SetupFailed
from sbx.kernel import windows_types as win
from sbx.model.profile import DEFAULT_GRACE_S, Limits
from sbx.model.records import dataclass, field

assert sys.platform == "win32"

import msvcrt  # noqa: E402  only there

from sbx.kernel import windows as kernel  # noqa: E402

_CHUNK = 65536


@dataclass(slots=True)
class Ended:
    verdict: Verdict
    stdout: bytes
    stderr: bytes
    dropped: dict[str, int]
    processes: int  # that the job has seen
    cpu_ms: int
    messages: frozenset[int]


@dataclass(slots=True)
class _Capture:
    """One stream, read by a thread of its own: Windows cannot wait for pipes and processes together."""

    cap: int | None
    data: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def read_all(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "rb", buffering=0) as pipe:
            while chunk := pipe.read(_CHUNK):
                room = len(chunk) if self.cap is None else max(0, self.cap - len(self.data))
                self.data += chunk[:room]
                self.dropped += len(chunk) - len(chunk[:room])


@contextlib.contextmanager
def owned(handle: int) -> Iterator[int]:
    try:
        yield handle
    finally:
        kernel.close_handle(handle)


def make_job(limits: Limits) -> int:
    """A job with every limit in force before anything is in it."""
    job = kernel.create_job_object()
    try:
        kernel.set_information_job_object(job, win.JobObjectExtendedLimitInformation, limits_of(limits))
        screen = win.JOBOBJECT_BASIC_UI_RESTRICTIONS(win.JOB_OBJECT_UILIMIT_ALL)
        kernel.set_information_job_object(job, win.JobObjectBasicUIRestrictions, screen)
    except OSError:
        kernel.close_handle(job)
        raise
    return job


def low_token() -> int:
    """A token without privileges, at low integrity."""
    token = kernel.restricted_token()
    try:
        kernel.set_integrity_level(token, win.LOW_INTEGRITY_SID)
    except OSError:
        kernel.close_handle(token)
        raise
    return token


@contextlib.contextmanager
def low_folder(environment: Mapping[str, str]) -> Iterator[str]:
    """A temporary folder of the run's own; below LocalLow it inherits the label that lets the command write."""
    below = os.path.join(environment.get("USERPROFILE", ""), "AppData", "LocalLow")
    folder = tempfile.mkdtemp(prefix="sbx-", dir=below if os.path.isdir(below) else None)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(argv: Sequence[str], *, env: Mapping[str, str], cwd: str, limits: Limits) -> Ended:
    """Start, wait, end. Closing the job's last handle ends whatever is left, also when sbx itself is killed."""
    program = shutil.which(argv[0], path=env.get("PATH", ""))
    if program is None:
        raise CommandNotFound(f"{argv[0]} was not found", remedy="check the spelling and PATH")
    line = command_line((program, *argv[1:]))
    with low_folder(os.environ) as folder, contextlib.ExitStack() as stack:
        try:
            job = stack.enter_context(owned(make_job(limits)))
            port = stack.enter_context(owned(kernel.completion_port(job)))
            token = stack.enter_context(owned(low_token()))
        except OSError as error:
            raise SetupFailed(f"the sandbox could not be made: {error}", remedy=SEE_DOCTOR) from error
        captures = (_Capture(limits.stdout_bytes), _Capture(limits.stderr_bytes))
        block = environment_block({**env, "TEMP": folder, "TMP": folder})
        process, pid, readers = _start(stack, job, token, program, line, block, cwd, captures)
        timed_out = _wait(process, job, pid, limits)
        code = kernel.get_exit_code_process(process)
        _end_all(job, readers)
        messages = _messages(port)
        usage = win.JOBOBJECT_BASIC_ACCOUNTING_INFORMATION()
        kernel.query_information_job_object(job, win.JobObjectBasicAccountingInformation, usage)
    dropped = {name: each.dropped for name, each in zip(("stdout", "stderr"), captures, strict=True) if each.dropped}
    verdict = ended(code, messages, limits, timed_out=timed_out)
    cpu_ms = (usage.TotalUserTime + usage.TotalKernelTime) // 10_000
    output = [bytes(each.data) for each in captures]
    return Ended(verdict, output[0], output[1], dropped, usage.TotalProcesses, cpu_ms, messages)


def _start(
    stack: contextlib.ExitStack,
    job: int,
    token: int,
    program: str,
    line: str,
    block: str,
    cwd: str,
    captures: tuple[_Capture, _Capture],
) -> tuple[int, int, list[threading.Thread]]:
    """The process runs its first instruction inside the job: suspended, assigned, resumed."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    pipes = (os.pipe(), os.pipe())
    ours, theirs = [each[0] for each in pipes], [nothing, pipes[0][1], pipes[1][1]]
    started = False
    try:
        for descriptor in theirs:
            os.set_inheritable(descriptor, True)
        handles = (msvcrt.get_osfhandle(theirs[0]), msvcrt.get_osfhandle(theirs[1]), msvcrt.get_osfhandle(theirs[2]))
        try:
            process, thread, pid = kernel.create_process_suspended(token, program, line, block, cwd, handles)
        except OSError as error:
            raise not_started(error.winerror or 0, program, error.strerror or "") from error
        stack.enter_context(owned(process))
        with owned(thread):
            try:
                kernel.assign_process_to_job_object(job, process)
                kernel.resume_thread(thread)
            except OSError as error:
                kernel.terminate_process(process, TERMINATED_BY_SBX)
                raise SetupFailed(f"the command could not be put into its job: {error}", remedy=SEE_DOCTOR) from error
        started = True
    finally:
        for descriptor in theirs if started else (*theirs, *ours):
            os.close(descriptor)
    readers = [
        threading.Thread(target=capture.read_all, args=(descriptor,), daemon=True)
        for capture, descriptor in zip(captures, ours, strict=True)
    ]
    for reader in readers:
        reader.start()
    return process, pid, readers


def _wait(process: int, job: int, pid: int, limits: Limits) -> bool:
    """Until the command ends. True if the wall clock ended it: first asked (Ctrl-Break), then terminated."""
    if limits.wall_s is None:
        kernel.wait_for_single_object(process, win.INFINITE)
        return False
    if kernel.wait_for_single_object(process, _milliseconds(limits.wall_s)):
        return False
    grace = DEFAULT_GRACE_S if limits.grace_s is None else limits.grace_s
    with contextlib.suppress(OSError):  # without a console there is nobody to ask
        kernel.generate_console_ctrl_event(win.CTRL_BREAK_EVENT, pid)
    if not kernel.wait_for_single_object(process, _milliseconds(grace)):
        kernel.terminate_job_object(job, TERMINATED_BY_SBX)
        kernel.wait_for_single_object(process, win.INFINITE)
    return True


def _end_all(job: int, readers: list[threading.Thread]) -> None:
    """What the command left behind holds the pipes open: end it, then the readers come to their end."""
    kernel.terminate_job_object(job, TERMINATED_BY_SBX)
    for reader in readers:
        reader.join()


def _messages(port: int) -> frozenset[int]:
    """Everything the job has reported. Nothing runs in it any more, so its last word is ACTIVE_PROCESS_ZERO."""
    seen: set[int] = set()
    deadline = time.monotonic() + 2
    while win.JOB_OBJECT_MSG_ACTIVE_PROCESS_ZERO not in seen and time.monotonic() < deadline:
        message = kernel.get_queued_completion_status(port, 100)
        if message is not None:
            seen.add(message[0])
    while (message := kernel.get_queued_completion_status(port, 0)) is not None:
        seen.add(message[0])
    return frozenset(seen)


def _milliseconds(seconds: float) -> int:
    return min(round(seconds * 1000), win.INFINITE - 1)
