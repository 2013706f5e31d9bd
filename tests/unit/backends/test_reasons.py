"""Each refusal has words and a remedy of its own; the facts are given, so every host can be tested here."""

from __future__ import annotations

import errno

import pytest

from sbx.backends.reasons import APPARMOR, DEBIAN, MAX_USERNS, Facts, explain, needs

PLAIN = Facts()
FILTERED = Facts(seccomp_mode=2)
CONTAINER = Facts(in_container=True, seccomp_mode=2)
UBUNTU = Facts(sysctls={APPARMOR: "1", MAX_USERNS: "63000"})
IN_SBX = Facts(in_container=True, seccomp_mode=2, in_sbx=True)
OLD_DEBIAN = Facts(sysctls={DEBIAN: "0"})
NONE_LEFT = Facts(sysctls={MAX_USERNS: "0"})


@pytest.mark.parametrize(
    ("mechanism", "number", "facts", "words", "remedy"),
    [
        ("userns", errno.ENOSPC, NONE_LEFT, "max_user_namespaces is 0", "sysctl user.max_user_namespaces"),
        ("userns", errno.ENOSPC, PLAIN, "limit on user namespaces is reached", "raise"),
        ("userns", errno.EPERM, UBUNTU, "AppArmor", "apparmor_restrict_unprivileged_userns=0"),
        ("mounts", errno.EACCES, UBUNTU, "AppArmor", "profile"),
        ("userns", errno.EPERM, OLD_DEBIAN, "for root", "unprivileged_userns_clone=1"),
        ("userns", errno.EPERM, CONTAINER, "container does not allow", "--security-opt"),
        ("userns", errno.EPERM, FILTERED, "seccomp filter", "outside"),
        ("userns", errno.EPERM, PLAIN, "security module", "kernel log"),
        ("userns", errno.EPERM, IN_SBX, "the sbx around this one", "leave the inner sbx out"),
        ("landlock", errno.EOPNOTSUPP, IN_SBX, "the sbx around this one", "leave the inner sbx out"),
        ("userns", errno.ENOSYS, FILTERED, "filter", "outside"),
        ("userns", errno.ENOSYS, PLAIN, "no such call", "CONFIG_NAMESPACES"),
        ("net_ns", errno.EINVAL, PLAIN, "built without net namespaces", "CONFIG_NET_NS"),
        ("userns", errno.EUSERS, PLAIN, "too deeply", "outside"),
        ("landlock", errno.ENOSYS, PLAIN, "5.13", "newer kernel"),
        ("landlock", errno.ENOSYS, CONTAINER, "seccomp filter", "--security-opt"),
        ("landlock", errno.EOPNOTSUPP, Facts(lsm="capability,yama"), "not enabled", "lsm= list (now: capability,yama)"),
        ("landlock", errno.EPERM, FILTERED, "refuses Landlock", "outside"),
        ("landlock", errno.E2BIG, PLAIN, "16 layers", "outside"),
        ("seccomp", errno.EINVAL, PLAIN, "CONFIG_SECCOMP_FILTER", "newer kernel"),
        ("seccomp", errno.EPERM, FILTERED, "refuses seccomp filters", "outside"),
        ("user_notif", errno.EBUSY, FILTERED, "listener already", "outside"),
        ("user_notif", errno.EINVAL, PLAIN, "5.0", "newer kernel"),
        ("proc_mount", errno.EPERM, CONTAINER, "masked", "systempaths=unconfined"),
        ("proc_mount", errno.EPERM, PLAIN, "masked", "unmount"),
        ("mount_api", errno.ENOSYS, PLAIN, "5.12", ""),
        ("pivot_root", errno.EIO, PLAIN, "Input/output error", ""),
    ],
)
def test_words_and_remedy(mechanism: str, number: int, facts: Facts, words: str, remedy: str) -> None:
    reason = explain(mechanism, number, facts)
    assert reason.mechanism == mechanism
    assert words in reason.words
    assert remedy in reason.remedy


@pytest.mark.parametrize("mechanism", ["userns", "landlock", "seccomp"])
def test_the_errnos_are_told_apart(mechanism: str) -> None:
    numbers = (errno.ENOSYS, errno.EPERM, errno.ENOSPC, errno.EOPNOTSUPP)
    reasons = [explain(mechanism, number, PLAIN) for number in numbers]
    assert [reason.errno for reason in reasons] == ["ENOSYS", "EPERM", "ENOSPC", "EOPNOTSUPP"]
    assert len({reason.words for reason in reasons}) == len(reasons)


def test_what_was_not_tried_says_what_it_needs() -> None:
    reason = needs("mounts", "userns")
    assert (reason.needs, reason.errno) == ("userns", "")
    assert "userns" in reason.words
