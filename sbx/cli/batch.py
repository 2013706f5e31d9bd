"""`sbx batch`: many commands, each in a sandbox of its own, here or on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any

from sbx.errors import UsageError
from sbx.library.batch import Engine, LocalEngine, ResultFile, read_jobs

EXIT_INTERRUPTED = 130
DEFAULTS = ("profile", "policy", "timeout")
DASK = "dask://"


def command(options: dict[str, Any], words: list[str]) -> int:
    """0 when every job ended with status 0, 1 when one did not, 130 when it was interrupted."""
    name = words[0]
    defaults = {option: options[option] for option in DEFAULTS if option in options}
    try:
        with contextlib.ExitStack() as stack:
            lines = sys.stdin if name == "-" else stack.enter_context(open(name, encoding="utf-8"))
            jobs = read_jobs(lines, "<stdin>" if name == "-" else name, defaults)
    except (OSError, UnicodeDecodeError) as error:
        words_of_it = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise UsageError(f"{name}: {words_of_it}", remedy="name a file of jobs, one JSON object a line") from None
    if options.get("resume") and "out" not in options:
        raise UsageError("--resume needs --out: that is where the results so far are", remedy="add --out FILE")
    target = ResultFile(options["out"], resume=bool(options.get("resume"))) if "out" in options else None
    left = [job for job in jobs if target is None or job.id not in target.done]
    engine = _engine(options)
    failed = 0
    from sbx.report.progress import JobProgress

    try:
        with JobProgress(len(jobs), len(jobs) - len(left)) as progress:
            for record in engine.run(left):
                if target is not None:
                    target.write(record)
                else:
                    print(json.dumps(record), flush=True)
                failed += record["status"] != "OK"
                progress.advance(failed=record["status"] != "OK")
    except KeyboardInterrupt:
        resume = f"; 'sbx batch --resume --out {target.path} {name}' goes on" if target is not None else ""
        print(f"sbx: interrupted{resume}", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        engine.close()
        if target is not None:
            target.close()
    if failed:
        print(f"sbx: {failed} of {len(left)} jobs did not end with status 0", file=sys.stderr)
    return 1 if failed else 0


def _engine(options: dict[str, Any]) -> Engine:
    text = str(options.get("jobs", os.cpu_count() or 1))
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1024:
        raise UsageError(f"--jobs {text}: not a number of jobs", remedy="write a number from 1 to 1024")
    engine = str(options.get("engine", "local"))
    if engine == "local":
        return LocalEngine(int(text))
    if not engine.startswith(DASK) or engine == DASK:
        raise UsageError(f"--engine {engine}: there is no such engine", remedy="write local or dask://HOST:PORT")
    from sbx.library.dask_engine import DaskEngine

    return DaskEngine("tcp://" + engine[len(DASK) :])
