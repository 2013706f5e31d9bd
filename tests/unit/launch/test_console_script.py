"""console.sh: which Python it starts, and with what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sbx

SCRIPT = Path(sbx.__file__).parent / "launch" / "console.sh"
VERSION = f"python3.{sys.version_info.minor}"


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """An installation whose console.py says where it came from."""
    prefix = tmp_path / "a pre'fix $HOME"
    launch = prefix / "lib" / VERSION / "site-packages" / "sbx" / "launch"
    (launch / "__pycache__").mkdir(parents=True)
    (launch / "console.py").write_text("import sys\nprint(__file__.rpartition('.')[2], sys.argv[1:])\n")
    (prefix / "bin").mkdir()
    (prefix / "bin" / VERSION).symlink_to(sys.executable)
    (prefix / "bin" / "sbx").write_text(SCRIPT.read_text())
    (prefix / "bin" / "sbx").chmod(0o755)
    return prefix


def said_by(prefix: Path, *arguments: str) -> str:
    done = subprocess.run([prefix / "bin" / "sbx", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def compiled(prefix: Path) -> Path:
    launch = prefix / "lib" / VERSION / "site-packages" / "sbx" / "launch"
    target = launch / "__pycache__" / f"console.cpython-3{sys.version_info.minor}.pyc"
    code = "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2])"
    subprocess.run([sys.executable, "-c", code, launch / "console.py", target], check=True)
    return target


def test_compiled_code_is_run_with_the_same_arguments(installed: Path) -> None:
    compiled(installed)
    assert said_by(installed, "run", "-c", "--", "a b", "") == "pyc ['run', '-c', '--', 'a b', '']"


def test_without_it_the_source_is_run(installed: Path) -> None:
    assert said_by(installed, "run") == "py ['run']"


@pytest.mark.parametrize("data", [b"", b"half", bytes(200)], ids=["empty", "short", "another version"])
def test_compiled_code_that_is_none_is_not_run(installed: Path, data: bytes) -> None:
    compiled(installed).write_bytes(data)
    assert said_by(installed, "run") == "py ['run']"


def test_compiled_code_that_was_cut_is_not_run(installed: Path) -> None:
    file = compiled(installed)
    file.write_bytes(file.read_bytes()[:40])
    assert said_by(installed, "run") == "py ['run']"
