"""The wheel and the sdist: the same bytes twice, everything where its reader looks, the version in one place."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from sbx.version import VERSION

TOP = Path(__file__).parents[3]
SOURCES = ("sbx", "profiles", "man", "completions", "docs", "tests", "bench", ".ci")


def copy(target: Path) -> Path:
    """The sources somewhere else, with other times and modes."""
    target.mkdir()
    for name in SOURCES:
        if (TOP / name).exists():
            shutil.copytree(
                TOP / name,
                target / name,
                ignore=shutil.ignore_patterns("__pycache__", "out"),
                copy_function=shutil.copy,
            )
    for path in [*TOP.glob("*.md"), TOP / "pyproject.toml", TOP / "Makefile", TOP / ".gitignore"]:
        shutil.copy(path, target)
    return target


def build(folder: Path) -> dict[str, Path]:
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder / "dist")],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "SOURCE_DATE_EPOCH"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {path.suffix: path for path in (folder / "dist").iterdir()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, Path]]:
    place = tmp_path_factory.mktemp("package")
    first = build(copy(place / "one"))
    again = copy(place / "another folder")
    for path in again.rglob("*"):
        os.utime(path, (1_500_000_000, 1_500_000_000))
    return first, build(again)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("suffix", [".whl", ".gz"])
def test_twice_the_same_bytes(built: tuple[dict[str, Path], dict[str, Path]], suffix: str) -> None:
    one, other = built
    assert digest(one[suffix]) == digest(other[suffix])


def test_the_wheel_brings_pages_and_completions_along(built: tuple[dict[str, Path], dict[str, Path]]) -> None:
    names = zipfile.ZipFile(built[0][".whl"]).namelist()
    data = f"sbx-{VERSION}.data"
    pages = {path.name: path.parent.name for path in (TOP / "man").rglob("*.[15]")}
    assert len(pages) > 10
    for name, folder in pages.items():
        assert f"{data}/data/share/man/{folder}/{name}" in names
    for name in (
        "share/bash-completion/completions/sbx",
        "share/zsh/site-functions/_sbx",
        "share/fish/vendor_completions.d/sbx.fish",
    ):
        assert f"{data}/data/{name}" in names
    assert f"{data}/scripts/sbx" in names
    assert "sbx/_data/profiles/profiles.yaml" in names
    assert "sbx/py.typed" in names
    assert not [name for name in names if name.startswith("tests/") or name.endswith(".pyc")]


def test_the_sdist_can_build_the_wheel(built: tuple[dict[str, Path], dict[str, Path]], tmp_path: Path) -> None:
    with tarfile.open(built[0][".gz"]) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4
            archive.extractall(tmp_path, filter="data")
        else:
            archive.extractall(tmp_path)
    assert digest(build(tmp_path / f"sbx-{VERSION}")[".whl"]) == digest(built[0][".whl"])


def test_the_version_stands_in_one_place() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", VERSION)
    places = [
        path
        for path in [*(TOP / "sbx").rglob("*.py"), TOP / "pyproject.toml"]
        if f'"{VERSION}"' in path.read_text(encoding="utf-8")
    ]
    assert places == [TOP / "sbx" / "version.py"]
    assert f"## {VERSION}" in (TOP / "CHANGELOG.md").read_text()
