"""One command of the library from start to result: streams, limits, proxy, launch, supervision, audit."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sbx.errors import SetupFailed
from sbx.launch import inside
from sbx.launch.environment import secret_names
from sbx.launch.perform import DEFAULT_PATH, candidates, make_run
from sbx.launch.redact import LiveMask, Redactor, redactor_for
from sbx.launch.streams import DEFAULT_CAPTURE, Streams
from sbx.launch.warm import RUN
from sbx.library.launcher import launcher
from sbx.library.supervision import Remote
from sbx.model.result import Result
from sbx.supervise.execute import Done, open_proxy
from sbx.supervise.limits import LimitKeeper
from sbx.supervise.result import make_result

assert sys.platform == "linux"  # for type checkers on other platforms

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbx.launch.start import Run
    from sbx.library.launcher import Template
    from sbx.library.plans import ReadyPlan
    from sbx.library.shared import SharedSandbox
    from sbx.supervise.proxying import ProxyRun


@dataclass(frozen=True, slots=True)
class Call:
    """What one call asks for. `env` is exactly what the command gets; None leaves it to the profile."""

    command: list[str]
    environ: dict[bytes, bytes]
    cwd: bytes | None = None
    env: Mapping[str, str] | None = None
    env_all: bool = False
    extra_env: tuple[str, ...] = ()
    stdin: int | bytes = -1
    live: bool = False
    audit: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    wall_s: float | None = None  # of this call, where it differs from the plan's


class Running:
    """A started command. Exactly one of `finish` and `finish_async` has to be called."""

    def __init__(self, plan: ReadyPlan, call: Call, sandbox: SharedSandbox | None = None) -> None:
        self.plan = plan
        self.call = call
        self.sandbox = sandbox
        self._fresh: SharedSandbox | None = None  # one that was set up before, and ends with this command
        prepared = plan.prepared
        environment = _environment(plan, call)
        self.redactor = environment.redactor
        self.run = _run_of(environment, call)
        self.began = time.time()
        self.keeper = LimitKeeper(prepared)
        self.proxy: ProxyRun | None = None
        self.streams: Streams | None = None
        try:
            self.run["cgroup_fd"] = self.keeper.cgroup_fd
            self.proxy = open_proxy(prepared, self.run)
            self.streams = self._open_streams()
            self.remote = self._start()
        except BaseException:
            self._close()
            raise

    def _open_streams(self) -> Streams:
        limits = self.plan.prepared["limits"]
        caps = (limits.get("stdout_bytes"), limits.get("stderr_bytes"))
        capture = (caps[0] or DEFAULT_CAPTURE, caps[1] or DEFAULT_CAPTURE)
        out, masks = (-1, -1), (None, None)
        if self.call.live:
            values = self.redactor.values
            return Streams(
                stdin=self.call.stdin,
                out=(1, 2),
                caps=caps,
                capture=capture,
                masks=(LiveMask(values), LiveMask(values)),
            )
        return Streams(stdin=self.call.stdin, out=out, caps=caps, capture=capture, masks=masks)

    def _start(self) -> Remote:
        assert self.streams is not None
        prepared, run = self.plan.prepared, self.run
        ours, status = socket.socketpair()
        try:
            descriptors = [status.fileno(), *self.streams.child]
            descriptors += [run[name] for name in ("cgroup_fd", "channel") if run[name] >= 0]
            self._send(run, descriptors)
        except OSError as error:
            ours.close()
            raise SetupFailed(f"the launcher is gone: {error}", remedy="try again") from None
        except BaseException:
            ours.close()
            raise
        finally:
            status.close()
        self.streams.started()
        wall = self.call.wall_s if self.call.wall_s is not None else prepared["limits"].get("wall_s")
        try:
            if self.proxy is not None:
                self.proxy.started()
            return Remote(
                ours,
                wall_s=wall,
                grace_s=prepared["limits"].get("grace_s", 5.0),
                pumps=(*self.streams.pumps, *(() if self.proxy is None else self.proxy.pumps())),
                watch=self.keeper.watch,
                pidfd=-1 if self._fresh is None else self._fresh.hand_over(),
                shared_pidfd=-1 if self.sandbox is None else self.sandbox.pidfd,
                told_last=self.sandbox is not None or self._fresh is not None,
                kill_signal=inside.SIGKILL if prepared["launch"]["namespaces"] else inside.KILL_EVERYTHING,
            )
        except BaseException:
            ours.close()  # pid 1 inside has nobody to report to any more, and ends
            raise

    def _send(self, run: Run, descriptors: list[int]) -> None:
        plan = self.plan
        cwd = self.call.cwd or plan.prepared["launch"]["cwd"]
        if self.sandbox is not None:
            self.sandbox.send(({**run, "cwd": cwd},), descriptors)
            return
        template = plan.template()
        if template is None:
            launch = {**plan.prepared["launch"], "cwd": cwd}
            launcher().send((RUN, launch, run), descriptors)
        elif plan.watched:  # its cgroup and its proxy are its own from the start
            template.send((RUN, cwd, run), descriptors)
        else:
            self._fresh = self._take(template)
            self._fresh.send(({**run, "cwd": cwd},), descriptors)
            plan.spares.refill(plan, self._fresh.template)

    def _take(self, template: Template) -> SharedSandbox:
        """A fresh one. The launcher may have been killed since the last call: then everything is started anew, once."""
        try:
            return self.plan.spares.take(self.plan, template)
        except SetupFailed:
            again = self.plan.template(renew=True)
            assert again is not None
            return self.plan.spares.take(self.plan, again)

    def finish(self) -> Result:
        try:
            self.remote.finish()
        finally:
            notes = self._close()
        return self._result(notes)

    async def finish_async(self) -> Result:
        try:
            await self.remote.finish_async()
        finally:
            notes = self._close()
        return self._result(notes)

    def _close(self) -> list[str]:
        if self.streams is not None:
            self.streams.close()
        trouble = self.proxy.close() if self.proxy is not None else ""
        remote = getattr(self, "remote", None)
        if self._fresh is not None:
            self._fresh.close(wait=remote is None)  # otherwise its end was waited for
        if remote is not None:
            self.keeper.settle(remote.outcome)
        self.keeper.__exit__(None, None, None)
        return [trouble] if trouble else []

    def _result(self, notes: list[str]) -> Result:
        prepared = self.plan.prepared
        if self.call.cwd is not None:
            prepared = {**prepared, "launch": {**prepared["launch"], "cwd": self.call.cwd}}
        done = Done(
            prepared,
            self.call.options,
            self.call.command,
            self.run,
            self.remote.outcome,
            self.streams,
            self.began,
            environ=self.call.environ,
            pids_peak=self.keeper.pids_peak,
            network=()
            if self.proxy is None
            else self.proxy.decisions(profile=self.plan.prepared["profile"], by_option=False),
            notes=notes,
            redactor=self.redactor,
        )
        result = make_result(done)
        if self.call.audit:
            from sbx import audit

            audit.record(result, done)
        return result


@dataclass(frozen=True, slots=True)
class _Environment:
    """What was made of one caller's environment: it is the same for most calls."""

    asked: tuple[Any, ...]
    built: Run
    redactor: Redactor


def _environment(plan: ReadyPlan, call: Call) -> _Environment:
    asked = (call.environ, call.env, call.env_all, call.extra_env)
    known: _Environment | None = plan.environment
    if known is not None and known.asked == asked:
        return known
    run = make_run(
        plan.prepared,
        {
            "command": call.command,
            "environ": call.environ,
            "extra_env": call.extra_env,
            "env_all": call.env_all,
            "use_terminal": False,
        },
    )
    run["keep"] = ()  # descriptors of this process mean nothing to the launcher
    run["jobserver"] = b""  # nor was its fifo known when the private root was built
    if call.env is not None:
        run["env"] = {os.fsencode(name): os.fsencode(value) for name, value in call.env.items()}
    environ = {**call.environ, **run["env"]}
    made = _Environment(asked, run, redactor_for(environ, secret_names=secret_names(plan.prepared["env"], environ)))
    plan.environment = made
    return made


def _run_of(environment: _Environment, call: Call) -> Run:
    run: Run = {**environment.built}
    env = run["env"] = dict(run["env"])
    if call.cwd is not None and call.env is None:
        env[b"PWD"] = call.cwd
    run["argv"] = tuple(os.fsencode(word) for word in call.command)
    run["candidates"] = candidates(run["argv"][0], env if b"PATH" in env else {b"PATH": DEFAULT_PATH})
    return run
