"""`sbx profiles`: which profiles there are, and what one of them comes to."""

from __future__ import annotations

import os
import sys
from typing import Any

from sbx.cli.here import working_directory
from sbx.errors import UsageError
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.nearest import did_you_mean
from sbx.report import profiles as report
from sbx.report.text import is_terminal, print_lines

VERBS = ("list", "show")


def command(options: dict[str, Any], words: list[str]) -> int:
    verb = words[0] if words else "list"
    if verb not in VERBS:
        raise UsageError(f"profiles: there is no '{verb}'", remedy=did_you_mean(verb, VERBS))
    cwd = working_directory()
    policy = load_policy(cwd, policy_file=options.get("policy"), environ=os.environ, trust=False)
    if not policy.trusted and not options.get("names"):
        print(f"sbx: {policy.workspace_file} is not approved yet, so that no run uses it", file=sys.stderr)
    if verb == "list":
        if len(words) > 1:
            raise UsageError("profiles: list takes no name", remedy="write 'sbx profiles show NAME'")
        if options.get("names"):
            print("\n".join(sorted(policy.profiles)))
            return 0
        shown = report.listing(policy)
    else:
        if len(words) < 2:
            raise UsageError("profiles: show needs a name", remedy=f"one of {', '.join(sorted(policy.profiles))}")
        shown = report.showing(effective_profile(policy, words[1]))
    if options.get("json"):
        import json

        print(json.dumps(shown.to_json(), indent=2))
    elif is_terminal(sys.stdout):
        print_lines(shown.terminal_lines(cwd), sys.stdout)
    else:
        print("\n".join(shown.plain_lines(cwd)))
    return 0
