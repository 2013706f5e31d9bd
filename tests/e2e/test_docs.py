"""Every command of the README and the tutorial, executed in a fresh home folder, its output compared."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capabilities import missing, required, requires
from documents import Reader, as_pattern, parse
from generators import picture

TOP = Path(__file__).parents[2]
PAGES = ["README.md", "docs/tutorial.md", "docs/policy.md", "docs/network.md", "docs/troubleshooting.md"]

# Blocks that no test can run, and why. Whoever adds one adds it here.
NOT_RUN = {
    "it installs",
    "it is for a clone of the repository, and runs these tests",
    "it needs another platform or another host",
    "it needs Docker's sbx",
    "lines for start-up files of three shells",
}


@pytest.fixture
def reader(sbx: Any, tmp_path: Path) -> Iterator[Reader]:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "sbx"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(sbx.command)} "$@"\n')
    script.chmod(0o755)
    environ = {**os.environ, "PATH": f"{folder}:/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
    # Not below /tmp, which is private to each run and so says more in explanations than a reader would see.
    place = tempfile.mkdtemp(prefix="sbx-docs-", dir=pwd.getpwuid(os.getuid()).pw_dir)
    try:
        yield Reader(Path(place).resolve(), environ)
    finally:
        shutil.rmtree(place)


@requires("userns", "landlock", "seccomp", "notify", tools=["bash"])
@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_true(name: str, reader: Reader) -> None:
    page = parse(TOP / name)
    for feature, why in missing(requires(tools=page.needs).mark):
        if feature in required():
            pytest.fail(why)
        pytest.skip(why)
    differences = list(reader.follow(page))
    assert not differences, "\n\n".join(differences)


@pytest.mark.parametrize("name", PAGES)
def test_what_is_not_run_has_a_reason(name: str) -> None:
    reasons = {step.name for step in parse(TOP / name).steps if step.kind == "not run"}
    assert reasons <= NOT_RUN


def test_the_pages_are_not_empty() -> None:
    counts = {name: sum(step.kind == "run" for step in parse(TOP / name).steps) for name in PAGES}
    assert counts["README.md"] >= 7
    assert counts["docs/tutorial.md"] >= 12


def every_page() -> list[Path]:
    return sorted([*TOP.glob("*.md"), *(TOP / "docs").rglob("*.md")])


@pytest.mark.parametrize("path", every_page(), ids=lambda path: str(path.relative_to(TOP)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target or target.startswith("#"):
            continue
        assert (path.parent / target.partition("#")[0]).exists(), f"{path.name} links to {target}"


def test_the_runner_notices_what_differs(reader: Reader, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ echo one\none\n$ echo two\nthree\n$ exit 3\n$ echo $?\n3\n```\n\n"
        "<!-- given\necho ready > made\n-->\n```sh\ncat made; cat other\n```\n```output\nready\n…\n```\n"
        "```sh\nfalse\n```\n<!-- file: x/y -->\n```yaml\na: 1\n```\n```console\n$ cat x/y\na: …\n```\n"
    )
    differences = list(reader.follow(parse(page)))
    assert [line.splitlines()[0] for line in differences] == ["page.md:4: echo two", "page.md:21: exited with 1:"]


def test_dots_stand_for_what_differs_between_machines() -> None:
    assert as_pattern("a … c\n…\nd\n").fullmatch("a b c\nd\n")
    assert as_pattern("a … c\n…\nd\n").fullmatch("a  c\nx\ny\nd\n")
    assert not as_pattern("a … c\nd\n").fullmatch("a b c\nx\nd\n")
    assert not as_pattern("a.c\n").fullmatch("abc\n")


def test_pages_speak_of_the_project_alone() -> None:
    """No path of a machine it was written on."""
    for path in every_page():
        assert not re.search(r"(?<![\w.])/(work|root)/", path.read_text(encoding="utf-8")), path


def words_of(lines: list[str]) -> list[str]:
    """What sbx says; not what cat and tee say, nor what the C library tried, nor where a shipped rule stands."""
    kept = [line for line in lines if not line.startswith(("cat:", "tee:", "  note"))]
    return re.sub(r"((?:denies|profiles|baseline)\.yaml):\d+", r"\1", " ".join(kept)).split()


@requires("userns", "landlock", "seccomp", "notify", tools=["make"])
def test_the_picture_shows_what_is_printed(sbx: Any) -> None:
    now = picture.plain(picture.record(sbx.command))
    assert words_of(picture.shown_in((TOP / picture.PLACE).read_text())) == words_of(now), (
        "run 'python docs/generate.py --picture', and look at it"
    )


def test_the_picture_loads_nothing_and_names_no_machine() -> None:
    text = (TOP / picture.PLACE).read_text()
    assert "url(http" not in text
    assert "@import" not in text
    assert not re.search(r"/(work|root|tmp)/", text)
    assert len(picture.shown_in(text)) > 20
