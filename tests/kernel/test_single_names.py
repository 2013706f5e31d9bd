"""Names that are granted in a folder which is read-only otherwise: made, replaced and removed; nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest
from capabilities import requires
from sandboxed import PYTHON, Ended, Rules, compile_rules, run_compiled

RULES = Rules(modify=("./report.xml", "./old.txt", "./*.log", "./out/**", "./made"), deny_modify=("./secret.log",))
needs = requires("userns", "seccomp", "notify", landlock=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path.resolve()
    (found / "old.txt").write_text("old")
    (found / "sibling").write_text("sibling")
    (found / "out").mkdir()
    (found / "out" / "inner").write_text("inner")
    return found


def run(folder: Path, script: str, *command: str) -> Ended:
    compiled = compile_rules(RULES, str(folder))
    assert compiled.prepared["launch"].get("hand") is not None, "nobody to make single names: nothing is tested"
    return run_compiled(compiled, [*(command or ("/bin/sh", "-ec")), script])


def listing(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@needs
@pytest.mark.parametrize(
    ("script", "left"),
    [
        ("echo text > report.xml; echo more >> report.xml; test \"$(cat report.xml)\" = 'text\nmore'", ["report.xml"]),
        ("echo a > report.xml; rm report.xml", []),
        ("echo a > a.log; mv a.log b.log; mv b.log report.xml", ["report.xml"]),
        ('mkdir made; rmdir made; ln -s sibling a.log; test "$(cat a.log)" = sibling', ["a.log"]),
        ("mkfifo made", ["made"]),
        ("echo a > report.xml; ln report.xml a.log", ["a.log", "report.xml"]),
        ("mv out/inner report.xml; mv report.xml out/inner", []),
    ],
)
def test_granted_names_come_and_go(folder: Path, script: str, left: list[str]) -> None:
    before = listing(folder)
    ended = run(folder, script)
    assert (ended.status, ended.stderr) == (0, b"")
    assert listing(folder) == sorted([*before, *left])


@needs
def test_existing_file_is_replaced_removed_and_made_again(folder: Path) -> None:
    script = """
    echo in-place > old.txt; echo new > a.log; mv a.log old.txt; test "$(cat old.txt)" = new
    rm old.txt; test ! -e old.txt; echo again > old.txt
    chmod 640 old.txt; touch -d @1000000000 old.txt; truncate -s 3 old.txt
    """
    ended = run(folder, script)
    assert (ended.status, ended.stderr) == (0, b"")
    seen = (folder / "old.txt").stat()
    assert (oct(seen.st_mode & 0o777), seen.st_size, (folder / "old.txt").read_text()) == ("0o640", 3, "aga")


@needs
def test_modifiable_folder_is_removed_and_made_again(folder: Path) -> None:
    script = (
        "rm -r out; test ! -e out; mkdir -p out/a/b; echo x > out/a/b/c; mv out/a/b/c out/d; rm -r out/a; cat out/d"
    )
    ended = run(folder, script)
    assert (ended.status, ended.stdout, ended.stderr) == (0, b"x\n", b"")
    assert listing(folder) == ["old.txt", "out", "out/d", "sibling"]


REFUSED = """
import os, sys
def refused(work):
    try:
        work()
    except PermissionError:
        return
    except OSError as error:
        if error.errno in (30, 18, 16):
            return
        raise
    sys.exit("not refused: " + str(work.__code__.co_consts))
open("report.xml", "w").close()
os.mkdir("made")
for work in (
    lambda: open("sibling", "w"),
    lambda: open("sibling", "a"),
    lambda: os.open("sibling", os.O_RDONLY | os.O_TRUNC),
    lambda: os.truncate("sibling", 0),
    lambda: os.chmod("sibling", 0o600),
    lambda: os.chmod(".", 0o700),
    lambda: os.utime("sibling"),
    lambda: os.unlink("sibling"),
    lambda: os.rename("sibling", "a.log"),
    lambda: os.rename("report.xml", "sibling"),
    lambda: os.link("sibling", "b.log"),
    lambda: os.rename("report.xml", "secret.log"),
    lambda: open("secret.log", "w"),
    lambda: open("other", "w"),
    lambda: open("made/inside", "w"),
    lambda: open("report.xml/../other", "w"),
    lambda: os.mkdir("made/inside"),
    lambda: os.symlink("x", "made/inside"),
    lambda: os.rename("out", "made/out"),
    lambda: os.open(".", os.O_TMPFILE | os.O_WRONLY),
):
    try:
        refused(work)
    except NotADirectoryError:
        pass
os.symlink("sibling", "c.log")
refused(lambda: open("c.log", "w"))
refused(lambda: os.chmod("c.log", 0o600))
# A descriptor that was handed over leads to its file and nowhere else.
fd = os.open("report.xml", os.O_RDWR)
for work in (
    lambda: os.open("..", os.O_RDONLY, dir_fd=fd),
    lambda: os.open("sibling", os.O_WRONLY, dir_fd=fd),
    lambda: os.open(f"/proc/self/fd/{fd}/../sibling", os.O_WRONLY),
):
    try:
        refused(work)
    except NotADirectoryError:
        pass
"""


@needs
def test_everything_else_stays_as_it_is(folder: Path) -> None:
    before = (folder / "sibling").stat()
    ended = run(folder, REFUSED, *PYTHON, "-c")
    assert (ended.status, ended.stderr) == (0, b"")
    after = (folder / "sibling").stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (before.st_mode, before.st_mtime_ns, 1)
    assert (folder / "sibling").read_text() == "sibling"
    assert listing(folder) == ["c.log", "made", "old.txt", "out", "out/inner", "report.xml", "sibling"]


RACE = """
import os, threading
over = False
def swap():
    names = ("report.xml", "sibling")
    for number in range(10**9):
        if over:
            return
        os.symlink(names[number % 2], "a.log")
        os.rename("a.log", "b.log")
thread = threading.Thread(target=swap)
thread.start()
written = 0
for number in range(1000):
    for flags in (os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_CREAT):
        try:
            fd = os.open("b.log", flags)
        except OSError:
            continue
        os.write(fd, b"x")
        os.close(fd)
        written += 1
over = True
thread.join()
print(written)
"""


@needs
def test_a_link_that_changes_meanwhile_never_leads_to_a_sibling(folder: Path) -> None:
    ended = run(folder, RACE, *PYTHON, "-c")
    assert (ended.status, ended.stderr) == (0, b"")
    assert 0 < int(ended.stdout) <= 2000
    assert (folder / "sibling").read_text() == "sibling"


@needs
def test_another_policy_without_single_names_has_no_hand(folder: Path) -> None:
    assert compile_rules(Rules(modify=("./**",)), str(folder)).prepared["launch"].get("hand") is None
    assert compile_rules(Rules(), str(folder)).prepared["launch"].get("hand") is None


@needs
@pytest.mark.parametrize(
    "script",
    [
        "ln -s sibling report.xml",
        "rm -r out; ln -s . out",
        "ln -s sibling a.log; mv a.log report.xml",
        "ln -s sibling a.log; rm old.txt; ln -P a.log old.txt",
    ],
)
def test_no_grant_is_led_elsewhere_for_the_next_run(folder: Path, script: str) -> None:
    ended = run(folder, script)
    assert ended.status != 0
    assert b"Permission denied" in ended.stderr
    assert not any((folder / name).is_symlink() for name in ("report.xml", "out", "old.txt"))
    assert run(folder, "echo x > sibling").status != 0
