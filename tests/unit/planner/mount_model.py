"""A model of mounts in plain Python: what would a command see after these operations?"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sbx.model.plan import Op, Operation

MOUNTS = (Op.TMPFS, Op.PROC, Op.DEV, Op.BIND_RO, Op.BIND_RW, Op.MASK, Op.PIN)


class Sandbox:
    """Applies operations in order and refuses an order that a kernel would not survive."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.mounts: dict[str, Operation] = {}
        self.placed: dict[str, Operation] = {}  # skeleton directories and links of the private root
        for each in operations:
            if each.op is Op.MAKE_DIR:
                continue
            below = [path for path in (*self.mounts, *self.placed) if path.startswith(each.path.rstrip("/") + "/")]
            assert not below, f"{each.op} {each.path} comes after {below}"
            assert each.path not in self.mounts, f"{each.path} is mounted twice"
            if each.op in MOUNTS:
                self._check_target(each)
                self.mounts[each.path] = each
            else:
                assert each.path == "/" or self._holder(each.path) in (None, Op.MASK, Op.TMPFS, Op.DEV), each
                self.placed[each.path] = each

    def _check_target(self, operation: Operation) -> None:
        """Inside a bind the mount point must be there; a mask or a pin has no meaning elsewhere."""
        above = self.mount_of(os.path.dirname(operation.path))
        inside_bind = above is not None and above.op in (Op.BIND_RO, Op.BIND_RW, Op.PIN)
        if inside_bind and operation.path != "/":
            assert os.path.lexists(operation.path), operation
        if operation.op in (Op.MASK, Op.PIN):
            assert inside_bind, operation
        if operation.op is Op.PIN:
            assert above is not None and above.op in (Op.BIND_RW, Op.PIN), operation
        if operation.is_link:
            assert inside_bind, operation

    def _holder(self, path: str) -> Op | None:
        found = self.mount_of(os.path.dirname(path))
        return None if found is None else found.op

    def mount_of(self, path: str) -> Operation | None:
        """The mount that `path` lies on; None is the private root itself."""
        while True:
            if path in self.mounts:
                return self.mounts[path]
            if path == "/":
                return None
            path = os.path.dirname(path)

    def exists(self, path: str) -> bool:
        mount = self.mount_of(path)
        if mount is not None and mount.op in (Op.BIND_RO, Op.BIND_RW, Op.PIN):
            return os.path.lexists(path)
        return path in self.placed or path in self.mounts

    def readable(self, path: str) -> bool:
        """May a file be opened for reading, a directory be listed?"""
        mount = self.mount_of(path)
        if mount is None or mount.op not in (Op.BIND_RO, Op.BIND_RW, Op.PIN):
            if path in self.mounts:
                assert mount is not None
                return mount.op is not Op.MASK or (mount.is_dir and mount.listable)
            placed = self.placed.get(path)
            return placed is not None and placed.op is Op.SKELETON and placed.listable
        return os.path.lexists(path)

    def writable(self, path: str) -> bool:
        """May a file be written, may names be made in a directory?"""
        mount = self.mount_of(path)
        return mount is not None and mount.op in (Op.BIND_RW, Op.PIN) and os.path.lexists(path)

    def removable(self, path: str) -> bool:
        return path not in self.mounts and self.writable(os.path.dirname(path))

    def executable(self, path: str) -> bool:
        mount = self.mount_of(path)
        return self.readable(path) and mount is not None and not mount.noexec

    def movable(self) -> list[str]:
        """Directories that could be renamed away although a mount below them protects something."""
        found = []
        for path in self.mounts:
            above = os.path.dirname(path)
            while above not in self.mounts and above != "/":
                if self.writable(above):
                    found.append(above)
                above = os.path.dirname(above)
        return found
