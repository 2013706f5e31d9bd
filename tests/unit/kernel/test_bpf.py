"""The assembler against its own interpreter, and against what the kernel would refuse."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.kernel.bpf import (
    ALLOW,
    ERRNO,
    JUMP,
    JUMP_EQ,
    JUMP_GE,
    JUMP_GT,
    JUMP_SET,
    KILL_PROCESS,
    LOAD,
    OFFSET_NR,
    RETURN,
    Assembler,
    Label,
    argument_low,
    decode,
    instruction,
    simulate,
    verify,
)

ARCH = 0xC000003E


def answer(program: bytes, nr: int, *args: int) -> int:
    return simulate(program, ARCH, nr, args)[0]


def test_an_instruction_is_eight_bytes_in_the_kernels_layout() -> None:
    assert instruction(JUMP_EQ, 0x11223344, 1, 2) == bytes((0x15, 0, 1, 2, 0x44, 0x33, 0x22, 0x11))


@pytest.mark.parametrize("distance", [0, 1, 254, 255, 256, 257, 1000])
@pytest.mark.parametrize("taken", ["yes", "no"])
def test_a_branch_reaches_its_label_at_any_distance(distance: int, taken: str) -> None:
    asm = Assembler()
    far = Label()
    asm.load(OFFSET_NR)
    asm.branch(JUMP_EQ, 7, **{taken: far})
    for _ in range(distance):
        asm.load(OFFSET_NR)
    asm.answer(KILL_PROCESS)
    asm.put(far)
    asm.answer(ALLOW)
    program = asm.assemble()
    hit, miss = (7, 8) if taken == "yes" else (8, 7)
    assert answer(program, hit) == ALLOW
    assert answer(program, miss) == KILL_PROCESS


def test_lengthening_one_branch_can_push_another_over_the_limit() -> None:
    asm = Assembler()
    outer, inner = Label(), Label()
    asm.load(OFFSET_NR)
    asm.branch(JUMP_EQ, 1, yes=outer)
    asm.branch(JUMP_EQ, 2, yes=inner)
    for _ in range(253):
        asm.load(OFFSET_NR)
    asm.answer(ERRNO | 1)
    asm.put(outer)
    asm.answer(ERRNO | 2)
    asm.load(OFFSET_NR)
    asm.put(inner)
    asm.answer(ERRNO | 3)
    program = asm.assemble()
    assert [answer(program, nr) for nr in (0, 1, 2)] == [ERRNO | 1, ERRNO | 2, ERRNO | 3]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=400, unique=True), st.integers(0, 2**32 - 1))
def test_a_chain_of_comparisons_equals_a_table(values: list[int], other: int) -> None:
    asm = Assembler()
    labels = [Label() for _ in values]
    asm.load(OFFSET_NR)
    for value, label in zip(values, labels, strict=True):
        asm.branch(JUMP_EQ, value, yes=label)
    asm.answer(ALLOW)
    for index, label in enumerate(labels):
        asm.put(label)
        asm.answer(ERRNO | index)
    program = asm.assemble()
    for index, value in enumerate(values):
        assert answer(program, value) == ERRNO | index
    if other not in values:
        assert answer(program, other) == ALLOW


@pytest.mark.parametrize(
    ("code", "value", "truth"),
    [
        (JUMP_EQ, 5, [False, True, False]),
        (JUMP_GT, 5, [False, False, True]),
        (JUMP_GE, 5, [False, True, True]),
        (JUMP_SET, 2, [False, False, True]),
    ],
)
def test_comparisons(code: int, value: int, truth: list[bool]) -> None:
    asm = Assembler()
    yes = Label()
    asm.load(argument_low(3))
    asm.branch(code, value, yes=yes)
    asm.answer(KILL_PROCESS)
    asm.put(yes)
    asm.answer(ALLOW)
    program = asm.assemble()
    assert [answer(program, 0, 0, 0, 0, each) == ALLOW for each in (4, 5, 6)] == truth


def test_arguments_are_read_as_their_low_word() -> None:
    asm = Assembler()
    yes = Label()
    asm.load(argument_low(1))
    asm.branch(JUMP_EQ, 0x5412, yes=yes)
    asm.answer(ALLOW)
    asm.put(yes)
    asm.answer(KILL_PROCESS)
    assert answer(asm.assemble(), 16, 0, 0xDEADBEEF_00005412) == KILL_PROCESS


def test_a_backward_jump_is_refused() -> None:
    asm = Assembler()
    back = Label()
    asm.put(back)
    asm.load(OFFSET_NR)
    asm.branch(JUMP_EQ, 1, yes=back)
    asm.answer(ALLOW)
    with pytest.raises(ValueError, match="forward"):
        asm.assemble()


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (b"", "0 instructions"),
        (instruction(RETURN, ALLOW) * 4097, "4097 instructions"),
        (instruction(RETURN, ALLOW) + b"x", "8-byte"),
        (instruction(LOAD, 2) + instruction(RETURN, ALLOW), "offset 2"),
        (instruction(LOAD, 64) + instruction(RETURN, ALLOW), "offset 64"),
        (instruction(JUMP_EQ, 1, 1, 0) + instruction(RETURN, ALLOW), "out of the program"),
        (instruction(JUMP, 1) + instruction(RETURN, ALLOW), "out of the program"),
        (instruction(0x99, 0) + instruction(RETURN, ALLOW), "code 0x99"),
        (instruction(LOAD, 0), "does not return"),
    ],
)
def test_what_the_kernel_would_refuse(program: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        verify(program)


def test_decode_reverses_instruction() -> None:
    assert decode(instruction(JUMP_GE, 0xFFFFFFFF, 3, 4)) == [(JUMP_GE, 3, 4, 0xFFFFFFFF)]
