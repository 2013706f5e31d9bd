"""A call that the listener makes for the command gives exactly what the command's own call would have given."""

from __future__ import annotations

import marshal
import subprocess
import sys
from pathlib import Path
from typing import Any

import exact_calls
import pytest
from capabilities import requires
from sandboxed import Rules, compile_rules, run_compiled

SCRIPT = Path(exact_calls.__file__).read_text()
# A deny that could match a new name anywhere: every call that makes a name goes through the listener.
RULES = Rules(read=("./**",), modify=("./**",), deny_modify=("./**/.denied",))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of all scenarios, inside and outside. The folders' names have the same length, and so have their paths."""
    inside = tmp_path_factory.mktemp("inside").resolve()
    outside = tmp_path_factory.mktemp("direct").resolve()
    compiled = compile_rules(RULES, str(inside))
    assert compiled.prepared["launch"]["future"] is not None, "no listener: nothing would be compared"
    ended = run_compiled(compiled, [sys.executable, "-I", "-c", SCRIPT, str(inside)])
    assert ended.status == 0, ended.stderr.decode(errors="replace")
    done = subprocess.run([sys.executable, "-I", "-c", SCRIPT, str(outside)], capture_output=True, check=True)
    return _neutral(marshal.loads(ended.stdout), inside), _neutral(marshal.loads(done.stdout), outside)


def _neutral(value: Any, folder: Path) -> Any:
    """Without the folder's own name."""
    if isinstance(value, dict):
        return {key: _neutral(each, folder) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_neutral(each, folder) for each in value]
    if isinstance(value, bytes):
        return value.replace(bytes(folder), b"@")
    return value.replace(str(folder), "@") if isinstance(value, str) else value


@requires("userns", "notify", landlock=1)
@pytest.mark.parametrize("scenario", exact_calls.SCENARIOS)
def test_performed_call_equals_direct_call(results: tuple[dict[str, Any], dict[str, Any]], scenario: str) -> None:
    inside, outside = results
    assert not str(outside[scenario]).startswith("crashed"), outside[scenario]
    assert inside[scenario] == outside[scenario]
