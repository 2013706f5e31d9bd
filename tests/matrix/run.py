"""Boot other kernels, ask `sbx doctor` and try a few runs in each, and write the table in docs/platforms.md.

    python tests/matrix/run.py [--only TEXT]… [--user NAME] [--no-docs]

Needs the `vm-run` tool: $SBX_VM_RUN, or `shared/tools/vm-run` beside the repository. It boots a kernel series with the
host's files read-only and runs one command in it. The guest's Python is /usr/bin/python3, which has to be of the same
version as the one that runs this script: sbx and what it depends on are copied to where both can read them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

TOP = Path(__file__).resolve().parents[2]
DOCS = TOP / "docs" / "platforms.md"
BEGIN, END = "<!-- matrix: begin (written by make matrix) -->", "<!-- matrix: end -->"
GUEST_PYTHON = "/usr/bin/python3"
BOOT_TIMEOUT_S = 300
FULL = "`require: full`"  # the column of this name in what inside.py prints


@dataclass(frozen=True)
class Variant:
    kernel: str
    note: str = ""
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.kernel} {self.note}".strip()


VARIANTS = (
    *(Variant(kernel) for kernel in ("5.10", "6.1", "6.12", "6.18", "7.2")),
    Variant("6.18", "without Landlock (`lsm=yama`)", ("-a", "lsm=yama")),
    Variant("6.18", "without user namespaces", ("-s", "user.max_user_namespaces=0")),
    Variant("6.18", "without both", ("-a", "lsm=yama", "-s", "user.max_user_namespaces=0")),
)


@dataclass
class Outcome:
    variant: Variant
    user: str
    failure: str = ""
    doctor: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, str] = field(default_factory=dict)

    @property
    def is_bad(self) -> bool:
        """No answer, a run that neither ran nor was properly refused, or `require: full` that leaks."""
        full = self.runs.get(FULL, "")
        return bool(
            self.failure or full.startswith("leaks") or any(run.startswith("failed") for run in self.runs.values())
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="only variants whose name contains this")
    parser.add_argument(
        "--user", default=os.environ.get("SBX_TEST_USER", "nobody"), help="the ordinary user in the guest"
    )
    parser.add_argument("--no-docs", action="store_true", help="print the table, and leave docs/platforms.md alone")
    arguments = parser.parse_args()
    tool = find_vm_run()
    wanted = [each for each in VARIANTS if not arguments.only or any(text in each.name for text in arguments.only)]
    outcomes = []
    with guest_folder() as folder:
        for variant in wanted:
            for user in ("root", arguments.user):
                outcome = boot(tool, variant, user, folder)
                words = outcome.failure or f"full={outcome.doctor['full']} {outcome.runs}"
                print(f"{variant.name}, {user}: {words}", file=sys.stderr, flush=True)
                outcomes.append(outcome)
    lines = table(outcomes)
    print("\n".join(lines))
    bad = [outcome for outcome in outcomes if outcome.is_bad]
    for outcome in bad:
        print(f"not as it should be: {outcome.variant.name} as {outcome.user}", file=sys.stderr)
    if not bad and not arguments.no_docs and not arguments.only:
        write_docs(lines)
    return 1 if bad else 0


def find_vm_run() -> str:
    named = os.environ.get("SBX_VM_RUN")
    tool = Path(named) if named else TOP.parent / "shared" / "tools" / "vm-run"
    if not os.access(tool, os.X_OK):
        sys.exit(f"{tool} is not there: set SBX_VM_RUN to a tool that boots other kernels")
    return str(tool)


@contextlib.contextmanager
def guest_folder() -> Iterator[Path]:
    """sbx and its dependencies in one folder that every user can read."""
    there = subprocess.run(
        [GUEST_PYTHON, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, check=True
    )
    if there.stdout.split() != [str(part) for part in sys.version_info[:2]]:
        sys.exit(f"{GUEST_PYTHON} is of another version than {sys.executable}: its packages would not load")
    folder = Path(tempfile.mkdtemp(prefix="sbx-matrix-"))
    try:
        folder.chmod(0o755)
        shutil.copytree(TOP / "sbx", folder / "sbx", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(TOP / "profiles", folder / "sbx" / "_data" / "profiles")
        shutil.copy(Path(__file__).with_name("inside.py"), folder)
        copy_dependencies(folder)
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def copy_dependencies(folder: Path) -> None:
    with open(TOP / "pyproject.toml", "rb") as file:
        waiting = list(tomllib.load(file)["project"]["dependencies"])
    done: set[str] = set()
    while waiting:
        requirement, _, condition = waiting.pop().partition(";")
        name = re.match(r"[\w.-]+", requirement)[0]  # type: ignore[index]
        if "extra" in condition or name in done:
            continue
        done.add(name)
        try:
            package = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if condition:
                continue  # for another platform or version
            raise
        waiting += package.requires or []
        for path in package.files or []:
            source = Path(str(package.locate_file(path)))
            if ".." not in path.parts and source.is_file():
                target = folder / path
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)


def boot(tool: str, variant: Variant, user: str, folder: Path) -> Outcome:
    """One boot, one answer: what inside.py printed."""
    as_user = [] if user == "root" else ["-u", user]
    options = [*variant.options, *as_user, "-t", str(BOOT_TIMEOUT_S), "-w", "/"]
    guest = ["env", f"PYTHONPATH={folder}", GUEST_PYTHON, "-B", str(folder / "inside.py")]
    command = [tool, variant.kernel, *options, "--", *guest]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    outcome = Outcome(variant, user)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        outcome.failure = f"no answer (exit {done.returncode}): {last}"
        return outcome
    outcome.doctor, outcome.runs = answer["doctor"], answer["runs"]
    return outcome


COLUMNS = ("kernel", "as", "full", "backend", "namespaces", "mount calls", "Landlock", "listener", "cgroup v2")


def table(outcomes: list[Outcome]) -> list[str]:
    checks = list(dict.fromkeys(name for outcome in outcomes for name in outcome.runs))
    lines = [_row((*COLUMNS, *checks)), _row(["---"] * (len(COLUMNS) + len(checks)))]
    for outcome in outcomes:
        who = "root" if outcome.user == "root" else "user"
        if outcome.failure:
            lines.append(_row((outcome.variant.name, who, outcome.failure, *[""] * (len(COLUMNS) - 3 + len(checks)))))
            continue
        cells = _cells(outcome.doctor)
        lines.append(_row((outcome.variant.name, who, *cells, *(outcome.runs.get(name, "") for name in checks))))
    return lines


def _cells(found: dict[str, Any]) -> tuple[str, ...]:
    refused = {reason["mechanism"]: reason["errno"] for reason in found["reasons"]}
    namespaces = "yes" if found["proc_mount"] else refused.get("userns") or "no"
    abi = f"ABI {found['landlock_abi']}" if found["landlock_abi"] else refused.get("landlock", "no")
    listener = ", ".join(found["notif_flags"]) if found["user_notif"] else refused.get("user_notif", "no")
    return (
        "yes" if found["full"] else "no",
        found["backend"],
        namespaces,
        "new" if found["mount_api"] else "classic" if found["mounts"] else "no",
        abi,
        listener,
        found["cgroup_mechanism"] or "no",
    )


def _row(cells: Any) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def write_docs(lines: list[str]) -> None:
    text = DOCS.read_text() if DOCS.exists() else f"# Platforms\n\n## Linux kernels\n\n{BEGIN}\n{END}\n"
    if BEGIN not in text or END not in text:
        sys.exit(f"{DOCS} has no place for the table: put {BEGIN!r} and {END!r} on lines of their own")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    DOCS.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after)


if __name__ == "__main__":
    sys.exit(main())
