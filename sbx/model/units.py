"""Durations and sizes as people write them. No imports: the launch side parses options with this too."""

from __future__ import annotations

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    # As GNU dd and head have it: K and KiB count in 1024, KB in 1000.
    _BYTES[_letter] = _BYTES[_letter + "ib"] = 1024**_power
    _BYTES[_letter + "b"] = 1000**_power
MAX_SECONDS = 366 * 86400.0
MAX_BYTES = 2**62


class BadUnit(ValueError):
    """The text is not a duration or a size; the message says how to write one."""


def parse_duration(text: str) -> float:
    """`30`, `30s`, `5m`, `1h30m`, `500ms`, `1.5s` in seconds."""
    total, rest = 0.0, text.strip().lower()
    if not rest:
        raise BadUnit("an empty duration; write 30s, 5m or 1h30m")
    smallest = MAX_SECONDS
    while rest:
        if rest[0].isspace():
            raise BadUnit(f"'{text}' has a space in it; write it in one, as in 10m or 1h30m")
        number, rest = _number(rest, text)
        unit, rest = _letters(rest)
        scale = _SECONDS.get(unit or "s")
        if scale is None:
            raise BadUnit(f"'{unit}' is not a unit of time; write ms, s, m, h or d, as in 1h30m")
        if scale >= smallest or (not unit and smallest != MAX_SECONDS):
            raise BadUnit(f"'{text}' is not a duration; write the larger unit first and each once, as in 1h30m")
        smallest = scale
        total += number * scale
    if total > MAX_SECONDS:
        raise BadUnit(f"'{text}' is longer than a year; leave the limit out for none")
    return total


def parse_size(text: str) -> int:
    """`512`, `512MiB`, `512M`, `1GB` in bytes."""
    number, rest = _number(text.strip().lower(), text)
    unit, rest = _letters(rest.strip())
    scale = _BYTES.get(unit)
    if rest or scale is None:
        raise BadUnit(f"'{text}' is not a size; write bytes or K, M, G, T (1024) or KB, MB, GB (1000), as in 512MiB")
    size = int(number * scale)
    if size > MAX_BYTES:
        raise BadUnit(f"'{text}' is more than any machine has; leave the limit out for none")
    return size


def parse_count(text: str) -> int:
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()) or len(stripped) > 9:
        raise BadUnit(f"'{text}' is not a count; write a whole number, as in 256")
    return int(stripped)


def format_duration(seconds: float) -> str:
    """The shortest exact spelling that parse_duration reads back."""
    milliseconds = round(seconds * 1000)
    parts = []
    for unit, size in (("d", 86400000), ("h", 3600000), ("m", 60000), ("s", 1000), ("ms", 1)):
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def format_size(size: int) -> str:
    """The shortest exact spelling that parse_size reads back."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)


def _number(text: str, whole: str) -> tuple[float, str]:
    end = 0
    while end < len(text) and text[end] in "0123456789.":
        end += 1
    digits = text[:end]
    if text[:1] == "-":
        raise BadUnit(f"'{whole}' is negative; write a number like 30s or 512MiB")
    if not digits or digits.count(".") > 1 or digits == "." or end > 18:
        raise BadUnit(f"'{whole}' does not start with a number; write one like 30s or 512MiB")
    return float(digits), text[end:]


def _letters(text: str) -> tuple[str, str]:
    end = 0
    while end < len(text) and text[end].isalpha():
        end += 1
    return text[:end], text[end:]
