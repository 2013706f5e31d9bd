"""Denies that hold for names made during the run: the same work with and without such denies in force."""

from __future__ import annotations

from pathlib import Path

from harness.bench import Bench, RowSkipped
from harness.peers import need
from harness.record import Check, Section
from harness.timing import Way
from harness.trees import c_project, empty_folder, many_files

# Only a folder below the workspace is writable: in the workspace itself there is always a name to watch for, that of
# its policy file, so that no run there could be without a listener.
OPEN_PROFILE = """\
fsProfiles:
  open:
    read: ["./**"]
    modify: ["./out/**"]
"""
WITHOUT = "schemaVersion: 2\n" + OPEN_PROFILE
DENIES = 'denyRead: ["**/*.env"]\ndenyModify: ["**/.git/hooks/**", "**/package-lock.json"]\n'
WITH = "schemaVersion: 2\n" + DENIES + OPEN_PROFILE


def measure(bench: Bench) -> list[Section]:
    settings = _two_settings(bench)
    files = 2_000 if bench.quick else 10_000
    sections = []
    if reason := need(bench, "make", "gcc"):
        raise RowSkipped(reason)
    project = c_project(bench.folder("listener") / "project")
    make = ["make", "--silent", "-j2"]
    title = "Compiling 60 C files, with and without a listener for new names"
    sections.append(_compare(bench, settings, title, make, project, "out", 1.10, rounds=bench.rounds(4, 1)))
    if reason := need(bench, "tar"):
        raise RowSkipped(reason)
    folder = bench.folder("listener-unpack")
    archive = folder / "files.tar"
    if not archive.exists():
        source = many_files(bench.folder("listener-source") / "tree", files)
        bench.output(["tar", "cf", str(archive), "-C", str(source), "."], folder)
    unpack = ["tar", "xf", "files.tar", "-C", "out"]
    title = f"Unpacking {files} files, with and without a listener for new names"
    sections.append(_compare(bench, settings, title, unpack, folder, "out", 3.0, rounds=bench.rounds(4, 2)))
    return sections


def _two_settings(bench: Bench) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Options and variables for a run with the listener and for one without; both looked at, not assumed."""
    folder = bench.folder("listener-policies")
    own = folder / "config" / "sbx"
    own.mkdir(parents=True, exist_ok=True)
    (own / "policy.yaml").write_text("schemaVersion: 2\nshippedDenies: false\n")
    settings = {}
    for name, text in (("without", WITHOUT), ("with", WITH)):
        policy = folder / f"{name}.yaml"
        policy.write_text(text)
        options = ["--policy", str(policy), "--profile", "open"]
        environ = {"XDG_CONFIG_HOME": str(folder / "config")}
        found = bench.enforced(bench.folder("listener-probe"), *options, environ=environ).get("future_denies", {})
        listening = "listener" in found.get("details", "")
        if listening != (name == "with"):
            raise RowSkipped(f"a run {name} denies of new names says of future_denies: {found or 'nothing'}")
        settings[name] = (options, environ)
    return settings


def _compare(
    bench: Bench,
    settings: dict[str, tuple[list[str], dict[str, str]]],
    title: str,
    work: list[str],
    cwd: Path,
    made: str,
    at_most: float,
    rounds: int,
) -> Section:
    def clean() -> float:
        empty_folder(cwd / made)
        return 0.0

    ways: dict[str, Way] = {"bare": bench.way(work, cwd, before=clean)}
    for name, (options, environ) in settings.items():
        argv = [bench.sbx, "run", *options, "--", *work]
        ways[f"sbx, {name} the listener"] = bench.way(argv, cwd, before=clean, environ=environ)
    check = Check(
        title.partition(",")[0] + ", listener", "sbx, with the listener", "sbx, without the listener", at_most
    )
    return bench.section(
        "listener",
        title,
        ways,
        rounds=rounds,
        warmups=0 if bench.quick else 1,
        reference="sbx, without the listener",
        checks=[check],
        commands={"bare": work},
    )
