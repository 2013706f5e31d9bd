"""What the command tried and the rules deny: pid 1 inside looks at every call that names a file, and remembers.

Nothing is decided here for the kernel: the mounts, Landlock and the filter go on enforcing, and the call goes on as if
nobody had looked. Each distinct (call, flags, base, path) is judged once and then only counted, so an ordinary program
costs one look-up for each call. For a path that the rules deny, pid 1 finds out how the call will end as far as it can
see from inside, with the command's own rights: what is not refused (a folder that is there because something below it
is allowed, a directory that exists already) is no denial. What only the outside knows, whether a hidden file exists at
all, is left to the supervisor and said so: `evidence`.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.launch.seen import (
    EXEC,
    MAX_REMEMBERED,
    MODIFY,
    O_PATH,
    READ,
    S_IFDIR,
    S_IFMT,
    Paths,
    Place,
    names_of,
    opens,
    works,
)
from sbx.model.verdict import uniform_below

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from sbx.model.verdict import Judge

    Call: TypeAlias = tuple[int, int, bytes, bytes]  # number, flags, base, path

    # operation, access, location, evidence, follow (of the last name), program, mode (0: not seen, or nothing there)
    Told: TypeAlias = tuple[str, int, bytes, int, bool, bytes, int]

# How sure it is that the call was refused because of the rules.
SURE = 0
TARGET = 1  # if the location exists outside
PARENT = 2  # if the folder of the location exists outside

MAX_RECORDS = 4096
MAX_NEEDS = 1 << 16
MAX_WALK = 20_000
O_TMPFILE = 0o20000000
NO_FOLLOW, FOLLOW, REMOVE_DIRECTORY = 0x100, 0x400, 0x200
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
S_IFREG, S_IFLNK = 0o100000, 0o120000

CHANGING = frozenset(("truncate", "chmod", "chown", "utime", "setxattr", "lchown", "lsetxattr"))
MAKING = frozenset(("mkdir", "mknod", "symlink", "bind"))


class Record:
    """One distinct thing that was denied."""

    __slots__ = ("count", "told")

    def __init__(self, told: Told) -> None:
        self.told = told
        self.count = 0


class Observer(Paths):
    """The judge, and everything that was already found out. `learning`: note what is needed, not what is refused."""

    def __init__(self, judge: Judge, *, learning: bool = False) -> None:
        super().__init__(judge)
        self.learning = learning
        self.known: dict[Call, Record | None] = {}
        self.records: dict[tuple[str, int, bytes, int], Record] = {}
        self.left_out = 0  # records beyond the bound
        self.changing: set[int] = set()  # threads that were about to change what names mean

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
            self.remember((number, flags, base, path), record)
        return record

    def remember(self, call: Call, record: Record | None) -> None:
        """The next time it is only counted."""
        if len(self.known) >= MAX_REMEMBERED:
            self.known.clear()
        self.known[call] = record

    def links_change(self, pid: int) -> None:
        """This call will change what names mean. It happens after it was seen, and others may ask before: so when its
        thread makes the next call, everything is forgotten once more."""
        self.changing.add(pid)
        self.forget_links()

    def forget_links(self) -> None:
        self.known.clear()
        super().forget_links()

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
        if works(operation, flags, place, follow):
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
        if opens(place, flags, follow):
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
            self.links_change(pid)
        if self.allowed(place, MODIFY):
            return None, mode & S_IFMT == S_IFLNK
        if mode and (mode & S_IFMT == S_IFDIR) != (word == "rmdir"):
            return None, True  # EISDIR, ENOTDIR
        return self._existing(word, place, False, pid), True

    def _make(self, word: str, path: bytes, pid: int) -> tuple[Record | None, bool]:
        if word == "symlink":
            self.links_change(pid)
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
            self.links_change(pid)
        return self._two("link", source, target, pid, replaces=False)

    def rename(self, old: bytes, new: bytes, flags: int, pid: int) -> list[Record]:
        source, target = self.place(old.rstrip(b"/"), False), self.place(new.rstrip(b"/"), False)
        if source is None or target is None:
            return []
        kinds = (source.mode() & S_IFMT, target.mode() & S_IFMT)
        if S_IFLNK in kinds or S_IFDIR in kinds:
            self.links_change(pid)
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
