"""What `sbx learn --write` leaves behind."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sbx.cli.learn import write
from sbx.errors import SbxError
from sbx.policy.layers import load_policy

TEXT = "schemaVersion: 2\n" + "# a rule\n" * 10_000


@pytest.fixture
def no_room() -> Iterator[None]:
    """As on a full disk: what is written beyond the first bytes fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_policy_as_it_was_and_no_draft(tmp_path: Path, request: Any) -> None:
    policy = load_policy(str(tmp_path), policy_file=None, environ=os.environ)
    file = tmp_path / "sbx.yaml"
    file.write_text("schemaVersion: 2\n")
    request.getfixturevalue("no_room")
    with pytest.raises(SbxError, match="could not write"):
        write(str(file), TEXT, policy)
    assert os.listdir(tmp_path) == ["sbx.yaml"]
    assert file.read_text() == "schemaVersion: 2\n"


def test_a_policy_that_is_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    real = tmp_path / "shared" / "policy.yaml"
    real.write_text("schemaVersion: 2\n")
    file = tmp_path / "sbx.yaml"
    file.symlink_to(real)
    policy = load_policy(str(tmp_path), policy_file=str(real), environ=os.environ)
    write(str(file), TEXT, policy)
    assert file.is_symlink()
    assert real.read_text() == TEXT
    assert os.listdir(tmp_path / "shared") == ["policy.yaml"]
