"""Run by a Windows Python under Wine: exercises the Windows backend and prints what happened as JSON.

wine python.exe wine_driver.py SBX_ROOT
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

assert sys.platform == "win32"

sys.path.insert(0, sys.argv[1])

import ctypes  # noqa: E402

from sbx.backends import windows_run  # noqa: E402
from sbx.errors import SbxError  # noqa: E402
from sbx.kernel import windows as kernel  # noqa: E402
from sbx.kernel import windows_types as win  # noqa: E402
from sbx.model.profile import Limits  # noqa: E402

SYNCHRONIZE = 0x00100000
CREATE_BREAKAWAY_FROM_JOB = 0x01000000
DETACHED_PROCESS = 0x00000008


def python(code: str, *, limits: Limits = Limits(wall_s=60), env: dict[str, str] | None = None) -> windows_run.Ended:  # noqa: B008
    command = [sys.executable, "-c", code]
    return windows_run.run(command, env={**os.environ, **(env or {})}, cwd=os.getcwd(), limits=limits)


def shown(ended: windows_run.Ended) -> dict[str, Any]:
    return {
        "status": str(ended.verdict.status),
        "rc": ended.verdict.rc,
        "reason": ended.verdict.reason,
        "stdout": ended.stdout.decode(),
        "stderr": ended.stderr.decode(),
        "dropped": ended.dropped,
        "processes": ended.processes,
        "messages": sorted(ended.messages),
    }


def is_gone(pid: int) -> bool:
    """Waits for the end of a process, which the kernel may still be working on."""
    open_process = ctypes.WinDLL("kernel32").OpenProcess
    open_process.restype = win.HANDLE
    handle = open_process(SYNCHRONIZE, 0, pid)
    if not handle:
        return True
    with windows_run.owned(handle):
        return kernel.wait_for_single_object(handle, 30_000)


def exit_codes() -> Any:
    leave = "import ctypes; ctypes.WinDLL('kernel32').ExitProcess({})"
    return {str(code): shown(python(leave.format(code))) for code in (0, 3, 259, 0xC0000005, 0xC000013A)}


def streams() -> Any:
    code = "import os, sys; print(ascii(os.environ['MARK'])); sys.stderr.write(repr(sys.stdin.read()))"
    capped = python("print('x' * 1000)", limits=Limits(stdout_bytes=10, wall_s=60))
    return {"plain": shown(python(code, env={"MARK": "m\u00e4rk"})), "capped": shown(capped)}


def temporary_folder() -> Any:
    made = python("import os; open(os.path.join(os.environ['TEMP'], 'x'), 'w').close(); print(os.environ['TEMP'])")
    return {"folder": made.stdout.decode().strip(), "removed": not os.path.exists(made.stdout.decode().strip())}


def timeout() -> Any:
    return shown(python("import time; time.sleep(1000)", limits=Limits(wall_s=0.5, grace_s=0.5)))


def left_behind() -> Any:
    """A detached grandchild that holds none of our pipes."""
    code = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], "
        f"creationflags={DETACHED_PROCESS}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, "
        "stderr=subprocess.DEVNULL); print(child.pid)"
    )
    ended = python(code)
    return {**shown(ended), "gone": is_gone(int(ended.stdout))}


def breakaway() -> Any:
    code = (
        "import subprocess, sys\n"
        "try:\n"
        f"    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], "
        f"creationflags={CREATE_BREAKAWAY_FROM_JOB}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, "
        "stderr=subprocess.DEVNULL)\n"
        "    print(child.pid)\n"
        "except OSError as error:\n"
        "    print('refused', error.winerror)\n"
    )
    said = python(code).stdout.decode().split()
    return {"said": said, "gone": said[0] == "refused" or is_gone(int(said[0]))}


def killed_supervisor() -> Any:
    """sbx dies without a word; the command dies with it."""
    code = (
        "import sys, os, subprocess; sys.path.insert(0, sys.argv[1])\n"
        "from sbx.backends import windows_run\n"
        "from sbx.kernel import windows as kernel\n"
        "from sbx.model.profile import Limits\n"
        "job = windows_run.make_job(Limits())\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], "
        "stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)\n"
        "kernel.assign_process_to_job_object(job, int(child._handle))\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert supervisor.stdout is not None
    pid = int(supervisor.stdout.readline())
    supervisor.kill()
    supervisor.wait()
    return {"gone": is_gone(pid)}


def failures() -> Any:
    found = {}
    with open("text.exe", "w") as file:
        file.write("not a program")
    for name in ("no-such-program.exe", os.path.abspath("text.exe")):
        try:
            windows_run.run([name], env=dict(os.environ), cwd=os.getcwd(), limits=Limits())
            found[os.path.basename(name)] = "started"
        except SbxError as error:
            found[os.path.basename(name)] = error.slug
    os.unlink("text.exe")
    return found


CASES: tuple[Callable[[], Any], ...] = (
    exit_codes,
    streams,
    temporary_folder,
    timeout,
    left_behind,
    breakaway,
    killed_supervisor,
    failures,
)


def main() -> None:
    answers: dict[str, Any] = {}
    for case in CASES:
        started = time.monotonic()
        try:
            answers[case.__name__] = case()
        except Exception as error:  # one broken case shall not hide the others
            answers[case.__name__] = {"error": f"{type(error).__name__}: {error}"}
        print(f"{case.__name__}: {time.monotonic() - started:.1f} s", file=sys.stderr)
    print(json.dumps(answers))


main()
