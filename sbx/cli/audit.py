"""`sbx audit`: read the audit log."""

from __future__ import annotations

import json
import shlex
import sys
from collections import deque
from typing import Any

from sbx.audit import is_denial, records
from sbx.errors import UsageError
from sbx.policy.folders import shipped_folder
from sbx.report.plain import network_words
from sbx.report.text import PLAIN, is_terminal, print_lines
from sbx.report.words import visible

DEFAULT_COUNT = 20


def command(options: dict[str, Any], words: list[str]) -> int:
    """Exit status 0, also when there is nothing to show."""
    del words
    wanted = deque((each for each in records() if "denied" not in options or is_denial(each)), maxlen=_count(options))
    if "json" in options:
        for fields in wanted:
            print(json.dumps(fields))
        return 0
    lines = [line for fields in wanted for line in _lines(fields)]
    if is_terminal(sys.stdout):
        shipped = f" at {shipped_folder()}/"  # as explain has it: of no interest to a person
        print_lines([[(line.replace(shipped, " at "), PLAIN)] for line in lines], sys.stdout)
    else:
        print("".join(line + "\n" for line in lines), end="")
    if not wanted:
        print("sbx: no record" + (" of a denial" if "denied" in options else ""), file=sys.stderr)
    return 0


def _count(options: dict[str, Any]) -> int | None:
    text = str(options.get("last", DEFAULT_COUNT))
    if text == "all":
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"--last {text} is not a count", remedy="write --last 50, or --last all")
    return int(text)


def _lines(fields: dict[str, Any]) -> list[str]:
    when = str(fields.get("time", ""))[:19].replace("T", " ")
    event = fields.get("event", "run")
    what = str(fields.get("status", event)) if event == "run" else str(event)
    argv = " ".join(shlex.quote(visible(str(word))) for word in fields.get("argv", ()))
    profile = fields.get("profile", "")
    lines = [f"{when}  {what:<16} {profile}: {argv}" if argv else f"{when}  {what:<16} {profile}"]
    if what not in ("OK", "EXIT") and fields.get("reason"):
        lines.append(f"    {visible(str(fields['reason']))}")
    for denial in fields.get("denials", ()):
        rule = f": rule {denial['rule']}" if denial.get("rule") else ""
        place = f" at {denial['place']}" if denial.get("place") else ""
        lines.append(f"    denied {denial.get('operation')} {visible(str(denial.get('path')))}{rule}{place}")
    for entry in fields.get("network", ()):
        lines.append(f"    network: {visible(network_words(entry))}")
    return lines
