"""`sbx explain`: why a path is allowed or denied. On an unchanged policy it imports next to nothing."""

from __future__ import annotations

import os
import sys

from sbx.cli.here import working_directory
from sbx.errors import SbxError, UsageError
from sbx.model.verdict import MODIFY, READ
from sbx.report.explain import Answer, explain, plain_lines, to_json
from sbx.report.view import View, from_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from sbx.model.plan import Plan
    from sbx.model.profile import EffectiveProfile
    from sbx.policy.document import Policy, RunRules


def command(options: dict[str, Any], paths: list[str]) -> int:
    """0 when everything asked about is allowed, 1 when something is denied."""
    if options.get("net"):
        return _network(options, paths)
    if options.get("last"):
        return _last(options, paths)
    if not paths:
        raise UsageError("no path to explain", remedy="name a file, or write --last for the last run's denials")
    if options.get("read") and options.get("modify"):
        accesses: tuple[int, ...] = (READ, MODIFY)
    else:
        accesses = (READ,) if options.get("read") else (MODIFY,) if options.get("modify") else (READ, MODIFY)
    cwd = working_directory()
    if any(not path or "\0" in path for path in paths):
        raise UsageError("an empty path names nothing", remedy="name a file or folder")
    view = view_in_force(options.get("profile"), options.get("policy"), cwd)
    answers = [explain(view, path, accesses, cwd) for path in paths]
    show(view, answers, cwd, as_json=bool(options.get("json")))
    return 0 if all(answer.allowed for answer in answers) else 1


def _network(options: dict[str, Any], paths: list[str]) -> int:
    from sbx.cli import explain_net

    if paths:
        raise UsageError("--net asks about hosts, not about paths", remedy="ask one after the other")
    return explain_net.command(options)


def _last(options: dict[str, Any], paths: list[str]) -> int:
    from sbx.cli.last import answers_for, check_options, last_run, no_denials, rules_of

    check_options(options, paths)
    record = last_run(working_directory())
    cwd = str(record["cwd"])
    policy_file, rules = rules_of(record)
    # Not from the store: nobody asks that often.
    view = make_view(options.get("profile") or record.get("profile"), options.get("policy") or policy_file, cwd, rules)[
        0
    ]
    answers = answers_for(view, record)
    if not answers and not options.get("json"):
        print(no_denials(record))
        return 0
    show(view, answers, cwd, as_json=bool(options.get("json")))
    return 0 if all(answer.allowed for answer in answers) else 1


def show(view: View, answers: list[Answer], cwd: str, *, as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(to_json(view, answers), indent=2))
    elif sys.stdout.isatty():
        from sbx.report.explain_terminal import terminal_lines
        from sbx.report.text import is_terminal, print_lines

        if is_terminal(sys.stdout):
            print_lines(terminal_lines(view, answers, cwd), sys.stdout)
        else:
            print("\n".join(plain_lines(view, answers, cwd)))
    else:
        print("\n".join(plain_lines(view, answers, cwd)))


def view_in_force(profile: str | None, policy_file: str | None, cwd: str) -> View:
    """The stored view, or a new one, kept for the next time."""
    if sys.platform == "linux":
        from sbx.launch import store

        environ = dict(os.environb)
        key = store.make_key({"explain": True, "profile": profile, "policy": policy_file}, os.fsencode(cwd), environ)
        entry = store.load(key, environ)
        view = None if entry is None else from_entry(entry)
        if view is not None:
            return view
        view, dependencies = make_view(profile, policy_file, cwd)
        if dependencies is not None:
            store.save(key, dependencies, view.entry(), environ)
        return view
    else:
        return make_view(profile, policy_file, cwd)[0]


def make_view(
    name: str | None, policy_file: str | None, cwd: str, rules: RunRules | None = None
) -> tuple[View, tuple[tuple[Any, ...], ...] | None]:
    """The view, and what it has to be compared with before it is used again."""
    from sbx.policy.layers import effective_profile, load_policy
    from sbx.report.view import view_of

    policy = load_policy(cwd, policy_file=policy_file, environ=os.environ)
    profile = effective_profile(policy, name) if rules is None else effective_profile(policy, name, rules)
    known: tuple[tuple[Any, ...], ...] | None = None
    if sys.platform == "linux":
        from sbx.supervise.compile import policy_dependencies

        known = policy_dependencies(policy, profile)
        if known is not None:
            known = (*known, *_prefixes(profile))
    return view_of(profile, policy, _plan(policy, profile, cwd)), known


def _plan(policy: Policy, profile: EffectiveProfile, cwd: str) -> Plan | None:
    """As a run here would have it, for how exactly the rules are enforced; None where no run would start."""
    from sbx.cli.plan import here, plan_for_platform

    try:
        return plan_for_platform(here(), policy, profile, cwd)
    except (SbxError, OSError):
        return None


def _prefixes(profile: EffectiveProfile) -> list[tuple[Any, ...]]:
    """What the rules' fixed prefixes lead to: a folder that becomes a symlink, or appears, changes their meaning."""
    from sbx.launch.store import ABSENT, LEADS_TO

    found: list[tuple[Any, ...]] = []
    for prefix, real in profile.resolved:
        if real.startswith("/proc/"):
            continue  # /dev/fd and its like lead elsewhere in every process
        name = os.fsencode(prefix)
        try:
            status = os.stat(prefix)
        except OSError:
            found.append((ABSENT, name))
        else:
            found.append((LEADS_TO, name, (status.st_dev, status.st_ino)))
    return found
