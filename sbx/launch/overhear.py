"""Standard error, where it is a pipe: looked at on its way, so that a denial can be named afterwards.

Not a terminal, which stays one; not a file or a device, which can be read afterwards or by nobody; and not where both
outputs are one pipe, because the order of what is written must be kept at no price.
"""

from __future__ import annotations

from sbx.kernel import system as os  # not `os`: it costs a millisecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.launch.streams import Streams

KEPT_BYTES = 64 * 1024
S_IFMT, S_IFIFO, S_IFREG = 0o170000, 0o010000, 0o100000


def overheard() -> tuple[Streams | None, int]:
    """The streams for a run whose errors are looked at, or None; and where in a plain file they start, or -1."""
    error = os.fstat(2)
    kind = error.st_mode & S_IFMT
    if kind == S_IFREG:
        return None, error.st_size
    if kind != S_IFIFO:
        return None, -1
    output = os.fstat(1)
    if (error.st_dev, error.st_ino) == (output.st_dev, output.st_ino):
        return None, -1
    from sbx.launch.streams import Streams

    return Streams(capture=(0, KEPT_BYTES)), -1


def errors_since(position: int) -> bytes:
    """What was added to the file since then, as far as it can be read."""
    try:
        descriptor = os.open(b"/proc/self/fd/2", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(descriptor, KEPT_BYTES, position)
    finally:
        os.close(descriptor)
