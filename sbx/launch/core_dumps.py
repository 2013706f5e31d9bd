"""The one name that the kernel makes without being asked: a core file. No filter sees it, so no listener can judge it.

Where a rule denies a name like it, the command gets no core files. Elsewhere they are as they were.
"""

from __future__ import annotations

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.kernel.call import NUMBERS, syscall
from sbx.model.glob import ANY_DEPTH, match_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.model.glob import Component, Pattern, Token
    from sbx.model.verdict import Judge

RLIMIT_CORE = 4
# Numbers only: of all others (%e, the program's name) the command decides itself.
NUMERIC = tuple("pPiItugsd")


def forbid_denied(judge: Judge) -> None:
    """For this process and all that comes from it."""
    if is_denied(judge):
        syscall("prlimit64", NUMBERS["prlimit64"], "llzl", 0, RLIMIT_CORE, bytes(16), 0)


def is_denied(judge: Judge) -> bool:
    """The last answer is remembered: for whoever asks before it is cloned again and again."""
    global _answered
    try:
        settings = (_read(b"core_pattern"), _read(b"core_uses_pid"))
    except OSError:
        return True  # nothing is known about the name
    if _answered is None or _answered[0] is not judge or _answered[1] != settings:
        _answered = (judge, settings, may_be_denied(judge, *settings))
    return _answered[2]


_answered: tuple[Judge, tuple[bytes, bytes], bool] | None = None


def _read(name: bytes) -> bytes:
    fd = os.open(b"/proc/sys/kernel/" + name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096).strip()
    finally:
        os.close(fd)


def may_be_denied(judge: Judge, pattern: bytes, uses_pid: bytes) -> bool:
    """Could a rule deny a core file of this name, in whatever folder? Errs on the side of yes."""
    if pattern[:1] in (b"|", b"@"):
        return False  # to a program or a socket of the host
    text = os.fsdecode(pattern.rpartition(b"/")[2]) + (".%p" if uses_pid != b"0" and b"%p" not in pattern else "")
    pieces = text.split("%")
    free = any(piece[:1] not in NUMERIC for piece in pieces[1:])
    denies = [each for rules in judge[:2] for negated, patterns in rules or () if negated for each in patterns]
    if free:
        return bool(denies)
    if len(pieces) == 1:
        return any(match_name(_last(each), text) for each in denies)
    return any(_could_match(_last(each), pieces[0], pieces[-1][1:]) for each in denies)


def _last(pattern: Pattern) -> Component:
    """The component that a name itself has to match; what is below a denied folder cannot be made there anyway."""
    named = [each for each in pattern if each != ANY_DEPTH]
    return named[-1] if named else ANY_DEPTH


def _could_match(component: Component, start: str, end: str) -> bool:
    """A name that starts and ends like this, with numbers in between."""
    if isinstance(component, int):
        return True
    alternatives = ((component,),) if isinstance(component, str) else component
    return any(_meets(tokens[0], start, False) and _meets(tokens[-1], end, True) for tokens in alternatives if tokens)


def _meets(token: Token, text: str, at_end: bool) -> bool:
    if not isinstance(token, str):
        return True
    if at_end:
        return token.endswith(text) if text and len(text) < len(token) else text.endswith(token) or token[-1].isdigit()
    return token.startswith(text) or text.startswith(token)
