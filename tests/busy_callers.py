"""Many callers at once, some of them killed or stopped in the middle of a call. Prints what is left at the end.

usage: busy_callers.py FOLDER PROCESSES THREADS CALLS
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading


def work(folder: str, calls: int) -> None:
    os.mkdir(folder)
    for number in range(calls):
        path = f"{folder}/{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o644))
        os.rename(path, path + "x")
        try:
            os.close(os.open(f"{folder}/.denied", os.O_CREAT | os.O_WRONLY))
        except PermissionError:
            continue
        os.abort()


def caller(folder: str, threads: int, calls: int) -> None:
    os.mkdir(folder)
    running = [threading.Thread(target=work, args=(f"{folder}/{number}", calls)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()


def start(function: object, *arguments: object) -> int:
    child = os.fork()
    if child == 0:
        try:
            function(*arguments)  # type: ignore[operator]
            os._exit(0)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
    return child


def wait_for_reader(path: str) -> None:
    os.open(path, os.O_CREAT | os.O_WRONLY)  # a FIFO that nobody will ever read


def others() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit() and int(name) not in (1, os.getpid())]


def wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    select.select([handle], [], [])
    os.close(handle)


def size_of_pid_1() -> str:
    """Its table of descriptors, which grows with them and never shrinks, and its threads."""
    with open("/proc/1/status") as file:
        return str([line.split()[1] for line in file if line.startswith(("FDSize:", "Threads:"))])


def main(folder: str, processes: int, threads: int, calls: int) -> None:
    os.chdir(folder)
    before = size_of_pid_1()
    os.mkfifo("fifo")
    children = [start(caller, f"p{number}", threads, calls) for number in range(processes)]
    waiting = [start(wait_for_reader, "fifo") for _ in range(8)]
    killed, stopped = children[::4], children[1::4]
    for number in range(40):  # in the middle of whatever they are doing
        for child in stopped:
            os.kill(child, signal.SIGSTOP if number % 2 == 0 else signal.SIGCONT)
        os.mkdir(f"answered{number}")  # whoever stops, others are answered
    for child in (*killed, *waiting):
        os.kill(child, signal.SIGKILL)
    codes = {child: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in (*children, *waiting)}
    finished = [codes[child] for child in children if child not in killed]
    for name in others():  # what waited for the FIFO on behalf of the killed
        wait_for_end(int(name))
    print(finished, before, size_of_pid_1(), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
