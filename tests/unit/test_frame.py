"""The tests' own frame: guards that never fire would guard nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from capabilities import missing, required, requires
from leftovers import Snapshot, is_running

pytest_plugins = ["pytester"]


def test_a_left_over_process_is_found_and_ended() -> None:
    before = Snapshot()
    # A daemon's way: the child's child lives on, in a session of its own.
    script = (
        "import subprocess as s; print(s.Popen(['sleep', '1000'], start_new_session=True, stdout=s.DEVNULL, "
        "stderr=s.DEVNULL).pid)"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    pid = int(done.stdout)
    assert is_running(pid)
    found = before.differences(patience_ms=1)
    assert [line.split(" ", 2)[:2] for line in found] == [["process", str(pid)]]
    assert not is_running(pid)


def test_a_left_over_file_is_found() -> None:
    before = Snapshot()
    descriptor, name = tempfile.mkstemp()
    os.close(descriptor)
    assert before.differences() == [f"file {name}"]
    os.unlink(name)
    assert before.differences() == []


def test_home_is_not_the_developers(home: Path) -> None:
    assert Path(os.path.expanduser("~")) == home
    assert os.environ["XDG_CONFIG_HOME"].startswith(str(home))


def test_missing_things_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SBX_TEST_REQUIRE", raising=False)
    mark = requires(landlock=99, tools=["no-such-tool-anywhere"], root=os.geteuid() != 0).mark
    assert [feature for feature, _ in missing(mark)] == ["landlock", "tools", "root" if os.geteuid() else "ordinary"]


def test_requirements_turn_into_failures(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent.parent))
    pytester.makeini("[pytest]\nmarkers =\n  requires: x\n  deep: x\n")
    pytester.makepyfile(
        "from capabilities import requires\n@requires(tools=['no-such-tool-anywhere'])\ndef test_it(): pass\n"
    )
    pytester.runpytest_subprocess("-p", "conftest", "-p", "no:cacheprovider").assert_outcomes(skipped=1)
    monkeypatch.setenv("SBX_TEST_REQUIRE", "tools")
    pytester.runpytest_subprocess("-p", "conftest", "-p", "no:cacheprovider").assert_outcomes(errors=1)


def test_a_typo_in_the_requirements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBX_TEST_REQUIRE", "landlok")
    with pytest.raises(pytest.UsageError, match="landlok"):
        required()


def test_an_unknown_feature_is_refused() -> None:
    with pytest.raises(ValueError, match="usrns"):
        requires("usrns")
