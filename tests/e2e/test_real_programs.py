"""Real programs inside: what people run all day has to work, and what is protected has to hold meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from capabilities import requires
from runs import LANDLOCK, READ_PYTHON, with_command

if TYPE_CHECKING:
    from conftest import Workspace
    from runs import Host

WHO = ["-c", "user.name=A Person", "-c", "user.email=person@example.com"]


def inside(host: Host, *arguments: str, cwd: Path | None = None) -> str:
    """What the run printed; it has to end well."""
    done = host.run(*arguments, cwd=cwd)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode()


def shell(host: Host, script: str, *options: str, cwd: Path | None = None) -> str:
    return inside(host, *options, "--", "/bin/sh", "-euc", script, cwd=cwd)


def git(folder: Path, *arguments: str) -> str:
    """git outside."""
    done = subprocess.run(
        ["git", *WHO, "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def repository(folder: Path, name: str = "file") -> Path:
    folder.mkdir(exist_ok=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    for key, value in (("user.name", "A Person"), ("user.email", "person@example.com")):
        git(folder, "config", key, value)
    (folder / name).write_text("first\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def protected(git_folder: Path) -> dict[str, bytes]:
    """What git runs or obeys later: hooks and configuration."""
    paths = [git_folder / "config", *(git_folder / "hooks").glob("*")]
    return {str(path): path.read_bytes() for path in paths}


ATTACKS = """
for target in "$GIT_FOLDER/hooks/pre-commit" "$GIT_FOLDER/config"; do
    if (echo 'touch stolen' >"$target") 2>/dev/null; then echo "wrote $target"; fi
done
if mv "$GIT_FOLDER/hooks" "$GIT_FOLDER/hooked" 2>/dev/null; then echo "moved hooks"; fi
if mv "$GIT_FOLDER" moved 2>/dev/null; then echo "moved all"; fi
if rm "$GIT_FOLDER/config" 2>/dev/null; then echo "removed config"; fi
if git config core.hooksPath evil 2>/dev/null; then echo "configured"; fi
"""


def attack(host: Host, git_folder: Path, cwd: Path) -> str:
    """What of the attacks on hooks and configuration succeeded: nothing, it is hoped."""
    return inside(host, "--env", f"GIT_FOLDER={git_folder}", "--", "/bin/sh", "-c", ATTACKS, cwd=cwd)


@requires(tools=["git"])
class TestGit:
    @requires("userns")
    def test_status_commit_and_branches(self, here: Host, workspace: Workspace) -> None:
        repository(workspace.root)
        before = protected(workspace.root / ".git")
        workspace.write("file", "second\n")
        workspace.write("new", "new\n")
        script = (
            "git status --short; git add .; git commit -qm second; git switch -qc side; git log --format=%s; git gc -q"
        )
        assert shell(here, script).splitlines() == [" M file", "?? new", "second", "first"]
        assert git(workspace.root, "log", "--format=%s", "side").split() == ["second", "first"]
        assert attack(here, workspace.root / ".git", workspace.root) == ""
        assert protected(workspace.root / ".git") == before

    @requires("userns")
    def test_the_author_comes_from_the_users_own_configuration(self, here: Host, workspace: Workspace) -> None:
        """And the next run notices when that configuration gets a secret."""
        repository(workspace.root)
        for key in ("user.name", "user.email"):
            git(workspace.root, "config", "--unset", key)
        own = workspace.home / ".gitconfig"
        own.write_text("[user]\n\tname = Somebody Else\n\temail = else@example.com\n")
        commit = "echo more >>file; git commit --quiet -am second; git log -1 --format=%an"
        assert shell(here, commit) == "Somebody Else\n"
        own.write_text(own.read_text() + "[github]\n\ttoken = 0123456789abcdef\n")
        assert shell(here, "cat ~/.gitconfig || echo hidden") == "hidden\n"

    @requires("seccomp", landlock=3)
    def test_with_landlock_alone_git_can_look_and_hooks_hold(self, here: Host, workspace: Workspace) -> None:
        """No name can be made in a folder that holds protected ones (landlock-split-create): no commit."""
        host = with_command(LANDLOCK, list(here.command))
        repository(workspace.root)
        before = protected(workspace.root / ".git")
        workspace.write("file", "second\n")
        assert shell(host, "git status --short; git log --format=%s").split() == ["M", "file", "first"]
        assert attack(host, workspace.root / ".git", workspace.root) == ""
        assert protected(workspace.root / ".git") == before

    @requires("userns")
    def test_worktree_made_inside(self, here: Host, workspace: Workspace) -> None:
        repository(workspace.root)
        script = "git worktree add -q tree -b side; cd tree; echo x >there; git add there; git commit -qm there"
        shell(here, script)
        assert git(workspace.root, "log", "--format=%s", "side").split() == ["there", "first"]
        assert "tree" in git(workspace.root, "worktree", "list")

    @requires("userns")
    def test_worktree_as_the_workspace(self, here: Host, workspace: Workspace) -> None:
        """Its `.git` is a file; repository, hooks and configuration lie elsewhere."""
        main = repository(workspace.root / "main")
        git(main, "worktree", "add", "-q", "../tree", "-b", "side")
        tree = workspace.root / "tree"
        before = protected(main / ".git")
        script = "git status --short; echo x >there; git add there; git commit -qm there; git log --format=%s"
        assert shell(here, script, cwd=tree).split() == ["there", "first"]
        assert git(main, "log", "--format=%s", "side").split() == ["there", "first"]
        assert attack(here, main / ".git", tree) == ""
        assert protected(main / ".git") == before
        assert not (main / "stolen").exists()

    @requires("userns")
    def test_submodule(self, here: Host, workspace: Workspace) -> None:
        library = repository(workspace.root / "library", "code")
        main = repository(workspace.root / "main")
        git(main, "submodule", "--quiet", "add", str(library), "lib")
        git(main, "commit", "-qm", "with a library")
        git(main / "lib", "config", "user.name", "A Person")
        git(main / "lib", "config", "user.email", "person@example.com")
        module = main / ".git" / "modules" / "lib"
        before = protected(module)
        change = "echo x >there; git add there; git commit -qm there; git log --format=%s"
        # From above, and with the submodule as the workspace.
        script = f"git submodule status; cd lib; {change}; cd ..; git add lib; git commit -qm moved"
        assert shell(here, script, cwd=main).split()[1:] == ["lib", "(heads/main)", "there", "first"]
        assert attack(here, module, main) == ""
        assert shell(here, change.replace("there", "more"), cwd=main / "lib").split() == ["more", "there", "first"]
        assert attack(here, module, main / "lib") == ""
        assert protected(module) == before
        assert git(main, "status", "--short", "--ignore-submodules").strip() == ""


C_PROJECT = {
    "Makefile": """\
CFLAGS = -O1 -Iinclude
objects = build/one.o build/two.o build/main.o
build/program: $(objects)
\t$(CC) -o $@ $^
build/%.o: src/%.c include/both.h | build
\t$(CC) $(CFLAGS) -c -o $@ $<
build:
\tmkdir build
clean:
\trm -r build
""",
    "include/both.h": "int one(void);\nint two(void);\n",
    "src/one.c": '#include "both.h"\nint one(void) { return 1; }\n',
    "src/two.c": '#include "both.h"\nint two(void) { return one() + 1; }\n',
    "src/main.c": '#include <stdio.h>\n#include "both.h"\nint main(void) { printf("%d\\n", two()); return 0; }\n',
}


@requires(tools=["gcc", "make"])
def test_gcc_and_make_of_a_c_project(host: Host, workspace: Workspace) -> None:
    for name, text in C_PROJECT.items():
        workspace.write(name, text)
    assert shell(host, "make -j2 CC=gcc >&2; ./build/program").strip() == "2"
    assert "up to date" in inside(host, "--", "make", "-j2", "CC=gcc")
    shell(host, "make clean >&2")
    assert not (workspace.root / "build").exists()


MEETING = """\
all: talk listen
talk:
\t@echo met >meeting
listen:
\t@cat meeting
"""


@requires(tools=["make"])
def test_make_inside_shares_the_jobs_of_the_make_outside(host: Host, workspace: Workspace) -> None:
    """One target waits for the other: only two jobs at once, with tokens from outside, come to an end."""
    os.mkfifo(workspace.root / "meeting")
    workspace.write("Makefile", "all:\n\t+@$(SBX) $(MAKE) --no-print-directory -f inner.mk\n")
    workspace.write("inner.mk", MEETING)
    words = [f"'{word}'" for word in host.argv("--timeout", "30", "--")]
    done = subprocess.run(
        ["make", "-j2", f"SBX={' '.join(words)}"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "met\n"), done.stderr
    assert "jobserver" not in done.stderr


def test_venv_and_pytest_in_it(host: Host, workspace: Workspace) -> None:
    """Without a network: pytest is lent by the interpreter of these tests."""
    workspace.write(
        "test_it.py", "def test_it(tmp_path):\n    (tmp_path / 'file').write_text('x')\n    assert 2 == 1 + 1\n"
    )
    packages = sysconfig.get_path("purelib")
    below = sysconfig.get_path("purelib", "venv", {"base": "venv", "installed_base": "venv"})
    script = (
        f"'{sys.executable}' -m venv --without-pip venv; echo '{packages}' >'{below}/lent.pth'; . venv/bin/activate; "
        "python -c 'import sys; print(sys.prefix)'; python -m pytest -q -p no:cacheprovider --basetemp=made test_it.py"
    )
    said = shell(host, script, *READ_PYTHON, "--read", f"{packages}/**")
    assert said.splitlines()[0] == str(workspace.root / "venv")
    assert "1 passed" in said


@requires(tools=["node"])
def test_node(host: Host, workspace: Workspace) -> None:
    workspace.write("double.js", "module.exports = (n) => n * 2;\n")
    workspace.write(
        "main.mjs",
        "import double from './double.js';\n"
        "import {Worker} from 'node:worker_threads';\n"
        "import {execFileSync} from 'node:child_process';\n"
        "import {writeFileSync} from 'node:fs';\n"
        "writeFileSync('out', execFileSync('echo', ['child']));\n"
        "const worker = new Worker('require(\"worker_threads\").parentPort.postMessage(21)', {eval: true});\n"
        "worker.on('message', (n) => console.log(double(n)));\n",
    )
    assert inside(host, "--", "node", "main.mjs").strip() == "42"
    assert (workspace.root / "out").read_text() == "child\n"


@requires(tools=["tar", "gzip"])
def test_tar(host: Host, workspace: Workspace) -> None:
    workspace.write("tree/a", "a\n")
    workspace.write("tree/deep/er/b c", "b\n")
    (workspace.root / "tree" / "link").symlink_to("deep/er/b c")
    os.link(workspace.root / "tree/a", workspace.root / "tree/same")
    (workspace.root / "tree/a").chmod(0o640)
    os.utime(workspace.root / "tree/a", (1_000_000_000, 1_000_000_000))
    script = (
        "tar -czf tree.tar.gz tree; mkdir out; tar -xzpf tree.tar.gz -C out; diff -r tree out/tree; cat out/tree/link"
    )
    assert shell(host, script) == "b\n"
    found = (workspace.root / "out/tree/a").stat()
    assert (found.st_mode & 0o777, found.st_nlink, found.st_mtime) == (0o640, 2, 1_000_000_000)


@requires(tools=["sqlite3"])
def test_sqlite(host: Host, workspace: Workspace) -> None:
    """Locks, journals beside the file, and shared memory for the write-ahead log."""
    fill = "create table t (n); insert into t values (1), (2); vacuum; select sum(n) from t;"
    script = "\n".join(f"sqlite3 {kind}.db 'pragma journal_mode={kind}; {fill}'" for kind in ("delete", "wal"))
    assert shell(host, script).split() == ["delete", "3", "wal", "3"]
    assert sorted(os.listdir(workspace.root)) == ["delete.db", "wal.db"]


MULTIPROCESSING = """
import multiprocessing, sys
from multiprocessing import shared_memory

def square(n):
    return n * n

def count(lock, total):
    for _ in range(100):
        with lock:
            total.value += 1

if __name__ == "__main__":
    work = multiprocessing.get_context(sys.argv[1])
    lock, total = work.Lock(), work.Value("i", 0, lock=False)
    both = [work.Process(target=count, args=(lock, total)) for _ in range(2)]
    for each in both: each.start()
    for each in both: each.join()
    with work.Pool(2) as pool:
        print(total.value, sum(pool.map(square, range(5))))
    memory = shared_memory.SharedMemory(create=True, size=16)
    memory.buf[0] = 7
    again = shared_memory.SharedMemory(memory.name)
    print(again.buf[0])
    again.close()
    memory.close()
    memory.unlink()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(host: Host, workspace: Workspace, method: str) -> None:
    """Named semaphores and shared memory live in /dev/shm: private with namespaces, granted by name without them."""
    workspace.write("many.py", MULTIPROCESSING)
    options = ("--modify", "/dev/shm/**", "--read", "/dev/shm/**") if host.name == "landlock" else ()
    said = inside(host, *READ_PYTHON, *options, "--", sys.executable, "many.py", method)
    assert said.split() == ["200", "30", "7"]
