"""System calls for the other files of this room: one prototype bound once, failure raises with the call's name.

`_ctypes` instead of `ctypes`: the latter costs 3 ms more at every start (it imports struct and builds types that
nobody here uses). The two classes below are all that is needed of it.
"""

from __future__ import annotations

import _ctypes
import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

assert sys.platform == "linux"  # for type checkers on other platforms


class c_long(_ctypes._SimpleCData):  # type: ignore[type-arg, misc, unused-ignore]  # kernel spelling
    _type_ = "l"


class c_char_p(_ctypes._SimpleCData):  # type: ignore[type-arg, misc, unused-ignore]  # a bytes object, by address
    _type_ = "z"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = c_long


_LIBC = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # None is the program itself
_SYSCALL = _ctypes.dlsym(_LIBC, "syscall")  # type: ignore[attr-defined, unused-ignore]


def _prototype(*kinds: type) -> _Function:
    function = _Function(_SYSCALL)  # type: ignore[call-overload, unused-ignore]
    function.argtypes = (c_long, *kinds)  # type: ignore[assignment, unused-ignore]
    return function


# One prototype for each pattern of pointers (z) and integers (l) that a call needs.
_PROTOTYPES: dict[str, _Function] = {}


def prototype(kinds: str) -> _Function:
    """syscall(2) itself, for arguments spelt as below: -1 is a failure, and the caller asks for its cause."""
    function = _PROTOTYPES.get(kinds)
    if function is None:
        function = _PROTOTYPES[kinds] = _prototype(*(c_long if kind == "l" else c_char_p for kind in kinds))
    return function


def syscall(name: str, number: int, kinds: str, *arguments: object, subject: object = "") -> int:
    """Call the kernel. `kinds` spells the arguments: `l` an integer, `z` bytes passed by address (NUL-terminated)."""
    function = _PROTOTYPES.get(kinds) or prototype(kinds)
    result: int = function(number, *arguments)
    if result == -1:
        code = _ctypes.get_errno()  # type: ignore[attr-defined, unused-ignore]
        raise OSError(code, f"{name}: {os.strerror(code)}", subject or None)
    return result


class Buffer:
    """Memory that the kernel may write to, as an address and a way to read it back."""

    __slots__ = ("_array", "address")

    def __init__(self, size: int) -> None:
        kind = type("_Chars", (_ctypes.Array,), {"_type_": _Char, "_length_": size})
        self._array = kind()
        self.address: int = _ctypes.addressof(self._array)

    def read(self, count: int | None = None) -> bytes:
        view = memoryview(self._array).cast("B")
        return bytes(view if count is None else view[:count])

    def write(self, data: bytes, offset: int = 0) -> None:
        memoryview(self._array).cast("B")[offset : offset + len(data)] = data

    def octets(self) -> memoryview:
        """A view on the bytes, to be kept and looked at again."""
        return memoryview(self._array).cast("B")

    def words(self) -> memoryview:
        """The same as unsigned 64-bit words."""
        return memoryview(self._array).cast("B").cast("Q")


class _Char(_ctypes._SimpleCData):  # type: ignore[type-arg, misc, unused-ignore]
    _type_ = "c"


MACHINE = os.uname().machine

# Calls whose numbers differ by machine; the unified table starts at 424.
_X86_64 = {
    "mount": 165, "umount2": 166, "pivot_root": 155, "unshare": 272, "setns": 308, "prctl": 157, "capset": 126,
    "clone": 56, "seccomp": 317, "ioctl": 16, "close_range": 436, "pidfd_send_signal": 424, "pidfd_open": 434,
    "prlimit64": 302, "sethostname": 170, "wait4": 61, "setpgid": 109, "openat2": 437, "splice": 275, "tee": 276,
    "vmsplice": 278, "memfd_create": 319, "kcmp": 312, "openat": 257, "fcntl": 72, "process_vm_readv": 310,
}  # fmt: skip
_AARCH64 = {
    "mount": 40, "umount2": 39, "pivot_root": 41, "unshare": 97, "setns": 268, "prctl": 167, "capset": 91,
    "clone": 220, "seccomp": 277, "ioctl": 29, "close_range": 436, "pidfd_send_signal": 424, "pidfd_open": 434,
    "prlimit64": 261, "sethostname": 161, "wait4": 260, "setpgid": 154, "openat2": 437, "splice": 76, "tee": 77,
    "vmsplice": 75, "memfd_create": 279, "kcmp": 272, "openat": 56, "fcntl": 25, "process_vm_readv": 270,
}  # fmt: skip
_UNIFIED = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "mount_setattr": 442,
    "landlock_create_ruleset": 444, "landlock_add_rule": 445, "landlock_restrict_self": 446,
}  # fmt: skip
NUMBERS: dict[str, int] = {**(_AARCH64 if MACHINE == "aarch64" else _X86_64), **_UNIFIED}


def supported_machine() -> bool:
    return MACHINE in ("x86_64", "aarch64")


def names_of(calls: Sequence[str]) -> tuple[int, ...]:
    return tuple(NUMBERS[call] for call in calls)


def address_of(data: bytes) -> int:
    """Where the bytes are, for a structure that points to them. They must be kept alive by the caller."""
    return int.from_bytes(bytes(memoryview(c_char_p(data)).cast("B")), "little")


def argument_area() -> tuple[int, int]:
    """Where this process's argument and environment strings lie: (address of argv[0], address after the last).

    glibc and musl both keep argv[0] in program_invocation_name; AT_EXECFN (31) is what the kernel puts after them.
    """
    pointer = c_long.from_address(_ctypes.dlsym(_LIBC, "program_invocation_name"))  # type: ignore[attr-defined, unused-ignore]
    getauxval = _Function(_ctypes.dlsym(_LIBC, "getauxval"))  # type: ignore[attr-defined, call-overload, unused-ignore]
    getauxval.argtypes = (c_long,)  # type: ignore[assignment, unused-ignore]
    return pointer.value, getauxval(31)


def current_processor() -> int:
    """sched_getcpu(): -1 where it is not known."""
    function = _Function(_ctypes.dlsym(_LIBC, "sched_getcpu"))  # type: ignore[attr-defined, call-overload, unused-ignore]
    return int(function())


def fill(address: int, size: int) -> None:
    """Zero this process's own memory."""
    function = _Function(_ctypes._memset_addr)  # type: ignore[attr-defined, call-overload, unused-ignore]
    function.argtypes = (c_long, c_long, c_long)  # type: ignore[assignment, unused-ignore]
    function(address, 0, size)


def copy(address: int, data: bytes) -> None:
    """Write into this process's own memory."""
    function = _Function(_ctypes._memmove_addr)  # type: ignore[attr-defined, call-overload, unused-ignore]
    function.argtypes = (c_long, c_char_p, c_long)  # type: ignore[assignment, unused-ignore]
    function(address, data, len(data))
