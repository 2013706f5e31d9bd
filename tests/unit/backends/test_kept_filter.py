"""A filter that was kept is the one that would be built."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sbx.backends import kept_filter
from sbx.kernel.seccomp_filter import NOTIFY_CREATES, build_filter
from sbx.launch import store

MACHINE = "x86_64"
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"network": "host"},
    {"network": "allow", "own_netns": False},
    {"exec_memfd": False, "unix_sockets": False},
    {"notify": NOTIFY_CREATES},
)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Each time one is built, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    seen: list[str] = []

    def build(machine: str, **how: Any) -> bytes:
        seen.append(machine)
        return build_filter(machine, **how)

    monkeypatch.setattr(kept_filter.seccomp_filter, "build_filter", build)
    return seen


def stored(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "cache/sbx/plans").iterdir())


def test_each_is_built_once(built: list[str]) -> None:
    for _ in range(2):
        for how in SETTINGS:
            assert kept_filter.kept_filter(MACHINE, **how) == build_filter(MACHINE, **how)
    assert len(built) == len(SETTINGS)


def test_another_machine_has_another(built: list[str]) -> None:
    assert kept_filter.kept_filter(MACHINE) != kept_filter.kept_filter("aarch64")
    assert built == [MACHINE, "aarch64"]


def test_it_is_built_anew_when_its_code_changed(
    built: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = tmp_path / "seccomp_filter.py"
    code.write_text("one")
    monkeypatch.setattr(kept_filter.seccomp_filter, "__file__", str(code))
    for text in ("one", "another"):
        code.write_text(text)
        for _ in range(2):
            kept_filter.kept_filter(MACHINE)
    assert len(built) == 2


@pytest.mark.parametrize("change", ["damaged", "open", "link"])
def test_what_is_not_to_be_trusted_is_not_used(built: list[str], tmp_path: Path, change: str) -> None:
    first = kept_filter.kept_filter(MACHINE)
    (entry,) = stored(tmp_path)
    if change == "damaged":
        entry.write_bytes(entry.read_bytes()[:-1] + b"\xff")
    elif change == "open":
        entry.chmod(0o666)
    else:
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    assert kept_filter.kept_filter(MACHINE) == first
    assert len(built) == 2


def test_without_a_place_for_it_it_is_built(built: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "nowhere")
    assert store.directory({os.fsencode(name): os.fsencode(value) for name, value in os.environ.items()}) is None
    assert kept_filter.kept_filter(MACHINE) == kept_filter.kept_filter(MACHINE)
    assert len(built) == 2
