"""`pytest -p sbx.pytest_plugin --sbx[=PROFILE]`: the whole test session again, inside a sandbox.

The outer pytest starts nothing but the inner one and returns its exit status. Loaded by every pytest that finds sbx
installed, so it imports nothing until it is asked to.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

INSIDE = "SBX_PYTEST_INSIDE"
DEFAULT_PROFILE = "test"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("sbx", "sandbox").addoption(
        "--sbx",
        nargs="?",
        const=DEFAULT_PROFILE,
        default=None,
        metavar="PROFILE",
        help=f"run the whole session in a sandbox, under this profile (default: {DEFAULT_PROFILE})",
    )


def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """None goes on as usual."""
    profile = config.getoption("--sbx")
    if profile is None or os.environ.get(INSIDE):
        return None
    import subprocess

    from sbx.library.pytests import DETERMINISTIC, interpreter_rules
    from sbx.library.session import Session
    from sbx.model.glob import escape

    added = {INSIDE: "1", **DETERMINISTIC}
    folder = config.invocation_params.dir
    package = os.path.realpath(os.path.dirname(__file__))  # the inner pytest finds this plugin, too
    read = [*interpreter_rules(sys.executable), f"{escape(package)}/**"]
    session = Session(profile=profile, cwd=folder, extra_env=added, read=read)
    wrapped = session.wrap([sys.executable, "-m", "pytest", *inner_arguments(config.invocation_params.args)])
    return subprocess.call(wrapped.argv, env={**os.environ, **dict(wrapped.env_additions)})


def inner_arguments(arguments: tuple[str | os.PathLike[str], ...]) -> list[str]:
    """The same without `--sbx`; its value, where it is a word of its own, goes as well. So does this plugin."""
    kept: list[str] = []
    words = iter([os.fspath(each) for each in arguments])
    for word in words:
        if word == "-p":
            value = next(words, "")
            kept += [] if value == __name__ else [word, value]
        elif word == "--sbx":
            following = next(words, "")
            if following.startswith("-"):
                kept.append(following)
        elif not word.startswith("--sbx="):
            kept.append(word)
    return kept
