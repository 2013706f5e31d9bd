"""Folders to measure in: always the same content, whoever makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

GIT = ("git", "-c", "user.name=Bench", "-c", "user.email=bench@example.com", "-c", "init.defaultBranch=main")


def many_files(folder: Path, count: int, *, per_folder: int = 100, size: int = 300) -> Path:
    """`count` small files, 100 to a folder, so that no single directory is huge."""
    if folder.exists():
        return folder
    content = b"x" * (size - 1) + b"\n"
    for start in range(0, count, per_folder):
        below = folder / f"part{start // 10_000:02}" / f"{start // per_folder % 100:02}"
        below.mkdir(parents=True)
        for number in range(start, min(start + per_folder, count)):
            (below / f"file{number:06}.txt").write_bytes(content)
    return folder


def git_repository(folder: Path) -> Path:
    """Commits whatever is in the folder. Its files are older than git's index: of others every `git status` reads the
    content again."""
    if not (folder / ".git").exists():
        before = time.time() - 3600
        for path in folder.rglob("*"):
            os.utime(path, (before, before))
        for arguments in (("init", "--quiet"), ("add", "-A"), ("commit", "--quiet", "-m", "content")):
            subprocess.run([*GIT, *arguments], cwd=folder, check=True, capture_output=True)
    return folder


def small_workspace(folder: Path) -> Path:
    """What somebody works in: a repository with a few files."""
    if not folder.exists():
        many_files(folder, 20)
        (folder / "Makefile").write_text("all:\n\ttrue\n")
        git_repository(folder)
    return folder


def c_project(folder: Path, files: int = 60, functions: int = 6) -> Path:
    """A make project whose compilation is about all compiler, as in real life."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    for number in range(files):
        parts = ["#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"]
        for index in range(functions):
            name = f"work_{number}_{index}"
            parts.append(
                f"int {name}(const char *text, int *out, int n) {{\n"
                f"  int sum = {index};\n"
                "  for (int i = 0; i < n; i++) {\n"
                "    sum += out[i] * (int)strlen(text) + i % 7;\n    out[i] = sum ^ (sum >> 3);\n  }\n"
                f'  if (sum % 3 == 0) printf("%d %s\\n", sum, text);\n  return sum;\n}}\n'
            )
        (folder / f"unit{number:02}.c").write_text("".join(parts))
    (folder / "Makefile").write_text(
        "OBJECTS := $(patsubst %.c,out/%.o,$(wildcard *.c))\n"
        "all: $(OBJECTS)\n"
        "out/%.o: %.c | out\n\tgcc -O1 -c -o $@ $<\n"
        "out:\n\tmkdir -p out\n"
    )
    return folder


def empty_folder(folder: Path) -> None:
    """There, and with nothing in it. The folder itself stays: a policy may name it."""
    folder.mkdir(exist_ok=True)
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
