"""A Linux plan as a bwrap command line: the nearest that bubblewrap comes to it, and what it leaves out.

For people who must use bwrap. sbx itself never calls it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from sbx.model.plan import Op, Operation, Plan
from sbx.model.profile import DEFAULT_GRACE_S, NetworkMode
from sbx.planner.exceptions import NAMESPACES

SEALED = "0111"  # can be passed through, not listed


def bwrap_lines(plan: Plan, argv: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """A shell script. `names` are the variables of the caller that the command gets; values are never written out."""
    yield "#!/bin/sh"
    yield f"# The nearest that bwrap comes to profile '{plan.profile}'. Made by 'sbx plan --format bwrap'."
    yield "# It holds for the files that are there now. Not expressed:"
    yield from (f"#   - {each}" for each in missing(plan))
    folders = [each.path for each in plan.operations if each.op is Op.MAKE_DIR]
    if folders:
        yield f"mkdir -p -- {shlex.join(folders)} || exit"
    if plan.limits.nofile is not None:
        yield f"ulimit -n {plan.limits.nofile} || exit"
    if plan.limits.cpu_s is not None:
        yield f"ulimit -t {max(1, int(plan.limits.cpu_s))} || exit"
    grace_s = DEFAULT_GRACE_S if plan.limits.grace_s is None else plan.limits.grace_s
    wall_s = plan.limits.wall_s
    prefix = f"timeout --kill-after={grace_s:g} {wall_s:g} " if wall_s not in (None, float("inf")) else ""
    arguments = [*_namespaces(plan), *_environment(plan, names), *_root(plan.operations)]
    yield f"exec {prefix}bwrap \\"
    yield from (f"  {each} \\" for each in arguments)
    yield f"  {_words('--chdir', plan.cwd)} \\"
    yield f"  -- {shlex.join(argv)}"


def missing(plan: Plan) -> Iterator[str]:
    """What the plan asks for and bwrap cannot give, in words."""
    yield "the second layer of Landlock rules and the seccomp filter (bwrap takes one that you compile: --seccomp)"
    yield "denies for names that appear during the run; denied files are there, and empty"
    yield "the report, the audit record, the normalized exit status"
    if plan.network.mode is NetworkMode.ALLOW:
        yield "hosts that may be reached: bwrap knows all or nothing, and here it is nothing"
    if plan.limits.memory_bytes is not None or plan.limits.pids is not None:
        yield "limits on memory and processes (systemd-run --user --scope -p MemoryMax=… -p TasksMax=… gives them)"
    if plan.limits.cpu_s is not None:
        yield "the CPU time of the tree: the limit below is that of each process"
    if plan.limits.stdout_bytes is not None or plan.limits.stderr_bytes is not None:
        yield "limits on output"
    if any(each.noexec for each in plan.operations):
        yield "exec rules: whatever can be read can be executed"
    if any(each.is_link for each in plan.operations):
        yield "symlinks that may not be replaced: " + _some(each.path for each in plan.operations if each.is_link)


def _some(paths: Iterator[str], most: int = 3) -> str:
    found = [shlex.quote(path) for path in paths]
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def usable(plan: Plan) -> bool:
    """Only a plan made of mounts can be said in bwrap's words."""
    return plan.platform == "linux" and plan.backend == NAMESPACES


def _words(*words: str) -> str:
    return shlex.join(words)


def _namespaces(plan: Plan) -> Iterator[str]:
    yield "--unshare-user --unshare-pid --unshare-ipc --unshare-uts --unshare-cgroup-try"
    if plan.network.mode is not NetworkMode.HOST:
        yield "--unshare-net"
    yield "--die-with-parent --new-session --cap-drop ALL"


def _environment(plan: Plan, names: Sequence[str]) -> Iterator[str]:
    if plan.env.pass_all:
        return
    yield "--clearenv"
    values = dict(plan.env.set_values)
    for name in sorted(set(names) - set(values)):
        if name.isidentifier() and name.isascii():  # what a shell can refer to
            yield f'${{{name}+--setenv {name} "${name}"}}'
    for name, value in values.items():
        yield _words("--setenv", name, value)


def _root(operations: Sequence[Operation]) -> Iterator[str]:
    sealed: list[str] = []
    for each in operations:
        yield from _operation(each)
        if each.op is Op.MASK and each.is_dir:
            sealed.append(each.path)
    # A tmpfs has to be writable until everything that stands in it was made.
    yield from (_words("--remount-ro", path) for path in [*sealed, "/"])


def _operation(each: Operation) -> Iterator[str]:
    attempt = "-try" if each.optional else ""
    match each.op:
        case Op.MAKE_DIR:
            return
        case Op.TMPFS:
            yield _words("--perms", "1777", "--tmpfs", each.path)
        case Op.PROC:
            yield _words("--proc", each.path)
        case Op.DEV:
            yield _words("--dev", each.path)
        case Op.SKELETON:
            if each.path != "/":
                yield _words("--perms", "0755" if each.listable else SEALED, "--dir", each.path)
        case Op.SYMLINK:
            yield _words("--symlink", each.source, each.path)
        case Op.BIND_RO:
            if not each.is_link:
                yield _words(f"--ro-bind{attempt}", each.source or each.path, each.path)
        case Op.BIND_RW:
            yield _words(f"--bind{attempt}", each.source or each.path, each.path)
        case Op.PIN:
            yield _words("--bind", each.path, each.path)
        case Op.MASK:
            if each.is_dir:
                yield _words("--perms", SEALED if each.populated else "0000", "--tmpfs", each.path)
            else:
                yield _words("--ro-bind", "/dev/null", each.path)
