"""The listener that performs calls: nothing races past it, nothing makes it hang or grow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import busy_callers
import pytest
from capabilities import requires
from sandboxed import PYTHON, Rules, compile_rules, run_compiled

import sbx

RULES = Rules(modify=("./**",), deny_modify=("./**/.denied",))
TRIES = 100_000 if os.geteuid() == 0 else 10_000  # the kernel is the same for both


@requires("userns", "notify", tools=["gcc"])
@pytest.mark.timeout(600)
def test_no_denied_name_appears_while_threads_rewrite_the_path(tmp_path: Path) -> None:
    program = tmp_path / "race"
    source = Path(__file__).with_name("race.c")
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, source], check=True)
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    compiled = compile_rules(RULES, str(tmp_path.resolve()))
    ended = run_compiled(compiled, [str(program.resolve()), str(folder.resolve() / "sub"), str(TRIES)])
    assert (ended.status, ended.stderr) == (0, b""), ended.stdout
    assert not list(folder.rglob(".denied"))


@requires("userns", "notify")
def test_many_callers_some_killed_some_stopped(tmp_path: Path) -> None:
    compiled = compile_rules(RULES, str(tmp_path.resolve()))
    script = Path(busy_callers.__file__).read_text()
    ended = run_compiled(compiled, [*PYTHON, "-c", script, str(tmp_path.resolve()), "8", "8", "25"])
    assert ended.status == 0, ended.stderr.decode()
    finished, before, after = ended.stdout.decode().splitlines()
    assert finished == str([0] * 6)
    assert before == after
    assert not list(tmp_path.rglob(".denied"))
    files = [path for path in tmp_path.rglob("*x") if path.is_file()]
    assert len(files) >= 6 * 8 * 25


WAITING = """
import ctypes, os, struct, sys, threading
os.chdir(sys.argv[1])
os.mkfifo("fifo")
call = ctypes.CDLL(None).syscall
how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
waits = threading.Thread(target=lambda: print(os.read(call(437, -100, b"fifo", how, 24), 5)))  # openat2
waits.start()
for number in range(50):  # nobody writes yet: whoever opened it on that thread's behalf must not be waiting
    os.close(os.open(f"new{number}", os.O_CREAT | os.O_WRONLY))
os.write(os.open("fifo", os.O_WRONLY), b"words")
waits.join()
"""


@requires("userns", "notify")
def test_a_fifo_that_nobody_writes_to_holds_nobody_else_up(tmp_path: Path) -> None:
    compiled = compile_rules(RULES, str(tmp_path.resolve()))
    ended = run_compiled(compiled, [*PYTHON, "-c", WAITING, str(tmp_path.resolve())])
    assert (ended.status, ended.stdout) == (0, b"b'words'\n"), ended.stderr.decode()


LIBRARY_USER = """
import sys
sys.path[:0] = sys.argv[2].split(":")
from sandboxed import Rules, compile_rules, run_compiled
workspace = sys.argv[1]
compiled = compile_rules(Rules(modify=("./**",), deny_modify=("./**/.denied",)), workspace)
for path in ([], [workspace]):  # once before: what this process itself needs is imported by then
    sys.path[:0] = path
    ended = run_compiled(compiled, ["/bin/sh", "-c", "mkdir a; : > a/b; mv a c; rm -r c; exit 3"])
    assert ended.status == 3, ended
"""


@requires("userns", "notify")
def test_nothing_is_imported_from_what_the_command_can_write(tmp_path: Path) -> None:
    """A program that uses the library may have such a folder on its path; pid 1 inside must never look there."""
    for name in sys.stdlib_module_names:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()")
    paths = ":".join(
        str(Path(module.__file__ or "").parents[up].resolve()) for module, up in ((busy_callers, 0), (sbx, 1))
    )
    subprocess.run([sys.executable, "-c", LIBRARY_USER, str(tmp_path.resolve()), paths], check=True)
    assert not (tmp_path / "imported").exists()


CRASH = """
import os, resource, signal
hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
if (child := os.fork()) == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
os.waitpid(child, 0)
"""


@requires("userns", "notify")
@pytest.mark.skipif(
    not Path("/proc/sys/kernel/core_pattern").read_text().startswith("core"), reason="core files go elsewhere here"
)
def test_a_core_file_is_a_name_too(tmp_path: Path) -> None:
    """The kernel makes it by itself, past every filter."""
    compiled = compile_rules(Rules(modify=("./**",), deny_modify=("./**/core*",)), str(tmp_path.resolve()))
    ended = run_compiled(compiled, [*PYTHON, "-c", CRASH])
    assert (ended.status, ended.stderr) == (0, b"")
    assert list(tmp_path.iterdir()) == []


UNDUMPABLE = """
import os, sys
sys.path.append(sys.argv[1])
from file_operations import raw_syscall
raw_syscall(157 if os.uname().machine == "x86_64" else 167, 4, 0, 0, 0, 0)  # prctl(PR_SET_DUMPABLE, 0)
for work in (lambda: os.mkdir("made"), lambda: open("made", "w"), lambda: os.symlink("x", ".denied")):
    try:
        work()
    except PermissionError:
        continue
    sys.exit("made")
if (child := os.fork()) == 0:
    os.execv("/bin/mkdir", ["mkdir", "by-another"])
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@requires("userns", "notify")
def test_who_cannot_be_looked_into_makes_no_names(tmp_path: Path) -> None:
    """Its arguments cannot be read, so they cannot be judged; what it starts can."""
    folder = Path(busy_callers.__file__).resolve().parent
    rules = Rules(read=("./**", f"{folder}/**"), modify=("./**",), deny_modify=("./**/.denied",))
    compiled = compile_rules(rules, str(tmp_path.resolve()))
    ended = run_compiled(compiled, [*PYTHON, "-c", UNDUMPABLE, str(folder)])
    assert (ended.status, ended.stderr) == (0, b"")
    assert [path.name for path in tmp_path.iterdir()] == ["by-another"]
