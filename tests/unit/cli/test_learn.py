"""What `sbx learn --write` leaves behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from sbx.cli.learn import write
from sbx.policy.layers import load_policy

TEXT = "schemaVersion: 2\n" + "# a rule\n" * 10_000


# As on a full disk: what is written beyond the first bytes fails. In a process of its own, whose output is a pipe: the
# limit would hold for pytest's own log as well.
WITHOUT_ROOM = """
import os, resource, sys
from sbx.cli.learn import write
from sbx.errors import SbxError
from sbx.policy.layers import load_policy
folder, text = sys.argv[1], "schemaVersion: 2\\n" + "# a rule\\n" * 10_000
policy = load_policy(folder, policy_file=os.path.join(folder, "sbx.yaml"), environ=os.environ)
resource.setrlimit(resource.RLIMIT_FSIZE, (64, resource.RLIM_INFINITY))
try:
    write(os.path.join(folder, "sbx.yaml"), text, policy)
except SbxError as error:
    print(error)
"""


def test_a_full_disk_leaves_the_policy_as_it_was_and_no_draft(tmp_path: Path) -> None:
    file = tmp_path / "sbx.yaml"
    file.write_text("schemaVersion: 2\n")
    words = [sys.executable, "-c", WITHOUT_ROOM, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert "could not write" in done.stdout, done.stdout + done.stderr
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
