"""Rows whose measuring lives in a script of its own, beside run.py.

Such a script takes `--quick` and what its row hands to it (the library: `--bwrap ARGV…`, last), and prints JSON:

    {"sections": [{"title": …, "unit": "ms", "samples": {"way": [1.0, …]}, "reference": "way",
                   "checks": [{"what": …, "way": …, "reference": …, "at_most": 1.0}], "notes": [], "skipped": []}]}

with the field names of harness/record.py. Only `title`, `unit` and `samples` have to be there.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from harness.bench import Bench, RowSkipped
from harness.record import Section, from_plain

FOLDER = Path(__file__).resolve().parent.parent


def sections_of(bench: Bench, row: str, script: str, arguments: list[str], cwd: Path) -> list[Section]:
    path = FOLDER / script
    if not path.exists():
        raise RowSkipped(f"there is no bench/{script}")
    load, now = os.getloadavg()[0], time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    text = bench.output([bench.python, str(path), *(["--quick"] if bench.quick else []), *arguments], cwd)
    try:
        found = json.loads(text)["sections"]
        return [from_plain({"checks": [], **values, "row": row, "load": load, "measured": now}) for values in found]
    except (ValueError, KeyError, TypeError) as error:
        raise RowSkipped(f"bench/{script} printed something else than sections: {error!r}") from error
