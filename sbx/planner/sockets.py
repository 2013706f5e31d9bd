"""The host's Unix sockets: a service that listens there acts outside, so being allowed to read its path is not enough.

Connecting to a socket is writing to it, but a read-only mount does not stop it, and Landlock knows a right for it only
from ABI 9 on. So those that exist are masked wherever the rules let them be read and not modified.
"""

from __future__ import annotations

import os
import stat

from sbx.model.glob import split_path
from sbx.model.plan import Op, Operation
from sbx.model.verdict import may_modify

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sbx.model.verdict import Judge

LISTED = "/proc/net/unix"
WHY = "a socket that may not be modified"


def host_sockets() -> tuple[str, ...]:
    """The absolute names that sockets of this host are bound to. Abstract and relative ones are not paths."""
    try:
        with open(LISTED, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read().split("\n")[1:]
    except OSError:
        return ()
    names = (line.split(" ", 7)[-1].lstrip() for line in lines)
    return tuple(sorted({name for name in names if name.startswith("/")}))


def masked_sockets(paths: Iterable[str], operations: Sequence[Operation], judge: Judge) -> list[Operation]:
    """Masks for those of them that the operations show although they may not be modified."""
    shown = {each.path: each for each in operations if each.op is not Op.PIN}
    found = []
    for path in paths:
        location = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if may_modify(judge, split_path(location)) or not _is_shown(location, shown):
            continue
        try:
            if not stat.S_ISSOCK(os.lstat(location).st_mode):
                continue
        except OSError:
            continue
        found.append(Operation(Op.MASK, location, is_dir=False, optional=True, why=WHY))
    return found


def _is_shown(path: str, operations: dict[str, Operation]) -> bool:
    """Does the operation nearest above (or at) the path bind it?"""
    while True:
        nearest = operations.get(path)
        if nearest is not None:
            return nearest.op in (Op.BIND_RO, Op.BIND_RW)
        if path == "/":
            return False
        path = os.path.dirname(path)
