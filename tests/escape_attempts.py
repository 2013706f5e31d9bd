"""Ways out of a sandbox, each an attempt with its own name. As a script it tries them all and says how each ended.

`{attempt: {what was tried: outcome}}`; an outcome is an errno's name, or a text that begins with "escaped".
The given context names what lies outside: a secret file, a process, sockets.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import mmap
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable
from typing import Any

LIBC = ctypes.CDLL(None, use_errno=True)
X86_64 = os.uname().machine == "x86_64"
CONTEXT: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], dict[str, str]]] = {}
# Harmless outside of a sandbox, where they must succeed: proof that these tests can fail.
CONTROLS: set[str] = set()

# Numbers on x86-64, and on aarch64 where they differ; from 424 on they are the same everywhere.
CALLS = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "bpf": (321, 280), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "userfaultfd": (323, 282), "perf_event_open": (298, 241),
    "kexec_load": (246, 104), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "reboot": (169, 142), "swapon": (167, 224), "acct": (163, 89), "syslog": (103, 116), "sethostname": (170, 161),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "quotactl": (179, 60), "clone": (56, 220),
    "seccomp": (317, 277), "kcmp": (312, 272), "fanotify_init": (300, 262), "personality": (135, 92),
    "mknodat": (259, 33), "prlimit64": (302, 261), "iopl": (172, -1),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "openat2": (437, 437),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "clone3": (435, 435),
}  # fmt: skip
AT_FDCWD = -100
NAMESPACES = {
    "user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
    "cgroup": 0x2000000, "time": 0x80,
}  # fmt: skip


def attempt(function: Callable[[], dict[str, str]]) -> Callable[[], dict[str, str]]:
    ATTEMPTS[function.__name__] = function
    return function


def control(function: Callable[[], dict[str, str]]) -> Callable[[], dict[str, str]]:
    CONTROLS.add(function.__name__)
    return attempt(function)


def call(name: str, *arguments: Any) -> int:
    number = CALLS[name][0 if X86_64 else 1]
    if number < 0:
        raise OSError(errno.ENOSYS, name)
    value = LIBC.syscall(number, *arguments)
    if value == -1:
        raise OSError(ctypes.get_errno(), name)
    return int(value)


def tried(work: Callable[[], Any]) -> str:
    try:
        value = work()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return f"escaped: {value!r}"[:200]


def contents(path: str) -> str:
    """Reading is only an escape if it tells something."""
    try:
        with open(path, "rb") as file:
            data = file.read(65536)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return f"escaped: {data[:60]!r}" if data.strip(b"\0 \n") else "empty"


def each_call(*calls: tuple[Any, ...]) -> dict[str, str]:
    return {words[0]: tried(lambda words=words: call(*words)) for words in calls}  # type: ignore[misc]


# --- files


@control
def parent_folders() -> dict[str, str]:
    secret = CONTEXT["secret"]
    up = "../" * 40
    inside = os.path.relpath(secret, CONTEXT["workspace"])
    return {
        path: contents(path) for path in (secret, inside, up + secret, f"/proc/self/cwd/{inside}", "/tmp/.." + secret)
    }


@control
def symlinks_made_inside() -> dict[str, str]:
    secret, found = CONTEXT["secret"], {}
    for number, text in enumerate((secret, os.path.dirname(secret), os.path.relpath(secret, CONTEXT["modifiable"]))):
        link = f"{CONTEXT['modifiable']}/link{number}"
        os.symlink(text, link)
        path = f"{link}/{os.path.basename(secret)}" if number == 1 else link
        found[text] = contents(path)
        found["writing " + text] = tried(lambda path=path: os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOCTTY))  # type: ignore[misc]
        os.unlink(link)
    return found


@attempt
def hard_links_to_protected_files() -> dict[str, str]:
    new = CONTEXT["modifiable"] + "/hard"
    found = {}
    for name in ("protected", "secret"):
        found[name] = tried(lambda name=name: os.link(CONTEXT[name], new))  # type: ignore[misc]
    if os.path.lexists(new):
        found["writing"] = tried(lambda: os.open(new, os.O_WRONLY))
        os.unlink(new)
    return found


@control
def root_of_processes() -> dict[str, str]:
    secret = CONTEXT["secret"]
    roots = ["/proc/self/root", "/proc/1/root", "/proc/thread-self/root", f"/proc/{os.getppid()}/root", "/proc/1/cwd"]
    return {root: contents(root + secret) for root in roots}


@attempt
def memory_and_environment_of_pid_1() -> dict[str, str]:
    if CONTEXT["mode"] == "landlock":
        first = CONTEXT["supervisor"]
    else:
        first = 1
    found = {}
    for name in ("environ", "mem", "maps", "auxv", "stack", "pagemap", "syscall"):
        found[name] = contents(f"/proc/{first}/{name}")
    for name in ("exe", "root", "cwd", "ns/mnt", "fd/0", "fd/3"):
        found[name] = tried(lambda name=name: os.stat(f"/proc/{first}/{name}"))  # type: ignore[misc]
    found["writing mem"] = tried(lambda: os.open(f"/proc/{first}/mem", os.O_RDWR))
    return found


@attempt
def descriptors_of_the_listener() -> dict[str, str]:
    """Where a listener opens files for the command, its own descriptors and memory must stay out of reach."""
    folder, found = CONTEXT["modifiable"], {}
    own = {
        os.readlink(f"/proc/self/fd/{name}")
        for name in os.listdir("/proc/self/fd")
        if os.path.lexists(f"/proc/self/fd/{name}")
    }
    os.symlink("/proc/self/fd", f"{folder}/descriptors")
    os.symlink("/proc/self", f"{folder}/me")
    os.symlink("/proc/self/mem", f"{folder}/memory")
    os.symlink("/proc", f"{folder}/processes")
    proc = os.open("/proc", os.O_RDONLY)
    # A listener's threads have folders of their own: the one that started this command has the number after 1.
    tasks = ("1", "2", "1/task/2") if CONTEXT["mode"] == "listening" else ("1",)
    ways: list[tuple[str, int | None]] = [(f"{folder}/memory", None)]
    for number in range(3, 16):
        ways += [
            (f"{folder}/descriptors/{number}", None),
            (f"self/fd/{number}", proc),
            (f"{folder}/me/fd/{number}", None),
        ]
        for task in tasks:
            ways += [
                (f"/proc/{task}/fd/{number}", None),
                (f"{task}/fd/{number}", proc),
                (f"{folder}/processes/{task}/fd/{number}", None),
            ]
    for task in tasks:
        ways += [(f"/proc/{task}/mem", None), (f"{task}/mem", proc), (f"{folder}/processes/{task}/mem", None)]
    for path, folder_fd in ways:
        for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY):
            try:
                fd = os.open(path, flags | os.O_CREAT | os.O_NONBLOCK, 0o600, dir_fd=folder_fd)
            except OSError as error:
                found[f"{path} {flags}"] = errno.errorcode[error.errno or 0]
                continue
            leads = os.readlink(f"/proc/self/fd/{fd}")
            mine = leads in own or leads == f"/proc/{os.getpid()}/mem" or leads == "/proc"
            found[f"{path} {flags}"] = "own" if mine else f"escaped: {leads}"
            os.close(fd)
    os.close(proc)
    for name in ("descriptors", "me", "memory", "processes"):
        os.unlink(f"{folder}/{name}")
    return found


@control
def secrets_in_the_environment() -> dict[str, str]:
    """Of any process that can be seen."""
    wanted, found = CONTEXT["secret value"].encode(), {"own": "ENOENT"}
    for name in os.listdir("/proc"):
        for file in ("environ", "cmdline") if name.isdigit() else ():
            try:
                with open(f"/proc/{name}/{file}", "rb") as opened:
                    if wanted in opened.read():
                        found[f"{name}/{file}"] = "escaped: the secret is there"
            except OSError:
                continue
    return found


@control
def inherited_descriptors() -> dict[str, str]:
    found = {"beyond 2": "ENOENT"}
    for number in range(3, 64):
        if number == CONTEXT.get("own pipe"):
            continue
        try:
            leads = os.readlink(f"/proc/self/fd/{number}")
            os.fstat(number)
        except OSError:
            continue
        found[str(number)] = f"escaped: {leads}"
    return found


@attempt
def rename_over_and_under_protected() -> dict[str, str]:
    keep, folder = CONTEXT["protected"], os.path.dirname(CONTEXT["protected"])
    other = CONTEXT["modifiable"] + "/other"
    open(other, "w").close()
    os.makedirs(CONTEXT["modifiable"] + "/empty", exist_ok=True)
    found = {
        "replace the file": tried(lambda: os.rename(other, keep)),
        "into the folder": tried(lambda: os.rename(other, folder + "/planted")),
        "the file away": tried(lambda: os.rename(keep, CONTEXT["modifiable"] + "/taken")),
        "the folder away": tried(lambda: os.rename(folder, CONTEXT["modifiable"] + "/moved")),
        "a folder over it": tried(lambda: os.rename(CONTEXT["modifiable"] + "/empty", folder)),
        "its parent": tried(lambda: os.rename(os.path.dirname(folder), CONTEXT["modifiable"] + "/q")),
        "truncate": tried(lambda: os.truncate(keep, 0)),
        "chmod": tried(lambda: os.chmod(keep, 0o777)) if CONTEXT["mode"] != "landlock" else "EPERM",
        "new file": tried(lambda: os.open(folder + "/new", os.O_CREAT | os.O_WRONLY)),
        "new hook through a link": tried(lambda: os.symlink("/bin/true", folder + "/hook")),
    }
    os.unlink(other)
    return found


@attempt
def delete_and_recreate_protected_folder() -> dict[str, str]:
    keep, folder = CONTEXT["protected"], os.path.dirname(CONTEXT["protected"])
    found = {"unlink": tried(lambda: os.unlink(keep)), "rmdir": tried(lambda: os.rmdir(folder))}
    found["mkdir"] = tried(lambda: os.mkdir(folder))
    return found


@attempt
def move_what_leads_to_the_workspace() -> dict[str, str]:
    """A folder above the workspace that exists only to lead there."""
    found, path = {}, CONTEXT["workspace"]
    while path != "/":
        found[path] = tried(lambda path=path: os.rename(path, path + "-moved"))  # type: ignore[misc]
        path = os.path.dirname(path)
    return found


@attempt
def files_by_handle() -> dict[str, str]:
    handle = (128).to_bytes(4, "little") + bytes(140)
    buffer = ctypes.create_string_buffer(handle)
    mount_id = ctypes.c_int()
    tried(lambda: call("name_to_handle_at", AT_FDCWD, b"/", buffer, ctypes.byref(mount_id), 0))
    root = os.open(CONTEXT["workspace"], os.O_RDONLY)
    return {"open_by_handle_at": tried(lambda: call("open_by_handle_at", root, buffer, os.O_RDONLY))}


@attempt
def device_nodes() -> dict[str, str]:
    found = {}
    for kind, device in ((stat.S_IFCHR, os.makedev(1, 1)), (stat.S_IFBLK, os.makedev(8, 0))):
        for folder in (CONTEXT["modifiable"], "/tmp", "/dev"):
            found[f"{kind:o} {folder}"] = tried(lambda k=kind, d=device, f=folder: os.mknod(f + "/node", k | 0o666, d))  # type: ignore[misc]
    for name in (
        "mem",
        "kmem",
        "port",
        "kmsg",
        "sda",
        "vda",
        "nvme0n1",
        "loop-control",
        "fuse",
        "net/tun",
        "kvm",
        "uinput",
    ):
        found[name] = tried(lambda name=name: os.open(f"/dev/{name}", os.O_RDONLY | os.O_NONBLOCK))  # type: ignore[misc]
    return found


@attempt
def executable_memory_files() -> dict[str, str]:
    """The profile has exec rules, which speak of paths."""
    return {"memfd_create": tried(lambda: os.memfd_create("x", 0)), "sealable": tried(lambda: os.memfd_create("x", 2))}


# --- kernel interfaces


@attempt
def mounting() -> dict[str, str]:
    here = CONTEXT["modifiable"].encode()
    return each_call(
        ("mount", b"none", here, b"tmpfs", 0, None),
        ("umount2", here, 2),
        ("open_tree", AT_FDCWD, b"/", 1),
        ("move_mount", 0, b"", 1, b"", 0x44),
        ("fsopen", b"tmpfs", 0),
        ("fsmount", 0, 0, 0),
        ("fspick", AT_FDCWD, b"/", 0),
        ("pivot_root", b".", b"."),
        ("chroot", here),
    )


@attempt
def remounting_read_only_binds() -> dict[str, str]:
    found = {}
    for place in (os.path.dirname(CONTEXT["protected"]), CONTEXT["workspace"], "/usr", "/", "/proc/sys", "/dev"):
        for flags in (0x20 | 0x1000, 0x20):  # MS_REMOUNT with and without MS_BIND
            found[f"{place} {flags:x}"] = tried(lambda p=place, f=flags: call("mount", None, p.encode(), None, f, None))  # type: ignore[misc]
        attributes = bytes(8) + (1).to_bytes(8, "little") + bytes(16)  # clear MOUNT_ATTR_RDONLY
        found[place] = tried(lambda p=place, a=attributes: call("mount_setattr", AT_FDCWD, p.encode(), 0, a, 32))  # type: ignore[misc]
    return found


@attempt
def new_namespaces() -> dict[str, str]:
    found = {}
    for name, flag in NAMESPACES.items():
        found[f"unshare {name}"] = tried(lambda flag=flag: call("unshare", flag))  # type: ignore[misc]
        if name != "time":
            found[f"clone {name}"] = tried(lambda flag=flag: _clone(flag))  # type: ignore[misc]
    found["clone3"] = tried(lambda: call("clone3", bytes(88), 88))
    return found


def _clone(flag: int) -> int:
    child = call("clone", flag | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


@attempt
def joining_namespaces() -> dict[str, str]:
    found = {}
    for name in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup"):
        for pid in ("self", "1", str(CONTEXT["host pid"])):

            def join(path: str = f"/proc/{pid}/ns/{name}") -> int:
                fd = os.open(path, os.O_RDONLY)
                try:
                    return call("setns", fd, 0)
                finally:
                    os.close(fd)

            found[f"{name} of {pid}"] = tried(join)
    return found


@attempt
def looking_into_processes() -> dict[str, str]:
    buffer = ctypes.create_string_buffer(8)
    vector = ctypes.cast(ctypes.pointer((ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)), ctypes.c_void_p)
    found = {}
    for pid in (1, CONTEXT["host pid"], os.getppid()):
        found[f"attach {pid}"] = tried(lambda pid=pid: call("ptrace", 16, pid, 0, 0))  # type: ignore[misc]
        found[f"seize {pid}"] = tried(lambda pid=pid: call("ptrace", 0x4206, pid, 0, 0))  # type: ignore[misc]
        found[f"read {pid}"] = tried(lambda pid=pid: call("process_vm_readv", pid, vector, 1, vector, 1, 0))  # type: ignore[misc]
        found[f"write {pid}"] = tried(lambda pid=pid: call("process_vm_writev", pid, vector, 1, vector, 1, 0))  # type: ignore[misc]

        def take(pid: int = pid) -> int:
            fd = call("pidfd_open", pid, 0)
            try:
                return call("pidfd_getfd", fd, 1, 0)
            finally:
                os.close(fd)

        found[f"descriptor of {pid}"] = tried(take)
        found[f"kcmp {pid}"] = tried(lambda pid=pid: call("kcmp", os.getpid(), pid, 0, 0, 0))  # type: ignore[misc]
    return found


@control
def killing_host_processes() -> dict[str, str]:
    pid = CONTEXT["host pid"]
    return {
        "kill": tried(lambda: os.kill(pid, 0)),
        "process group": tried(lambda: os.killpg(pid, 0)),
        "pidfd": tried(lambda: call("pidfd_send_signal", call("pidfd_open", pid, 0), 0, None, 0)),
    }


@attempt
def kernel_interfaces_without_business_here() -> dict[str, str]:
    page = mmap.mmap(-1, 4096)
    found = each_call(
        ("io_uring_setup", 4, bytes(120)),
        ("io_uring_enter", 0, 0, 0, 0, None, 0),
        ("io_uring_register", 0, 0, None, 0),
        ("bpf", 0, bytes(128), 128),
        ("keyctl", 0, -3, 1),
        ("add_key", b"user", b"n", b"p", 1, -3),
        ("request_key", b"user", b"n", None, -3),
        ("userfaultfd", 0),
        ("perf_event_open", bytes(128), 0, -1, -1, 0),
        ("kexec_load", 0, 0, None, 0),
        ("init_module", b"", 0, b""),
        ("finit_module", 0, b"", 0),
        ("delete_module", b"none", 0),
        ("reboot", 0xFEE1DEAD, 672274793, 0, None),
        ("swapon", b"/dev/null", 0),
        ("acct", CONTEXT["modifiable"].encode()),
        ("syslog", 3, ctypes.create_string_buffer(64), 64),
        ("sethostname", b"x", 1),
        ("settimeofday", bytes(16), None),
        ("clock_settime", 0, bytes(16)),
        ("quotactl", 0x800007, b"/", 0, bytes(64)),
        ("fanotify_init", 0, 0),
        ("iopl", 3),
        ("seccomp", 1, 8, bytes(16)),
        ("personality", 0x0400000),  # READ_IMPLIES_EXEC
    )
    page.close()
    return found


@attempt
def terminal_injection() -> dict[str, str]:
    import pty

    try:
        terminal = pty.openpty()[1]
    except OSError:
        terminal = 0  # not even a terminal: the filter comes first, and answers otherwise than the kernel
    found = {}
    for name, request in (("TIOCSTI", 0x5412), ("TIOCLINUX", 0x541C), ("TIOCCONS", 0x541D), ("TIOCSETD", 0x5423)):
        # The kernel looks at 32 bits of the number only.
        for word, number in ((name, request), (name + " with high bits", request | 1 << 40)):
            said = tried(lambda number=number: _raw_ioctl(terminal, number))  # type: ignore[misc]
            found[word] = said if said == "EPERM" else f"escaped: {said} is the kernel's own answer"
    return found


def _raw_ioctl(fd: int, request: int) -> int:
    value = LIBC.syscall(16 if X86_64 else 29, fd, ctypes.c_ulong(request), b"\x0a\0\0\0")
    if value == -1:
        raise OSError(ctypes.get_errno(), "ioctl")
    return int(value)


def connecting(family: int, address: Any) -> str:
    def connect() -> None:
        with socket.socket(family) as client:
            client.settimeout(5)
            client.connect(address)

    return tried(connect)


@control
def abstract_sockets() -> dict[str, str]:
    return {"connect": connecting(socket.AF_UNIX, b"\0" + CONTEXT["abstract"].encode())}


@control
def sockets_of_host_services() -> dict[str, str]:
    return {"connect": connecting(socket.AF_UNIX, CONTEXT["unix socket"])}


@control
def host_loopback() -> dict[str, str]:
    return {"connect": connecting(socket.AF_INET, ("127.0.0.1", CONTEXT["port"]))}


@attempt
def gaining_privileges() -> dict[str, str]:
    with open("/proc/self/status") as file:
        status = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
    found = {}
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        if int(status[name], 16):
            found[name] = f"escaped: {status[name]}"
    if os.geteuid() == 0 and int(status["CapBnd"], 16) and CONTEXT["mode"] != "landlock":
        found["CapBnd"] = f"escaped: {status['CapBnd']}"
    if status["NoNewPrivs"].strip() != "1":
        found["NoNewPrivs"] = "escaped"
    if status["Seccomp"].strip() != "2":
        found["Seccomp"] = "escaped"
    program = CONTEXT["modifiable"] + "/program"
    open(program, "w").close()
    found["chmod u+s"] = tried(lambda: os.chmod(program, 0o4755))
    found["fchmod g+s"] = tried(lambda: os.chmod(os.open(program, os.O_RDONLY), 0o2755))
    found["open with u+s"] = tried(lambda: os.open(program + "2", os.O_CREAT | os.O_WRONLY, 0o4755))
    found["mknod with u+s"] = tried(lambda: call("mknodat", AT_FDCWD, (program + "3").encode(), 0o104755, 0))
    if os.geteuid() != 0:
        found["setuid"] = tried(lambda: os.setuid(0))
    found["other uid"] = tried(lambda: os.setuid(12345))
    found["other groups"] = tried(lambda: os.setgroups([12345]))
    os.unlink(program)
    if CONTEXT["mode"] != "landlock":
        with open("/proc/self/mountinfo") as file:
            for line in file.read().splitlines():
                fields = line.split(" ")
                device = fields[4].startswith("/dev/") and not os.path.isdir(fields[4])  # nothing to execute there
                if "nosuid" not in fields[5].split(",") and not device:
                    found[f"mount {fields[4]}"] = f"escaped: {fields[5]}"
    return found


@attempt
def kernel_settings() -> dict[str, str]:
    """For uid 0 these files are its own."""
    found = {}
    for path in (
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger",
        "/proc/irq/0/smp_affinity",
        "/proc/bus/pci/00/00.0",
        "/proc/kcore",
        "/sys/kernel/uevent_helper",
        "/sys/power/state",
        "/sys/fs/cgroup/cgroup.procs",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ):
        found[path] = tried(lambda path=path: os.open(path, os.O_WRONLY))  # type: ignore[misc]
    found["reading kcore"] = contents("/proc/kcore")
    for name in ("uid_map", "gid_map", "setgroups"):
        found[name] = tried(lambda name=name: os.write(os.open(f"/proc/self/{name}", os.O_WRONLY), b"0 0 1"))  # type: ignore[misc]
    return found


@attempt
def shared_memory_of_the_host() -> dict[str, str]:
    found = {"/dev/shm": contents("/dev/shm/" + CONTEXT["shm"])}
    shmget = LIBC.shmget(CONTEXT["sysv key"], 0, 0)
    found["System V"] = "escaped: attached" if shmget >= 0 else errno.errorcode[ctypes.get_errno()]
    return found


def run_all() -> dict[str, dict[str, str]]:
    """Each in a process of its own: some of them would change it."""
    found = {}
    names = [name for name in ATTEMPTS if name not in CONTEXT.get("skip", ())]
    for name in names if CONTEXT.get("only") is None else [each for each in names if each in CONTEXT["only"]]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            CONTEXT["own pipe"] = writing
            try:
                value = ATTEMPTS[name]()
            except BaseException as error:
                value = {"crashed": f"escaped? {type(error).__name__}: {error}"}
            os.write(writing, marshal.dumps(value)[:65536])
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as pipe:
            data = pipe.read()
        status = os.waitpid(child, 0)[1]
        found[name] = marshal.loads(data) if data else {"died": f"escaped? {os.waitstatus_to_exitcode(status)}"}
    return found


if __name__ == "__main__":
    CONTEXT.update(marshal.loads(sys.stdin.buffer.read()))
    os.chdir(CONTEXT["workspace"])
    sys.stdout.buffer.write(marshal.dumps(run_all()))
