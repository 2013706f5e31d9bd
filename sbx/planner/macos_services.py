"""The parts of a macOS profile that are not about files of the policy: processes, services, terminals, network."""

from __future__ import annotations

from sbx.model.profile import Network, NetworkMode
from sbx.planner.sbpl import quote

PROCESSES = """\
; processes: children are fine, other programs of the user are out of reach
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow mach-priv-task-port (target same-sandbox))
(allow ipc-posix-sem*)
(allow ipc-posix-shm*)
(allow user-preference-read)
(allow system-info)"""

# By name: all of kern.* would hand out other processes' arguments and environments.
SYSCTL_PREFIXES = ("hw.", "machdep.cpu.", "kern.proc.pgrp.", "kern.proc.pid.")
SYSCTL_NAMES = (
    "kern.argmax",
    "kern.boottime",
    "kern.hostname",
    "kern.iossupportversion",
    "kern.maxfilesperproc",
    "kern.maxproc",
    "kern.ngroups",
    "kern.osproductversion",
    "kern.osrelease",
    "kern.ostype",
    "kern.osvariant_status",
    "kern.osversion",
    "kern.secure_kernel",
    "kern.usrstack64",
    "kern.version",
    "security.mac.lockdown_mode_state",
    "sysctl.name2oid",
    "sysctl.proc_cputype",
    "sysctl.proc_native",
    "vm.loadavg",
    "vm.pagesize",
)

SERVICES = (
    "com.apple.bsd.dirhelper",  # the per-user folders that confstr names
    "com.apple.logd",
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",  # getpwuid and the like
    "com.apple.system.opendirectoryd.membership",
)

NETWORK_SERVICES = (
    "com.apple.SystemConfiguration.DNSConfiguration",
    "com.apple.SystemConfiguration.configd",
    "com.apple.dnssd.service",
    "com.apple.networkd",
    "com.apple.trustd",
    "com.apple.trustd.agent",
)

TERMINALS = """\
; terminals: new ones may be made, and those handed in be used
(allow pseudo-tty)
(allow file-ioctl (literal "/dev/dtracehelper") (literal "/dev/ptmx") (literal "/dev/tty") \
(regex "^/dev/ttys[0-9]+$"))"""


def services_text() -> str:
    names = "".join(f"\n  (sysctl-name {quote(name)})" for name in SYSCTL_NAMES)
    prefixes = "".join(f"\n  (sysctl-name-prefix {quote(name)})" for name in SYSCTL_PREFIXES)
    return "\n".join(
        (
            PROCESSES,
            f"(allow sysctl-read{prefixes}{names})",
            f"(allow mach-lookup{_global_names(SERVICES)})",
            TERMINALS,
        )
    )


def network_text(network: Network, proxy_port: int | None, tmp: str) -> str:
    """Deny default has closed everything; this opens what the profile asks for."""
    lines = [f"(allow network-bind network-outbound (subpath {quote(tmp)}))  ; its own local sockets"]
    if network.mode is NetworkMode.HOST:
        lines.append("(allow network*)")
        lines.append("(allow system-socket)")
        lines.append(f"(allow mach-lookup{_global_names(NETWORK_SERVICES)})")
    elif network.mode is NetworkMode.ALLOW and network.allow:
        if proxy_port is None:
            lines.append("; the proxy's port is written here when the run starts")
        else:
            lines.append(f'(allow network-outbound (remote tcp "localhost:{proxy_port:d}"))')
    return "\n".join(lines)


def _global_names(names: tuple[str, ...]) -> str:
    return "".join(f"\n  (global-name {quote(name)})" for name in names)
