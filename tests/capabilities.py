"""What this machine can do, for tests that need it: `@requires("userns", landlock=4, tools=["git"])`.

A missing feature is a skip that says so. `SBX_TEST_REQUIRE=userns,landlock=7,tools` turns the absence of what it names
into a failure (of Landlock up to that ABI): CI sets it, so that a test cannot vanish unseen.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

FEATURES = ("userns", "landlock", "seccomp", "notify", "cgroup", "root", "ordinary", "tools")

CLONE_NEWUSER = 0x10000000
CLONE_NEWNS = 0x00020000
SYS_LANDLOCK_CREATE_RULESET = 444  # the same on every architecture
LANDLOCK_CREATE_RULESET_VERSION = 1


def requires(
    *features: str, landlock: int = 0, tools: Iterable[str] = (), root: bool | None = None
) -> pytest.MarkDecorator:
    """Features by name, a least Landlock ABI, commands on PATH, and whether to be root (True) or not (False)."""
    unknown = [name for name in features if name not in FEATURES]
    if unknown:
        raise ValueError(f"unknown features {unknown}: one of {FEATURES}")
    return pytest.mark.requires(*features, landlock=landlock, tools=tuple(tools), root=root)


def missing(mark: pytest.Mark) -> Iterator[tuple[str, str]]:
    """(feature, why) for everything the mark asks for and the machine lacks."""
    for feature in mark.args:
        why = PROBES[feature]()
        if why:
            yield feature, why
    wanted = mark.kwargs.get("landlock", 0)
    if wanted and landlock_abi() < wanted:
        level = required_landlock()
        feature = "landlock" if level is None or wanted <= level else "newer-landlock"
        yield feature, f"Landlock ABI {wanted} is needed, this kernel has {landlock_abi()}"
    for tool in mark.kwargs.get("tools", ()):
        if which(tool) is None:
            yield "tools", f"{tool} is not installed"
    root = mark.kwargs.get("root")
    if root is not None and root != (os.geteuid() == 0):
        yield ("root", "for root only") if root else ("ordinary", "for ordinary users only")


def which(tool: str) -> str | None:
    """On PATH, or beside the Python that runs the tests: tox, nox and pre-commit come with it."""
    return shutil.which(tool) or shutil.which(tool, path=str(Path(sys.executable).parent))


def required() -> set[str]:
    """What SBX_TEST_REQUIRE names; nobody can be root and an ordinary user at once, so these two never count."""
    names = {name.strip().partition("=")[0] for name in os.environ.get("SBX_TEST_REQUIRE", "").split(",")} - {""}
    unknown = names - set(FEATURES)
    if unknown:
        raise pytest.UsageError(f"SBX_TEST_REQUIRE names {sorted(unknown)}: one of {FEATURES}")
    return names - {"root", "ordinary"}


def required_landlock() -> int | None:
    """The ABI that `landlock=7` in SBX_TEST_REQUIRE pins; None where it names no level: then any must be there."""
    for name in os.environ.get("SBX_TEST_REQUIRE", "").split(","):
        feature, _, level = name.strip().partition("=")
        if feature == "landlock" and level:
            return int(level)
    return None


@functools.cache
def landlock_abi() -> int:
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    return max(0, int(version))


@functools.cache
def _userns() -> str:
    if sys.platform != "linux":
        return f"user namespaces are a Linux feature, this is {platform.system()}"
    script = (
        "import ctypes, os; libc = ctypes.CDLL(None, use_errno=True); "
        f"failed = libc.unshare({CLONE_NEWUSER | CLONE_NEWNS}); "
        "raise SystemExit(os.strerror(ctypes.get_errno()) if failed else 0)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False)
    return f"user namespaces: {done.stderr.strip()}" if done.returncode else ""


def _landlock() -> str:
    return "" if landlock_abi() else "this kernel has no Landlock"


def _actions() -> str:
    try:
        with open("/proc/sys/kernel/seccomp/actions_avail", encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""


def _seccomp() -> str:
    return "" if "errno" in _actions() else "this kernel has no seccomp filters"


def _notify() -> str:
    return "" if "user_notif" in _actions() else "this kernel has no seccomp listener"


def _cgroup() -> str:
    """A cgroup v2 folder in which we may make our own, with its controllers."""
    from sbx.backends.probe_cgroup import probe_cgroup

    found = probe_cgroup()
    if found.mechanism == "direct":
        return ""
    return found.reason.words if found.reason is not None else f"only through {found.mechanism}"


def _root() -> str:
    return "" if os.geteuid() == 0 else "for root only"


def _ordinary() -> str:
    return "for ordinary users only" if os.geteuid() == 0 else ""


PROBES: dict[str, Callable[[], str]] = {
    "userns": _userns,
    "landlock": _landlock,
    "seccomp": _seccomp,
    "notify": _notify,
    "cgroup": _cgroup,
    "root": _root,
    "ordinary": _ordinary,
}
