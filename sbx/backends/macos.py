"""macOS: the profile compiled to SBPL, and `sandbox-exec -f` to apply it. Importable everywhere, useful on darwin.

sandbox-exec reports its own failures like a program would: exit 65 for a profile that does not compile, 71 when the
kernel refuses to apply it. Each profile is therefore tried on /usr/bin/true before the command is started, so that no
exit status of the command is ever mistaken for one of sandbox-exec.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

from sbx.backends.wrapped import WrappedCommand
from sbx.errors import CommandNotExecutable, CommandNotFound, SandboxUnavailable, SetupFailed
from sbx.model.decide import decide_location
from sbx.model.guarantee import Applied
from sbx.model.plan import Plan
from sbx.model.profile import EffectiveProfile, Limits, NetworkMode, Require
from sbx.model.records import dataclass
from sbx.model.rules import Access
from sbx.planner.macos import compile_sbpl, plan
from sbx.planner.macos_baseline import adapted

SANDBOX_EXEC = "/usr/bin/sandbox-exec"  # never looked up on PATH
TRIAL = "/usr/bin/true"
ANYTHING = "(version 1)\n(allow default)\n"
_PC_CASE_SENSITIVE = 11  # <sys/unistd.h>; Python has no name for it
# `exec` keeps the pid; ulimit is the shell's own, so that no Python code runs between fork and exec.
_WITH_LIMITS = 'exec "$@"'

Trial = Callable[[str], "tuple[int, str]"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A profile that this machine can apply."""

    profile: EffectiveProfile
    plan: Plan
    case_insensitive: bool


def try_profile(text: str) -> tuple[int, str]:
    """Apply a profile to a program that does nothing: (exit status, what was said)."""
    done = subprocess.run(
        [SANDBOX_EXEC, "-p", text, TRIAL], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr.strip()


def probe(trial: Trial = try_profile) -> SandboxUnavailable | None:
    """None where sandbox-exec works; else the refusal to raise, in its own words for each cause."""
    if sys.platform != "darwin" and trial is try_profile:
        return _unavailable("this is not macOS", "sandbox-exec exists on macOS only", "")
    if trial is try_profile and not os.access(SANDBOX_EXEC, os.X_OK):
        return _unavailable(
            f"{SANDBOX_EXEC} is missing",
            "Apple ships it with every macOS; this system had it removed",
            "restore it, or run with another sandbox",
        )
    return refusal(*trial(ANYTHING))


def refusal(status: int, said: str) -> SandboxUnavailable | None:
    """What a trial's failure means."""
    if status == 0 or said.startswith("sandbox-exec: execvp"):
        return None  # applied: only the program was out of the profile's reach
    if "sandbox_apply" in said:
        return _unavailable(
            "this process is in a sandbox already, and macOS does not nest them",
            said,
            "start sbx outside the other sandbox (an editor or an app may have made it), or turn that one off",
        )
    return _unavailable("sandbox-exec does not accept a profile", said or f"exit {status}", "see 'sbx doctor'")


def prepare(profile: EffectiveProfile, cwd: str, *, partial: bool = False, trial: Trial = try_profile) -> Prepared:
    """Everything that can fail before a command is known."""
    unavailable = probe(trial)
    if unavailable is not None:
        raise unavailable
    insensitive = is_case_insensitive(profile.workspace)
    check_spelling(profile.workspace, on_disk(profile.workspace))
    prepared = Prepared(profile, plan(profile, cwd, case_insensitive=insensitive), insensitive)
    if prepared.plan.refusals and profile.require is Require.FULL and not partial:
        raise SandboxUnavailable(
            f"the profile {profile.name!r} asks for what macOS cannot enforce",
            remedy="run with --partial, or set 'require: partial', to accept that",
            details=prepared.plan.refusals,
            platform="macos",
            reason=prepared.plan.refusals[0],
        )
    status, said = trial(
        compile_sbpl(profile, proxy_port=None, tmp="/private/tmp/sbx-trial", case_insensitive=insensitive)
    )
    if refusal(status, said) is not None:
        raise SetupFailed(
            "macOS does not accept the compiled profile", remedy="see 'sbx plan --format sbpl'", details=(said,)
        )
    return prepared


def wrap(prepared: Prepared, argv: Sequence[str], *, path: str, proxy_port: int | None = None) -> WrappedCommand:
    """The command under sandbox-exec. Its profile and its TMPDIR are in a private folder: hand it to release()."""
    folder = os.path.realpath(tempfile.mkdtemp(prefix="sbx-"))  # mode 0700
    try:
        tmp = os.path.join(folder, "tmp")
        os.mkdir(tmp, 0o700)
        program = _program(prepared, argv[0], path, tmp)
        text = compile_sbpl(
            prepared.profile, proxy_port=proxy_port, tmp=tmp, case_insensitive=prepared.case_insensitive
        )
        file = os.path.join(folder, "profile.sb")
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    limits = ulimits(prepared.profile.limits)
    command = (*limits, SANDBOX_EXEC, "-f", file, "--", program, *argv[1:])
    return WrappedCommand(command, (("TMPDIR", tmp + "/"),), (folder,))


def release(wrapped: WrappedCommand) -> None:
    """Remove what wrap() made."""
    for folder in wrapped.cleanup:
        shutil.rmtree(folder, ignore_errors=True)


def ulimits(limits: Limits) -> tuple[str, ...]:
    """The rlimits that macOS holds a process to, set by a shell that then becomes sandbox-exec."""
    steps = []
    if limits.nofile is not None:
        steps.append(f"ulimit -n {limits.nofile:d}")
    if limits.cpu_s is not None:
        steps.append(f"ulimit -t {max(1, round(limits.cpu_s)):d}")
    if not steps:
        return ()
    return ("/bin/sh", "-c", " && ".join((*steps, _WITH_LIMITS)), "sbx")


def enforced(prepared: Prepared) -> dict[str, Applied]:
    """What of the profile holds here, and by what."""
    profile, limits = prepared.profile, prepared.profile.limits
    network = profile.network.mode is not NetworkMode.HOST
    return {
        "filesystem": Applied(True, True, "sandbox-exec; /tmp is not private, TMPDIR is"),
        "exec": Applied(profile.exec is not None, True, "sandbox-exec"),
        "future_denies": Applied(True, True, "sandbox-exec judges names when they are used"),
        "network": Applied(network, True, "sandbox-exec" if network else "the host's network"),
        "processes": Applied(
            True, False, "the process group is ended; a program that starts its own session can outlive the run"
        ),
        "syscalls": Applied(False, False, "macOS has no filter of system calls for programs to use"),
        "privileges": Applied(True, True, "sandboxed programs gain nothing from set-id bits"),
        "environment": Applied(True, True, "built by sbx"),
        "terminal": Applied(True, True, "a session of its own: the caller's terminal takes no input from it"),
        "wall": Applied(limits.wall_s is not None, True, "supervisor"),
        "cpu": Applied(limits.cpu_s is not None, False, "RLIMIT_CPU of each process, not of the tree"),
        "memory": Applied(limits.memory_bytes is not None, False, "macOS ignores RLIMIT_AS; needs sampling"),
        "pids": Applied(
            limits.pids is not None, False, "RLIMIT_NPROC counts all processes of the user; needs sampling"
        ),
        "nofile": Applied(limits.nofile is not None, limits.nofile is not None, "RLIMIT_NOFILE"),
        "stdout": Applied(limits.stdout_bytes is not None, True, "supervisor"),
        "stderr": Applied(limits.stderr_bytes is not None, True, "supervisor"),
    }


def is_case_insensitive(path: str) -> bool:
    """Does the volume take `.ENV` for `.env`? Yes, unless it says no: that only makes denies wider."""
    answer = 0
    if sys.platform == "darwin":
        try:
            answer = os.pathconf(path, _PC_CASE_SENSITIVE)
        except OSError:
            pass
    return answer == 0


def on_disk(path: str) -> str:
    """The path as the volume spells it."""
    spelled = path
    if sys.platform == "darwin":
        import fcntl

        descriptor = os.open(path, os.O_RDONLY)
        try:
            spelled = os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
        finally:
            os.close(descriptor)
    return spelled


def check_spelling(path: str, spelled: str) -> None:
    """Rules begin with the workspace's path, and the kernel compares it with the spelling on disk."""
    if path != spelled:
        raise SetupFailed(
            f"the workspace is called {path} here and {spelled} on disk", remedy=f"start from there: cd {spelled}"
        )


def _program(prepared: Prepared, name: str, path: str, tmp: str) -> str:
    """The command's own file, found before the sandbox hides it."""
    found = shutil.which(name, path=path)
    if found is None:
        if "/" in name and os.path.exists(name):
            raise CommandNotExecutable(f"{name} is not executable", remedy="check its mode, or name its interpreter")
        raise CommandNotFound(f"{name} was not found", remedy="check the spelling and PATH")
    real = os.path.realpath(found)
    decision = decide_location(adapted(prepared.profile, tmp), real, Access.EXEC)
    if not decision.allowed:
        rule = f" by {decision.winner} ({decision.winner.source.place})" if decision.winner is not None else ""
        raise CommandNotExecutable(
            f"{name} is {real}, which the profile {prepared.profile.name!r} does not let run{rule}",
            remedy=f"add a read rule for it, or see 'sbx explain {real}'",
        )
    return os.path.abspath(found)


def _unavailable(reason: str, said: str, remedy: str) -> SandboxUnavailable:
    return SandboxUnavailable(
        f"no sandbox on this machine: {reason}", remedy=remedy, details=(said,), platform="macos", reason=reason
    )
