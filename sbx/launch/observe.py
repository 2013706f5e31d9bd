"""What the command tried and the rules deny: pid 1 inside looks at every call that names a file, and remembers.

Nothing is decided here for the kernel: the mounts, Landlock and the filter go on enforcing, and the call goes on as if
nobody had looked. Each distinct (call, flags, base, path) is judged once and then only counted, so an ordinary program
costs one look-up for each call. For a path that the rules deny, pid 1 finds out how the call will end as far as it can
see from inside, with the command's own rights: what is not refused (a folder that is there because something below it
is allowed, a directory that exists already) is no denial. What only the outside knows, whether a hidden file exists at
all, is left to the supervisor and said so: `evidence`.
"""

from __future__ import annotations

import os
import sys

from sbx.model.verdict import allows, reaching, residue, residue_allows, uniform_below

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from sbx.model.verdict import CompiledRules, Judge, Residue

    # The real folder with a slash at its end, and what is left of the read rules for names in it; None: all are allowed
    Entrance: TypeAlias = tuple[bytes, Residue | None]

    # operation, access, location, evidence, follow (of the last name), program, mode (0: not seen, or nothing there)
    Told: TypeAlias = tuple[str, int, bytes, int, bool, bytes, int]

READ, MODIFY, EXEC = 0, 1, 2  # positions in a judge

# How sure it is that the call was refused because of the rules.
SURE = 0
TARGET = 1  # if the location exists outside
PARENT = 2  # if the folder of the location exists outside

ALL_ALLOWED = ((None, True),)  # the residue of rules that say nothing more in a folder
MAX_LINKS = 40
MAX_REMEMBERED = 1 << 16
MAX_RECORDS = 4096
MAX_NEEDS = 1 << 16
MAX_WALK = 20_000
ENOENT, EINVAL = 2, 22
O_PATH, O_TMPFILE = 0o10000000, 0o20000000
NO_FOLLOW, FOLLOW, REMOVE_DIRECTORY = 0x100, 0x400, 0x200
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
S_IFMT, S_IFDIR, S_IFREG, S_IFLNK = 0o170000, 0o040000, 0o100000, 0o120000

LOOKING = frozenset(("stat", "lstat", "access", "readlink", "chdir", "watch", "connect"))
CHANGING = frozenset(("truncate", "chmod", "chown", "utime", "setxattr", "lchown", "lsetxattr"))
MAKING = frozenset(("mkdir", "mknod", "symlink", "bind"))


class Record:
    """One distinct thing that was denied."""

    __slots__ = ("count", "told")

    def __init__(self, told: Told) -> None:
        self.told = told
        self.count = 0


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


class Observer:
    """The judge, and everything that was already found out. `learning`: note what is needed, not what is refused."""

    def __init__(self, judge: Judge, *, learning: bool = False) -> None:
        self.judge = judge
        self.learning = learning
        self.known: dict[tuple[int, int, bytes, bytes], Record | None] = {}
        self.records: dict[tuple[str, int, bytes, int], Record] = {}
        self.left_out = 0  # records beyond the bound
        self.entrances: dict[tuple[bytes, bytes], Entrance] = {}
        self._folders: dict[bytes, bytes] = {}
        self._near: tuple[dict[bytes, CompiledRules], ...] = ({}, {}, {})  # by access
        self._residues: tuple[dict[bytes, Residue], ...] = ({}, {}, {})

    # One call

    def first(self, number: int, operation: str, flags: int, base: bytes, path: bytes, pid: int) -> Record | None:
        """A call about one path that was not seen before. None: nothing to tell."""
        absolute = path if path[:1] == b"/" else base + b"/" + path
        if not path or absolute.startswith((b"/proc/", b"/dev/fd/", b"/dev/std")):
            return None  # private to the run, and /proc/self is another process when this one asks
        if operation == "open" or operation == "creat":
            record, denied = self._open(flags if operation == "open" else 0o1101, absolute, pid)
        elif operation == "unlink":
            record, denied = self._remove("rmdir" if flags & REMOVE_DIRECTORY else "unlink", absolute, pid)
        elif operation == "rmdir":
            record, denied = self._remove("rmdir", absolute, pid)
        elif operation in MAKING:
            record, denied = self._make(operation, absolute, pid)
        elif operation in CHANGING:
            follow = not flags & NO_FOLLOW and operation[0] != "l"
            record, denied = self._change(operation.removeprefix("l"), absolute, follow, pid)
        elif operation == "execute":
            record, denied = self._execute(absolute, pid)
        else:
            record, denied = self._look(operation, flags, absolute, pid)
        if record is not None or not denied:
            # Not where the rules deny and the call failed for another reason: that reason may go away.
            if len(self.known) >= MAX_REMEMBERED:
                self.known.clear()
            self.known[(number, flags, base, path)] = record
        return record

    def forget_links(self) -> None:
        """Names are about to change their meaning."""
        self.known.clear()
        self.entrances.clear()
        self._folders.clear()

    # Where a path leads, inside

    def place(self, path: bytes, follow: bool) -> Place | None:
        """None for a loop of links."""
        for _ in range(MAX_LINKS):
            stripped = path.rstrip(b"/")
            if len(stripped) < len(path):
                follow = True
            if not stripped:
                return Place(b"/", b"", True)
            head, _, name = stripped.rpartition(b"/")
            if name in (b".", b".."):
                there = self._folder(stripped)
                if there is None:
                    return Place(*os.path.split(self._deepest(stripped)), False)
                return Place(*os.path.split(there), True)
            folder = self._folder(head or b"/")
            if folder is None:
                return Place(self._deepest(head), name, False)
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

    def _deepest(self, path: bytes) -> bytes:
        """A directory that is not there, inside: the part that is, really, and the rest as it was written."""
        parts = [part for part in path.split(b"/") if part not in (b"", b".")]
        for count in range(len(parts) - 1, -1, -1):
            real = self._folder(b"/" + b"/".join(parts[:count]))
            if real is not None:
                # What hides behind a link that leads to nothing here is looked up where it leads.
                found = self.place((b"" if real == b"/" else real) + b"/" + parts[count], True)
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
            above = self._reaching(os.path.dirname(folder), access)
            found = reaching(above or (), names_of(folder))
            if len(self._near[access]) >= MAX_REMEMBERED:
                self._near[access].clear()
            self._near[access][folder] = found
        return found

    # What each operation needs. (record, do the rules deny?)

    def _look(self, operation: str, flags: int, path: bytes, pid: int) -> tuple[Record | None, bool]:
        follow = operation not in ("lstat", "readlink") and not (operation == "stat" and flags & NO_FOLLOW)
        place = self.place(path, follow)
        if place is None:
            return None, False
        # Connecting is writing: a socket that may only be read is masked.
        access = MODIFY if operation == "connect" or (operation == "access" and flags & 2) else READ
        if operation == "access" and access == READ and flags & 1 and place.mode() & S_IFMT != S_IFDIR:
            access = EXEC
        if self.allowed(place, access):
            return None, False
        if self.learning:
            if operation == "connect":
                return self._needed("connect", MODIFY, place, follow, pid), True
            # That something may be executed is needed by who does it, not by who asks.
            wanted = not self.allowed(place, READ)
            record = self._needed("stat", READ, place, follow, pid) if wanted else None
            if access == MODIFY and os.access(place.path, os.W_OK):
                record = self._needed("access", MODIFY, place, follow, pid)
            return record, True
        if _works(operation, flags, place, follow):
            return None, True
        sure = access != READ and self.allowed(place, READ) and place.mode() != 0
        word = "stat" if operation == "lstat" else operation
        return self._note(word, access, place, SURE if sure else TARGET, follow, pid), True

    def _open(self, flags: int, path: bytes, pid: int) -> tuple[Record | None, bool]:
        creates = bool(flags & os.O_CREAT) and not flags & (O_PATH | O_TMPFILE)
        follow = not flags & os.O_NOFOLLOW and not (creates and flags & os.O_EXCL)
        place = self.place(path, follow)
        if place is None:
            return None, False
        writes = bool(flags & 3 or flags & os.O_TRUNC or flags & O_TMPFILE) and not flags & O_PATH
        mode = 0
        if creates:
            # Rules that allow the one allow the other; only for a denied name does it matter whether it is there.
            if self.allowed(place, MODIFY):
                return None, False
            mode = place.mode()
            if not mode:
                return self._missing("create", place, follow, pid), True
            if flags & os.O_EXCL:
                return None, True
        if writes:
            if self.allowed(place, MODIFY):
                return None, False
            return self._existing("create" if flags & O_TMPFILE else "write", place, follow, pid), True
        if self.allowed(place, READ):
            return None, bool(mode)
        word = "list" if flags & os.O_DIRECTORY else "stat" if flags & O_PATH else "read"
        if self.learning:
            return self._needed(word, READ, place, follow, pid), True
        if _opens(place, flags, follow):
            return None, True
        return self._note(word, READ, place, TARGET, follow, pid), True

    def _execute(self, path: bytes, pid: int) -> tuple[Record | None, bool]:
        place = self.place(path, True)
        if place is None or self.allowed(place, EXEC):
            return None, False
        if self.learning:
            return self._needed("execute", EXEC, place, True, pid), True
        mode = place.mode() if self.allowed(place, READ) else 0
        if mode and not (mode & S_IFMT == S_IFREG and mode & 0o111):
            return None, True  # EACCES, whatever the rules say
        return self._note("execute", EXEC, place, SURE if mode else TARGET, True, pid), True

    def _change(self, word: str, path: bytes, follow: bool, pid: int) -> tuple[Record | None, bool]:
        place = self.place(path, follow)
        if place is None or self.allowed(place, MODIFY):
            return None, False
        return self._existing(word, place, follow, pid), True

    def _remove(self, word: str, path: bytes, pid: int) -> tuple[Record | None, bool]:
        place = self.place(path, False)
        if place is None:
            return None, False
        mode = place.mode()
        if mode & S_IFMT == S_IFLNK:
            self.forget_links()
        if self.allowed(place, MODIFY):
            return None, mode & S_IFMT == S_IFLNK
        if mode and (mode & S_IFMT == S_IFDIR) != (word == "rmdir"):
            return None, True  # EISDIR, ENOTDIR
        return self._existing(word, place, False, pid), True

    def _make(self, word: str, path: bytes, pid: int) -> tuple[Record | None, bool]:
        if word == "symlink":
            self.forget_links()
        place = self.place(path.rstrip(b"/") if word == "mkdir" else path, False)
        if place is None or self.allowed(place, MODIFY):
            return None, word == "symlink"
        if place.mode():
            return None, True  # EEXIST, whatever the rules say
        return self._missing(word, place, False, pid), True

    def link(self, old: bytes, new: bytes, flags: int, pid: int) -> list[Record]:
        source, target = self.place(old, bool(flags & FOLLOW)), self.place(new, False)
        if source is None or target is None or old.startswith(b"/proc/"):
            found = [] if target is None else [self._make("link", new, pid)[0]]
            return [record for record in found if record is not None]
        if source.mode() & S_IFMT == S_IFLNK:
            self.forget_links()
        return self._two("link", source, target, pid, replaces=False)

    def rename(self, old: bytes, new: bytes, flags: int, pid: int) -> list[Record]:
        source, target = self.place(old.rstrip(b"/"), False), self.place(new.rstrip(b"/"), False)
        if source is None or target is None:
            return []
        kinds = (source.mode() & S_IFMT, target.mode() & S_IFMT)
        if S_IFLNK in kinds or S_IFDIR in kinds:
            self.forget_links()
        found = self._two("rename", source, target, pid, replaces=not flags & RENAME_NOREPLACE)
        if not found and kinds[0] == S_IFDIR:
            found = self._tree(source, target, pid)
        if not found and flags & RENAME_EXCHANGE and kinds[1] == S_IFDIR:
            found = self._tree(target, source, pid)
        return found

    def _two(self, word: str, source: Place, target: Place, pid: int, *, replaces: bool) -> list[Record]:
        found: list[Record | None] = []
        there = source.mode()
        if not self.allowed(source, MODIFY):
            found.append(self._existing(word, source, False, pid))
        elif not there:
            return []  # ENOENT
        if not self.allowed(target, MODIFY):
            if not target.mode():
                found.append(self._missing(word, target, False, pid))
            elif replaces:
                found.append(self._existing(word, target, False, pid))
        return [record for record in found if record is not None]

    def _tree(self, source: Place, target: Place, pid: int) -> list[Record]:
        """A directory takes along what is below it: the first name there that may not leave, or may not arrive."""
        waiting = [(source.path, target.path)]
        looked = 0
        while waiting:
            old, new = waiting.pop()
            if self._uniform(old) and self._uniform(new):
                continue
            try:
                with os.scandir(old) as entries:
                    inside = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
            except OSError:
                continue
            for name, is_dir in inside:
                looked += 1
                if looked > MAX_WALK:
                    return []
                for folder in (old, new):
                    place = Place(folder, name, True)
                    if not self.allowed(place, MODIFY):
                        record = self._note("rename", MODIFY, place, SURE, False, pid)
                        return [] if record is None else [record]
                if is_dir:
                    waiting.append((old + b"/" + name, new + b"/" + name))
        return []

    def _uniform(self, folder: bytes) -> bool:
        names = names_of(folder)
        return uniform_below(self.judge[1], names) is True and uniform_below(self.judge[0], names) is True

    # Noting

    def _needed(self, word: str, access: int, place: Place, follow: bool, pid: int) -> Record | None:
        """What is not there may be what is denied in every profile: the outside knows."""
        return self._note(word, access, place, SURE if place.mode() else TARGET, follow, pid)

    def _existing(self, word: str, place: Place, follow: bool, pid: int) -> Record | None:
        """A denied change of something that has to be there."""
        there = place.mode()
        if self.learning:
            return self._needed(word, MODIFY, place, follow, pid)
        if self.allowed(place, READ):  # then what is seen inside is what there is
            if not there or (there & S_IFMT == S_IFDIR and word in ("write", "truncate")):
                return None  # ENOENT, EISDIR
            return self._note(word, MODIFY, place, SURE, follow, pid)
        return self._note(word, MODIFY, place, TARGET, follow, pid)

    def _missing(self, word: str, place: Place, follow: bool, pid: int) -> Record | None:
        """A denied new name."""
        if self.learning and not place.seen:
            return None
        return self._note(word, MODIFY, place, SURE if place.seen else PARENT, follow, pid)

    def _note(self, word: str, access: int, place: Place, evidence: int, follow: bool, pid: int) -> Record | None:
        path = place.path
        key = (word, access, path, evidence)  # what is not sure must not stand for what is
        record = self.records.get(key)
        if record is None:
            if len(self.records) >= (MAX_NEEDS if self.learning else MAX_RECORDS):
                self.left_out += 1
                return None
            # What it was then: when the run is over, the name may be something else's.
            mode = place.mode() if evidence == SURE else 0
            record = Record((word, access, path, evidence, follow, _program(pid), mode))
            self.records[key] = record
        return record


def _program(pid: int) -> bytes:
    try:
        descriptor = os.open(b"/proc/%d/comm" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 64).strip()
    finally:
        os.close(descriptor)


def _works(operation: str, flags: int, place: Place, follow: bool) -> bool:
    """Would the kernel grant this look? The command's rights are ours."""
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


def _opens(place: Place, flags: int, follow: bool) -> bool:
    kept = flags & (os.O_DIRECTORY | O_PATH) | (0 if follow else os.O_NOFOLLOW)
    try:
        os.close(os.open(place.path, kept | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno in (20, 40)  # ENOTDIR, ELOOP: not because of the rules
    return True
