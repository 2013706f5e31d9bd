"""Names that a plan depends on not being there, looked for folder by folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sbx.launch import store
from sbx.library import plans
from sbx.library.plans import Absences


def absent(*paths: Path) -> Absences:
    return Absences(tuple((store.ABSENT, os.fsencode(path)) for path in paths))


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "just-changed"])
def test_a_name_that_appears_is_noticed(tmp_path: Path, settled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if settled:
        monkeypatch.setattr(plans, "SETTLED_S", 0)
        time.sleep(0.05)
    absences = absent(tmp_path / "sbx.yaml", tmp_path / "missing" / "sbx.yaml")
    assert absences.hold({}) and absences.hold({})
    (tmp_path / "sbx.yaml").touch()
    assert not absences.hold({})
    (tmp_path / "sbx.yaml").unlink()
    assert absences.hold({})
    (tmp_path / "missing").mkdir()
    assert absences.hold({})
    (tmp_path / "missing" / "sbx.yaml").symlink_to("nowhere")
    assert not absences.hold({})


def test_a_folder_that_changed_just_now_is_not_trusted(tmp_path: Path) -> None:
    absences = absent(tmp_path / "sbx.yaml")
    assert absences.hold({})
    assert not absences._seen


def test_the_other_dependencies_are_left_to_the_store() -> None:
    others = ((store.VARIABLE, b"HOME", b"/home/u"),)
    assert Absences((*others, (store.ABSENT, b"/nowhere/at/all"))).others == others
