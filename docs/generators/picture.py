"""The README's picture: real commands on a real terminal, drawn by rich as an SVG.

What differs from machine to machine is replaced by what a reader expects: the folder, the place of the shipped files,
the time that a run took.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

PLACE = "docs/picture.svg"
WIDTH = 108

SETUP = """\
mkdir -p ~/.ssh src
echo "a private key" > ~/.ssh/id_rsa
echo "hello" > src/hello.txt
printf 'all:\\n\\t@mkdir -p build\\n\\t@cat src/*.txt > build/all.txt\\n\\t@echo built build/all.txt\\n' > Makefile
echo 'cat ~/.ssh/id_rsa; tee src/hello.txt < /dev/null' > install.sh
"""

COMMANDS = (
    "sbx init",
    "sbx run --profile build -- make",
    "sbx run --profile build --trace -- sh ./install.sh",
    "sbx explain --profile build --modify src/hello.txt",
)

# One look of our own: no fonts from anywhere else, so that the picture shows the same everywhere.
FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xml:space="preserve" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
<rect fill="#16181d" x="1" y="1" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def record(command: list[str] | None = None) -> str:
    """What the terminal shows, with its colours. `command` calls sbx; by default the one beside this Python."""
    import pexpect

    words = command or [str(Path(sys.executable).parent / "sbx")]
    # Not below /tmp, which is private to each run and so would say more than a reader sees.
    place = os.path.realpath(tempfile.mkdtemp(prefix="sbx-picture-", dir=os.path.expanduser(f"~{_user()}")))
    home, project = os.path.join(place, "home"), os.path.join(place, "home", "project")
    os.makedirs(project)
    programs = os.path.join(place, "bin")
    os.mkdir(programs)
    script = os.path.join(programs, "sbx")
    with open(script, "w", encoding="utf-8") as file:
        file.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    os.chmod(script, 0o755)
    environ = {
        "HOME": home,
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin",
        "TERM": "xterm-256color",
        "LANG": "C.UTF-8",
        "COLUMNS": str(WIDTH),
    }
    try:
        shown = []
        for line in ("", *COMMANDS):
            child = pexpect.spawn(
                "/bin/sh", ["-c", line or SETUP], cwd=project, env=environ, encoding="utf-8", dimensions=(50, WIDTH)
            )
            output = child.read()
            child.close()
            if line:
                shown.append(f"\x1b[1;32m$\x1b[0m {line}\r\n{output}")
    finally:
        shutil.rmtree(place)
    return _as_a_reader_expects("\r\n".join(shown), home)


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.getuid()).pw_name


def _as_a_reader_expects(text: str, home: str) -> str:
    text = text.replace("\r\n", "\n").replace(home, "/home/you")
    text = re.sub(r"/[^\s:]*/profiles/(\w+\.yaml)", r"\1", text)
    return re.sub(r", \d+(\.\d+)?m?s\)", ")", text)


def plain(text: str) -> list[str]:
    """The lines of a record without colours."""
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]


def draw(text: str) -> str:
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text))
    return console.export_svg(title="", code_format=FORMAT, unique_id="sbx")


def shown_in(svg: str) -> list[str]:
    """The lines of text in a picture, as a reader sees them."""
    import html

    rows: dict[float, list[tuple[float, str]]] = {}
    for x, y, words in re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>', svg):
        rows.setdefault(float(y), []).append((float(x), html.unescape(words).replace("\xa0", " ")))
    lines = []
    for y in sorted(rows):
        line = ""
        for x, words in sorted(rows[y]):
            line = line.ljust(round(x / 12.2)) + words
        lines.append(line.rstrip())
    return lines
