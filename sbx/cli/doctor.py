"""`sbx doctor`: what this machine can enforce, by which mechanism, and what to do about what is missing."""

from __future__ import annotations

import sys
from typing import Any

from sbx.backends.capabilities import Capabilities, Reason
from sbx.report.text import BAD, GOOD, PLAIN, STRONG, WARN, Line, is_terminal, print_lines

Row = tuple[str, str, str]  # what, full | partial | missing, by what
STATE_STYLES = {"full": GOOD, "partial": WARN, "missing": BAD}


def command(options: dict[str, Any], words: list[str]) -> int:
    """0 when a profile with `require: full` can be enforced here, 1 otherwise."""
    if sys.platform == "linux":
        from sbx.backends.capability_cache import store
        from sbx.backends.probe_linux import probe

        capabilities = probe()
        store(capabilities)  # remembered for the next run
        return show(capabilities, as_json=bool(options.get("json")))
    else:
        from sbx.cli.doctor_elsewhere import command as elsewhere

        return elsewhere(options)


def show(capabilities: Capabilities, *, as_json: bool) -> int:
    if as_json:
        print(capabilities.to_json())
    else:
        lines = render(capabilities)
        if is_terminal(sys.stdout):
            print_lines(lines, sys.stdout)
        else:
            print("\n".join("".join(text for text, _ in line) for line in lines))
    return 0 if capabilities.full else 1


def render(capabilities: Capabilities) -> list[Line]:
    """One line per fact, so that a log can be searched."""
    where = ", in a container" if capabilities.in_container else ""
    who = "root" if capabilities.uid == 0 else f"uid {capabilities.uid}"
    lines: list[Line] = [
        [(f"machine: {capabilities.kernel} {capabilities.machine}, as {who}{where}", PLAIN)],
        [(verdict(capabilities), STRONG)],
        [("", PLAIN)],
    ]
    for what, state, by in rows(capabilities):
        lines.append([(f"{what:<12} ", PLAIN), (f"{state:<8}", STATE_STYLES[state]), (f" {by}", PLAIN)])
    if capabilities.reasons:
        lines += [[("", PLAIN)], [("missing:", PLAIN)]]
    for reason in capabilities.reasons:
        if not reason.needs:
            followers = [each.mechanism for each in capabilities.reasons if each.needs == reason.mechanism]
            lines += [[(text, PLAIN)] for text in _missing(reason, followers)]
    return lines


def _missing(reason: Reason, followers: list[str]) -> list[str]:
    answer = f" ({reason.errno})" if reason.errno else ""
    lines = [f"  {reason.mechanism}: {reason.words}{answer}"]
    if reason.remedy:
        lines.append(f"      to do: {reason.remedy}")
    if followers:
        lines.append(f"      and so: no {', '.join(followers)}")
    return lines


def verdict(capabilities: Capabilities) -> str:
    if capabilities.full:
        return "full enforcement: yes, with namespaces" + (" and Landlock" if capabilities.landlock else "")
    if capabilities.backend == "landlock":
        return "full enforcement: no; `--partial` runs with Landlock and seccomp alone"
    return "full enforcement: no; sbx refuses to run commands here"


def rows(capabilities: Capabilities) -> list[Row]:
    return [
        _files(capabilities),
        _processes(capabilities),
        _network(capabilities),
        _syscalls(capabilities),
        _future_names(capabilities),
        _limits(capabilities),
    ]


def _files(found: Capabilities) -> Row:
    layer = f"Landlock ABI {found.landlock_abi}" if found.landlock else ""
    if found.namespaces:
        calls = "recursive read-only binds" if found.mount_api else "classic mount calls"
        return (
            "files",
            "full",
            f"private root ({calls})" + (f", {layer} as second layer" if layer else ", no second layer"),
        )
    if layer:
        return "files", "partial", f"{layer} alone: no denied path below an allowed one, metadata stays visible"
    return "files", "missing", "neither namespaces nor Landlock"


def _processes(found: Capabilities) -> Row:
    if found.namespaces:
        return "processes", "full", "pid and ipc namespaces with a /proc of their own"
    if found.landlock_abi >= 6:
        return "processes", "partial", "Landlock keeps signals inside; other processes stay visible"
    return "processes", "missing", "signals to the user's other processes cannot be prevented"


def _network(found: Capabilities) -> Row:
    if found.namespaces:
        return "network", "full", "a network namespace of its own; allowed hosts through the proxy"
    if not found.seccomp:
        return "network", "missing", "neither network namespaces nor seccomp"
    if found.landlock_abi >= 4:
        return (
            "network",
            "partial",
            "seccomp refuses sockets; with allowed hosts, Landlock lets TCP reach the proxy only",
        )
    return "network", "partial", "seccomp refuses sockets; allowed hosts cannot be enforced"


def _syscalls(found: Capabilities) -> Row:
    return ("syscalls", "full", "seccomp filter") if found.seccomp else ("syscalls", "missing", "no seccomp")


def _future_names(found: Capabilities) -> Row:
    if found.user_notif and "addfd" in found.notif_flags:
        quick = "" if "sync_wake_up" in found.notif_flags else ", slower before Linux 6.6"
        return "new names", "full", f"seccomp listener judges names made during the run{quick}"
    return "new names", "missing", "denies by pattern hold for what exists at the start"


def _limits(found: Capabilities) -> Row:
    if found.cgroup_mechanism:
        where = f"at {found.cgroup_path}" if found.cgroup_path else "in a scope of the user's systemd for each run"
        return "limits", "full", f"cgroup v2 {where} ({', '.join(found.cgroup_controllers)})"
    return "limits", "partial", "rlimits and sampling, no cgroup of our own"
