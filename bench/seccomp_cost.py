"""What the system call filter costs per call: the same loop without it, with it, and with a listener's conditions.

    python bench/seccomp_cost.py [ROUNDS]

Prints nanoseconds per call, best of five. `getppid` is judged by number alone (cached by kernels since 5.11), `open` by
its arguments.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from sbx.kernel import seccomp
from sbx.kernel.call import MACHINE
from sbx.kernel.process import no_new_privs
from sbx.kernel.seccomp_filter import build_filter

SETTINGS: dict[str, dict[str, Any] | None] = {
    "no filter": None,
    "filter": {},
    # conditions that never hold here: what a listener's filter costs the calls it lets through
    "filter for a listener": {"notify": [("openat", 2, 0o100), ("open", 1, 0o100)]},
}


def open_and_close() -> None:
    os.close(os.open("/dev/null", os.O_RDONLY))


CALLS: dict[str, Callable[[], object]] = {"getppid": os.getppid, "open": open_and_close, "stat": lambda: os.stat("/")}


def measure(options: dict[str, Any] | None, call: Callable[[], object], rounds: int) -> int:
    """Nanoseconds per call in a child under the filter."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        if options is not None:
            no_new_privs()
            seccomp.install(build_filter(MACHINE, **options))
        best = 1 << 62
        for _ in range(5):
            start = time.perf_counter_ns()
            for _ in range(rounds):
                call()
            best = min(best, time.perf_counter_ns() - start)
        os.write(writing, str(best // rounds).encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="ascii") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return int(text)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    print(f"{'':24}" + "".join(f"{name:>10}" for name in CALLS))
    for name, options in SETTINGS.items():
        print(f"{name:24}" + "".join(f"{measure(options, call, rounds):>8} ns" for call in CALLS.values()))


if __name__ == "__main__":
    main()
