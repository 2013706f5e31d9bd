"""Is there a cgroup v2 folder in which sbx may make its own, so that limits count for the whole tree?"""

# ruff: noqa: E402 - the type checker has to meet the platform first

from __future__ import annotations

import sys

assert sys.platform == "linux"

import errno
import os

from sbx.backends.capabilities import Reason
from sbx.model.records import dataclass

WANTED = ("memory", "pids")


@dataclass(frozen=True)
class Cgroup:
    path: str = ""
    mechanism: str = ""
    controllers: tuple[str, ...] = ()
    reason: Reason | None = None


NO_SYSTEMD = "no systemd of the user's is running"


def probe_cgroup() -> Cgroup:
    """The nearest folder, from this process's own upwards, in which a new folder gets the controllers.

    Its own folder usually cannot serve (a folder with processes in it cannot hand controllers down), its parent can
    where systemd or a container runtime delegated it. `SBX_CGROUP` names a delegated folder.
    """
    mount, own = mount_point(), own_path()
    if mount is None or own is None:
        reason = "cgroup v2 is not mounted, or its controllers are in use by v1"
        return Cgroup(reason=_reason("", reason, "boot with systemd.unified_cgroup_hierarchy=1"))
    refused = 0
    for folder in _candidates(mount, own):
        controllers, number = _try_folder(folder)
        if all(name in controllers for name in WANTED):
            return Cgroup(folder, "direct", controllers)
        refused = refused or number
    asked = _ask_systemd()
    if not asked:
        return Cgroup("", "systemd", WANTED)
    name = errno.errorcode.get(refused, "")
    if refused in (errno.EACCES, errno.EPERM, errno.EROFS):
        words = f"{mount}{own} is not delegated to this user"
    else:
        words = f"no folder at or above {mount}{own} hands down the {' and '.join(WANTED)} controllers"
    words += "; " + asked
    remedy = "run under `systemd-run --user --scope -p Delegate=yes`, or in a container with a writable cgroup"
    if asked == NO_SYSTEMD:
        remedy = "log in where systemd starts a manager for each user, or use a container with a writable cgroup"
    return Cgroup(reason=_reason(name, words, remedy))


def _reason(name: str, words: str, remedy: str) -> Reason:
    return Reason("cgroup", name, words + "; limits fall back to rlimits and sampling", remedy)


def mount_point() -> str | None:
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                before, _, after = line.partition(" - ")
                if after.startswith("cgroup2 "):
                    return before.split()[4].replace("\\040", " ")
    except OSError:
        pass
    return None


def own_path() -> str | None:
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            path = next((line.rstrip("\n")[3:] for line in file if line.startswith("0::")), None)
    except OSError:
        return None
    if path is None or path.startswith("/.."):
        return None  # outside of this cgroup namespace
    return "" if path == "/" else path


def _candidates(mount: str, own: str) -> list[str]:
    named = os.environ.get("SBX_CGROUP", "")
    folders = [named] if named.startswith(mount + "/") else []
    path = own
    while True:
        folders.append(mount + path)
        if not path:
            return folders
        path = path.rpartition("/")[0]


def _try_folder(folder: str) -> tuple[tuple[str, ...], int]:
    """The controllers a new folder there has, after a process was moved into it; or the errno."""
    # Asked first because making a folder costs a millisecond, and because most candidates fail here.
    if not os.access(folder, os.W_OK) or not os.access(folder + "/cgroup.procs", os.W_OK):
        return (), errno.EACCES
    new = f"{folder}/sbx-probe-{os.getpid()}"
    try:
        with open(folder + "/cgroup.subtree_control", encoding="ascii") as file:
            handed_down = file.read().split()
        if not all(name in handed_down for name in WANTED):
            return (), 0
        os.mkdir(new, 0o755)
    except OSError as error:
        return (), error.errno or errno.EIO
    try:
        return _move_into(new)
    finally:
        os.rmdir(new)


def _move_into(new: str) -> tuple[tuple[str, ...], int]:
    child = os.fork()
    if not child:
        number = errno.EIO
        try:
            with open(new + "/cgroup.procs", "w", encoding="ascii") as file:
                file.write("0")
            number = 0
        except OSError as error:
            number = error.errno or errno.EIO
        finally:
            os._exit(number)
    _, status = os.waitpid(child, 0)
    number = os.waitstatus_to_exitcode(status)
    if number:
        return (), abs(number)
    with open(new + "/cgroup.controllers", encoding="ascii") as file:
        return tuple(file.read().split()), 0


def _ask_systemd() -> str:
    """Does the user's service manager hand out a scope? Tried by a child, and gone with it. Empty, or why not."""
    from sbx.backends.user_systemd import NoScope, enter_scope, private_socket

    if not os.path.exists(private_socket()):
        return NO_SYSTEMD
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        words = "the user's systemd gives no cgroup"
        try:
            os.close(reading)
            enter_scope(WANTED)
            words = ""
        except NoScope as error:
            words = str(error)
        finally:
            os.write(writing, words.encode() + b"\n")
            os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer.strip() if answer else "the attempt to ask the user's systemd was killed"
