"""From a kernel's refusal to words and a remedy. Pure: the facts come in, so that every host can be tested on any."""

from __future__ import annotations

import errno
import os

from sbx.backends.capabilities import Reason
from sbx.model.records import dataclass, field


@dataclass(frozen=True)
class Facts:
    """What the host says about itself, as far as it explains refusals."""

    sysctls: dict[str, str] = field(default_factory=dict)  # only those that exist
    in_container: bool = False
    lsm: str = ""  # /sys/kernel/security/lsm, or empty when unreadable
    seccomp_mode: int = 0  # of this process: 2 = under somebody's filter already
    kernel: str = ""
    in_sbx: bool = False  # in a sandbox of ours with a process tree of its own


CONTAINER_REMEDY = (
    "let the container's seccomp and AppArmor profiles allow namespaces and mounts"
    " (docker: --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
    " --security-opt systempaths=unconfined)"
)
SBX_REMEDY = (
    "leave the inner sbx out: the outer one's rules hold for everything in it;"
    " or let the outer one have a profile that may write nothing, such as lint, where --partial works inside"
)
APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
DEBIAN = "kernel/unprivileged_userns_clone"
MAX_USERNS = "user/max_user_namespaces"


def explain(mechanism: str, number: int, facts: Facts) -> Reason:
    """The reason for `mechanism` failing with errno `number`."""
    name = "EOPNOTSUPP" if number == errno.EOPNOTSUPP else errno.errorcode.get(number, str(number))  # has two names
    if facts.in_sbx and mechanism not in ("mount_api", "proc_mount"):
        return Reason(mechanism, name, "refused by the sbx around this one", SBX_REMEDY)
    if mechanism == "landlock":
        words, remedy = _landlock(number, facts)
    elif mechanism in ("seccomp", "user_notif"):
        words, remedy = _seccomp(mechanism, number, facts)
    elif mechanism == "proc_mount":
        words, remedy = _proc(number, facts)
    elif mechanism == "mount_api":
        words, remedy = _mount_api(number, facts)
    else:
        words, remedy = _namespace(mechanism, number, facts)
    return Reason(mechanism, name, words, remedy)


def needs(mechanism: str, other: str) -> Reason:
    """Not tried, because what it stands on is missing."""
    return Reason(mechanism, "", f"needs {other}, which is missing", "", other)


def _namespace(mechanism: str, number: int, facts: Facts) -> tuple[str, str]:
    what = {"userns": "user namespaces", "mounts": "mounting in a user namespace", "pivot_root": "pivot_root"}.get(
        mechanism, f"{mechanism.removesuffix('_ns')} namespaces"
    )
    if number == errno.ENOSPC:
        if facts.sysctls.get(MAX_USERNS) == "0":
            return f"{what} are switched off: user.max_user_namespaces is 0", "sysctl user.max_user_namespaces=15000"
        return (
            f"the limit on {what} is reached (user.max_user_namespaces, here or in an outer container)",
            "raise user.max_user_namespaces, or end what holds so many",
        )
    if number == errno.ENOSYS:
        if facts.seccomp_mode:
            return f"a seccomp filter around this process hides the call for {what}", _outer_remedy(facts)
        return f"this kernel has no such call for {what}", "use a kernel with namespaces (CONFIG_NAMESPACES)"
    if number == errno.EINVAL:
        return (
            f"this kernel was built without {what}",
            "use a kernel with CONFIG_USER_NS, CONFIG_PID_NS and CONFIG_NET_NS",
        )
    if number == errno.EUSERS:
        return "user namespaces are nested too deeply (32 levels)", "run sbx outside of some of them"
    if number in (errno.EPERM, errno.EACCES):
        return _namespace_refused(what, facts)
    return f"{what}: {os.strerror(number)}", ""


def _namespace_refused(what: str, facts: Facts) -> tuple[str, str]:
    if facts.sysctls.get(APPARMOR, "0") != "0":
        return (
            f"AppArmor keeps ordinary programs from using {what} (kernel.apparmor_restrict_unprivileged_userns=1)",
            "give sbx's Python an AppArmor profile with `userns,`,"
            " or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        )
    if facts.sysctls.get(DEBIAN) == "0":
        return (
            f"this system keeps {what} for root (kernel.unprivileged_userns_clone=0)",
            "sysctl kernel.unprivileged_userns_clone=1",
        )
    if facts.in_container:
        return f"the container does not allow {what}", CONTAINER_REMEDY
    if facts.seccomp_mode:
        return f"a seccomp filter around this process refuses {what}", _outer_remedy(facts)
    return (
        f"a security module or the surrounding root (chroot) refuses {what}",
        "look for denials in the kernel log (AppArmor, SELinux), or run outside of the chroot",
    )


def _outer_remedy(facts: Facts) -> str:
    return CONTAINER_REMEDY if facts.in_container else "run sbx outside of the sandbox or service that set the filter"


def _landlock(number: int, facts: Facts) -> tuple[str, str]:
    if number == errno.EOPNOTSUPP:
        return (
            "Landlock is built into this kernel but not enabled",
            "add landlock to the kernel command line's lsm= list" + (f" (now: {facts.lsm})" if facts.lsm else ""),
        )
    if number == errno.ENOSYS:
        if facts.seccomp_mode:
            return "a seccomp filter around this process hides Landlock, or the kernel lacks it", _outer_remedy(facts)
        return "this kernel has no Landlock (it came with 5.13, CONFIG_SECURITY_LANDLOCK)", "use a newer kernel"
    if number in (errno.EPERM, errno.EACCES):
        return "a seccomp filter around this process refuses Landlock", _outer_remedy(facts)
    if number == errno.E2BIG:
        return "16 layers of Landlock are in force already", "run sbx outside of some of them"
    return f"Landlock: {os.strerror(number)}", ""


def _seccomp(mechanism: str, number: int, facts: Facts) -> tuple[str, str]:
    what = "seccomp filters" if mechanism == "seccomp" else "seccomp listeners"
    if mechanism == "user_notif" and number == errno.EBUSY:
        return "an outer sandbox has a seccomp listener already", "run sbx outside of it"
    if number in (errno.EPERM, errno.EACCES):
        return f"a filter around this process refuses {what}", _outer_remedy(facts)
    if number == errno.ENOSYS and facts.seccomp_mode:
        return f"a filter around this process hides {what}", _outer_remedy(facts)
    if number in (errno.ENOSYS, errno.EINVAL):
        since = "CONFIG_SECCOMP_FILTER" if mechanism == "seccomp" else "they came with 5.0"
        return f"this kernel has no {what} ({since})", "use a newer kernel"
    return f"{what}: {os.strerror(number)}", ""


def _proc(number: int, facts: Facts) -> tuple[str, str]:
    if number in (errno.EPERM, errno.EACCES):
        return (
            "parts of /proc are masked here, so the kernel refuses a fresh one",
            "docker: --security-opt systempaths=unconfined; podman: --security-opt unmask=ALL"
            if facts.in_container
            else "unmount what lies over parts of /proc",
        )
    return f"mounting /proc: {os.strerror(number)}", ""


def _mount_api(number: int, facts: Facts) -> tuple[str, str]:
    if number == errno.ENOSYS:
        if facts.seccomp_mode:
            return "a seccomp filter around this process hides the newer mount calls; the classic ones serve", ""
        return "the newer mount calls came with 5.12; the classic ones serve", ""
    return f"the newer mount calls: {os.strerror(number)}; the classic ones serve", ""
