"""Resource limits never rise above the caller's own."""

from __future__ import annotations

import subprocess
import sys

from sbx.launch.rlimits import RLIMIT_NOFILE, clamp


def test_nothing_asked_nothing_done() -> None:
    assert clamp(()) == ()


def test_the_callers_hard_limit_is_the_ceiling() -> None:
    script = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (50, 60));"
        "from sbx.launch.rlimits import clamp;"
        f"print(clamp((({RLIMIT_NOFILE}, 40, 40), ({RLIMIT_NOFILE}, 1000, 2000))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"(({RLIMIT_NOFILE}, 40, 40), ({RLIMIT_NOFILE}, 60, 60))"
