"""Words for a step of the set-up that failed, and what to do about it. Imported only after that.

Not least when the system has no more of something to give.
"""

import errno
import os

SEE_DOCTOR = "run 'sbx doctor' to see what this machine allows"

REMEDIES = {
    errno.EAGAIN: "the user's limit of processes is reached ('ulimit -u'): end some, or allow more",
    errno.EMFILE: "more open files are needed than the caller's limit allows ('ulimit -n')",
    errno.ENFILE: "the machine has no more open files to give: end what holds them, then try again",
    errno.ENOMEM: "the machine has no memory left for it: end something, then try again",
    errno.ENOSPC: "a limit of the machine is used up: disk space, or its number of user namespaces",
}


MAX_SHOWN = 200


def words_of(step: str, words: str, subject: bytes | str) -> str:
    """`could not STEP PATH: WORDS`. The system's own words may end in the path once more, as Python writes bytes."""
    path = os.fsdecode(subject)
    told = words.removesuffix(f": {subject!r}") if subject else words
    if told == words and words.endswith("'") and ": b'" in words:
        told, _, quoted = words.rpartition(": b'")
        told += ": " + quoted[:-1]
    return f"could not {step}{' ' + shown(path) if path else ''}: {shown(told)}"


def shown(text: str) -> str:
    """On one line and not too long, whatever bytes it holds."""
    text = text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escaped(char) for char in text)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\x{code & 0xFF:02x}" if code < 0x100 or 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def remedy_for(number: int) -> str:
    return REMEDIES.get(number, SEE_DOCTOR)
