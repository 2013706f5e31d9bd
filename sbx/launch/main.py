"""The hot path: `sbx run` and `sbx sh` with a stored plan, from argv to exit without anything slow.

Returns where the compile side has to take over (help, an error, no stored plan, a report to render); otherwise the
process ends here, without Python's finalization.
"""

from __future__ import annotations

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch import store
from sbx.launch.options import Unusual, parse_run, split_sh
from sbx.launch.overhear import overheard
from sbx.launch.perform import Outdated, make_run, open_standard_descriptors, perform
from sbx.launch.root import MAKE_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from sbx.launch.wait import Outcome

EVIDENCE_SURE, EVIDENCE_TARGET = 0, 1  # as in launch.seen, which only a traced run imports
# These need more than a plan: the compile side handles the whole run.
NEEDS_COMPILE_SIDE = ("json", "verbose", "max-stdout", "max-stderr")


def environ_bytes() -> dict[bytes, bytes]:
    return dict(os.environ)


def fast_run(word: str, arguments: list[str]) -> dict[str, Any] | None:
    """Run from the stored plan and exit. Returns None for "take over from the start", or what is left to report."""
    try:
        if word == "sh":
            head, command = split_sh(arguments)
            if len(command) < 2:
                return None
            options, rest = parse_run(head)
            if rest:
                return None
        else:
            options, command = parse_run(arguments)
    except Unusual:
        return None
    if not command or not options_are_plain(options):
        return None
    environ = environ_bytes()
    try:
        cwd = os.getcwdb()
    except OSError:
        return None
    key = store.make_key(options, cwd, environ)
    prepared: Any
    prepared, dependencies = store.find(key, environ)
    if prepared is None or not is_plain(prepared) or command[0].rpartition("/")[2] in prepared["adapted"]:
        return None
    checked = must_be_checked_first(prepared["launch"])
    if checked and not store.unchanged(dependencies, environ):
        return None
    try:
        is_valid = None if checked else lambda: store.unchanged(dependencies, environ)
        done = carry_out(prepared, options, command, environ, meanwhile=get_ready_to_record, is_valid=is_valid)
    except Outdated:
        return None
    except OSError:
        store.forget(key, environ)
        return None
    except Exception as error:
        from sbx.errors import SbxError  # not before: its classes cost more than a mount

        if isinstance(error, SbxError):
            return None  # the compile side meets it again, and finds the words
        raise
    outcome = done["outcome"]
    if outcome["failure"] is not None and not outcome["started"]:
        store.forget(key, environ)  # a plan that no longer fits the machine: make a new one
        return None
    return done


def carry_out(
    prepared: Any,
    options: dict[str, Any],
    command: list[str],
    environ: dict[bytes, bytes],
    *,
    meanwhile: Callable[[], None],
    is_valid: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """A plain run, of a stored plan or one that was just made. `meanwhile` and `is_valid`: see `perform`."""
    open_standard_descriptors()
    run = make_run(
        prepared,
        {
            "command": command,
            "environ": environ,
            "extra_env": options.get("env", ()),
            "env_all": bool(options.get("env-all")),
            "use_terminal": "no-tty" not in options,
        },
    )
    streams, errors_at = overheard()
    if streams is not None:
        run["streams"] = streams.child
    done: dict[str, Any] = {
        "options": options,
        "command": command,
        "prepared": prepared,
        "run": run,
        "environ": environ,
        "streams": streams,
        "errors_at": errors_at,
        "recorded": False,
    }
    at_exit = None if streams is not None or "view" in prepared else lambda seen: record_early(done, seen)
    try:
        done["outcome"] = perform(
            prepared, run, streams=streams, meanwhile=meanwhile, is_valid=is_valid, at_exit=at_exit
        )
    except BaseException:
        if streams is not None:
            streams.close()
        raise
    return done


def options_are_plain(options: Mapping[str, Any]) -> bool:
    """Nothing has to be reported or recorded beyond the audit log's line."""
    return options.get("report") != "always" and not any(name in options for name in NEEDS_COMPILE_SIDE)


def is_plain(prepared: Any) -> bool:
    """Nobody has to look after it while it runs: no limit to be sampled, no cgroup, no proxy, no stream to be cut."""
    by_others = prepared["sample"] or prepared["cgroup"] or prepared["network"][0] == "allow"
    return not by_others and limits_are_plain(prepared["limits"])


def must_be_checked_first(launch: dict[str, Any]) -> bool:
    """Other plans are carried out while they are checked, in namespaces where nothing comes of it if they are outdated:
    this one would leave something behind, or has no such namespaces."""
    return not launch["namespaces"] or any(operation[0] == MAKE_DIR for operation in launch["operations"])


def limits_are_plain(limits: dict[str, Any]) -> bool:
    """No stream has to be cut: that is the other side's work."""
    return limits.get("stdout_bytes") is None and limits.get("stderr_bytes") is None


def get_ready_to_record() -> None:
    """What the end of the run will need, loaded while the sandbox is being built."""
    import sbx.launch.audit_line  # noqa: F401


def record_early(done: dict[str, Any], outcome: Outcome) -> None:
    """The audit log's line, while the kernel takes the sandbox apart: nothing about the run changes any more then."""
    from sbx.launch.audit_line import record_success  # imported meanwhile

    done["outcome"] = outcome
    done["recorded"] = is_plain_success(done) and record_success(done)


def is_plain_success(done: dict[str, Any]) -> bool:
    outcome = done["outcome"]
    return bool(
        outcome["status"] == 0
        and not outcome["timed_out"]
        and outcome["stop_signal"] is None
        and outcome["limit"] is None
        and was_denied_nothing(outcome)
        and was_delivered(done["streams"])
        and not any(requested and not applied for _, requested, applied, _ in done["prepared"]["enforced"])
    )


def was_denied_nothing(outcome: Any) -> bool:
    """Of a traced run: is there nothing to tell? Most programs look for files in places where there are none, and a
    place that is hidden inside can be seen from here. What is left is for `report.denials` to judge."""
    _, unseen, left_out = outcome.get("counted", ((), 0, 0))
    if unseen or left_out:
        return False
    for _, _, location, evidence, _, _, _ in outcome.get("denied", ()):
        if evidence == EVIDENCE_SURE:
            return False
        if evidence == EVIDENCE_TARGET and os.lexists(location):
            return False
        if evidence != EVIDENCE_TARGET and os.is_directory(location.rpartition(b"/")[0] or b"/"):
            return False
    return True


def was_delivered(streams: Any) -> bool:
    """Did the caller get every line of standard error that went through our hands?"""
    pump = None if streams is None else streams.stderr
    return pump is None or (pump.error is None and not pump.undelivered)
