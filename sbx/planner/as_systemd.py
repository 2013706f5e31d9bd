"""A Linux plan as a systemd service: the nearest that the service manager comes to it, and what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sbx.model.plan import Op, Plan
from sbx.model.profile import DEFAULT_GRACE_S, NetworkMode

# What a sandboxed command never needs, in systemd's own groups of calls.
REFUSED_CALLS = "~@mount @module @raw-io @reboot @swap @obsolete @keyring bpf userfaultfd io_uring_setup"


def systemd_lines(plan: Plan, argv: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """A unit file. `argv[0]` is absolute; `names` are the variables that are passed on from the manager's own."""
    yield f"# The nearest that systemd comes to profile '{plan.profile}'. Made by 'sbx plan --format systemd'."
    yield "# It holds for the files that are there now. Not expressed:"
    yield from (f"#   - {each}" for each in missing(plan))
    yield "[Unit]"
    yield f"Description={_text(' '.join(argv))}"
    yield ""
    yield "[Service]"
    yield "Type=oneshot"
    yield "ExecStart=" + " ".join(_argument(word) for word in argv)
    yield f"WorkingDirectory={_text(plan.cwd)}"
    yield from _environment(plan, names)
    yield ""
    yield from _namespaces(plan)
    yield ""
    yield from _files(plan)
    yield ""
    yield from _limits(plan)


def missing(plan: Plan) -> Iterator[str]:
    """What the plan asks for and a service cannot have, in words."""
    yield "denies for names that appear during the run, Landlock, the report, the audit record"
    yield "folders on the way that cannot be listed; symlinks that may not be replaced"
    if plan.network.mode is NetworkMode.ALLOW:
        yield "hosts that may be reached: systemd knows addresses, not names, and here it is nothing"
    if plan.limits.stdout_bytes is not None or plan.limits.stderr_bytes is not None:
        yield "limits on output"
    if plan.limits.cpu_s is not None:
        yield "the CPU time of the tree: LimitCPU= is that of each process"
    if any(each.op is Op.MAKE_DIR for each in plan.operations):
        yield "folders that have to be made before: " + ", ".join(
            _text(each.path) for each in plan.operations if each.op is Op.MAKE_DIR
        )
    if any(each.noexec for each in plan.operations):
        yield "exec rules below what can be written (ExecPaths= and NoExecPaths= come near)"


def _environment(plan: Plan, names: Sequence[str]) -> Iterator[str]:
    values = dict(plan.env.set_values)
    passed = [name for name in sorted(set(names) - set(values)) if name.isidentifier() and name.isascii()]
    if passed:
        yield "PassEnvironment=" + " ".join(passed)
    for name, value in values.items():
        yield "Environment=" + _quoted(f"{name}={value}")


def _namespaces(plan: Plan) -> Iterator[str]:
    yield from ("NoNewPrivileges=yes", "CapabilityBoundingSet=", "PrivateUsers=yes", "PrivateIPC=yes")
    yield from (
        "ProtectProc=invisible",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictSUIDSGID=yes",
    )
    yield from ("RestrictNamespaces=yes", "SystemCallArchitectures=native", f"SystemCallFilter={REFUSED_CALLS}")
    yield "SystemCallErrorNumber=EPERM"
    if plan.network.mode is not NetworkMode.HOST:
        yield "PrivateNetwork=yes"


def _files(plan: Plan) -> Iterator[str]:
    """An empty root, what is shown in it, and what is hidden again. systemd sorts mounts by depth, as the plan does."""
    yield "TemporaryFileSystem=/:ro"
    for each in plan.operations:
        optional = "-" if each.optional else ""
        pair = _pair(optional + (each.source or each.path), each.path)
        match each.op:
            case Op.TMPFS:
                yield f"TemporaryFileSystem={_quoted(each.path)}"
            case Op.DEV:
                yield "PrivateDevices=yes"
            case Op.SYMLINK:
                # A link of the host's own root (/bin -> usr/bin): the place it leads to, under the link's name.
                yield f"BindReadOnlyPaths={_quoted('-' + each.path)}"
            case Op.BIND_RO:
                if not each.is_link:
                    yield f"BindReadOnlyPaths={pair}"
            case Op.BIND_RW | Op.PIN:
                yield f"BindPaths={pair}"
            case Op.MASK:
                yield f"InaccessiblePaths={_quoted('-' + each.path)}"
            case Op.PROC | Op.SKELETON | Op.MAKE_DIR:
                continue  # systemd mounts /proc and makes folders on the way by itself


def _limits(plan: Plan) -> Iterator[str]:
    limits = plan.limits
    grace_s = DEFAULT_GRACE_S if limits.grace_s is None else limits.grace_s
    yield f"TimeoutStopSec={grace_s:g}"
    yield "KillMode=control-group"
    if limits.wall_s not in (None, float("inf")):
        yield f"TimeoutStartSec={limits.wall_s:g}"
    if limits.memory_bytes is not None:
        yield f"MemoryMax={limits.memory_bytes}"
        yield "MemorySwapMax=0"
    if limits.pids is not None:
        yield f"TasksMax={limits.pids}"
    if limits.nofile is not None:
        yield f"LimitNOFILE={limits.nofile}"
    if limits.cpu_s is not None:
        yield f"LimitCPU={max(1, int(limits.cpu_s))}"


def _text(text: str) -> str:
    """One line, and no specifier of systemd's."""
    return "".join(char if char.isprintable() else "?" for char in text).replace("%", "%%")


def _quoted(text: str) -> str:
    return '"' + _text(text.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _argument(word: str) -> str:
    return _quoted(word).replace("$", "$$")


def _pair(source: str, target: str) -> str:
    """`source:target`, a colon within a name escaped."""
    if source == target:
        return _quoted(source.replace(":", "\\:"))
    return _quoted(f"{source.replace(':', chr(92) + ':')}:{target.replace(':', chr(92) + ':')}")
