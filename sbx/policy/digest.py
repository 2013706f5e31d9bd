"""SHA-256 without the price of `hashlib`, which loads OpenSSL."""

from __future__ import annotations

from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def _find() -> Callable[[bytes], Any]:
    for module in ("_sha2", "_sha256", "hashlib"):  # Python 3.12 and later, 3.11, any
        try:
            found: Callable[[bytes], Any] = __import__(module).sha256
        except (ImportError, AttributeError):
            continue
        return found
    raise ImportError("this Python has no SHA-256")


def sha256_hex(data: bytes) -> str:
    return str(_find()(data).hexdigest())
