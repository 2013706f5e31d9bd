"""Where a path leads, seen from inside, and what the rules say of it: for `observe`.

With the command's own rights: same user, mounts and Landlock domain. What is hidden from the command is hidden here.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.model.verdict import allows, reaching, residue, residue_allows

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from sbx.model.verdict import CompiledRules, Judge, Residue

    # The real folder with a slash at its end, and what is left of the read rules for names in it; None: all are allowed
    Entrance: TypeAlias = tuple[bytes, Residue | None]

READ, MODIFY, EXEC = 0, 1, 2  # positions in a judge
ALL_ALLOWED = ((None, True),)  # the residue of rules that say nothing more in a folder
MAX_LINKS = 40
MAX_REMEMBERED = 1 << 16
EINVAL = 22
O_PATH = 0o10000000
S_IFMT, S_IFDIR = 0o170000, 0o040000


class Place:
    """Where a path leads: the real folder as far as it can be seen from inside, and the last name."""

    __slots__ = ("folder", "name", "seen")

    def __init__(self, folder: bytes, name: bytes, seen: bool) -> None:
        self.folder = folder
        self.name = name
        self.seen = seen  # is the folder there, inside?

    @property
    def path(self) -> bytes:
        if not self.name:
            return self.folder
        return (b"" if self.folder == b"/" else self.folder) + b"/" + self.name

    def mode(self) -> int:
        """The mode of what is there, inside; 0 for nothing."""
        try:
            return os.lstat(self.path).st_mode
        except OSError:
            return 0


def names_of(path: bytes) -> tuple[str, ...]:
    return tuple(part for part in os.fsdecode(path).split("/") if part)


def split(path: bytes) -> tuple[bytes, bytes]:
    """The folder of an absolute path, and the name in it."""
    head, _, name = path.rpartition(b"/")
    return head or b"/", name


class Paths:
    """What was found out about folders is remembered until a link is made, moved or removed."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.entrances: dict[tuple[bytes, bytes], Entrance] = {}
        self._folders: dict[bytes, bytes] = {}
        self._near: tuple[dict[bytes, CompiledRules], ...] = ({}, {}, {})  # by access
        self._residues: tuple[dict[bytes, Residue], ...] = ({}, {}, {})

    def forget_links(self) -> None:
        """Names are about to change their meaning."""
        self.entrances.clear()
        self._folders.clear()

    # Where a path leads, inside

    def place(self, path: bytes, follow: bool, links: int = MAX_LINKS) -> Place | None:
        """None for a loop of links, or more of them than `links`."""
        for left in range(links, 0, -1):
            stripped = path.rstrip(b"/")
            if len(stripped) < len(path):
                follow = True
            if not stripped:
                return Place(b"/", b"", True)
            head, _, name = stripped.rpartition(b"/")
            if name in (b".", b".."):
                there = self._folder(stripped)
                if there is None:
                    return Place(*split(self._deepest(stripped, left)), False)
                return Place(*split(there), True)
            folder = self._folder(head or b"/")
            if folder is None:
                return Place(self._deepest(head, left), name, False)
            found = Place(folder, name, True)
            if not follow:
                return found
            try:
                target = os.readlink(found.path)
            except OSError:
                return found  # no link, or nothing there
            path = target if target[:1] == b"/" else folder + b"/" + target
        return None

    def _folder(self, path: bytes) -> bytes | None:
        """The real location of a directory."""
        real = self._folders.get(path)
        if real is not None:
            return real
        try:
            descriptor = os.open(path, O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            real = os.readlink(b"/proc/self/fd/%d" % descriptor)
        finally:
            os.close(descriptor)
        if len(self._folders) >= MAX_REMEMBERED:
            self._folders.clear()
        self._folders[path] = real
        return real

    def _deepest(self, path: bytes, links: int) -> bytes:
        """A directory that is not there, inside: the part that is, really, and the rest as it was written."""
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        for count in range(len(parts) - 1, -1, -1):
            real = self._folder(b"/" + b"/".join(parts[:count]))
            if real is not None:
                # What hides behind a link that leads to nothing here is looked up where it leads.
                found = self.place((b"" if real == b"/" else real) + b"/" + parts[count], True, links - 1)
                start = found.path if found is not None else real + b"/" + parts[count]
                return b"/".join((start, *parts[count + 1 :]))
        return path

    # Asking the rules

    def allowed(self, place: Place, access: int) -> bool:
        if not place.name or place.name == b"..":
            names = names_of(place.path)
            lists = (READ,) if access == READ else (READ, access)
            return all(rules is None or allows(rules, names) for rules in (self.judge[each] for each in lists))
        name = os.fsdecode(place.name)
        for each in (READ,) if access == READ else (READ, access):
            left = self._left(place.folder, each)
            if left is not None and not residue_allows(left, name):
                return False
        return True

    def entrance(self, base: bytes, head: bytes) -> Entrance | None:
        """For looks at many names of one folder. None where each has to be looked at by itself."""
        path = base + b"/" + head
        if path.startswith((b"//proc", b"/proc", b"//dev", b"/dev")):
            return None
        real = self._folder(path)
        if real is None:
            return None
        left = self._left(real, READ)
        if len(self.entrances) >= MAX_REMEMBERED:
            self.entrances.clear()
        found = (real if real == b"/" else real + b"/", None if left == ALL_ALLOWED else left)
        self.entrances[(base, head)] = found
        return found

    def _left(self, folder: bytes, access: int) -> Residue | None:
        """What a list of rules says of names in a folder. None: there is no such list, so all are allowed."""
        found = self._residues[access].get(folder)
        if found is None:
            rules = self._reaching(folder, access)
            if rules is None:
                return None
            if len(self._residues[access]) >= MAX_REMEMBERED:
                self._residues[access].clear()
            found = self._residues[access][folder] = residue(rules, names_of(folder))
        return found

    def _reaching(self, folder: bytes, access: int) -> CompiledRules | None:
        """Of a few hundred rules, those that matter in there: found by way of the folders above."""
        if folder == b"/" or self.judge[access] is None:
            return self.judge[access]
        found = self._near[access].get(folder)
        if found is None:
            above = self._reaching(split(folder)[0], access)
            found = reaching(above or (), names_of(folder))
            if len(self._near[access]) >= MAX_REMEMBERED:
                self._near[access].clear()
            self._near[access][folder] = found
        return found


# Would the kernel grant it? The command's rights are ours.


def works(operation: str, flags: int, place: Place, follow: bool) -> bool:
    """A look."""
    try:
        if operation == "access":
            return os.access(place.path, flags)
        if operation == "readlink":
            os.readlink(place.path)
            return True
        found = os.stat(place.path, follow_symlinks=follow)
        if operation == "chdir":
            return found.st_mode & S_IFMT != S_IFDIR or os.access(place.path, os.X_OK)
        return operation != "connect" or found.st_mode & S_IFMT == 0o140000
    except OSError as error:
        return operation == "readlink" and error.errno == EINVAL


def opens(place: Place, flags: int, follow: bool) -> bool:
    kept = flags & (os.O_DIRECTORY | O_PATH) | (0 if follow else os.O_NOFOLLOW)
    try:
        os.close(os.open(place.path, kept | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (20, 40)  # ENOTDIR, ELOOP: not because of the rules
    return True
