"""The stored plans: found by a key, valid only while everything they were made from is unchanged.

The store is private to the user and treated as code: an entry that is not ours, or that somebody else could write,
does not exist. Deleting it at any time only costs time.
"""

from __future__ import annotations

import _imp
import marshal
import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond
from sbx.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeAlias

    Environ: TypeAlias = dict[bytes, bytes]
    Dependency: TypeAlias = tuple[Any, ...]

FORMAT = 3

# Kinds of dependencies
FILE, ABSENT, DIRECTORY, VARIABLE, LEADS_TO, MACHINE = 1, 2, 3, 4, 5, 6

# Variables that decide where policies are looked for and what rules mean.
KEY_VARIABLES = (b"HOME", b"XDG_CONFIG_HOME", b"XDG_CACHE_HOME", b"XDG_STATE_HOME", b"XDG_DATA_HOME",
                 b"SBX_TRUST_WORKSPACE", b"VIRTUAL_ENV", b"PWD")  # fmt: skip

# Options that change nothing of the plan. The values of --env must never be stored.
NOT_IN_KEY = ("env", "env-all", "json", "report", "no-audit", "no-tty", "verbose")


NOTHING: tuple[None, tuple[()]] = (None, ())
CHECKSUM = 0x5B79  # a key of the hash, not a secret


def make_key(options: dict[str, Any], cwd: bytes, environ: Environ) -> bytes:
    """Everything that selects a plan, as bytes."""
    chosen = sorted((name, value) for name, value in options.items() if name not in NOT_IN_KEY)
    variables = tuple(environ.get(name) for name in KEY_VARIABLES)
    # Not sys.prefix or __file__: both change when the compile side calls site.main().
    python = (sys.executable, sys.implementation.cache_tag)
    identity = (os.geteuid(), os.getegid(), os.uname().release, python, VERSION)
    # Version 2: later ones write references, which depend on who else holds an object, not on its value alone.
    return marshal.dumps((FORMAT, identity, cwd, tuple(chosen), variables), 2)


def directory(environ: Environ) -> bytes | None:
    base = environ.get(b"XDG_CACHE_HOME") or b""
    if not base.startswith(b"/"):
        home = environ.get(b"HOME") or b""
        if not home.startswith(b"/"):
            return None
        base = home + b"/.cache"
    return base + b"/sbx/plans"


def file_name(key: bytes) -> bytes:
    return _imp.source_hash(0x5B78, key).hex().encode()


def load(key: bytes, environ: Environ) -> dict[str, Any] | None:
    """The entry for this key if there is one that may be used."""
    entry, dependencies = find(key, environ)
    return entry if entry is not None and unchanged(dependencies, environ) else None


def find(key: bytes, environ: Environ) -> tuple[dict[str, Any] | None, tuple[Dependency, ...]]:
    """The entry for this key, and what has to be `unchanged` before it may be used."""
    folder = directory(environ)
    if folder is None:
        return NOTHING
    try:
        above = os.lstat(folder)
        if above.st_uid != os.geteuid() or above.st_mode & 0o170077 != 0o040000:
            return NOTHING
        descriptor = os.open(folder + b"/" + file_name(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return NOTHING
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.geteuid() or found.st_mode & 0o170022 != 0o100000:
            return NOTHING
        data = os.read(descriptor, found.st_size + 1)
        if len(data) != found.st_size:
            return NOTHING
        # Damaged bytes must not reach marshal, which trusts what it reads.
        content = memoryview(data)[8:]  # the compile side's modules are too many to be copied twice
        if data[:8] != _imp.source_hash(CHECKSUM, content):
            return NOTHING
        stored_key, dependencies, entry = marshal.loads(content)
    except (OSError, ValueError, EOFError, TypeError):
        return NOTHING
    finally:
        os.close(descriptor)
    return (entry, dependencies) if stored_key == key else NOTHING


def unchanged(dependencies: tuple[Dependency, ...], environ: Environ) -> bool:
    """A few stats: is everything the plan was made from as it was?"""
    stat, lstat = os.stat, os.lstat
    for dependency in dependencies:
        kind, name = dependency[0], dependency[1]
        if kind == VARIABLE:
            if environ.get(name) != dependency[2]:
                return False
            continue
        if kind == MACHINE:  # of a plan that does without something: what was missing may be there now
            from sbx.kernel.machine import machine_key

            if machine_key() != name:
                return False
            continue
        try:
            if kind == DIRECTORY:
                now = lstat(name)
                if (now.st_ctime_ns, now.st_ino, now.st_dev) != dependency[2]:  # a command can set the mtime
                    return False
            else:
                now = stat(name) if kind != ABSENT else lstat(name)
                if kind == ABSENT:
                    return False
                if kind == LEADS_TO:
                    if (now.st_dev, now.st_ino) != dependency[2]:
                        return False
                elif (now.st_mtime_ns, now.st_ino, now.st_dev, now.st_size, now.st_ctime_ns) != dependency[2]:
                    return False
        except OSError:
            if kind != ABSENT:
                return False
    return True


def save(key: bytes, dependencies: tuple[Dependency, ...], entry: dict[str, Any], environ: Environ) -> bool:
    """Keep the entry; False where it cannot be kept, which only costs time."""
    folder = directory(environ)
    if folder is None:
        return False
    from sbx.kernel.own_folder import make_own_folder  # rarely needed

    try:
        make_own_folder(folder)
        above = os.lstat(folder)
        if above.st_uid != os.geteuid() or above.st_mode & 0o170077 != 0o040000:
            return False
        final = folder + b"/" + file_name(key)
        draft = final + b".%d" % os.getpid()
        data = marshal.dumps((key, dependencies, entry))
        write_whole(draft, _imp.source_hash(CHECKSUM, data) + data)
        os.rename(draft, final)
    except (OSError, ValueError):
        return False
    return True


def write_whole(path: bytes | str, data: bytes) -> None:
    """A new file, private, with all of it; on a full disk there is no file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, data) != len(data):
            raise OSError(28, "the disk is full", path)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


def forget(key: bytes, environ: Environ) -> None:
    folder = directory(environ)
    if folder is not None:
        try:
            os.unlink(folder + b"/" + file_name(key))
        except OSError:
            pass
