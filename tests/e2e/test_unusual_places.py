"""Where people really run things: through symlinks, on other file systems, without a home, in containers, in itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from capabilities import requires
from runs import HERE, LANDLOCK, PATIENCE_S, READ_PYTHON, with_command

import sbx as package

if TYPE_CHECKING:
    from conftest import Workspace
    from runs import Host

# The package under test may live anywhere; inside, another sbx has to find it.
READ_SBX = [*READ_PYTHON, "--read", f"{Path(package.__file__).parents[1]}/**"]
WORK = "set -eu; cat given; echo new >made; mkdir folder; mv made folder/moved; rm given; pwd"


def in_namespace(script: str, *words: str, flags: str = "-Urm") -> subprocess.CompletedProcess[str]:
    """A shell with a mount namespace of its own, in which it is root; `words` are its "$@"."""
    return subprocess.run(
        ["unshare", *flags.split(), "/bin/sh", "-euc", script, "sh", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def test_a_working_directory_reached_by_a_symlink(host: Host, workspace: Workspace) -> None:
    real = workspace.root / "real"
    real.mkdir()
    (real / "given").write_text("given\n")
    link = workspace.root / "link"
    link.symlink_to("real")
    done = host.run("--", "/bin/sh", "-c", WORK + "; pwd -P", cwd=link, env={"PWD": str(link)})
    assert done.stdout.decode().splitlines() == ["given", str(link), str(real)], done.stderr.decode()
    assert (real / "folder" / "moved").read_text() == "new\n"
    beside = host.run("--", "/bin/sh", "-c", "echo x >../beside", cwd=link, env={"PWD": str(link)})
    assert beside.returncode != 0
    assert not (workspace.root / "beside").exists()


MOUNTS = {
    "tmpfs": 'mount -t tmpfs none "$1"',
    "bind": 'mkdir "$1.other"; mount --bind "$1.other" "$1"',
    "overlay": 'mkdir "$1.all"; mount -t tmpfs none "$1.all"; cd "$1.all"; mkdir lower upper work; '
    'echo low >lower/low; mount -t overlay none -o lowerdir=lower,upperdir=upper,workdir=work,userxattr "$1"',
}


@requires("userns", tools=["unshare", "mount"])
@pytest.mark.parametrize("kind", list(MOUNTS))
def test_a_workspace_on(kind: str, here: Host, workspace: Workspace) -> None:
    place = workspace.root / "place"
    place.mkdir()
    script = f'{MOUNTS[kind]}; cd "$1"; echo given >given; shift; "$@"; cat folder/moved; ls'
    words = here.argv("--", "/bin/sh", "-c", WORK + "; (echo x >../escaped) 2>/dev/null || true")
    done = in_namespace(script, str(place), *words)
    if kind == "overlay" and "mount:" in done.stderr:
        pytest.skip(f"no overlay in a user namespace here: {done.stderr.strip().splitlines()[0]}")
    lines = ["given", str(place), "new", "folder", *(["low"] if kind == "overlay" else [])]
    assert done.stdout.splitlines() == lines, done.stderr
    assert not (workspace.root / "escaped").exists()


@pytest.mark.parametrize("home", [None, "", "relative", "missing"])
def test_without_a_home(host: Host, workspace: Workspace, home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs, and nobody makes a home that was not there."""
    missing = workspace.root.parent / "no such home"
    for name in list(os.environ):
        if name.startswith("XDG_") or name == "HOME":
            monkeypatch.delenv(name)
    if home is not None:
        monkeypatch.setenv("HOME", str(missing) if home == "missing" else home)
    done = host.run("--no-audit", "--", "/bin/sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (0, b"ran\n"), done.stderr.decode()
    assert not missing.exists()
    assert os.listdir(workspace.root) == []
    if home == "missing":
        said = host.run("--", "/bin/sh", "-c", "exit 3").stderr.decode()
        assert "no audit record was written" in said
        assert "the home folder does not exist" in said
        assert not missing.exists()


@requires(root=True)
@requires("userns")
def test_root_with_the_home_of_another_user(here: Host, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `sudo` may leave it. What root made there would be closed to that user."""
    home = workspace.root.parent / "theirs"
    home.mkdir()
    os.chown(home, 65534, 65534)
    for name in list(os.environ):
        if name.startswith("XDG_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    done = here.run("--", "/bin/sh", "-c", "echo ran; exit 3")
    assert (done.returncode, done.stdout) == (3, b"ran\n")
    assert "it belongs to another user" in done.stderr.decode()
    assert list(home.iterdir()) == []


class TestInItself:
    @requires("userns", "notify", landlock=3)
    def test_where_it_would_hold_nothing_it_is_refused(self, here: Host, workspace: Workspace) -> None:
        """No namespaces in there; and names are made by the outer listener, which no inner Landlock domain binds."""
        inner = [*here.command, "run", "--partial", "--profile", "lint", "--", "/bin/sh", "-c", "echo x >made"]
        done = here.run(*READ_SBX, "--", *inner)
        assert (done.returncode, done.stdout) == (125, b"")
        assert "neither user namespaces nor Landlock" in done.stderr.decode()
        assert not (workspace.root / "made").exists()

    @requires("seccomp", landlock=3)
    def test_landlock_in_landlock(self, here: Host, workspace: Workspace) -> None:
        host = with_command(LANDLOCK, list(here.command))
        workspace.write("given", "given\n")
        script = "cat given; (echo x >made) 2>/dev/null || echo no"
        for profile, answer in (("lint", "no"), ("unrestricted", "")):
            inner = [*here.command, "run", "--partial", "--profile", profile, "--", "/bin/sh", "-c", script]
            done = host.run(*READ_SBX, "--", *inner)
            assert done.stdout.decode().split() == ["given", *answer.split()], done.stderr.decode()


# What container engines do to /proc: folders covered, files that need a mask covered, settings read-only.
MASKED = """
for each in /proc/acpi /proc/scsi /proc/fs; do [ ! -d $each ] || mount -t tmpfs -o ro none $each; done
for each in /proc/kcore /proc/keys /proc/timer_list; do [ ! -e $each ] || mount --bind /dev/null $each; done
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
"""


@requires("userns", "seccomp", landlock=3, tools=["unshare", "mount"])
class TestInAContainer:
    def test_doctor_says_that_proc_is_masked(self, here: Host, workspace: Workspace) -> None:
        words = [*here.command, "doctor", "--json"]
        done = in_namespace(MASKED + '"$@"', *words, flags="-Urmpf --mount-proc")
        found = json.loads(done.stdout)
        assert found["full"] is False
        assert "proc_mount" in [reason["mechanism"] for reason in found["reasons"]]
        assert "masked" in json.dumps(found["reasons"])

    def test_full_is_refused_and_partial_runs(self, here: Host, workspace: Workspace) -> None:
        script = MASKED + '"$@" -- echo full || echo "refused $?"; "$@" --partial -- echo partial'
        done = in_namespace(script, *here.argv(), flags="-Urmpf --mount-proc")
        assert done.stdout.splitlines() == ["refused 125", "partial"], done.stderr
        assert "systempaths=unconfined" in done.stderr

    def test_a_proc_without_masks_is_enough(self, here: Host, workspace: Workspace) -> None:
        done = in_namespace('"$@"', *here.argv("--", "echo", "ran"), flags="-Urmpf --mount-proc")
        assert done.stdout == "ran\n", done.stderr

    @pytest.mark.parametrize("name", ["EPERM", "ENOSYS", "ENOSPC"])
    def test_no_user_namespaces(self, name: str, here: Host, workspace: Workspace) -> None:
        prefix = [sys.executable, os.path.join(HERE, "children.py"), f"clone={name}", f"unshare={name}", "--"]
        script = '"$@" -- echo full || echo "refused $?"; "$@" --partial -- /bin/sh -c "echo new >made; cat made"'
        done = subprocess.run(
            [*prefix, "/bin/sh", "-c", script, "sh", *here.argv()], capture_output=True, text=True, check=False
        )
        assert done.stdout.splitlines() == ["refused 125", "new"], done.stderr
        assert "not applied: processes" in done.stderr
