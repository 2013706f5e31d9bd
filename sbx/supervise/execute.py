"""The rest of a run around the launch: streams, limits, proxy, then result, report and audit.

The hot path does without all of this as long as a run is plain; whatever is not plain ends up here.
"""

from __future__ import annotations

import os
import sys
import time

from sbx.launch.overhear import overheard
from sbx.launch.perform import make_run, open_standard_descriptors, perform
from sbx.model.guarantee import Applied
from sbx.model.records import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.launch.perform import Prepared
    from sbx.launch.redact import Redactor
    from sbx.launch.start import Run
    from sbx.launch.streams import Streams
    from sbx.launch.wait import Outcome
    from sbx.model.result import Denial
    from sbx.supervise.proxying import ProxyRun
    from sbx.supervise.result import JsonTarget

DEFAULT_CAPTURE_BYTES = 1 << 20


@dataclass(slots=True)
class Done:
    """A run that is over, with everything a report may want to say of it."""

    prepared: Prepared
    options: dict[str, Any]
    command: list[str]
    run: Run
    outcome: Outcome
    streams: Streams | None = None
    began: float = 0.0
    network: tuple[dict[str, Any], ...] = ()
    denials: tuple[Denial, ...] = ()
    errors_at: int = -1  # where in a plain file the command's errors start
    overheard: bool = False  # were its errors looked at?
    said: bytes = b""  # what they were
    notes: list[str] = field(default_factory=list)
    pids_peak: int | None = None
    environ: dict[bytes, bytes] = field(default_factory=dict)
    json_target: JsonTarget | None = None
    redactor: Redactor | None = None  # where one is at hand already: making it looks at every variable


def execute(prepared: Prepared, options: dict[str, Any], command: list[str], environ: dict[bytes, bytes]) -> Done:
    """Run it from the command line: the caller's own descriptors, unless something has to look at them."""
    from sbx.supervise.limits import LimitKeeper

    open_standard_descriptors()
    run = make_run(
        prepared,
        {
            "command": command,
            "environ": environ,
            "extra_env": tuple(options.get("env", ())),
            "env_all": bool(options.get("env-all")),
            "use_terminal": "no-tty" not in options,
        },
    )
    began = time.time()
    json_target = None
    if "json" in options:
        from sbx.supervise.result import JsonTarget

        json_target = JsonTarget(options["json"])  # before the command can put something else in its place
    prepared = without_caps_on_terminals(prepared, options)
    streams = open_streams(prepared, options, run)
    errors_at = -1
    if streams is None:
        streams, errors_at = overheard()
        if streams is not None:
            run["streams"] = streams.child
    proxy = open_proxy(prepared, run)
    notes: list[str] = []
    with LimitKeeper(prepared) as keeper:
        run["cgroup_fd"] = keeper.cgroup_fd
        try:
            outcome = perform(prepared, run, streams=streams, watch=keeper.watch, proxy=proxy)
        except BaseException:
            if streams is not None:
                streams.close()
            raise
        finally:
            if proxy is not None and (trouble := proxy.close()):
                notes.append(trouble)
        keeper.settle(outcome)
        notes.extend(keeper.notes)
    return Done(
        prepared,
        options,
        command,
        run,
        outcome,
        streams,
        began,
        environ=environ,
        pids_peak=keeper.pids_peak,
        network=() if proxy is None else proxy.decisions(profile=prepared["profile"], by_option="net" in options),
        notes=notes,
        json_target=json_target,
        errors_at=errors_at,
    )


def open_proxy(prepared: Prepared, run: Run) -> ProxyRun | None:
    """The way out for an allow-list: nothing else is reachable."""
    mode, allow = prepared["network"]
    if mode != "allow":
        return None
    from sbx.supervise.proxying import ProxyRun

    proxy = ProxyRun(allow, own_namespace=bool(prepared["launch"]["namespaces"]))
    run["channel"], run["proxy_port"] = proxy.channel, proxy.port
    java_options = os.fsdecode(run["env"].get(b"JAVA_TOOL_OPTIONS", b""))
    for name, value in proxy.environment(sys.executable, java_options).items():
        run["env"][name.encode()] = os.fsencode(value)
    return proxy


def open_streams(prepared: Prepared, options: dict[str, Any], run: Run) -> Streams | None:
    """Pipes only where a cap or a record needs them; a terminal stays a terminal."""
    limits = prepared["limits"]
    caps = [limits.get("stdout_bytes"), limits.get("stderr_bytes")]
    capture = [DEFAULT_CAPTURE_BYTES if "json" in options and not shown(number, options) else 0 for number in (1, 2)]
    if caps == [None, None] and capture == [0, 0]:
        return None
    from sbx.launch.streams import Streams

    streams = Streams(caps=(caps[0], caps[1]), capture=(capture[0], capture[1]))
    run["streams"] = streams.child
    return streams


def shown(number: int, options: dict[str, Any]) -> bool:
    """Is it a terminal that has to stay one? A pipe in its place would end colours, editors and prompts."""
    return "no-tty" not in options and os.isatty(number)


def without_caps_on_terminals(prepared: Prepared, options: dict[str, Any]) -> Prepared:
    """Caps keep logs and captures small. What a person watches is not cut, and the account of the run says so."""
    names = [name for number, name in ((1, "stdout"), (2, "stderr")) if shown(number, options)]
    limits = {name: value for name, value in prepared["limits"].items() if name not in [f"{n}_bytes" for n in names]}
    if len(limits) == len(prepared["limits"]):
        return prepared
    words = "it is a terminal: shown as it comes, neither cut nor captured (with --no-tty it is both)"
    enforced = tuple((row[0], False, False, words) if row[0] in names else row for row in prepared["enforced"])
    changed: Prepared = {**prepared, "limits": limits, "enforced": enforced}
    return changed


def enforced_of(prepared: Prepared) -> dict[str, Applied]:
    return {name: Applied(requested, applied, details) for name, requested, applied, details in prepared["enforced"]}
