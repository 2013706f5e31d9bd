"""The benchmark: `make bench`, or `python bench/run.py [OPTIONS]`.

Installs the built wheel into a fresh virtual environment of the system's Python, measures as an ordinary user (root
lends itself one), every row in interleaved rounds against its peers, and writes a Markdown table and JSON to bench/out.
Each row is a module of bench/rows; what is not installed is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import os
import pwd
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

from harness.bench import Bench, RowSkipped
from harness.install import CannotInstall, Installed, installed
from harness.machine import commit_name, machine, versions
from harness.record import Section, from_plain, to_plain, verdict
from harness.table import NoMarkers, render, write_between_markers
from rows import OBSERVERS, ORDER

TOP = Path(__file__).resolve().parent.parent
DOCUMENT = TOP / "docs" / "performance.md"


def main() -> int:
    options = arguments()
    if options.inside:
        return measure_inside(Path(options.inside))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the installation is to be removed also then
    try:
        return measure_all(options) if not options.as_is else measure_as_is(options)
    except (CannotInstall, NoMarkers) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few rounds and small sizes: a table in about two minutes")
    parser.add_argument(
        "--only", action="append", choices=ORDER, metavar="ROW", help="this row; repeatable: %(choices)s"
    )
    parser.add_argument("--update-docs", action="store_true", help="write the table into docs/performance.md")
    parser.add_argument("--keep", action="store_true", help="keep rows of the last result that are not measured now")
    parser.add_argument("--out", type=Path, default=TOP / "bench" / "out", help="where the results go")
    parser.add_argument("--python", help="the interpreter to install for (default: the system's)")
    parser.add_argument("--commit", help="measure this commit instead of the working tree")
    parser.add_argument("--no-npm", action="store_true", help="do not fetch the peers that npm has")
    parser.add_argument(
        "--as-is", action="store_true", help="measure the sbx of this Python as this user, installing nothing"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.update_docs and (options.as_is or options.quick):
        parser.error("--update-docs publishes a full measurement: not with --as-is or --quick")
    return options


def measure_all(options: argparse.Namespace) -> int:
    """Installs, then measures in a process of the ordinary user; rows that need root's eyes stay here."""
    rows = options.only or list(ORDER)
    print("installing the wheel into a fresh virtual environment", file=sys.stderr)
    with_npm = "start" in rows and not options.no_npm and not options.quick
    with installed(options.python, commit=options.commit, with_npm=with_npm) as place:
        bench = bench_in(place, quick=options.quick)
        run = describe(bench, user=place.environ["USER"], load=os.getloadavg()[0])
        if options.commit:
            run["commit"] = commit_name(TOP, options.commit)
        inside = [row for row in rows if row not in OBSERVERS]
        sections, skipped = as_user(place, bench, inside) if inside else ([], {})
        seen, unseen = measure_rows(
            dataclasses.replace(bench, prefix=place.prefix), [row for row in rows if row in OBSERVERS]
        )
        run["enforcement"] = enforcement(place, bench)
    sections = sorted([*sections, *seen], key=lambda section: ORDER.index(section.row))
    return finish(options, run, sections, {**skipped, **unseen})


def measure_as_is(options: argparse.Namespace) -> int:
    """For trying a row out, and for the tests: nothing installed, nobody else's table."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="sbx-bench.") as folder:
        (Path(folder) / "work").mkdir()
        sbx = str(Path(sys.executable).with_name("sbx"))
        bench = Bench(Path(folder), sbx, sys.executable, quick=options.quick)
        user = pwd.getpwuid(os.getuid()).pw_name
        run = describe(bench, user=f"{user}, not a fresh installation", load=os.getloadavg()[0])
        sections, skipped = measure_rows(bench, options.only or list(ORDER))
    return finish(options, run, sections, skipped)


def bench_in(place: Installed, *, quick: bool) -> Bench:
    return Bench(place.place, place.sbx, place.python, quick, place.peers, place.missing, (), place.environ)


def as_user(place: Installed, bench: Bench, rows: list[str]) -> tuple[list[Section], dict[str, str]]:
    job = place.place / "job.json"
    answer = place.place / "work" / "answer.json"
    values = {**dataclasses.asdict(bench), "place": str(bench.place)}
    job.write_text(json.dumps({"bench": values, "rows": rows, "answer": str(answer)}))
    argv = [*place.prefix, place.python, str(place.place / "bench" / "run.py"), "--inside", str(job)]
    done = subprocess.run(argv, env=place.environ, cwd=place.place / "work", check=False)
    if done.returncode:
        raise CannotInstall(f"measuring ended with {done.returncode}")
    found = json.loads(answer.read_text())
    return [from_plain(values) for values in found["sections"]], found["skipped"]


def measure_inside(job: Path) -> int:
    """The ordinary user's part."""
    wanted = json.loads(job.read_text())
    values: dict[str, Any] = wanted["bench"]
    bench = Bench(**{**values, "place": Path(values["place"]), "prefix": tuple(values["prefix"])})
    sections, skipped = measure_rows(bench, wanted["rows"])
    answer = {"sections": [to_plain(section) for section in sections], "skipped": skipped}
    Path(wanted["answer"]).write_text(json.dumps(answer))
    return 0


def measure_rows(bench: Bench, rows: list[str]) -> tuple[list[Section], dict[str, str]]:
    sections: list[Section] = []
    skipped: dict[str, str] = {}
    for row in rows:
        started = time.perf_counter()
        try:
            found = importlib.import_module(f"rows.{row}").measure(bench)
        except (RowSkipped, ImportError) as error:
            skipped[row] = str(error)
            print(f"{row}: skipped: {error}", file=sys.stderr)
            continue
        sections += found
        print(f"{row}: measured in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return sections, skipped


def describe(bench: Bench, *, user: str, load: float) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
        "command": " ".join(["python bench/run.py", *sys.argv[1:]]),
        "commit": commit_name(TOP),
        "machine": machine(),
        "versions": versions(bench.sbx, bench.python, bench.peers, bench.environ),
        "user": user,
        "load": load,
        "enforcement": "not looked at",
    }


def enforcement(place: Installed, bench: Bench) -> str:
    """What the measured runs applied, from a run's own record: a table without full enforcement must say so."""
    record = place.place / "work" / "enforcement.json"
    argv = [*place.prefix, bench.sbx, "run", "--profile", "build", "--json", str(record), "--", "true"]
    done = subprocess.run(
        argv, env=place.environ, cwd=place.place / "work", capture_output=True, text=True, check=False
    )
    if done.returncode:
        return f"a run failed: {done.stderr.strip()}"
    enforced = json.loads(record.read_text())["enforced"]
    lacking = [name for name, one in enforced.items() if one["requested"] and not one["applied"]]
    if lacking:
        return f"PARTIAL, without {', '.join(lacking)}"
    return "full: " + "; ".join(f"{name}: {one['details']}" for name, one in enforced.items())


def finish(options: argparse.Namespace, run: dict[str, Any], sections: list[Section], skipped: dict[str, str]) -> int:
    """The files, and on standard output the targets."""
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "bench.json"
    if options.keep and store.exists():
        measured = {section.row for section in sections} | set(skipped)
        before = json.loads(store.read_text())
        note = f"Measured earlier, with sbx at commit {before['commit']}."
        for values in before["sections"]:
            if values["row"] not in measured:
                kept = from_plain(values)
                if not any(one.startswith("Measured earlier") for one in kept.notes):
                    kept.notes.append(note)
                sections.append(kept)
        sections.sort(key=lambda section: ORDER.index(section.row))
        skipped |= {row: why for row, why in before["skipped"].items() if row not in measured}
    run["skipped"] = skipped
    verdicts = {
        f"{check.what} / {check.reference}": verdict(section, check) for section in sections for check in section.checks
    }
    plain = [to_plain(section) for section in sections]
    store.write_text(json.dumps({**run, "verdicts": verdicts, "sections": plain}, indent=1) + "\n")
    text = render(run, sections)
    (options.out / "bench.md").write_text(text, encoding="utf-8")
    print(text)
    if options.update_docs:
        write_between_markers(DOCUMENT, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
