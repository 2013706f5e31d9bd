"""What the kernel says about itself and about the confinement this process is in already. Cheap: a few small reads."""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

import os

# Switches that decide whether an ordinary user may make namespaces.
SYSCTLS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)


def machine_key() -> tuple[str, ...]:
    """Everything that a probe's result hangs on: where this differs, it has to be probed again.

    The boot and the kernel; who asks; the switches; and what this process is confined by, because a container or a
    sandbox can share the caller's home, and so a stored result, without sharing its abilities.
    """
    system = os.uname()
    return (
        _read("/proc/sys/kernel/random/boot_id"),
        system.release,
        system.machine,
        str(os.geteuid()),
        *(_read("/proc/sys/" + name) for name in SYSCTLS),
        *(_link("/proc/self/ns/" + name) for name in ("user", "mnt", "pid")),
        _read("/proc/self/attr/current"),
        *_confinement(),
        # Where a cgroup of our own could come from: the folder that this process is in, or the user's systemd.
        _read("/proc/self/cgroup"),
        str(os.access(_runtime_folder() + "/systemd/private", os.F_OK)),
    )


def _runtime_folder() -> str:
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"


def _confinement() -> tuple[str, ...]:
    lines = _read("/proc/self/status").split("\n")
    return tuple(line for line in lines if line.startswith(("CapEff:", "NoNewPrivs:", "Seccomp")))


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"errno {error.errno}"
    try:
        return os.read(descriptor, 8192).decode("utf-8", "replace").strip("\n\0")
    except OSError as error:
        return f"errno {error.errno}"  # /proc/self/attr/current without an LSM that answers
    finally:
        os.close(descriptor)


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError as error:
        return f"errno {error.errno}"
