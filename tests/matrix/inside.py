"""Runs in the guest: what doctor says, and how a few runs end. Prints one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SBX = [sys.executable, "-B", "-m", "sbx"]
POLICY = """\
schemaVersion: 2
denyRead: ["secret/**"]
fsProfiles:
  smoke:
    read: ["./**"]
    modify: ["./out/**"]
"""
# Prints one letter per thing that a sandbox has to refuse and did not; `.` at the end says that it ran.
SCRIPT = """
cat secret/key >/dev/null 2>&1 && printf R
echo x >../escaped 2>/dev/null && printf W
echo x >file 2>/dev/null && printf M
echo x >out/new 2>/dev/null || printf O
kill -0 $OUTSIDE 2>/dev/null && printf S
printf .
"""


def sbx(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HOME": str(cwd.parent / "home"), "XDG_RUNTIME_DIR": str(cwd.parent / "run")}
    return subprocess.run(
        [*SBX, *arguments], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=120
    )


def attempt(folder: Path, *options: str) -> str:
    """ran | refused | leaks … | failed …"""
    script = SCRIPT.replace("$OUTSIDE", str(os.getpid()))
    done = sbx(
        "run", "--policy", "policy.yaml", "--profile", "smoke", *options, "--", "/bin/sh", "-c", script, cwd=folder
    )
    if done.returncode == 0 and done.stdout.endswith("."):
        leaks = done.stdout[:-1]
        return f"leaks {leaks}" if leaks else "ran"
    if done.returncode == 125 and last_event(folder) == "spawn_sandbox_unavailable":
        return "refused"
    words = done.stderr.strip().splitlines()
    return f"failed {done.returncode}: {words[0] if words else done.stdout!r}"


def last_event(folder: Path) -> str:
    """What the audit log says of the last run: a refusal has a record of its own."""
    log = folder.parent / "home/.local/state/sbx/audit.jsonl"
    return str(json.loads(log.read_text().splitlines()[-1])["event"]) if log.exists() else ""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "work"
        for each in (folder / "secret", folder / "out", Path(name) / "home", Path(name) / "run"):
            each.mkdir(parents=True)
        (folder / "policy.yaml").write_text(POLICY)
        (folder / "file").write_text("")
        (folder / "secret/key").write_text("secret")
        doctor = sbx("doctor", "--json", cwd=folder)
        if not doctor.stdout:
            sys.exit(f"doctor: exit {doctor.returncode}: {doctor.stderr}")
        runs = {"`require: full`": attempt(folder), "`--partial`": attempt(folder, "--partial")}
        print(json.dumps({"doctor": json.loads(doctor.stdout), "runs": runs}))


if __name__ == "__main__":
    main()
