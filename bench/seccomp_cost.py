"""What the system call filter and Landlock cost per call: the same loop without them, with each, and with both.

    python bench/seccomp_cost.py [ROUNDS]

Prints nanoseconds per call, of the best of fifty turns. `getppid` is judged by number alone (cached by kernels since
5.11), `open` (and close) by its arguments; `open, deep` is a file eight folders down, for Landlock asks every folder up
to one that grants all that is asked for.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sbx.kernel import landlock, seccomp
from sbx.kernel.call import MACHINE
from sbx.kernel.process import no_new_privs
from sbx.kernel.seccomp_filter import build_filter

TURNS = 50  # short ones: some of them meet no other work on the machine
# (arguments of the filter, is Landlock applied)
SETTINGS: dict[str, tuple[dict[str, Any] | None, bool]] = {
    "nothing": (None, False),
    "filter": ({}, False),
    # conditions that never hold here: what a listener's filter costs the calls it lets through
    "filter for a listener": ({"notify": [("openat", 2, 0o100), ("open", 1, 0o100)]}, False),
    "Landlock": (None, True),
    "filter and Landlock": ({}, True),
}


def open_and_close(path: str) -> None:
    os.close(os.open(path, os.O_RDONLY))


def restrict() -> None:
    """As a run does: all rights are handled, and one rule says that everything may be read."""
    ruleset = landlock.create_ruleset(*landlock.handled(landlock.abi()))
    place = os.open("/", os.O_PATH)
    landlock.add_path(ruleset, place, landlock.rights_mask(("READ_FILE", "READ_DIR", "EXECUTE"), 1))
    landlock.restrict_self(ruleset)


def measure(setting: tuple[dict[str, Any] | None, bool], call: Callable[[], object], rounds: int) -> int:
    """Nanoseconds per call in a child under the filter."""
    options, restricted = setting
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        no_new_privs()
        if restricted:
            restrict()
        if options is not None:
            seccomp.install(build_filter(MACHINE, **options))
        best = 1 << 62
        for _ in range(TURNS):
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
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    with tempfile.TemporaryDirectory() as top:
        deep = Path(top, *"abcdefg", "file")
        deep.parent.mkdir(parents=True)
        deep.touch()
        calls: dict[str, Callable[[], object]] = {
            "getppid": os.getppid,
            "stat": lambda: os.stat("/"),
            "open": lambda: open_and_close("/dev/null"),
            "open, deep": lambda: open_and_close(str(deep)),
        }
        print(f"{'':24}" + "".join(f"{name:>14}" for name in calls))
        for name, setting in SETTINGS.items():
            print(f"{name:24}" + "".join(f"{measure(setting, call, rounds):>11} ns" for call in calls.values()))


if __name__ == "__main__":
    main()
