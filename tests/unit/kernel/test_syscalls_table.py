"""The tables against the kernel headers of this machine, where there are any."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbx.kernel import call
from sbx.kernel.syscalls_table import AUDIT_ARCH, numbers

X86_64_HEADERS = [Path("/usr/include") / folder / "asm/unistd_64.h" for folder in ("x86_64-linux-gnu", ".")]
GENERIC_HEADER = Path("/usr/include/asm-generic/unistd.h")
# Macros of the generic header whose name differs from the call's on 64 bit, or that are no call of aarch64.
GENERIC_NAMES = {"fstatat": "newfstatat"}
NOT_ON_AARCH64 = {"syscalls", "arch_specific_syscall", "sync_file_range2"}


def test_x86_64_against_the_header() -> None:
    header = next((path for path in X86_64_HEADERS if path.exists()), None)
    if header is None:
        pytest.skip("no x86-64 kernel headers (linux-libc-dev) here")
    defined = dict(re.findall(r"#define __NR_(\w+) (\d+)", header.read_text()))
    table = numbers("x86_64")
    assert len(defined) > 300
    known_there = {name: int(number) for name, number in defined.items() if int(number) <= table["rseq_slice_yield"]}
    assert {name: table.get(name) for name in known_there} == known_there


def test_aarch64_against_the_generic_header() -> None:
    if not GENERIC_HEADER.exists():
        pytest.skip("no generic kernel headers (linux-libc-dev) here")
    text = GENERIC_HEADER.read_text()
    defined = {name: int(number) for name, number in re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)\b", text)}
    table = numbers("aarch64")
    expected = {
        GENERIC_NAMES.get(name, name): number
        for name, number in defined.items()
        if name not in NOT_ON_AARCH64
        and not 403 <= number < 424  # those are for 32 bit
        and number <= table["rseq_slice_yield"]
    }
    assert len(expected) > 280
    assert {name: table.get(name) for name in expected} == expected


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_a_table_names_each_number_once(machine: str) -> None:
    table = numbers(machine)
    assert len(set(table.values())) == len(table)
    assert table["landlock_create_ruleset"] == 444
    assert table["rseq_slice_yield"] == 471


def test_the_launch_side_uses_the_same_numbers() -> None:
    if call.MACHINE not in AUDIT_ARCH:
        pytest.skip(f"no table for {call.MACHINE}")
    table = numbers(call.MACHINE)
    assert {name: table[name] for name in call.NUMBERS} == call.NUMBERS


def test_both_tables_of_the_launch_side() -> None:
    for machine, launch_side in (("x86_64", call._X86_64), ("aarch64", call._AARCH64)):
        table = numbers(machine)
        assert launch_side == {name: table[name] for name in launch_side}


def test_a_machine_without_a_table() -> None:
    with pytest.raises(KeyError):
        numbers("riscv64")
