"""The user's own git configuration: without it a commit has no author.

It is readable in every profile, unless something in it looks like a secret: a URL with a password, a header with a
token. Then it stays hidden, as everything else of the home folder.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 256 * 1024
NAMES = ("config", "ignore", "attributes")  # what git reads of its folder; `credentials` is not among them

_WORDS = (b"extraheader", b"pass", b"token", b"secret", b"apikey", b"api_key", b"bearer", b"authorization")


def places(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Where git looks for it, whether something is there or not."""
    home = environ.get("HOME", "")
    if not home.startswith("/"):
        return ()
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not folder.startswith("/"):
        folder = f"{home}/.config"
    return (f"{home}/.gitconfig", *(f"{folder}/git/{name}" for name in NAMES))


def shareable(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The files among them that a command may read."""
    return tuple(path for path in places(environ) if _may_be_shown(path))


def _may_be_shown(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        data = os.read(descriptor, MAX_BYTES + 1)
    except OSError:
        return False  # a folder
    finally:
        os.close(descriptor)
    return len(data) <= MAX_BYTES and not looks_secret(data)


def looks_secret(data: bytes) -> bool:
    return any(_line_looks_secret(line) for line in data.lower().splitlines())


def _line_looks_secret(line: bytes) -> bool:
    if any(word in line for word in _WORDS):
        return True
    _, found, rest = line.partition(b"://")
    user, at, _ = rest.partition(b"/")[0].rpartition(b"@")
    # ssh://git@host names a login and nothing else; over HTTP a name alone may be a token.
    return bool(found and at) and (b":" in user or b"http" in line)
