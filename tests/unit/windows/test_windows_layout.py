"""Structure sizes, offsets and constants against the mingw headers: the compiler checks, nothing has to run."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest
from capabilities import requires

from sbx.kernel import windows_types

COMPILER = "x86_64-w64-mingw32-gcc"
CONSTANTS = sorted(
    name
    for name, value in vars(windows_types).items()
    if isinstance(value, int) and not name.startswith("_") and name not in ("JOB_OBJECT_UILIMIT_ALL",)
)


def claims() -> str:
    lines = ["#include <stddef.h>", "#include <windows.h>"]
    for structure in windows_types.STRUCTURES:
        name = structure.__name__
        lines.append(f'_Static_assert(sizeof({name}) == {ctypes.sizeof(structure)}, "size of {name}");')
        for field in structure._fields_:
            offset, size = getattr(structure, field[0]).offset, getattr(structure, field[0]).size
            lines.append(f'_Static_assert(offsetof({name}, {field[0]}) == {offset}, "{name}.{field[0]}");')
            lines.append(f'_Static_assert(sizeof((({name} *)0)->{field[0]}) == {size}, "size of {name}.{field[0]}");')
    for name in CONSTANTS:
        value = getattr(windows_types, name)
        lines.append(f'_Static_assert((unsigned long long){name} == {value}ULL, "{name}");')
    return "\n".join(lines) + "\n"


def check(source: str, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "layout.c"
    file.write_text(source)
    return subprocess.run(
        [COMPILER, "-fsyntax-only", "-D_WIN32_WINNT=0x0A00", str(file)], capture_output=True, text=True, check=False
    )


@requires(tools=[COMPILER])
@pytest.mark.skipif(ctypes.sizeof(ctypes.c_void_p) != 8, reason="the compiler is for 64-bit Windows")
def test_layouts_and_constants_are_those_of_the_headers(tmp_path: Path) -> None:
    done = check(claims(), tmp_path)
    assert done.returncode == 0, done.stderr


@requires(tools=[COMPILER])
def test_a_wrong_claim_is_noticed(tmp_path: Path) -> None:
    wrong = claims().replace("sizeof(STARTUPINFOW) == 104", "sizeof(STARTUPINFOW) == 96")
    assert wrong != claims()
    assert check(wrong, tmp_path).returncode != 0


def test_every_structure_is_checked() -> None:
    defined = {
        value
        for value in vars(windows_types).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure) and value is not ctypes.Structure
    }
    assert defined == set(windows_types.STRUCTURES)
    assert len(CONSTANTS) > 30


def test_known_sizes_of_64_bit_windows() -> None:
    sizes = {each.__name__: ctypes.sizeof(each) for each in windows_types.STRUCTURES}
    assert sizes["JOBOBJECT_BASIC_LIMIT_INFORMATION"] == 64
    assert sizes["JOBOBJECT_EXTENDED_LIMIT_INFORMATION"] == 144
    assert sizes["STARTUPINFOW"] == 104
    assert sizes["STARTUPINFOEXW"] == 112
    assert sizes["PROCESS_INFORMATION"] == 24
