"""sbx as people get it: the built wheel in a fresh virtual environment, used by an ordinary user. And its peers."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent.parent
# Where a system keeps its own Python: never a version manager's shim, which would be measured along with sbx.
PYTHONS = ("/usr/bin/python3", "/usr/bin/python3.13", "/usr/bin/python3.12", "/usr/bin/python3.11", "/bin/python3")
NPM_PACKAGES = {"srt": "@anthropic-ai/sandbox-runtime", "codex": "@openai/codex"}


class CannotInstall(Exception):
    pass


@dataclass(frozen=True)
class Installed:
    place: Path
    sbx: str
    python: str
    prefix: tuple[str, ...]  # makes a command the ordinary user's
    environ: dict[str, str]
    peers: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def must(argv: list[str], what: str, cwd: Path = TOP) -> None:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotInstall(f"{what} failed:\n{(done.stderr or done.stdout).strip()}")


@contextlib.contextmanager
def installed(python: str | None, *, commit: str | None, with_npm: bool) -> Iterator[Installed]:
    """A place with the wheel in a fresh environment, a home and a work folder of the measuring user."""
    # Not /tmp: some peers refuse a home there.
    place = Path(tempfile.mkdtemp(prefix="sbx-bench.", dir="/var/tmp" if os.access("/var/tmp", os.W_OK) else None))
    place.chmod(0o755)
    try:
        with ordinary_user() as (user, prefix):
            chosen = python or find_python(prefix)
            build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
            must([*build, "--wheel-dir", str(place / "wheel"), "."], "building the wheel", sources(place, commit))
            must([chosen, "-m", "venv", str(place / "venv")], "making the virtual environment")
            wheel = next((place / "wheel").glob("*.whl"))
            pip = [str(place / "venv/bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            must([*pip, str(wheel)], "installing the wheel")
            shutil.copytree(TOP / "bench", place / "bench", ignore=shutil.ignore_patterns("out", "__pycache__"))
            peers, missing = npm_peers(place / "npm") if with_npm else ({}, dict.fromkeys(NPM_PACKAGES, "left out"))
            must(["chmod", "-R", "a+rX", str(place)], "opening the place to the measuring user")
            for name in ("home", "work"):
                (place / name).mkdir()
                os.chown(place / name, user.pw_uid, user.pw_gid)
            yield Installed(
                place,
                str(place / "venv/bin/sbx"),
                str(place / "venv/bin/python"),
                prefix,
                environment(user.pw_name, place),
                peers,
                missing,
            )
    finally:
        shutil.rmtree(place)


def sources(place: Path, commit: str | None) -> Path:
    """The working tree, or what a commit holds."""
    if commit is None:
        return TOP
    folder = place / "source"
    folder.mkdir()
    must(["git", "archive", "--output", str(folder / "source.tar"), commit], f"reading the commit {commit}")
    must(["tar", "xf", "source.tar"], "unpacking the commit", folder)
    return folder


def environment(user: str, place: Path) -> dict[str, str]:
    """An ordinary one, with a home of its own: no stored plans of yesterday, nothing left behind."""
    path = f"{place}/venv/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return {"HOME": f"{place}/home", "USER": user, "LOGNAME": user, "LANG": "C.UTF-8", "PATH": path, "TERM": "xterm"}


@contextlib.contextmanager
def ordinary_user() -> Iterator[tuple[pwd.struct_passwd, tuple[str, ...]]]:
    """This user, or for root another one: root starts faster and may more."""
    if os.getuid():
        yield pwd.getpwuid(os.getuid()), ()
        return
    name = os.environ.get("SBX_TEST_USER", "sbxtest")
    made = False
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        must(["useradd", "--create-home", "--shell", "/bin/sh", name], f"making the user {name}")
        made = True
        user = pwd.getpwnam(name)
    try:
        yield user, ("setpriv", "--reuid", name, "--regid", str(user.pw_gid), "--init-groups", "--inh-caps=-all")
    finally:
        if made:
            subprocess.run(["userdel", "--remove", name], capture_output=True, check=False)


def find_python(prefix: tuple[str, ...]) -> str:
    test = "import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))"
    for candidate in PYTHONS:
        if os.path.exists(candidate):
            done = subprocess.run([*prefix, candidate, "-c", test], capture_output=True, check=False)
            if done.returncode == 0:
                return candidate
    raise CannotInstall("no system Python >= 3.11 with venv; name one with --python")


def npm_peers(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Programs from npm, and for what could not be installed the reason."""
    npm = shutil.which("npm")
    if npm is None:
        return {}, dict.fromkeys(NPM_PACKAGES, "npm is not installed")
    found, missing = {}, {}
    for name, package in NPM_PACKAGES.items():
        below = folder / name
        below.mkdir(parents=True)
        try:
            must([npm, "install", "--prefix", str(below), "--no-audit", "--no-fund", package], f"npm install {package}")
        except CannotInstall as error:
            missing[name] = str(error).splitlines()[0] + ": " + str(error).splitlines()[-1]
            continue
        program = below / "node_modules" / ".bin" / name
        if program.exists():
            found[name] = str(program)
        else:
            missing[name] = f"{package} has no program {name}"
    return found, missing
