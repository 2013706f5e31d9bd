"""The limits of one run while it lasts: its cgroup where there is one, sampling for what is left."""

from __future__ import annotations

import os
from types import TracebackType

from sbx.errors import SetupFailed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.launch.cgroup import Cgroup
    from sbx.launch.perform import Prepared
    from sbx.launch.wait import Outcome
    from sbx.supervise.sampling import Sampler


class Watch:
    """What the supervisor calls every now and then. An answer other than None ends the run."""

    def __init__(self, cgroup: Cgroup | None, sampler: Sampler | None) -> None:
        self.cgroup = cgroup
        self.sampler = sampler

    def attach(self, pid: int) -> None:
        """The process that leads the sandbox, as soon as it exists."""
        if self.sampler is not None:
            self.sampler.attach(pid)

    def __call__(self) -> str | None:
        try:
            over = self.cgroup.over() if self.cgroup is not None else None
            if over is None and self.sampler is not None:
                over = self.sampler.over()
        except Exception as error:  # a limit that nobody watches is no limit: the run ends with these words
            return f"{type(error).__name__}: {error}"
        return over


class LimitKeeper:
    """Set up before the start, asked while it runs, settled and removed after it."""

    def __init__(self, prepared: Prepared) -> None:
        self._cgroup: Cgroup | None = None
        self._sampler: Sampler | None = None
        self.pids_peak: int | None = None  # not known
        self.notes: list[str] = []
        self._limits = prepared["limits"]
        self._open(prepared)

    def _open(self, prepared: Prepared) -> None:
        settings = prepared["cgroup"]
        if settings is not None:
            from sbx.launch.cgroup import Cgroup

            if not settings["parent"]:
                settings = {**settings, "parent": _scope_of_our_own()}
            try:
                self._cgroup = Cgroup(settings)  # type: ignore[arg-type, unused-ignore]
            except OSError as error:
                where = os.fsdecode(settings["parent"])
                raise SetupFailed(
                    f"could not set up a cgroup in {where}: {error.strerror}",
                    remedy="run 'sbx doctor' to see what this machine allows now",
                ) from None
        if prepared["sample"]:
            try:
                from sbx.supervise.sampling import Sampler
            except ImportError as error:
                raise SetupFailed(f"cannot watch the limits: {error}", remedy="install psutil") from None
            self._sampler = Sampler(prepared["sample"], prepared["limits"])

    @property
    def cgroup_fd(self) -> int:
        """The folder the command is to be born in, or -1."""
        return -1 if self._cgroup is None else self._cgroup.fd

    @property
    def watch(self) -> Watch | None:
        ticking = self._cgroup if self._cgroup is not None and self._cgroup.cpu_s is not None else None
        return None if ticking is None and self._sampler is None else Watch(ticking, self._sampler)

    def settle(self, outcome: Outcome) -> None:
        """After the end: what was counted, and which limit it was if the kernel enforced one by itself."""
        if self._sampler is not None:
            outcome["max_rss_bytes"] = max(outcome["max_rss_bytes"], self._sampler.peak_rss_bytes)
            outcome["cpu_s"] = max(outcome["cpu_s"], self._sampler.spent_s)
            self.pids_peak = self._sampler.peak_pids or None  # it may have ended before the first look
        if self._cgroup is not None:
            self._cgroup.settle(outcome)
            self.pids_peak = self._cgroup.pids_peak() or self.pids_peak
            if self._cgroup.refused_processes():
                self.notes.append(
                    f"the limit of {self._limits.get('pids')} processes was reached: a new one was refused"
                )

    def __enter__(self) -> LimitKeeper:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._cgroup is not None:
            self._cgroup.close()


def _scope_of_our_own() -> bytes:
    """From the user's systemd: this process moves into it, and it ends with this process."""
    from sbx.backends.probe_cgroup import WANTED
    from sbx.backends.user_systemd import NoScope, enter_scope

    try:
        return os.fsencode(enter_scope(WANTED))
    except NoScope as error:
        raise SetupFailed(str(error), remedy="run 'sbx doctor' to see what this machine allows now") from None
