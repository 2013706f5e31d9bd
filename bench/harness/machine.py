"""Where and with what it was measured."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

VERSIONS = {
    "bwrap": ["bwrap", "--version"],
    "firejail": ["firejail", "--version"],
    "unshare": ["unshare", "--version"],
    "timeout": ["timeout", "--version"],
    "strace": ["strace", "--version"],
    "tinyproxy": ["tinyproxy", "-v"],
    "codex": ["codex", "--version"],
    "srt": ["srt", "--version"],
    "gcc": ["gcc", "--version"],
    "git": ["git", "--version"],
}


def machine() -> dict[str, str]:
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "")
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    system = next((line.partition("=")[2].strip('"') for line in _lines("/etc/os-release") if "PRETTY" in line), "")
    return {
        "cpu": f"{os.cpu_count()} x {model or platform.machine()}",
        "memory": f"{memory / (1 << 20):.1f} GiB",
        "system": f"{system}, Linux {platform.release()}",
    }


def versions(sbx: str, python: str, peers: dict[str, str], environ: dict[str, str]) -> dict[str, str]:
    found = {"sbx": _first_line([sbx, "--version"], environ), "python": _first_line([python, "--version"], environ)}
    for name, argv in VERSIONS.items():
        found[name] = _first_line([peers.get(argv[0], argv[0]), *argv[1:]], environ)
    return {name: text for name, text in found.items() if text}


def commit_name(top: Path, revision: str | None = None) -> str:
    """A short name of a commit, or of the working tree with word of its changes."""
    which = [revision] if revision else ["--dirty"]
    return _first_line(["git", "-C", str(top), "describe", "--always", *which], dict(os.environ)) or "unknown"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _first_line(argv: list[str], environ: dict[str, str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, env=environ, check=False)
    except OSError:
        return ""
    lines = done.stdout.strip().splitlines()
    return lines[0] if lines and not done.returncode else ""
