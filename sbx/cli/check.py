"""`sbx check`: is the policy valid, is it what was meant, do its own tests hold?"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from sbx.cli.here import working_directory
from sbx.errors import EXIT_USAGE, PolicyError, UsageError
from sbx.report.check import Checked, plain_lines, terminal_lines, to_json
from sbx.report.text import is_terminal, print_lines

if TYPE_CHECKING:
    from sbx.policy.document import Policy


def command(options: dict[str, Any], files: list[str]) -> int:
    """0 when nothing is wrong, 1 for warnings, errors and failed tests, 2 when a policy cannot be used at all."""
    if options.get("schema"):
        return _schema(options, files)
    from sbx.cli.main import complain

    cwd = working_directory()
    checked: list[Checked] = []
    unusable = 0
    named: list[str | None] = [*files] or [None]
    for file in named:
        try:
            checked.append(_check(file, cwd, tests=not options.get("no-tests")))
        except PolicyError as error:
            complain(error)
            unusable += 1
    if options.get("json"):
        import json

        print(json.dumps(to_json(checked, unusable), indent=2))
    elif is_terminal(sys.stdout):
        print_lines(terminal_lines(checked, cwd), sys.stdout)
    elif checked:
        print("\n".join(plain_lines(checked, cwd)))
    if unusable:
        return EXIT_USAGE
    return 1 if any(each.failed for each in checked) else 0


def _schema(options: dict[str, Any], files: list[str]) -> int:
    if files or options.get("json") or options.get("no-tests"):
        raise UsageError("--schema checks nothing", remedy="write 'sbx check --schema' alone")
    import json

    from sbx.policy.schema import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _check(file: str | None, cwd: str, *, tests: bool) -> Checked:
    from sbx.policy.lint import lint, run_tests

    policy = _load(file, cwd)
    return Checked(policy, tuple(lint(policy)), tuple(run_tests(policy)) if tests else ())


def _load(file: str | None, cwd: str) -> Policy:
    """The policy in force here; or with `file` in it, wherever it belongs."""
    from sbx.policy.folders import SYSTEM_FILE, WORKSPACE_FILE, config_folder
    from sbx.policy.layers import load_policy

    if file is None:
        return load_policy(cwd, environ=os.environ, trust=False)
    own = (SYSTEM_FILE, os.path.join(config_folder(os.environ), "policy.yaml"))
    path = os.path.join(cwd, file)
    if any(os.path.realpath(path) == os.path.realpath(each) for each in own):
        return load_policy(cwd, environ=os.environ, trust=False)
    if os.path.basename(path) == WORKSPACE_FILE:
        cwd = os.path.dirname(path)  # its folder is the workspace that its rules speak of
    return load_policy(cwd, policy_file=path, environ=os.environ, trust=False)
