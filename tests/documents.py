"""Pages as programs: the code blocks of a Markdown page, run in order, their output compared with what the page shows.

    ```console      lines that start with `$ ` are run, what follows is their output
    ```sh           run as a whole, as if pasted; an ```output block after it is what it prints
    <!-- file: NAME -->            the next block is the content of a file
    <!-- given ... -->             a script that prepares what a reader would have
    <!-- fresh folder -->          from here on, an empty folder and an empty home
    <!-- needs: TOOL TOOL -->      what the page needs to be run
    <!-- not run: REASON -->       the next block is not run; the test lists every reason

In output, a line `…` stands for any lines, and `…` in a line for any text.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^(`{3,})([a-z]*)\s*$")
RUNNABLE = ("sh", "console")


@dataclass
class Step:
    """One thing to do, with the line of the page it stands on."""

    kind: str  # run, file, given, fresh, not run
    line: int
    text: str = ""
    name: str = ""  # of a file; the reason why not
    expected: str | None = None


@dataclass
class Page:
    path: Path
    steps: list[Step] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)


def parse(path: Path) -> Page:
    page = Page(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    position = 0
    note = ("", "")
    while position < len(lines):
        line = lines[position]
        number = position + 1
        position += 1
        if line.startswith("<!--"):
            comment = [line.removeprefix("<!--")]
            while "-->" not in comment[-1]:
                comment.append(lines[position])
                position += 1
            words = "\n".join(comment).partition("-->")[0].strip("\n")
            note = _comment(page, words, number)
            continue
        found = FENCE.match(line)
        if found is None:
            note = note if not line.strip() else ("", "")
            continue
        end = next(at for at in range(position, len(lines)) if lines[at].startswith(found[1]))
        _block(page, found[2], lines[position:end], number, note)
        position, note = end + 1, ("", "")
    return page


def _comment(page: Page, words: str, number: int) -> tuple[str, str]:
    """A comment about the page or its folder; or about the block that follows, which is returned."""
    key, _, rest = words.strip().partition(":")
    if words.strip().startswith("given\n"):
        page.steps.append(Step("given", number, words.strip().removeprefix("given\n")))
    elif key == "fresh folder":
        page.steps.append(Step("fresh", number))
    elif key == "needs":
        page.needs += rest.split()
    elif key in ("file", "not run"):
        return key, rest.strip()
    return "", ""


def _block(page: Page, language: str, lines: list[str], number: int, note: tuple[str, str]) -> None:
    text = "\n".join(lines) + "\n"
    kind, value = note
    if kind == "file":
        page.steps.append(Step("file", number, text, value))
    elif kind == "not run":
        page.steps.append(Step("not run", number, text, value))
    elif language == "console":
        page.steps += _commands(lines, number)
    elif language == "sh":
        page.steps.append(Step("run", number, text))
    elif language == "output":
        assert page.steps and page.steps[-1].kind == "run", f"{page.path}:{number}: output of nothing"
        page.steps[-1].expected = text


def _commands(lines: list[str], number: int) -> Iterator[Step]:
    step: Step | None = None
    for offset, line in enumerate(lines):
        if line.startswith("$ "):
            if step is not None:
                yield step
            step = Step("run", number + 1 + offset, line[2:], expected="")
        elif step is not None and line.startswith("> ") and not step.expected:
            step.text += "\n" + line[2:]
        else:
            assert step is not None and step.expected is not None, f"line {number}: output before a command"
            step.expected += line + "\n"
    if step is not None:
        yield step


def as_pattern(expected: str) -> re.Pattern[str]:
    parts = []
    for line in expected.rstrip("\n").split("\n"):
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(re.escape(part) for part in line.rstrip().split("…")) + r"[ ]*\n")
    return re.compile("".join(parts))


class Reader:
    """Somebody who follows a page: an own home, a folder, a shell that remembers where it is."""

    def __init__(self, place: Path, environ: Mapping[str, str]) -> None:
        self.place = place
        self.environ = dict(environ)
        self.count = 0
        self.status = 0
        self.fresh()

    def fresh(self) -> None:
        self.count += 1
        home = self.place / str(self.count) / "home"
        self.folder = home / "project"
        self.folder.mkdir(parents=True)
        for name in [name for name in self.environ if name.startswith("XDG_")]:
            del self.environ[name]
        path = self.environ["PATH"].split(os.pathsep)
        path = [each for each in path if not each.endswith("/.local/bin")]
        self.environ |= {"HOME": str(home), "PATH": os.pathsep.join([f"{home}/.local/bin", *path])}

    def run(self, text: str) -> str:
        """What it prints, standard error included, in the order a terminal would show it."""
        where = self.place / "where"
        # `$?` is that of the command before, as in a shell.
        script = f"(exit {self.status})\n{text}\nstatus=$?; pwd > '{where}'; exit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=240,
            check=False,
        )
        self.status = done.returncode
        if where.exists():
            self.folder = Path(where.read_text().rstrip("\n"))
            where.unlink()
        return done.stdout

    def follow(self, page: Page) -> Iterator[str]:
        """Do every step; yields what differs from what the page says."""
        for step in page.steps:
            where = f"{page.path.name}:{step.line}"
            if step.kind == "fresh":
                self.fresh()
            elif step.kind == "file":
                (self.folder / step.name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / step.name).write_text(step.text, encoding="utf-8")
            elif step.kind == "given":
                printed = self.run(step.text)
                if self.status:
                    yield f"{where}: what is given could not be made:\n{printed}"
            elif step.kind == "run":
                printed = self.run(step.text)
                if step.expected is None:
                    if self.status:
                        yield f"{where}: exited with {self.status}:\n{printed}"
                elif as_pattern(step.expected).fullmatch(_ended(printed)) is None:
                    yield f"{where}: {step.text.strip()}\n--- the page says\n{step.expected}--- it prints\n{printed}"


def _ended(printed: str) -> str:
    return printed if printed.endswith("\n") else printed + "\n"
