"""Reading directories for the planner: each at most once per plan, unchanged ones from a cache.

The cache holds names and kinds per directory, keyed by path, device, inode and ctime: a command can set an mtime. It
only saves time: deleting it, or finding it damaged or not ours, means reading the directories again.
"""

from __future__ import annotations

import marshal
import os
import stat
import sys
import time

from sbx.kernel.own_folder import make_own_folder
from sbx.model.plan import DirectoryStamp
from sbx.policy.digest import sha256_hex
from sbx.policy.folders import cache_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Kinds of entries, one character each, so that a directory's kinds are one string.
DIRECTORY, FILE, LINK, SOCKET, FIFO, DEVICE = "d", "f", "l", "s", "p", "v"

RACY_NS = 20_000_000  # a ctime this young can hide a second change: file systems stamp with the timer tick
CACHE_TAG = "sbx directories 2"


class Entries:
    """Names and kinds of a directory, sorted by name. As they are stored: most are never looked at one by one."""

    __slots__ = ("joined", "kinds")

    def __init__(self, joined: str, kinds: str) -> None:
        self.joined = joined  # names by "/"
        self.kinds = kinds

    @property
    def names(self) -> list[str]:
        return self.joined.split("/") if self.kinds else []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return zip(self.names, self.kinds, strict=True)

    def __len__(self) -> int:
        return len(self.kinds)


Cached = tuple[int, int, int, str, str]  # dev, ino, ctime_ns, names joined by "/", kinds


class DirectoryReader:
    """Lists directories and looks up names; remembers what the plan depended on."""

    def __init__(self, cache_file: str | None = None) -> None:
        self._cache_file = cache_file
        self._cache: dict[str, Cached] = {} if cache_file is None else _load(cache_file)
        self._used: dict[str, Cached] = {}
        self._answers: dict[str, Entries | None] = {}
        self._virtual: dict[str, set[str]] = {}
        self._changed = False
        self.stamps: dict[str, DirectoryStamp] = {}
        self.missing: set[str] = set()
        self.listed: list[str] = []  # the directories that really were read

    def kind(self, path: str) -> str | None:
        """What stands at `path`, without following a symlink; None when nothing reachable does."""
        if path in self._virtual:
            return DIRECTORY
        try:
            return kind_of(os.lstat(path).st_mode)
        except (OSError, ValueError):
            self.missing.add(path)
            return None

    def imagine(self, directory: str, names: tuple[str, ...]) -> None:
        """Treat the missing `directory` as if it held just these directories: it will be made before the launch."""
        self._virtual.setdefault(directory, set()).update(names)

    def entries(self, path: str) -> Entries | None:
        """Names and kinds in `path`, sorted; None when it cannot be listed. The same answer throughout one plan."""
        if path in self._virtual:
            names = sorted(self._virtual[path])
            return Entries("/".join(names), DIRECTORY * len(names))
        if path not in self._answers:
            self._answers[path] = self._entries(path)
        return self._answers[path]

    def _entries(self, path: str) -> Entries | None:
        try:
            before = os.lstat(path)
        except (OSError, ValueError):
            self.missing.add(path)
            return None
        if not stat.S_ISDIR(before.st_mode):
            return None
        key = (before.st_dev, before.st_ino, before.st_ctime_ns)
        cached = self._cache.get(path)
        if cached is None or cached[:3] != key:
            cached = self._read(path, key)
            if cached is None:
                # Its owner may open it up without changing its names; somebody else's stays closed until it changes.
                self.stamps[path] = DirectoryStamp(path, key[0], key[1], -1 if _is_ours(before) else key[2])
                return None
        else:
            self._used[path] = cached
            self.stamps[path] = DirectoryStamp(path, *key)
        return Entries(cached[3], cached[4])

    def _read(self, path: str, key: tuple[int, int, int]) -> Cached | None:
        self.listed.append(path)
        started_ns = time.time_ns()
        try:
            with os.scandir(path) as entries:
                found = [(entry.name, _entry_kind(entry)) for entry in entries]
            after = os.lstat(path)
        except OSError:
            return None
        found.sort()
        cached = (*key, "/".join(name for name, _ in found), "".join(kind for _, kind in found))
        trusted = started_ns - key[2] > RACY_NS and (after.st_dev, after.st_ino, after.st_ctime_ns) == key
        if trusted:
            self._used[path] = cached
            self._changed = True
        self.stamps[path] = DirectoryStamp(path, key[0], key[1], key[2] if trusted else -1)
        return cached

    def save(self) -> None:
        """Store what this plan read. A cache that cannot be written is no reason to fail."""
        if self._cache_file is not None and (self._changed or len(self._used) != len(self._cache)):
            try:
                _store(self._cache_file, self._used)
            except OSError:
                return
            self._changed = False


def kind_of(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return DIRECTORY
    if stat.S_ISREG(mode):
        return FILE
    if stat.S_ISLNK(mode):
        return LINK
    if stat.S_ISSOCK(mode):
        return SOCKET
    return FIFO if stat.S_ISFIFO(mode) else DEVICE


def _entry_kind(entry: os.DirEntry[str]) -> str:
    if entry.is_file(follow_symlinks=False):  # most are
        return FILE
    if entry.is_dir(follow_symlinks=False):
        return DIRECTORY
    if entry.is_symlink():
        return LINK
    try:
        return kind_of(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return DEVICE  # it has vanished: whatever is decided for it is skipped at launch


def default_cache_file(environ: Mapping[str, str], workspace: str) -> str:
    """One file per workspace in the user's cache folder."""
    digest = sha256_hex(os.fsencode(workspace))[:32]
    return os.path.join(cache_folder(environ), "directories", digest)


def _load(path: str) -> dict[str, Cached]:
    """What is stored, if it is ours and nobody else could have written it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return {}
    with os.fdopen(descriptor, "rb") as file:
        if not _is_private(os.fstat(descriptor), stat.S_IFREG) or not _is_private(
            os.lstat(os.path.dirname(path)), stat.S_IFDIR
        ):
            return {}
        try:
            stored = marshal.loads(file.read())
        except (EOFError, ValueError, TypeError, OSError):
            return {}
    if not isinstance(stored, tuple) or len(stored) != 2 or stored[0] != CACHE_TAG or not isinstance(stored[1], dict):
        return {}
    return stored[1]


def _is_private(found: os.stat_result, kind: int) -> bool:
    return stat.S_IFMT(found.st_mode) == kind and _is_ours(found) and not found.st_mode & 0o077


def _is_ours(found: os.stat_result) -> bool:
    """Never on Windows, which has no such owners: nothing is cached there."""
    return sys.platform != "win32" and found.st_uid == os.geteuid()


def _store(path: str, entries: dict[str, Cached]) -> None:
    directory = os.path.dirname(path)
    make_own_folder(directory)
    if not _is_private(os.lstat(directory), stat.S_IFDIR):
        return
    temporary = f"{path}.{os.getpid()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        descriptor = os.open(temporary, flags, 0o600)
    except FileExistsError:  # left by a killed process whose id came around again
        os.unlink(temporary)
        descriptor = os.open(temporary, flags, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(marshal.dumps((CACHE_TAG, entries)))
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
