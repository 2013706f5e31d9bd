"""Which directories are read: only those where a rule could change a verdict, and unchanged ones only once."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from unit.planner.profiles import profile

from sbx.model.plan import Op
from sbx.planner.linux import plan
from sbx.planner.walk import DirectoryReader, default_cache_file

HOUR_NS = 3_600_000_000_000


@pytest.fixture(autouse=True)
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made just now is old enough to be trusted: nobody can set a ctime."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + HOUR_NS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "ws"
    for number in range(10):
        folder = root / f"d{number}" / "inner"
        folder.mkdir(parents=True)
        (folder / "x.env").touch()
    (root.parent / "outside" / "inner").mkdir(parents=True)
    return root


def listed(root: Path, read: list[str], modify: list[str]) -> list[str]:
    reader = DirectoryReader()
    plan(profile(str(root), read, modify), "/", specials=(), reader=reader)
    return reader.listed


def test_subtree_rules_list_nothing(tree: Path) -> None:
    assert listed(tree, ["/usr/**", "./**", "!d1/inner/**"], ["./**", "!d2/**", "!d3/inner/x.env"]) == []


def test_spelled_out_alternatives_list_nothing(tree: Path) -> None:
    assert listed(tree, ["./**", "!{d1,d2}/inner/{a,x.env}"], []) == []


def test_a_wildcard_lists_only_what_is_readable(tree: Path) -> None:
    found = listed(tree, ["./**", "!d1/**", "!**/*.env"], ["d2/**"])
    assert str(tree) in found
    assert str(tree / "d2" / "inner") in found
    assert all(path == str(tree) or path.startswith(f"{tree}/") for path in found)
    assert str(tree / "d1") not in found


def test_a_wildcard_within_one_name_does_not_go_deeper(tree: Path) -> None:
    assert listed(tree, ["./**", "!d*/inner/**"], []) == [str(tree)]


def test_links_are_never_followed(tree: Path) -> None:
    (tree / "loop").symlink_to(".")
    (tree / "away").symlink_to(tree.parent / "outside")
    found = listed(tree, ["./**", "!**/*.env"], [])
    assert not any("loop" in path or "away" in path or "outside" in path for path in found)


def test_what_a_plan_looked_at_is_recorded(tree: Path) -> None:
    found = plan(profile(str(tree), ["./**", "!d1/*.env", "!gone/**"]), "/", specials=())
    assert [stamp.path for stamp in found.looked_at] == [str(tree / "d1")]
    seen = os.stat(tree / "d1")
    assert (found.looked_at[0].dev, found.looked_at[0].ino, found.looked_at[0].ctime_ns) == (
        seen.st_dev,
        seen.st_ino,
        seen.st_ctime_ns,
    )
    assert str(tree / "gone") in found.missing


def test_a_folder_that_is_made_does_not_make_the_plan_stale(tree: Path) -> None:
    found = plan(profile(str(tree), ["./**"], ["out/**"]), "/", specials=())
    assert str(tree / "out") not in found.missing
    guarded = plan(profile(str(tree), ["./**"], ["out/**", "!out/kept"]), "/", specials=())
    assert str(tree / "out") in guarded.missing


def test_a_second_plan_lists_only_what_changed(tmp_path: Path) -> None:
    root = Path(os.path.realpath(tmp_path)) / "ws"
    for outer in range(10):
        for inner in range(10):
            folder = root / f"o{outer}" / f"i{inner}"
            folder.mkdir(parents=True)
            for number in range(100):
                os.close(os.open(folder / f"{number}.{'env' if number == 7 else 'txt'}", os.O_CREAT, 0o644))
    cache = str(tmp_path / "cache" / "directories" / "x")
    rules = profile(str(root), ["./**", "!**/*.env"])

    first = DirectoryReader(cache)
    one = plan(rules, "/", specials=(), reader=first)
    assert len(first.listed) == 111
    second = DirectoryReader(cache)
    assert plan(rules, "/", specials=(), reader=second) == one
    assert second.listed == []

    changed = root / "o3" / "i4"
    before = os.stat(changed)
    (changed / "new.env").touch()
    os.utime(changed, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a command could do, to hide it
    third = DirectoryReader(cache)
    found = plan(rules, "/", specials=(), reader=third)
    assert third.listed == [str(changed)]
    assert str(changed / "new.env") in {each.path for each in found.operations if each.op is Op.MASK}


def test_a_fresh_change_is_not_trusted(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = str(tmp_path / "cache" / "x")
    monkeypatch.setattr(time, "time_ns", lambda: os.stat(tree).st_ctime_ns)
    rules = profile(str(tree), ["./**", "!*.env"])
    for _ in range(2):
        reader = DirectoryReader(cache)
        found = plan(rules, "/", specials=(), reader=reader)
        assert reader.listed == [str(tree)]
        assert [stamp.ctime_ns for stamp in found.looked_at] == [-1]


def test_the_cache_is_private_and_expendable(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache" / "x"
    rules = profile(str(tree), ["./**", "!*.env"])

    def lists() -> int:
        reader = DirectoryReader(str(cache))
        plan(rules, "/", specials=(), reader=reader)
        return len(reader.listed)

    assert (lists(), lists()) == (1, 0)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o600
    assert stat.S_IMODE(cache.parent.stat().st_mode) == 0o700
    assert os.listdir(cache.parent) == ["x"]
    for damage in (b"", b"garbage", b"\xe9\x01\x00\x00\x00", os.urandom(100)):
        cache.write_bytes(damage)
        assert lists() == 1
    assert lists() == 0
    cache.chmod(0o644)
    assert lists() == 1  # somebody else might have written it
    cache.unlink()
    cache.symlink_to(tmp_path / "elsewhere")
    assert lists() == 1
    cache.parent.chmod(0o777)
    assert lists() == 1


def test_where_the_cache_lies() -> None:
    found = default_cache_file({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "/ws")
    assert found.startswith("/c/sbx/")
    assert default_cache_file({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/ws").startswith("/h/.cache/sbx/")
    assert default_cache_file({"HOME": "/h"}, "/ws") != default_cache_file({"HOME": "/h"}, "/ws2")
