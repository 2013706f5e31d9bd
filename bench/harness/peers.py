"""The bwrap commands that the tables compare with, and the other tools of this kind."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from harness.bench import Bench

ISOLATION = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")


def bwrap_minimal() -> list[str]:
    """The least that bwrap can be asked for: one bind, and only a mount and a user namespace."""
    return ["bwrap", "--ro-bind", "/", "/"]


def bwrap_by_hand(workspace: Path) -> list[str]:
    """What a person writes for the purpose of `--profile build`: the same namespaces, the system read-only by a few
    binds, a private /proc, /dev and /tmp, the workspace writable. No Landlock, no seccomp, no denies."""
    argv = ["bwrap", *ISOLATION]
    for folder in ("/bin", "/sbin", "/lib", "/lib64"):
        path = Path(folder)
        if path.is_symlink():
            argv += ["--symlink", str(path.readlink()), folder]
        elif path.is_dir():
            argv += ["--ro-bind", folder, folder]
    for folder in ("/usr", "/etc", "/opt"):
        argv += ["--ro-bind-try", folder, folder]
    argv += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp"]
    return [*argv, "--bind", str(workspace), str(workspace), "--chdir", str(workspace)]


def bwrap_like(plan: dict[str, Any]) -> list[str]:
    """The same namespaces and every mount of an sbx plan. Still without Landlock, seccomp and the listener."""
    argv = ["bwrap", *ISOLATION]
    for operation in plan["operations"]:
        path, source = operation["path"], operation["source"]
        attempt = "-try" if operation["optional"] else ""
        match operation["op"]:
            case "skeleton" if path != "/":
                argv += ["--dir", path]
            case "symlink":
                argv += ["--symlink", source, path]
            case "bind-ro":
                argv += ["--ro-bind" + attempt, source or path, path]
            case "bind-rw" | "pin":
                argv += ["--bind" + attempt, source or path, path]
            case "tmpfs" | "dev" | "proc":
                argv += ["--" + operation["op"], path]
            case "mask" if operation["is_dir"]:
                argv += ["--perms", "0000", "--tmpfs", path]
            case "mask":
                argv += ["--ro-bind", "/dev/null", path]
    return [*argv, "--chdir", plan["cwd"]]


def others(bench: Bench) -> tuple[dict[str, list[str]], list[str]]:
    """The other tools, as argv before the command, and a line for each that is not there."""
    ways = {
        "unshare": ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--net", "--ipc", "--uts"],
        "timeout": ["timeout", "60"],
        "firejail, no profile": ["firejail", "--quiet", "--noprofile"],
        "firejail, its default profile, no network": ["firejail", "--quiet", "--net=none"],
        "codex sandbox": ["codex", "sandbox", "--"],
        "srt": ["srt"],
    }
    found, skipped = {}, []
    for name, argv in ways.items():
        program = bench.peers.get(argv[0]) or shutil.which(argv[0], path=bench.environ.get("PATH"))
        if program is None:
            skipped.append(f"{name}: {bench.missing.get(argv[0], argv[0] + ' is not installed')}")
        else:
            found[name] = [program, *argv[1:]] if argv[0] in bench.peers else argv
    return found, skipped


def need(bench: Bench, *programs: str) -> str:
    """Why something is missing, or nothing."""
    absent = [name for name in programs if shutil.which(name, path=bench.environ.get("PATH")) is None]
    return f"{', '.join(absent)} not installed" if absent else ""
