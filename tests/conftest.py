"""The frame all tests stand in: a home of their own, requirements that cannot vanish unseen, nothing left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from capabilities import missing, required
from leftovers import Snapshot, adopt_orphans

SESSION_FOLDER = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--deep", action="store_true", help="also run the long tests, and far more random examples")


def pytest_configure(config: pytest.Config) -> None:
    """Give the session its own temporary folder: what appears there and stays was left by a test."""
    required()  # a typo in SBX_TEST_REQUIRE must not switch a guard off
    folder = tempfile.mkdtemp(prefix="sbx-tests-")
    config.stash[SESSION_FOLDER] = folder
    temporary = os.path.join(folder, "tmp")
    os.mkdir(temporary)
    os.environ["TMPDIR"] = tempfile.tempdir = temporary
    if config.option.basetemp is None:
        config.option.basetemp = os.path.join(folder, "pytest")
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = os.path.join(folder, "hypothesis")
    _hypothesis_profiles(deep=config.getoption("--deep"))
    adopt_orphans()


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(SESSION_FOLDER, None)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _hypothesis_profiles(*, deep: bool) -> None:
    try:
        from hypothesis import HealthCheck, settings
    except ImportError:
        return
    quiet = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("ci", deadline=None, database=None, suppress_health_check=quiet)
    settings.register_profile("deep", settings.get_profile("ci"), max_examples=20_000)
    settings.load_profile("deep" if deep else "ci")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--deep"):
        return
    for item in items:
        if item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.skip(reason="long: run with --deep"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip for what the machine lacks, or fail if SBX_TEST_REQUIRE says that it must be there."""
    for mark in item.iter_markers("requires"):
        for feature, why in missing(mark):
            if feature in required():
                pytest.fail(f"SBX_TEST_REQUIRE={feature}, but {why}", pytrace=False)
            pytest.skip(why)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail on processes, mounts and files that outlive the test."""
    before = Snapshot()
    yield
    left = before.differences()
    if left:
        pytest.fail("left behind: " + "; ".join(left), pytrace=False)


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, and an environment that says nothing of the developer's own."""
    folder = tmp_path_factory.mktemp("home").resolve()
    for name in list(os.environ):
        if name.startswith(("SBX_", "XDG_", "GIT_")) and name != "SBX_TEST_REQUIRE":
            monkeypatch.delenv(name)
    for name in ("VIRTUAL_ENV", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    for name, below in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_DATA_HOME", ".local/share"),
        ("XDG_RUNTIME_DIR", ".run"),
    ):
        (folder / below).mkdir(parents=True, mode=0o700)
        monkeypatch.setenv(name, str(folder / below))
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("LANG", "C.UTF-8")
    return folder


@dataclass(frozen=True)
class Workspace:
    """A project folder with helpers to fill it."""

    root: Path
    home: Path

    def write(self, name: str, text: str | bytes = "") -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text)
        return path

    def policy(self, text: str) -> Path:
        return self.write("sbx.yaml", text)

    def user_policy(self, text: str) -> Path:
        folder = self.home / ".config" / "sbx"
        folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / "policy.yaml"
        path.write_text(text)
        return path


@pytest.fixture
def workspace(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """An empty folder that is the working directory, apart from the home folder."""
    root = tmp_path.resolve() / "work space"  # the space is part of the test
    root.mkdir()
    monkeypatch.chdir(root)
    return Workspace(root, home)


@dataclass(frozen=True)
class Ran:
    """How a call of the command ended."""

    rc: int
    stdout: str
    stderr: str


class Sbx:
    """The installed command, as a person would call it."""

    def __init__(self) -> None:
        script = Path(sys.executable).parent / "sbx"
        self.command = [str(script)] if script.exists() else [sys.executable, "-m", "sbx"]

    def __call__(
        self,
        *arguments: str | Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        timeout: float = 120,
        prefix: Sequence[str] = (),
    ) -> Ran:
        """`prefix`: what runs sbx."""
        done = subprocess.run(
            [*prefix, *self.command, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, **(env or {})},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=timeout,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def sbx() -> Sbx:
    return Sbx()
