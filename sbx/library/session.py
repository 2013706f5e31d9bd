"""A session: one policy made ready once, many cheap commands under it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import threading
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from sbx.backends.wrapped import WrappedCommand
from sbx.errors import SandboxUnavailable, UsageError
from sbx.library.api import Stdin, _linux_only, call_of, checked, folder_of, probe, turn, unavailable
from sbx.library.types import Enforcement, EnvironmentChoice, OnUnavailable, PathLike, Rules, make_rules, words_of
from sbx.model.profile import Limits
from sbx.model.result import Result

if TYPE_CHECKING:
    from sbx.library.plans import PlanCache, ReadyPlan
    from sbx.library.running import Call
    from sbx.library.shared import SharedSandbox

CONSOLE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "launch", "console.py")


class Session:
    """Use it as a context manager, `with` or `async with`; it is safe to share between threads and tasks.

    With `shared` (the default) commands run one after the other in sandboxes that are used again: parallel calls get
    sandboxes of their own, so that no command ever meets another. `tmp="session"` keeps what commands leave in /tmp
    for the next one, and so has just one sandbox, which parallel calls wait for. Without `shared` every command gets a
    fresh sandbox.
    """

    def __init__(
        self,
        policy: PathLike | None = None,
        profile: str | None = None,
        *,
        cwd: PathLike | None = None,
        env: EnvironmentChoice = None,
        extra_env: dict[str, str] | None = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        read: Sequence[str] = (),
        modify: Sequence[str] = (),
        deny: Sequence[str] = (),
        net: str | Sequence[str] | None = None,
        shared: bool = True,
        tmp: Literal["command", "session"] = "command",
        audit: bool = True,
        on_unavailable: OnUnavailable = OnUnavailable.REFUSE,
    ) -> None:
        if tmp not in ("command", "session"):
            raise UsageError(f"tmp={tmp!r} is neither 'command' nor 'session'", remedy="choose one of them")
        if tmp == "session" and not shared:
            raise UsageError("tmp='session' needs a shared sandbox", remedy="leave shared=False out")
        self.rules = make_rules(
            policy=policy, profile=profile, read=read, modify=modify, deny=deny, net=net, limits=limits,
            timeout=timeout, on_unavailable=on_unavailable,
        )  # fmt: skip
        self.folder = folder_of(cwd)
        self.env = env
        self.extra_env = dict(extra_env or {})
        self.shared = shared
        self.tmp = tmp
        self.audit = audit
        self.on_unavailable = on_unavailable
        self._plans: PlanCache | None = None
        self._sandboxes: _Sandboxes | None = None
        self._closed = False

    # Life.

    def prepare(self) -> None:
        """Compile the policy and build the private root now, instead of with the first command. Raises SbxError."""
        plan = self._plan(self.rules, dict(os.environb))
        template = plan.template()
        if self.shared and template is not None and not plan.watched:
            sandboxes = self._shared()
            sandboxes.give_back(sandboxes.take(plan))

    def shutdown(self) -> None:
        """End its sandboxes. Commands that still run are killed."""
        self._closed = True
        if self._sandboxes is not None:
            self._sandboxes.close()
        if self._plans is not None:
            self._plans.clear()

    def __enter__(self) -> Session:
        self.prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()

    async def __aenter__(self) -> Session:
        await asyncio.to_thread(self.prepare)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.shutdown)

    # Commands.

    def run(
        self,
        cmd: Sequence[PathLike],
        *,
        cwd: PathLike | None = None,
        env: EnvironmentChoice = None,
        extra_env: dict[str, str] | None = None,
        stdin: Stdin = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        live: bool = False,
        check: bool = False,
    ) -> Result:
        """One command. `cwd` is taken from the session's folder; limits given here beat the session's."""
        from sbx.library.running import Running

        rules, call = self._call(cmd, cwd, env, extra_env, stdin, timeout, limits, live)
        try:
            plan = self._plan(rules, call.environ)
        except SandboxUnavailable as error:
            return unavailable(error, rules, call.command, self.on_unavailable)
        if not self._in_shared(plan):
            return checked(Running(plan, call).finish(), check)
        sandboxes = self._shared()
        sandbox = sandboxes.take(self._base(plan, rules, call.environ))
        try:
            result = Running(plan, call, sandbox).finish()
        finally:
            sandboxes.give_back(sandbox)
        return checked(result, check)

    async def arun(
        self,
        cmd: Sequence[PathLike],
        *,
        cwd: PathLike | None = None,
        env: EnvironmentChoice = None,
        extra_env: dict[str, str] | None = None,
        stdin: Stdin = None,
        timeout: float | None = None,
        limits: Limits | None = None,
        live: bool = False,
        check: bool = False,
    ) -> Result:
        """`run` for asyncio. Cancelled, it kills the command's whole tree before it raises."""
        from sbx.library.running import Running

        rules, call = self._call(cmd, cwd, env, extra_env, stdin, timeout, limits, live)
        async with turn():
            try:
                plan = self._ready(rules, call.environ)
                if plan is None:
                    plan = await asyncio.to_thread(self._plan, rules, call.environ)
            except SandboxUnavailable as error:
                return unavailable(error, rules, call.command, self.on_unavailable)
            if not self._in_shared(plan):
                return checked(await Running(plan, call).finish_async(), check)
            sandboxes = self._shared()
            sandbox = await sandboxes.take_async(self._base(plan, rules, call.environ))
            try:
                result = await Running(plan, call, sandbox).finish_async()
            finally:
                sandboxes.give_back(sandbox)
            return checked(result, check)

    def wrap(self, cmd: Sequence[PathLike], *, cwd: PathLike | None = None) -> WrappedCommand:
        """The command as anybody can start it: a command line that puts itself into the sandbox, and what to add to
        its environment. Nothing is started here."""
        words = words_of(cmd)
        if self.env is not None and self.env != "all":
            raise UsageError("an exact environment cannot be wrapped", remedy="give it to whoever starts the command")
        options = [*self.rules.arguments(), f"--cwd={self._folder(cwd)}"]
        if self.env == "all":
            options.append("--env-all")
        options += [f"--env={name}" for name in self.extra_env]
        if not self.audit:
            options.append("--no-audit")
        argv = (sys.executable, "-IS", CONSOLE, "run", *options, "--", *words)
        return WrappedCommand(argv, tuple(self.extra_env.items()))

    def probe(self) -> dict[str, Enforcement]:
        return probe()

    # Inside.

    def _call(
        self,
        cmd: Sequence[PathLike],
        cwd: PathLike | None,
        env: EnvironmentChoice,
        extra_env: dict[str, str] | None,
        stdin: Stdin,
        timeout: float | None,
        limits: Limits | None,
        live: bool,
    ) -> tuple[Rules, Call]:
        if self._closed:
            raise UsageError("this session was shut down", remedy="start another one")
        _linux_only()
        words = words_of(cmd)
        rules = self.rules
        if limits is not None or timeout is not None:
            chosen = (limits or Limits()).over(rules.limits)
            if timeout is not None:
                chosen = Limits(wall_s=timeout).over(chosen)
            rules = Rules(
                rules.policy, rules.profile, rules.read, rules.modify, rules.deny, rules.net, chosen, rules.partial
            )
        call = call_of(
            words,
            rules,
            env=self.env if env is None else env,
            extra_env={**self.extra_env, **(extra_env or {})},
            stdin=stdin,
            live=live,
            audit=self.audit,
            cwd=None if cwd is None else self._folder(cwd),
        )
        return rules, call

    def _folder(self, cwd: PathLike | None) -> str:
        return self.folder if cwd is None else folder_of(os.path.join(self.folder, os.fspath(cwd)))

    def _plan(self, rules: Rules, environ: dict[bytes, bytes]) -> ReadyPlan:
        """Made anew when something it was made from has changed: a policy file, a folder that a glob looked into."""
        if self._plans is None:
            from sbx.library.plans import PlanCache

            self._plans = PlanCache()
        return self._plans.get(rules.options(), self.folder, environ)

    def _ready(self, rules: Rules, environ: dict[bytes, bytes]) -> ReadyPlan | None:
        """Without work for a thread, where nothing has changed."""
        return None if self._plans is None else self._plans.known(rules.options(), self.folder, environ)

    def _base(self, plan: ReadyPlan, rules: Rules, environ: dict[bytes, bytes]) -> ReadyPlan:
        """The plan that the shared sandboxes were made from: the session's own, whatever the limits of one call."""
        return plan if rules is self.rules else self._plan(self.rules, environ)

    def _in_shared(self, plan: ReadyPlan) -> bool:
        """Limits that need a cgroup or sampling, and a proxy, belong to a sandbox of the command's own."""
        if self.shared and plan.fits and not plan.watched:
            return True
        if self.tmp == "session":
            raise UsageError(
                "tmp='session' cannot be kept: this profile's limits or network need a sandbox for each command",
                remedy="use tmp='command', or leave out the limits of memory, cpu and pids",
            )
        return False

    def _shared(self) -> _Sandboxes:
        if self._sandboxes is None:
            self._sandboxes = _Sandboxes(keep_tmp=self.tmp == "session")
        return self._sandboxes


class _Sandboxes:
    """The idle ones, and, where there can be just one, those who wait for it."""

    def __init__(self, *, keep_tmp: bool) -> None:
        self.keep_tmp = keep_tmp
        self._idle: list[SharedSandbox] = []
        self._used: set[SharedSandbox] = set()
        self._waiters: deque[concurrent.futures.Future[None]] = deque()
        self._lock = threading.Lock()

    def take(self, plan: ReadyPlan) -> SharedSandbox:
        while (ticket := self._ticket()) is not None:
            ticket.result()
        return self._get(plan)

    async def take_async(self, plan: ReadyPlan) -> SharedSandbox:
        while (ticket := self._ticket()) is not None:
            await asyncio.wrap_future(ticket)
        return self._get(plan)

    def _ticket(self) -> concurrent.futures.Future[None] | None:
        """None when it is our turn; then a place is reserved."""
        with self._lock:
            if not self.keep_tmp or self._busy == 0:
                self._busy += 1
                return None
            ticket: concurrent.futures.Future[None] = concurrent.futures.Future()
            self._waiters.append(ticket)
            return ticket

    _busy = 0

    def _get(self, plan: ReadyPlan) -> SharedSandbox:
        from sbx.library.shared import SharedSandbox

        try:
            sandbox = None
            template = plan.template()
            assert template is not None
            with self._lock:
                old = [each for each in self._idle if each.template is not template]
                self._idle = [each for each in self._idle if each.template is template]
                if self._idle:
                    sandbox = self._idle.pop()
            for each in old:
                each.close(wait=False)
            if sandbox is None or not sandbox.usable():
                sandbox = SharedSandbox(plan, template, keep_tmp=self.keep_tmp)
                sandbox.ensure_ready()
        except BaseException:
            self._next()
            raise
        with self._lock:
            self._used.add(sandbox)
        return sandbox

    def give_back(self, sandbox: SharedSandbox) -> None:
        with self._lock:
            self._used.discard(sandbox)
            if sandbox.pidfd >= 0:
                self._idle.append(sandbox)
        self._next()

    def _next(self) -> None:
        with self._lock:
            self._busy -= 1
            while self._waiters:
                ticket = self._waiters.popleft()
                if ticket.set_running_or_notify_cancel():
                    ticket.set_result(None)
                    break

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
            used = list(self._used)
        for sandbox in used:
            sandbox.kill()  # whoever runs in it notices
        for sandbox in idle:
            sandbox.close()
