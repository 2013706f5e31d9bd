"""Classic BPF for seccomp: an assembler with labels, and an interpreter that says what a program would answer.

The kernel accepts at most 4096 instructions, forward jumps only, and conditional jumps of at most 255 instructions.
The assembler lengthens a conditional jump that reaches further by an unconditional one behind it.
"""

from __future__ import annotations

MAX_INSTRUCTIONS = 4096

# struct sock_filter: u16 code, u8 jump if true, u8 jump if false, u32 k
LOAD = 0x20  # A = word at offset k of struct seccomp_data
AND = 0x54  # A &= k
JUMP = 0x05
JUMP_EQ = 0x15
JUMP_GT = 0x25
JUMP_GE = 0x35
JUMP_SET = 0x45  # A & k
RETURN = 0x06

KILL_PROCESS = 0x80000000
ERRNO = 0x00050000
USER_NOTIF = 0x7FC00000
ALLOW = 0x7FFF0000
ACTION_MASK = 0xFFFF0000
DATA_MASK = 0x0000FFFF

# struct seccomp_data: s32 nr, u32 arch, u64 instruction_pointer, u64 args[6]
OFFSET_NR = 0
OFFSET_ARCH = 4
DATA_SIZE = 64


def argument_low(index: int) -> int:
    """Where the low word of an argument is: both supported machines are little-endian."""
    return 16 + 8 * index


def argument_high(index: int) -> int:
    return argument_low(index) + 4


class Label:
    """A place in the program; put once, jumped to from before it."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position = -1


class Assembler:
    """Instructions in order. A branch without a label goes on with the next instruction."""

    def __init__(self) -> None:
        self._lines: list[tuple[int, int, Label | None, Label | None] | Label] = []

    def load(self, offset: int) -> None:
        self._lines.append((LOAD, offset, None, None))

    def mask(self, value: int) -> None:
        self._lines.append((AND, value, None, None))

    def answer(self, action: int) -> None:
        self._lines.append((RETURN, action, None, None))

    def branch(self, code: int, value: int, yes: Label | None = None, no: Label | None = None) -> None:
        self._lines.append((code, value, yes, no))

    def put(self, label: Label) -> None:
        self._lines.append(label)

    def assemble(self) -> bytes:
        """The program as `struct sock_filter[]`. Raises ValueError for what the kernel would refuse."""
        long: set[int] = set()  # indices of lines whose jumps do not fit into 8 bits; only ever grows
        while True:
            positions = self._lay_out(long)
            too_far = self._too_far(positions, long)
            if not too_far:
                break
            long |= too_far
        program = b"".join(self._encode(index, positions[index], index in long) for index in range(len(self._lines)))
        verify(program)
        return program

    def _lay_out(self, long: set[int]) -> list[int]:
        positions = []
        at = 0
        for index, line in enumerate(self._lines):
            positions.append(at)
            if isinstance(line, Label):
                line.position = at
            else:
                at += 3 if index in long else 1
        return positions

    def _too_far(self, positions: list[int], long: set[int]) -> set[int]:
        return {
            index
            for index, line in enumerate(self._lines)
            if not isinstance(line, Label)
            and index not in long
            and any(label.position - positions[index] - 1 > 255 for label in line[2:] if label is not None)
        }

    def _encode(self, index: int, at: int, is_long: bool) -> bytes:
        line = self._lines[index]
        if isinstance(line, Label):
            return b""
        code, value, yes, no = line
        if not is_long:
            return instruction(code, value, _distance(yes, at), _distance(no, at))
        # if A then +0 else +1: two unconditional jumps, the second falling through as distance 0
        after = at + 3
        return (
            instruction(code, value, 0, 1)
            + instruction(JUMP, _distance(yes, at + 1) if yes else after - at - 2)
            + instruction(JUMP, _distance(no, at + 2) if no else 0)
        )


def _distance(label: Label | None, at: int) -> int:
    if label is None:
        return 0
    if label.position <= at:
        raise ValueError("a jump must go forward to a label that was put")
    return label.position - at - 1


def instruction(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return code.to_bytes(2, "little") + bytes((yes, no)) + (value & 0xFFFFFFFF).to_bytes(4, "little")


def decode(program: bytes) -> list[tuple[int, int, int, int]]:
    """(code, jump if true, jump if false, k) of each instruction."""
    if len(program) % 8:
        raise ValueError("a program is a whole number of 8-byte instructions")
    return [
        (
            int.from_bytes(program[at : at + 2], "little"),
            program[at + 2],
            program[at + 3],
            int.from_bytes(program[at + 4 : at + 8], "little"),
        )
        for at in range(0, len(program), 8)
    ]


def verify(program: bytes) -> None:
    """What the kernel's own checker insists on, told before the kernel says a bare EINVAL."""
    lines = decode(program)
    if not 0 < len(lines) <= MAX_INSTRUCTIONS:
        raise ValueError(f"{len(lines)} instructions; the kernel takes 1 to {MAX_INSTRUCTIONS}")
    for at, (code, yes, no, value) in enumerate(lines):
        if code == LOAD:
            if value % 4 or value >= DATA_SIZE:
                raise ValueError(f"instruction {at} loads from offset {value}")
        elif code == JUMP:
            if at + 1 + value >= len(lines):
                raise ValueError(f"instruction {at} jumps out of the program")
        elif code in (JUMP_EQ, JUMP_GT, JUMP_GE, JUMP_SET):
            if at + 1 + max(yes, no) >= len(lines):
                raise ValueError(f"instruction {at} jumps out of the program")
        elif code not in (AND, RETURN):
            raise ValueError(f"instruction {at} has code {code:#x}")
    if lines[-1][0] != RETURN:
        raise ValueError("the last instruction does not return")


def simulate(program: bytes, arch: int, nr: int, args: tuple[int, ...] = ()) -> tuple[int, int]:
    """(action, how many instructions it took) for one call, as the kernel would compute it."""
    data = (nr & 0xFFFFFFFF).to_bytes(4, "little") + arch.to_bytes(4, "little") + bytes(8)
    for index in range(6):
        value = args[index] if index < len(args) else 0
        data += (value & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little")
    lines = decode(program)
    at = steps = accumulator = 0
    while True:
        code, yes, no, value = lines[at]
        at += 1
        steps += 1
        if code == RETURN:
            return value, steps
        if code == LOAD:
            accumulator = int.from_bytes(data[value : value + 4], "little")
        elif code == AND:
            accumulator &= value
        elif code == JUMP:
            at += value
        else:
            at += yes if _holds(code, accumulator, value) else no


def _holds(code: int, accumulator: int, value: int) -> bool:
    if code == JUMP_EQ:
        return accumulator == value
    if code == JUMP_GT:
        return accumulator > value
    if code == JUMP_GE:
        return accumulator >= value
    return bool(accumulator & value)
