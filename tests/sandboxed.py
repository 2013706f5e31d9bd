"""Compile a policy and run a command under it, without the command line: for tests that need many sandboxes."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sbx.backends.capabilities import Capabilities
from sbx.errors import SbxError
from sbx.launch.perform import failed_step, make_run, perform
from sbx.model.profile import Require
from sbx.model.source import Source
from sbx.policy.document import Policy, ProfileSource, RunRules, Written
from sbx.policy.layers import effective_profile, load_policy
from sbx.supervise.compile import Compiled, capabilities, compile_profile

# The interpreter itself and none of the user's packages: quick to start, and visible in every profile.
PYTHON = (sys.executable, "-I", "-S")


@dataclass(frozen=True)
class Rules:
    """What a test says about its workspace; texts as a policy file would have them."""

    read: tuple[str, ...] = ("./**",)
    modify: tuple[str, ...] = ()
    exec: tuple[str, ...] | None = None
    deny_read: tuple[str, ...] = ()
    deny_modify: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended:
    status: int  # as os.waitstatus_to_exitcode
    stdout: bytes
    stderr: bytes
    outcome: Any = None  # what the supervisor saw


@functools.cache
def this_machine() -> Capabilities:
    return capabilities()


def without_namespaces() -> Capabilities:
    """This machine, as if user namespaces were blocked."""
    return replace(this_machine(), userns=False)


def _written(texts: Sequence[str]) -> tuple[Written, ...]:
    return tuple(Written(text, Source("test", number, 1, "workspace")) for number, text in enumerate(texts, 1))


def policy_of(rules: Rules, workspace: str, environ: Mapping[str, str] | None = None) -> Policy:
    """The shipped layers, and a profile `test` over them."""
    policy = load_policy(workspace, environ=dict(os.environ if environ is None else environ))
    profile = ProfileSource(
        "test",
        "workspace",
        Source("test", 1, 1, "workspace"),
        read=_written(rules.read),
        modify=_written(rules.modify),
        exec=None if rules.exec is None else _written(rules.exec),
    )
    shown = replace(
        policy.files[-1],
        layer="workspace",
        deny_read=_written(rules.deny_read),
        deny_modify=_written(rules.deny_modify),
    )
    return replace(policy, profiles={**policy.profiles, "test": profile}, files=(*policy.files, shown))


# Of the shipped baseline, what it takes to start the interpreter.
ESSENTIAL = ("/", "/usr/**", "/bin/**", "/lib/**", "/lib64/**", "/proc/**", "/tmp/**", "/var/tmp/**", "/dev/shm/**")


def with_small_baseline(policy: Policy) -> Policy:
    """For tests with hundreds of policies: a tenth of the rules, a fifth of the time."""
    files = []
    for file in policy.files:
        if file.baseline is not None:
            read, modify = (
                tuple(each for each in rules if each.text in ESSENTIAL or each.text.startswith(("${SBX_", "/dev")))
                for rules in (file.baseline.read, file.baseline.modify)
            )
            file = replace(file, baseline=replace(file.baseline, read=read, modify=modify))
        files.append(replace(file, deny_read=(), deny_modify=()) if file.layer == "shipped" else file)
    return replace(policy, files=tuple(files))


def compile_rules(
    rules: Rules,
    workspace: str,
    *,
    cwd: str | None = None,
    machine: Capabilities | None = None,
    small: bool = False,
    trace: bool = False,
) -> Compiled:
    """With `machine`, as that machine would do it; what it lacks is not asked for."""
    policy = policy_of(rules, workspace)
    if small:
        policy = with_small_baseline(policy)
    options = RunRules(require=Require.PARTIAL if machine is not None else None)
    profile = effective_profile(policy, "test", options)
    environ = dict(os.environ)
    return compile_profile(policy, profile, cwd=cwd or workspace, environ=environ, machine=machine, trace=trace)


def run_compiled(
    compiled: Compiled, command: Sequence[str], *, stdin: bytes = b"", env: Sequence[str] = (), env_all: bool = False
) -> Ended:
    """Run to the end. Raises SbxError where the sandbox itself failed."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        run = make_run(
            compiled.prepared,
            {
                "command": list(command),
                "environ": dict(os.environb),
                "extra_env": tuple(env),
                "env_all": env_all,
                "use_terminal": False,
            },
        )
        run["streams"] = (given.fileno(), out.fileno(), err.fileno())
        outcome = perform(compiled.prepared, run)
        failure = failed_step(outcome)
        if failure is not None:
            raise failure
        if outcome["exec_errno"] is not None:
            raise SbxError(f"{command[0]}: {os.strerror(outcome['exec_errno'])}")
        out.seek(0)
        err.seek(0)
        assert outcome["status"] is not None, outcome
        return Ended(os.waitstatus_to_exitcode(outcome["status"]), out.read(), err.read(), outcome)
