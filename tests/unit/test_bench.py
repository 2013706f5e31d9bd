"""The benchmark runs: one cheap row gives a table and JSON, and the arithmetic of its verdicts is right. No times."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"


def run_bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH / "run.py"), *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCH))
    yield {name: importlib.import_module(f"harness.{name}") for name in ("record", "table", "timing", "peers", "curve")}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("harness", "rows"):
            del sys.modules[name]


def test_one_row_gives_a_table_and_json(tmp_path: Path) -> None:
    done = run_bench("--quick", "--as-is", "--only", "decide", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "bench.json").read_text())
    assert [section["row"] for section in found["sections"]] == ["decide", "decide"]
    assert all(values for section in found["sections"] for values in section["samples"].values())
    assert set(found["verdicts"].values()) <= {"met", "missed"}
    text = (tmp_path / "bench.md").read_text()
    assert "| 1000 rules |" in text
    assert "not a fresh installation" in text
    assert done.stdout.strip() == text.strip()


def test_an_unknown_row_is_told_the_known_ones(tmp_path: Path) -> None:
    done = run_bench("--quick", "--as-is", "--only", "no-such-row", "--out", str(tmp_path))
    assert done.returncode == 2
    assert "decide" in done.stderr


def test_a_quick_table_is_not_published(tmp_path: Path) -> None:
    done = run_bench("--quick", "--update-docs", "--only", "decide", "--out", str(tmp_path))
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_ratios_are_of_medians_and_verdicts_follow_them(harness: dict[str, ModuleType]) -> None:
    record = harness["record"]
    section = record.Section("start", "t", "ms", {"ours": [30.0, 1.0, 31.0], "theirs": [10.0, 11.0, 10.0]})
    assert section.ratio("ours", "theirs") == 3.0
    assert section.ratio("ours", "theirs", of_best=True) == 0.1
    assert record.verdict(section, record.Check("w", "ours", "theirs", at_most=3.0)) == "met"
    assert record.verdict(section, record.Check("w", "ours", "theirs", at_most=2.9)) == "missed"
    assert record.verdict(section, record.Check("w", "ours", at_most=25)) == "missed"
    assert record.verdict(section, record.Check("w", "ours", "absent", at_most=3.0)) == "not measured"
    rates = record.Section("stream", "t", "GB/s", {"ours": [1.0, 2.0, 3.0], "bare": [4.0, 4.0, 4.0]})
    assert rates.best("ours") == 3.0
    assert record.verdict(rates, record.Check("w", "ours", "bare", at_least=0.5)) == "met"
    assert record.verdict(rates, record.Check("w", "ours", "bare", at_least=0.6)) == "missed"
    assert record.from_plain(json.loads(json.dumps(record.to_plain(rates)))) == rates


def test_ways_take_turns_and_a_failing_one_is_left_out(harness: dict[str, ModuleType]) -> None:
    timing = harness["timing"]
    calls = []

    def way(name: str) -> float:
        calls.append(name)
        if name == "b":
            raise timing.WayFailed("exit status 1")
        return 1.0

    found = timing.interleave({n: lambda n=n: way(n) for n in "abc"}, 2, warmups=1)
    assert calls == ["a", "b", "c", "a", "c", "a", "c"]
    assert found.samples == {"a": [1.0, 1.0], "c": [1.0, 1.0]}
    assert found.cpu_s == {}
    assert found.failed == ["b: exit status 1"]


def test_a_command_that_fails_is_not_timed(harness: dict[str, ModuleType], tmp_path: Path) -> None:
    timing = harness["timing"]
    with pytest.raises(timing.WayFailed, match="exit status 3"):
        timing.run_once(["sh", "-c", "exit 3"], cwd=tmp_path, environ={"PATH": "/usr/bin:/bin"})


def test_cpu_time_is_that_of_the_command(harness: dict[str, ModuleType], tmp_path: Path) -> None:
    busy = [sys.executable, "-I", "-S", "-c", "for i in range(10**6): pass"]
    found = harness["timing"].interleave(
        {"busy": lambda: harness["timing"].run_once(busy, cwd=tmp_path, environ={})}, 1, warmups=0
    )
    assert found.cpu_s["busy"][0] > 0
    section = harness["record"].Section("s", "t", "ms", found.samples, cpu_s={"busy": [0.4], "idle": [0.1]})
    assert section.cpu_ratio("busy", "idle") == pytest.approx(4)
    assert section.cpu_ratio("busy", "absent") is None


def test_only_what_is_between_the_markers_is_replaced(harness: dict[str, ModuleType], tmp_path: Path) -> None:
    table = harness["table"]
    document = tmp_path / "performance.md"
    document.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write_between_markers(document, "new")
    assert document.read_text() == f"before\n{table.BEGIN}\n\nnew\n{table.END}\nafter\n"
    document.write_text("no markers")
    with pytest.raises(table.NoMarkers):
        table.write_between_markers(document, "new")


def test_bwrap_gets_every_mount_of_the_plan(harness: dict[str, ModuleType]) -> None:
    fields = {"source": "", "is_dir": True, "optional": False}
    operations = [
        {**fields, "op": "skeleton", "path": "/"},
        {**fields, "op": "skeleton", "path": "/etc"},
        {**fields, "op": "bind-ro", "path": "/etc/java", "optional": True},
        {**fields, "op": "bind-rw", "path": "/srv/w", "source": "/real/w"},
        {**fields, "op": "symlink", "path": "/bin", "source": "usr/bin"},
        {**fields, "op": "mask", "path": "/srv/w/k", "is_dir": False},
    ]
    argv = harness["peers"].bwrap_like({"operations": operations, "cwd": "/srv/w"})
    text = " ".join(argv)
    assert "--dir /etc --ro-bind-try /etc/java /etc/java --bind /real/w /srv/w --symlink usr/bin /bin" in text
    assert "--ro-bind /dev/null /srv/w/k --chdir /srv/w" in text


def test_growth_beyond_linear_is_missed(harness: dict[str, ModuleType]) -> None:
    record, curve = harness["record"], harness["curve"]
    for last, word in ((95.0, "met"), (10_000.0, "missed")):
        section = record.Section("decide", "t", "ms", {"10 rules": [1.0], "1000 rules": [last]})
        checked = curve.growth_check(section, "w")
        assert record.verdict(checked, checked.checks[0]) == word


def test_a_steep_end_is_missed_behind_a_large_constant(harness: dict[str, ModuleType]) -> None:
    record, curve = harness["record"], harness["curve"]
    samples = {"10 rules": [100.0], "300 rules": [110.0], "1000 rules": [2000.0]}
    checked = curve.growth_check(record.Section("plan", "t", "ms", samples), "w")
    assert [record.verdict(checked, check) for check in checked.checks] == ["met", "missed"]
