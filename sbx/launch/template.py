"""A fresh sandbox on a copy of a root that was built before.

The clone has copied the template's mounts, and nobody ever ran in them. What must be private to each sandbox is made
anew on top: temporary file systems, /proc of the new pid namespace, the pseudo-terminals.
"""

from __future__ import annotations

import os
import sys

from sbx.kernel import mounts, process
from sbx.launch import setup
from sbx.launch.root import (
    BIND_RO,
    BIND_RW,
    COPY,
    DEV,
    IS_DIR,
    IS_LINK,
    MAKE_DIR,
    PROC,
    SKELETON,
    SYMLINK,
    TMPFS,
    Root,
    SetupStep,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from sbx.launch.root import LaunchOp
    from sbx.launch.start import Launch, Run

    Parts: TypeAlias = tuple[tuple[LaunchOp, list[LaunchOp]], ...]

assert sys.platform == "linux"  # for type checkers on other platforms

_BINDS = (BIND_RO, BIND_RW)
_REBUILT = (SKELETON, SYMLINK, COPY, *_BINDS)
_COPY = mounts.OPEN_TREE_CLONE | mounts.OPEN_TREE_CLOEXEC | mounts.AT_RECURSIVE | mounts.AT_SYMLINK_NOFOLLOW
_PTS_OPTIONS = b"newinstance,ptmxmode=0666,mode=620"


def fits(launch: Launch) -> bool:
    """Can sandboxes be made from a template of this plan? What stands in a temporary file system is put into the new
    one again, as far as it can be had from the template alone."""
    if launch.get("hand") is not None:
        return False  # it has to be forked outside, for each sandbox
    if not launch["namespaces"] or any(code in _BINDS and path == b"/" for code, path, _, _ in launch["operations"]):
        return False
    private = [path for code, path, _, _ in launch["operations"] if code == TMPFS]
    if any(_below(path, other) for path in private for other in private):
        return False
    return all(
        each[0] in _REBUILT
        for place in private
        for each in contents(launch["operations"], place)
        if each[0] != MAKE_DIR
    )


def contents(operations: tuple[LaunchOp, ...], place: bytes) -> list[LaunchOp]:
    """What the plan puts into the temporary file system at `place`. What stands below a bind comes along with it."""
    found: list[LaunchOp] = []
    binds: list[bytes] = []
    for each in operations:
        path = each[1]
        if not _below(path, place) or any(path == bind or _below(path, bind) for bind in binds):
            continue
        found.append(each)
        if each[0] in _BINDS:
            binds.append(path)
    return found


def private_parts(operations: tuple[LaunchOp, ...]) -> Parts:
    """What `renew` makes anew, each with what the plan puts into it."""
    return tuple(
        (each, contents(operations, each[1]) if each[0] == TMPFS else [])
        for each in operations
        if each[0] in (TMPFS, PROC, DEV)
    )


def _below(path: bytes, place: bytes) -> bool:
    return path.startswith(place + b"/")


def set_up_again(launch: Launch, run: Run, status_fd: int, parent_fd: int) -> None:
    """In place of the set-up that builds a root."""
    setup.die_with_parent(parent_fd)
    if launch["namespaces"] & process.CLONE_NEWNET:
        setup.step("make a network namespace", process.unshare, process.CLONE_NEWNET)
    if launch["loopback"]:
        setup.loopback_up()
    if run["channel"] >= 0:
        setup.offer_listener(run["channel"], launch["proxy_port"])
    umask = os.umask(0)
    try:
        _Renewed(b"", restrict_proc=launch["restrict_proc"]).renew(launch["private"])
    except OSError as error:
        raise SetupStep("renew the private root", error.errno or 0, str(error), b"") from None
    os.umask(umask)
    setup.confine(launch, run, status_fd)


class _Renewed(Root):
    """The root this process stands in already: its private parts once more, over the template's."""

    def renew(self, parts: Parts) -> None:
        for each, inner in parts:
            code, path = each[0], each[1]
            if code == TMPFS:
                self._renew_tmpfs(each, inner)
            elif code == PROC:
                self._proc(path)
            elif code == DEV:
                mounts.mount(b"devpts", path + b"/pts", b"devpts", mounts.MS_NOSUID | mounts.MS_NOEXEC, _PTS_OPTIONS)
        self._seal()

    def _renew_tmpfs(self, tmpfs: LaunchOp, inner: list[LaunchOp]) -> None:
        """A new one over the old; what the plan has bound inside moves over, with all that is mounted below it."""
        trees = {each[1]: mounts.open_tree(mounts.AT_FDCWD, each[1], _COPY) for each in inner if each[0] in _BINDS}
        self._apply(*tmpfs)
        for each in inner:
            if each[1] in trees:
                self._mount_point(each[1], each[3] & IS_DIR)
                self._attach(trees[each[1]], each[1], 0, each[3] & IS_LINK)
            elif each[0] != MAKE_DIR:
                self._apply(*each)
