"""Calls that make or move names, in all their odd forms: the same results are expected inside and outside.

As a script it runs every scenario in a fresh folder below the one it is given and writes `{scenario: outcome}`.
An outcome is made of plain values: errno names, modes, descriptor numbers, contents.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
X86_64 = os.uname().machine == "x86_64"
NUMBERS = {"openat": 257, "renameat2": 316, "linkat": 265, "mkdirat": 258, "symlinkat": 266, "mknodat": 259, "bind": 49}
if not X86_64:
    NUMBERS = {"openat": 56, "renameat2": 276, "linkat": 37, "mkdirat": 34, "symlinkat": 36, "mknodat": 33, "bind": 200}
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_FOLLOW = -100, 0x1000, 0x400
NOREPLACE, EXCHANGE = 1, 2
CREATE = os.O_CREAT | os.O_WRONLY

SCENARIOS: dict[str, Callable[[], Any]] = {}


def scenario(function: Callable[[], Any]) -> Callable[[], Any]:
    SCENARIOS[function.__name__] = function
    return function


def call(name: str, *arguments: Any) -> Any:
    """A raw system call: its value, or its errno by name."""
    value = LIBC.syscall(NUMBERS[name], *arguments)
    return errno.errorcode[ctypes.get_errno()] if value == -1 else value


def outcome(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]


def made(path: str, flags: int = CREATE, mode: int = 0o666, **more: Any) -> Any:
    """The errno, or what the descriptor and the file look like."""

    def work() -> Any:
        fd = os.open(path, flags, mode, **more)
        try:
            seen = os.fstat(fd)
            return (fd, oct(seen.st_mode), seen.st_size, seen.st_uid == os.geteuid(), os.get_inheritable(fd))
        finally:
            os.close(fd)

    return outcome(work)


def tree() -> Any:
    found = []
    for folder, names, files in os.walk(b"."):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            seen = os.lstat(path)
            text = os.readlink(path) if stat.S_ISLNK(seen.st_mode) else b""
            links = seen.st_nlink if not stat.S_ISDIR(seen.st_mode) else 0
            found.append((path, oct(seen.st_mode), links, text))
    return sorted(found)


@scenario
def modes_and_umask() -> Any:
    found = []
    for umask in (0o000, 0o022, 0o077, 0o177, 0o777):
        os.umask(umask)
        found.append(made(f"f{umask:o}", mode=0o777))
        found.append(outcome(lambda umask=umask: os.mkdir(f"d{umask:o}", 0o777)))
        found.append(outcome(lambda umask=umask: os.mkfifo(f"p{umask:o}", 0o666)))
        found.append(call("openat", AT_FDCWD, b"s%o" % umask, os.O_CREAT | os.O_CLOEXEC, 0o1755))
        os.close(found[-1])
    os.umask(0o022)
    return found, tree()


@scenario
def opening_what_exists() -> Any:
    """O_CREAT has nothing to do there, and the umask neither: not before, not after, not beside what is made."""
    found = []
    os.mkdir("t")
    os.chmod("t", 0o1777)
    for folder in (".", "t"):
        for umask in (0o000, 0o077, 0o022):
            os.umask(umask)
            found.append(made(f"{folder}/f", mode=0o666))
            with open(f"{folder}/f", "w", encoding="ascii") as file:
                file.write("content")
            flags = (
                os.O_RDONLY,
                os.O_RDWR,
                os.O_WRONLY | os.O_TRUNC,
                os.O_RDWR | os.O_EXCL,
                os.O_RDONLY | os.O_NOFOLLOW,
            )
            found += [made(f"{folder}/f", flags=each | os.O_CREAT, mode=0o640) for each in flags]
            found.append(made(f"{folder}/f", flags=os.O_CREAT | os.O_DIRECTORY))
            found.append(made(f"{folder}/new{umask:o}", flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode=0o666))
            os.unlink(f"{folder}/f")
    os.symlink("new22", "t/link")
    os.symlink("nothing", "t/dangling")
    for name in ("t/new22", "t/link", "t/dangling", "t", "t/link/", "t/link/below"):
        for more in (0, os.O_NOFOLLOW, os.O_EXCL):
            found.append(made(name, flags=os.O_CREAT | os.O_WRONLY | more))
    return found, tree()


@scenario
def set_group_folder() -> Any:
    os.mkdir("d")
    os.chmod("d", 0o755)
    return made("d/f"), outcome(lambda: os.mkdir("d/e")), tree()


@scenario
def default_acl() -> Any:
    os.mkdir("d")
    entry = b"".join(
        n.to_bytes(2, "little") + p.to_bytes(2, "little") + b"\xff" * 4 for n, p in ((1, 7), (4, 5), (32, 1))
    )
    said = outcome(lambda: os.setxattr("d", "system.posix_acl_default", (2).to_bytes(4, "little") + entry))
    os.umask(0o077)
    result = made("d/f", mode=0o666), outcome(lambda: os.mkdir("d/e", 0o777))
    os.umask(0o022)
    return said, result, tree()


@scenario
def exclusive_and_truncating() -> Any:
    with open("old", "w") as file:
        file.write("content")
    os.symlink("old", "link")
    os.symlink("nowhere", "dangling")
    os.mkdir("folder")
    found = []
    for path in ("new", "old", "link", "dangling", "folder"):
        for flags in (os.O_EXCL, os.O_NOFOLLOW, os.O_TRUNC, os.O_EXCL | os.O_TRUNC, os.O_APPEND, os.O_DIRECTORY):
            found.append((path, flags, made(path, CREATE | flags)))
    return found, tree()


@scenario
def reading_and_path_descriptors() -> Any:
    os.symlink("a", "l")
    return [
        made("a", os.O_CREAT | os.O_RDONLY),
        made("b", os.O_CREAT | os.O_RDWR | os.O_SYNC),
        made("c", os.O_CREAT | os.O_PATH),
        made("a", os.O_CREAT | os.O_PATH),
        made("l", os.O_CREAT | os.O_PATH | os.O_NOFOLLOW),
        made("l", os.O_CREAT | os.O_PATH),
        call("openat", AT_FDCWD, b"d", os.O_CREAT | 3, 0o644),
        tree(),
    ]


@scenario
def close_on_exec_and_lowest_number() -> Any:
    """The listener follows links itself, so its descriptors say O_NOFOLLOW; nothing depends on that."""
    import fcntl

    holes = [os.open(".", os.O_RDONLY) for _ in range(5)]
    os.close(holes[1])
    os.close(holes[3])
    first = call("openat", AT_FDCWD, b"x", CREATE, 0o644)
    second = call("openat", AT_FDCWD, b"y", CREATE | os.O_CLOEXEC, 0o644)
    third = call("openat", AT_FDCWD, b"z", CREATE | os.O_CLOEXEC, 0o644)
    found = [
        (fd - holes[0], fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL) & ~os.O_NOFOLLOW)
        for fd in (first, second, third)
    ]
    for fd in (first, second, third, holes[0], holes[2], holes[4]):
        os.close(fd)
    return found


@scenario
def nameless_files() -> Any:
    os.mkdir("d")
    os.symlink("d", "l")
    found: list[Any] = [
        made(path, os.O_TMPFILE | os.O_RDWR, 0o600) for path in (".", "d", "l", "d/", "none", "../")[:5]
    ]
    fd = os.open("d", os.O_TMPFILE | os.O_RDWR, 0o640)
    os.write(fd, b"text")
    found.append(call("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"d/named", AT_SYMLINK_FOLLOW))
    found.append(call("linkat", AT_FDCWD, b"/proc/self/fd/%d" % fd, AT_FDCWD, b"d/named", AT_SYMLINK_FOLLOW))
    found.append(call("linkat", fd, b"", AT_FDCWD, b"d/empty", 0))
    found.append(call("linkat", fd, b"", AT_FDCWD, b"d/empty", AT_EMPTY_PATH))
    found.append(call("linkat", fd, b"", AT_FDCWD, b"d/flags", 0x200))
    os.close(fd)
    sealed = os.open("d", os.O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640)
    found.append(call("linkat", AT_FDCWD, b"/proc/self/fd/%d" % sealed, AT_FDCWD, b"d/sealed", AT_SYMLINK_FOLLOW))
    os.close(sealed)
    return found, tree()


@scenario
def odd_paths() -> Any:
    os.makedirs("d/e")
    os.symlink("d/e", "l")
    open("f", "w").close()
    paths = [
        "",
        "/",
        ".",
        "..",
        "./",
        "d/",
        "d/.",
        "d/..",
        "l/..",
        "l/../x",
        "d//y",
        "./d/./z",
        "new/",
        "new/.",
        "f/",
        "f/x",
    ]
    paths += [
        "l/",
        "l/a",
        "none/x",
        "d/e/../../q",
        "/proc/self/cwd/w",
        "/proc/thread-self/cwd/v",
        "//proc//self/cwd//u",
    ]
    found: list[Any] = []
    for path in paths:
        found.append((path, made(path)))
        found.append((path, outcome(lambda path=path: os.mkdir(path))))
        found.append((path, outcome(lambda path=path: os.symlink("t", path))))
        found.append((path, outcome(lambda path=path: os.link("f", path))))
        found.append((path, outcome(lambda path=path: os.mkfifo(path))))
        found.append((path, outcome(lambda path=path: os.rename("none", path))))
        found.append((path, outcome(lambda path=path: os.rename(path, "none/none"))))
    return found, tree()


@scenario
def links_of_links() -> Any:
    os.mkdir("d")
    for number in range(45):
        os.symlink(f"c{number + 1}", f"c{number}")
    os.symlink("loop", "loop")
    os.symlink("d/made", "last")
    os.symlink("../outer", "d/up")
    os.symlink(os.path.abspath("absolute"), "abs")
    os.symlink("d", "folder")
    os.symlink("folder/through", "two")
    # Not much more than half of what the kernel follows: where it has to begin again, it goes on counting.
    names = ("c0", "c26", "loop", "last", "d/up", "abs", "two", "loop/x", "c0/x")
    return [made(name) for name in names], [made(name, CREATE | os.O_EXCL) for name in names], tree()


@scenario
def renames() -> Any:
    for name in ("a", "b"):
        with open(name, "w") as file:
            file.write(name)
    for name in ("d", "e", "full"):
        os.mkdir(name)
    open("full/x", "w").close()
    os.symlink("d", "l")
    names = ("a", "b", "d", "e", "full", "l", "none", "d/a", "d/d", ".", "..", "a/", "d/", "l/", "")
    found = []
    for flags in (0, NOREPLACE, EXCHANGE, NOREPLACE | EXCHANGE, 8):
        for old in names:
            for new in names:
                before = tree()
                said = call("renameat2", AT_FDCWD, old.encode(), AT_FDCWD, new.encode(), flags)
                found.append((flags, old, new, said))
                if said == 0 and tree() != before:
                    back = EXCHANGE if flags & EXCHANGE else 0
                    found.append(call("renameat2", AT_FDCWD, new.encode(), AT_FDCWD, old.encode(), back))
    return found, tree()


@scenario
def hard_links() -> Any:
    open("f", "w").close()
    os.mkdir("d")
    os.symlink("f", "l")
    os.symlink("none", "dangling")
    os.mkfifo("p")
    found = []
    for number, name in enumerate(("f", "d", "l", "dangling", "p", "none", "")):
        for flags in (0, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH):
            found.append(call("linkat", AT_FDCWD, name.encode(), AT_FDCWD, b"d/%d-%d" % (number, flags), flags))
    return found, tree()


@scenario
def bad_arguments() -> Any:
    long_name, long_path = b"n" * 256, b"d/" * 2047 + b"x" * 10
    fine_path = b"./" * 2000 + b"fine"
    page = ctypes.c_void_p(8)
    found: list[Any] = []
    for path in (long_name, long_path, fine_path, b"x" * 255):
        found.append(call("openat", AT_FDCWD, path, CREATE, 0o644))
        found.append(call("mkdirat", AT_FDCWD, path + b"d"[: 255 - len(path)], 0o755))
        found.append(call("symlinkat", path, AT_FDCWD, b"to-%d" % len(path)))
        found.append(call("renameat2", AT_FDCWD, path, AT_FDCWD, b"renamed", 0))
    for value in list(found):
        if isinstance(value, int) and value > 2:
            os.close(value)
    found.append(call("openat", AT_FDCWD, page, CREATE, 0o644))
    found.append(call("mkdirat", AT_FDCWD, None, 0o755))
    found.append(call("symlinkat", page, AT_FDCWD, b"q"))
    found.append(call("symlinkat", b"q", AT_FDCWD, page))
    found.append(call("symlinkat", b"", AT_FDCWD, b"q"))
    found.append(call("renameat2", AT_FDCWD, page, AT_FDCWD, b"q", 0))
    found.append(call("bind", 0, page, 16))
    for bad in (99, -1, -5):
        found.append(call("openat", bad, b"rel", CREATE, 0o644))
        found.append(call("mkdirat", bad, b"rel", 0o755))
        found.append(call("bind", bad, b"\1\0abc", 5))
    file = os.open("plain", CREATE)
    found.append(call("openat", file, b"rel", CREATE, 0o644))
    found.append(call("mkdirat", file, os.path.abspath(b"absolute"), 0o755))
    os.close(file)
    found.append(call("mknodat", AT_FDCWD, b"node", 0o644, 0))
    found.append(call("mknodat", AT_FDCWD, b"weird", 0o130644, 0))
    found.append(call("mknodat", AT_FDCWD, b"dir", 0o040755, 0))
    return found, tree()


@scenario
def folder_descriptors() -> Any:
    os.makedirs("d/e")
    fd = os.open("d", os.O_RDONLY)
    inner = os.open("d/e", os.O_PATH)
    found = [made("f", dir_fd=fd), made("../g", dir_fd=fd), made("h", dir_fd=inner), made("e/i", dir_fd=fd)]
    found.append(made(f"/proc/self/fd/{fd}/j"))
    found.append(made(f"/dev/fd/{fd}/k"))
    os.rename("d", "moved")
    found.append(made("l", dir_fd=fd))
    found.append(outcome(lambda: os.mkdir("m", dir_fd=fd)))
    os.rename("moved/e", "gone")
    os.rmdir("gone") if not os.listdir("gone") else os.unlink("gone/h")
    outcome(lambda: os.rmdir("gone"))
    found.append(made("n", dir_fd=inner))
    os.close(fd)
    os.close(inner)
    return found, tree()


@scenario
def removed_working_folder() -> Any:
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    found = made("x"), outcome(lambda: os.mkdir("y")), made("../z")
    os.chdir("..") if os.path.exists("..") else None
    return found


@scenario
def standard_streams() -> Any:
    reading, writing = os.pipe()
    saved = os.dup(1)
    os.dup2(writing, 1)
    found: list[Any] = []
    for path in ("/dev/stdout", "/proc/self/fd/1", "/dev/fd/1", f"/proc/{os.getpid()}/fd/1", "/proc/thread-self/fd/1"):

        def write(path: str = path) -> Any:
            fd = os.open(path, CREATE | os.O_TRUNC, 0o644)
            os.write(fd, path.encode()[:5])
            os.close(fd)
            return os.read(reading, 100)

        found.append(outcome(write))
    os.symlink("/dev/stdout", "out")
    os.symlink("/proc/self/fd", "descriptors")
    found.append(
        outcome(
            lambda: (lambda fd: (os.write(fd, b"link"), os.close(fd), os.read(reading, 100)))(os.open("out", CREATE))
        )
    )
    found.append(
        outcome(
            lambda: (lambda fd: (os.write(fd, b"more"), os.close(fd), os.read(reading, 100)))(
                os.open("descriptors/1", CREATE)
            )
        )
    )
    file = os.open("file", os.O_CREAT | os.O_RDWR)
    found.append(made(f"/proc/self/fd/{file}"))
    os.unlink("file")
    found.append(made(f"/proc/self/fd/{file}", os.O_CREAT | os.O_RDWR))
    found.append(made("/proc/self/fd/99"))
    found.append(made("/proc/self/nothing"))
    found.append(made("/proc/1/fd/0") in ("EACCES", "ENOENT", "EPERM") or os.geteuid() == 0)
    found.append(made("/dev/null", CREATE | os.O_TRUNC))
    os.dup2(saved, 1)
    for fd in (saved, reading, writing, file):
        os.close(fd)
    return found


@scenario
def fifos() -> Any:
    os.mkfifo("p")
    os.symlink("p", "l")
    found: list[Any] = [made("p", CREATE | os.O_NONBLOCK), made("p", os.O_CREAT | os.O_RDONLY | os.O_NONBLOCK)]
    found.append(made("p", CREATE | os.O_EXCL))
    for path in ("p", "l"):
        got: list[bytes] = []

        def reader(path: str = path, got: list[bytes] = got) -> None:
            fd = os.open(path, os.O_RDONLY)
            got.append(os.read(fd, 10))
            os.close(fd)

        thread = threading.Thread(target=reader)
        thread.start()
        fd = os.open(path, CREATE | os.O_TRUNC, 0o644)  # waits for the reader
        os.write(fd, b"hello")
        os.close(fd)
        thread.join()
        found.append(got)
    return found


@scenario
def sockets() -> Any:
    import socket

    os.mkdir("d")
    os.umask(0o027)
    found: list[Any] = []
    for path in ("s", "d/t", "./d/../u", "s", "none/x", "d"):
        with socket.socket(socket.AF_UNIX) as made_socket:
            found.append((path, outcome(lambda s=made_socket, path=path: s.bind(path)), made_socket.getsockname()))  # type: ignore[misc]
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind("server")
        server.listen()
        client.connect("server")
        accepted, _ = server.accept()
        client.send(b"hi")
        found.append(accepted.recv(10))
        found.append(client.getpeername())
        accepted.close()
        found.append(outcome(lambda: server.bind("again")))
    with socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(b"\0exact-%d" % os.getpid())
        found.append(len(abstract.getsockname()) > 5)
    with socket.socket() as inet:
        inet.bind(("127.0.0.1", 0))
        found.append(inet.getsockname()[0])
    os.umask(0o022)
    return found, tree()


@scenario
def interrupted_by_signals() -> Any:
    """Handlers run; no call is lost, and none is made twice. A call that the listener has not seen yet may be
    interrupted (EINTR), as any call may that waits."""
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)

    def again(work: Callable[[], Any]) -> Any:
        while (said := outcome(work)) == "EINTR":
            pass
        return said

    wrong = []
    for number in range(300):
        wrong.append(again(lambda number=number: os.close(os.open(f"f{number}", CREATE | os.O_EXCL))))  # type: ignore[misc]
        wrong.append(again(lambda number=number: os.rename(f"f{number}", f"g{number}")))  # type: ignore[misc]
        wrong.append(again(lambda number=number: os.mkdir(f"d{number}")))  # type: ignore[misc]
    signal.setitimer(signal.ITIMER_REAL, 0)
    return [each for each in wrong if each is not None], len(os.listdir(".")), len(seen) > 0


@scenario
def too_many_descriptors() -> Any:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(".", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (held[0] + 1, before[1]))
    said = made("x")
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    os.close(held[0])
    return said


@scenario
def long_paths() -> Any:
    """Deeper than a path can be long: only reachable step by step."""
    start = os.open(".", os.O_RDONLY)
    found = []
    for _ in range(40):
        os.mkdir("n" * 200)
        os.chdir("n" * 200)
    found.append(made("deep"))
    found.append(outcome(lambda: os.mkdir("folder")))
    found.append(outcome(lambda: os.rename("deep", "folder/deeper")))
    os.fchdir(start)
    os.close(start)
    return found


def run_all(top: str) -> dict[str, Any]:
    found = {}
    for name, function in SCENARIOS.items():
        folder = os.path.join(top, name)
        os.mkdir(folder)
        child = os.fork()  # each begins with the same descriptors, umask and signals
        if child == 0:
            try:
                os.chdir(folder)
                os.umask(0o022)
                value = function()
            except BaseException as error:
                value = f"crashed: {type(error).__name__}: {error}"
            with open(os.path.join(top, name + ".result"), "wb") as file:
                file.write(marshal.dumps(value))
            os._exit(0)
        os.waitpid(child, 0)
        with open(os.path.join(top, name + ".result"), "rb") as file:
            found[name] = marshal.loads(file.read())
    return found


if __name__ == "__main__":
    sys.stdout.buffer.write(marshal.dumps(run_all(sys.argv[1])))
