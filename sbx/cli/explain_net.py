"""`sbx explain --net HOST:PORT`: the verdict of the network rules, like that of the rules for a path."""

from __future__ import annotations

import os
import sys
from typing import Any

from sbx.cli.here import working_directory
from sbx.errors import UsageError
from sbx.policy.layers import effective_profile, load_policy
from sbx.report.explain import JSON_VERSION
from sbx.report.explain_net import NetAnswer, explain_net, plain_lines, terminal_lines, to_json

if sys.platform == "linux":
    from sbx.backends.linux import network_account
    from sbx.supervise.compile import capabilities


def command(options: dict[str, Any]) -> int:
    """0 when all of them may be reached, 1 when one may not."""
    for name in ("read", "modify", "last"):
        if options.get(name):
            raise UsageError(f"--net and --{name} ask different questions", remedy="ask them one after the other")
    cwd = working_directory()
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=os.environ)
    profile = effective_profile(policy, options.get("profile"))
    enforced = ""
    if sys.platform == "linux":
        machine = capabilities()
        enforced = network_account(profile.network.mode, machine.namespaces, machine.landlock_abi).details
    answers: list[NetAnswer] = []
    for asked in options["net"]:
        try:
            answers.append(explain_net(profile, asked, enforced))
        except ValueError as error:
            raise UsageError(f"--net {asked}: {error}", remedy="write HOST:PORT, as in api.example.com:443") from None
    allowed = all(answer.allowed for answer in answers)
    _show(answers, {"profile": profile.name, "workspace": profile.workspace, "allowed": allowed}, cwd, options)
    return 0 if allowed else 1


def _show(answers: list[NetAnswer], about: dict[str, Any], cwd: str, options: dict[str, Any]) -> None:
    from sbx.report.text import is_terminal, print_lines

    if options.get("json"):
        import json

        print(json.dumps({"version": JSON_VERSION, **about, "network": to_json(answers)}, indent=2))
    elif is_terminal(sys.stdout):
        print_lines(terminal_lines(answers, cwd), sys.stdout)
    else:
        print("\n".join(plain_lines(answers, cwd)))
