"""One run on macOS: the compiled profile, `sandbox-exec`, and the proxy's port as the only network."""

from __future__ import annotations

import os
import sys
import time

from sbx.backends import macos, macos_run
from sbx.model.profile import NetworkMode
from sbx.model.result import Result, Usage
from sbx.supervise.elsewhere import Job, Outcome, environment, result_of

assert sys.platform != "win32"  # its supervisor waits on process groups

from sbx.supervise.proxying import ProxyRun  # noqa: E402  the type checker has to meet the platform first


def run(job: Job) -> tuple[Result, list[str]]:
    prepared = macos.prepare(job.profile, job.cwd)
    network = job.profile.network
    proxy = None
    if network.mode is NetworkMode.ALLOW:
        proxy = ProxyRun(tuple(text for text, _ in network.allow), own_namespace=False)
    notes: list[str] = []
    began = time.monotonic()
    try:
        ended = _run(job, prepared, proxy)
    finally:
        if proxy is not None and (trouble := proxy.close()):
            notes.append(trouble)
    by_option = "net" in job.options
    decisions = () if proxy is None else proxy.decisions(profile=job.profile.name, by_option=by_option)
    fields = (ended.status, ended.rc, ended.exit_code, ended.signal, ended.reason)
    outcome = Outcome(*fields, ended.stdout, ended.stderr, ended.truncated, Usage())
    return result_of(job, outcome, "sandbox-exec", macos.enforced(prepared), began, decisions), notes


def _run(job: Job, prepared: macos.Prepared, proxy: ProxyRun | None) -> macos_run.Ended:
    path = os.environ.get("PATH", os.defpath)
    wrapped = macos.wrap(prepared, job.command, path=path, proxy_port=None if proxy is None else proxy.port)
    try:
        inside = dict(wrapped.env_additions)
        if proxy is not None:
            inside.update(proxy.environment(sys.executable))
            proxy.started()
        env = environment(job, inside)
        return macos_run.run(wrapped, env=env, cwd=job.cwd, limits=job.profile.limits, inherit=_as_it_comes(job))
    finally:
        macos.release(wrapped)


def _as_it_comes(job: Job) -> bool:
    """May the command have the caller's own streams? Unless a cap or a record has to look at them."""
    limits = job.profile.limits
    return limits.stdout_bytes is None and limits.stderr_bytes is None and "json" not in job.options
