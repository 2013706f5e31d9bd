"""The demo is the first thing a newcomer runs: it must do what it says, and leave nothing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

from capabilities import requires

DEMO = Path(__file__).parents[2] / "docs" / "examples" / "demo.sh"


@requires("userns", "landlock", tools=["make", "python3"])
def test_the_demo_shows_what_it_promises(sbx: Any, home: Path, tmp_path: Path) -> None:
    # It calls `sbx` by name: give it the one under test, whatever its installation looks like.
    script = tmp_path / "bin" / "sbx"
    script.parent.mkdir()
    words = " ".join(f"'{word}'" for word in sbx.command)
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{script.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", str(DEMO)], env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello from the sandbox" in done.stdout
    assert "a private key" not in done.stdout + done.stderr
    assert "not-for-builds" not in done.stdout + done.stderr
    assert "decided by !./src/** (sbx.yaml:" in done.stdout
