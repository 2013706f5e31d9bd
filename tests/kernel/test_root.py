"""The private root where the tree changed since the plan was made."""

from __future__ import annotations

from pathlib import Path

from capabilities import requires
from sandboxed import Rules, compile_rules, run_compiled


@requires("userns")
def test_masks_whose_places_have_vanished(tmp_path: Path) -> None:
    """The others are in force, and nothing of ours is left to be seen."""
    names = [f"{number}.key" for number in range(6)]
    for name in names:
        (tmp_path / name).write_text("secret")
    compiled = compile_rules(Rules(deny_read=("./*.key",)), str(tmp_path.resolve()))
    for name in (names[0], names[3]):
        (tmp_path / name).unlink()
    ended = run_compiled(compiled, ["/bin/sh", "-c", "cat *.key; cat /proc/self/mountinfo"])
    assert b"secret" not in ended.stdout
    assert b"No such file" not in ended.stderr
    covers = [line.split() for line in ended.stdout.splitlines() if b"size=1024k" in line]
    assert sum(line[4].endswith(b".key") for line in covers) == 4
    for name in names:
        (tmp_path / name).unlink(missing_ok=True)
    covers += [
        line.split()
        for line in run_compiled(compiled, ["/bin/cat", "/proc/self/mountinfo"]).stdout.splitlines()
        if b"size=1024k" in line
    ]
    assert all(line[3] != b"/" for line in covers), "where the covers lie can be reached"
