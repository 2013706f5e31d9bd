"""Symlinks that must exist inside so that paths work as people write them."""

from __future__ import annotations

import os

from sbx.model.plan import Op, Operation
from sbx.planner.specials import ROOT_LINKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_LINKS = 40  # the kernel's own limit for one path


def links_on(paths: Iterable[str]) -> frozenset[str]:
    """The real places of all symlinks met on the way along these absolute paths."""
    found: set[str] = set()
    known: dict[str, str | None] = {}
    for path in paths:
        _follow(path, found, known)
    return frozenset(found)


def root_links() -> frozenset[str]:
    return frozenset(path for path in ROOT_LINKS if os.path.islink(path))


def _follow(path: str, found: set[str], known: dict[str, str | None]) -> None:
    current = "/"
    rest = [name for name in reversed(path.split("/")) if name and name != "."]
    budget = MAX_LINKS
    while rest:
        name = rest.pop()
        if name == "..":
            current = os.path.dirname(current)
            continue
        place = f"{current}/{name}" if current != "/" else f"/{name}"
        if place not in known:
            known[place] = _link_text(place)
        text = known[place]
        if text is None:
            current = place
            continue
        budget -= 1
        if budget < 0:
            return
        found.add(place)
        if text.startswith("/"):
            current = "/"
        rest.extend(piece for piece in reversed(text.split("/")) if piece and piece != ".")


def _link_text(path: str) -> str | None:
    try:
        return os.readlink(path)
    except (OSError, ValueError):  # not a link, or nothing there
        return None


class Shown:
    """Which paths the operations make visible: as a place to stand in, not necessarily to read."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._stands: dict[str, bool] = {}  # path -> does it bring everything below with it?
        for each in operations:
            if each.op is Op.MAKE_DIR:
                continue
            brings_all = each.op in (Op.BIND_RO, Op.BIND_RW, Op.PIN) and not each.is_link
            self._stands[each.path] = brings_all
            if each.op is not Op.MASK:
                parent = os.path.dirname(each.path)
                while parent not in self._stands:
                    self._stands[parent] = False
                    parent = os.path.dirname(parent)

    def __contains__(self, path: str) -> bool:
        if path in self._stands:
            return True
        while path != "/":
            path = os.path.dirname(path)
            if path in self._stands:
                return self._stands[path]
        return False


def drop_dangling(operations: list[Operation], certain: frozenset[str]) -> list[Operation]:
    """Without those links of `certain`'s complement that lead nowhere inside."""
    shown = Shown(operations)

    def leads(operation: Operation) -> bool:
        return (
            operation.op is not Op.SYMLINK or operation.path not in certain or os.path.realpath(operation.path) in shown
        )

    return [each for each in operations if leads(each)]
