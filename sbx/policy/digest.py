"""SHA-256 without the price of `hashlib`, which loads OpenSSL."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def _find() -> Callable[[bytes], Any]:
    # By version, not by trying: a module that is not there is looked for everywhere.
    for module in ("_sha2" if sys.version_info >= (3, 12) else "_sha256", "hashlib"):
        try:
            found: Callable[[bytes], Any] = __import__(module).sha256
        except (ImportError, AttributeError):
            continue
        return found
    raise ImportError("this Python has no SHA-256")


def sha256_hex(data: bytes) -> str:
    return str(_find()(data).hexdigest())
