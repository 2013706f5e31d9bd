"""Python's own tests of everything about files give the same results inside as outside, with a listener in force.

Minutes, and only where a system's interpreter has its tests (Debian: libpython3-testsuite).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
from capabilities import requires
from sandboxed import Rules, compile_rules, run_compiled

INTERPRETER = "/usr/bin/python3"
MODULES = (
    "test_os test_shutil test_tempfile test_pathlib test_zipfile test_tarfile test_sqlite3",
    "test_mailbox test_dircache test_glob test_fileinput test_importlib test_dbm test_shelve test_mmap test_posixpath",
)
# A deny that could match a new name anywhere: every call that makes a name goes through the listener.
RULES = Rules(modify=("./**",), deny_modify=("./**/.denied",))

NOT_THERE = "to remove what is not there fails with EROFS where a folder is read-only, before it is looked for"
# What is meant to differ, by test.
DIFFERENT = {
    "test.test_os.ChownFileTests.test_chown_without_permission": "there is no other user inside: EINVAL, not EPERM",
    "test.test_os.MakedirTests.test_exist_ok_s_isgid_directory": "setgid bits are refused, and the test is skipped",
    "test.test_importlib.test_threaded_import.ThreadedImportTests.test_circular_imports": NOT_THERE,
    "test.test_importlib.test_threaded_import.ThreadedImportTests.test_side_effect_import": NOT_THERE,
}


def has_tests() -> bool:
    found = subprocess.run(
        [INTERPRETER, "-c", "import importlib.util, sys; sys.exit(importlib.util.find_spec('test.test_os') is None)"],
        capture_output=True,
        check=False,
    )
    return found.returncode == 0


def command(folder: Path, modules: str) -> list[str]:
    return [
        *(INTERPRETER, "-B", "-m", "test", "--junit-xml", str(folder / "results.xml")),
        *("--tempdir", str(folder), "--timeout", "600", *modules.split()),
    ]


def results(folder: Path) -> dict[str, str]:
    """What became of each test, by name."""
    found = {}
    for case in ElementTree.parse(folder / "results.xml").iter("testcase"):
        bad = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "ok")
        found[case.get("name", "")] = bad
    return found


@requires("userns", "notify")
@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("modules", MODULES)
@pytest.mark.skipif(os.geteuid() == 0, reason="root outside has capabilities that nobody has inside")
@pytest.mark.skipif(not has_tests(), reason=f"{INTERPRETER} has no tests of its own")
def test_same_results_inside_and_outside(modules: str) -> None:
    with tempfile.TemporaryDirectory() as inside, tempfile.TemporaryDirectory() as outside:  # short: sockets are made
        compare(Path(inside).resolve(), Path(outside).resolve(), modules)


def compare(inside: Path, outside: Path, modules: str) -> None:
    variables = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": str(outside), "HOME": str(outside)}
    subprocess.run(command(outside, modules), cwd=outside, env=variables, capture_output=True, check=False)
    compiled = compile_rules(RULES, str(inside))
    assert compiled.prepared["launch"]["future"] is not None, "no listener: nothing would be compared"
    own = [f"{name}={value}" for name, value in (("TMPDIR", inside), ("HOME", inside), ("LANG", "C.UTF-8"))]
    run_compiled(compiled, command(inside, modules), env=own)
    there, here = results(outside), results(inside)
    assert len(there) > 100
    differing = {
        name: (there.get(name), here.get(name))
        for name in sorted({*there, *here})
        if there.get(name) != here.get(name) and name not in DIFFERENT
    }
    assert differing == {}
