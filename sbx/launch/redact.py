"""Secrets stay out of everything sbx prints or stores: which names sound like one, and masking of values.

Values are masked wherever they appear; arguments are also masked by their shape (`--password=…`, `Authorization: …`,
`https://user:…@host`), because a secret typed on the command line has no variable that names it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MASK = "[REDACTED]"
MASK_BYTES = MASK.encode()

# Anywhere in a name.
_PARTS = ("TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "APIKEY", "AUTHORIZATION", "COOKIE")
# As a whole word of a name: KEYBOARD and GIT_AUTHOR_NAME are nobody's secret.
_WORDS = ("KEY", "KEYS", "AUTH", "PASS", "PWD", "PAT", "JWT", "BEARER", "OTP", "PIN", "DSN", "SAS", "SIGNATURE")
# Names that end like this hold a place, not the secret itself.
_PLACES = ("SOCK", "FILE", "PATH", "DIR", "HELPER", "COMMAND", "ASKPASS", "NAME")
_NOT_SECRET = ("PWD", "OLDPWD", "KEY", "PASS")  # as whole names: the shell's folders, and words that say too little

GUESSED_LENGTH = 6  # of a value whose name only sounds like a secret: masking every "1" would spoil the report


def is_sensitive(name: str) -> bool:
    """Does the name of a variable or an option sound like a secret's?"""
    upper = name.upper().replace("-", "_")
    if upper in _NOT_SECRET:
        return False
    words = upper.split("_")
    if words[-1] in _PLACES:
        return False
    return any(part in upper for part in _PARTS) or any(word in _WORDS for word in words)


class LiveMask:
    """Masks values in a stream: a value is found even when it arrives in pieces."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self.values = _ordered(values)
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        if not self.values:
            return data
        out, self._held = _mask(self.values, self._held + data, hold=True)
        return out

    def flush(self, cut: bool = False) -> bytes:
        """What was held back. Of a stream that was cut it may be the first half of a secret."""
        held, self._held = self._held, b""
        if cut and held:
            return MASK_BYTES
        return _mask(self.values, held, hold=False)[0]


class Redactor:
    """`secrets` were declared as such and are masked whatever they are; `guessed` are values of variables whose names
    sound like secrets, masked unless too short to be one."""

    def __init__(self, secrets: Iterable[bytes] = (), guessed: Iterable[bytes] = ()) -> None:
        self.values = _ordered((*secrets, *(value for value in guessed if len(value) >= GUESSED_LENGTH)))

    def data(self, data: bytes) -> bytes:
        return _mask(self.values, data, hold=False)[0] if self.values else data

    def text(self, text: str) -> str:
        if not self.values:
            return text
        return self.data(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")

    def argv(self, argv: Sequence[str]) -> list[str]:
        """A command line that can be shown."""
        shown: list[str] = []
        for at, word in enumerate(argv):
            before = argv[at - 1] if at > 0 else ""
            if before[:1] == "-" and "=" not in before and is_sensitive(before.lstrip("-")) and word[:1] != "-":
                shown.append(MASK)
            else:
                shown.append(_mask_url(_mask_assignment(self.text(word))))
        return shown

    def live(self) -> LiveMask:
        return LiveMask(self.values)


def redactor_for(*environments: dict[bytes, bytes], secret_names: Iterable[bytes] = ()) -> Redactor:
    """For a run with these environments, the caller's and its own: `secret_names` are those the policy declared."""
    declared = set(secret_names)
    secrets, guessed = [], []
    for environ in environments:
        for name, value in environ.items():
            if name in declared:
                secrets.append(value)
            elif is_sensitive(name.decode("utf-8", "replace")):
                guessed.append(value)
    return Redactor(secrets, guessed)


def _ordered(values: Iterable[bytes]) -> tuple[bytes, ...]:
    """Longest first, so that of two that start at the same place the longer one is masked."""
    return tuple(sorted({value for value in values if value}, key=len, reverse=True))


def _mask(values: tuple[bytes, ...], data: bytes, *, hold: bool) -> tuple[bytes, bytes]:
    """The masked data, and with `hold` the end of it that may be the beginning of a value."""
    out: list[bytes] = []
    at = 0
    edge = _edge(values, data, 0) if hold else len(data)
    while True:
        found, size = _next(values, data, at)
        if found < 0 or found >= edge:
            return b"".join((*out, data[at:edge])), data[edge:]
        out.append(data[at:found])
        out.append(MASK_BYTES)
        at = found + size
        if at > edge:
            edge = _edge(values, data, at)


def _next(values: tuple[bytes, ...], data: bytes, at: int) -> tuple[int, int]:
    best, size = -1, 0
    for value in values:
        found = data.find(value, at)
        if found >= 0 and (best < 0 or found < best):
            best, size = found, len(value)
    return best, size


def _edge(values: tuple[bytes, ...], data: bytes, at: int) -> int:
    """Where the earliest value that is not complete yet could start, at or after `at`."""
    longest = len(values[0])
    for start in range(max(at, len(data) - longest + 1), len(data)):
        tail = data[start:]
        if any(len(tail) < len(value) and value.startswith(tail) for value in values):
            return start
    return len(data)


def _mask_assignment(word: str) -> str:
    """`NAME=value`, `--name=value`, `Name: value`."""
    for separator in ("=", ":"):
        name, found, value = word.partition(separator)
        bare = name.lstrip("-")
        is_name = bare.replace("-", "").replace("_", "").replace(".", "").isalnum()
        if found and value and is_name and not value.startswith("//") and is_sensitive(bare.rpartition(".")[2]):
            return f"{name}{separator}{' ' if separator == ':' and value[0] == ' ' else ''}{MASK}"
    return word


def _mask_url(word: str) -> str:
    """The password of every `scheme://user:password@host`; a lone user of http is a token more often than a name."""
    at = 0
    while (start := word.find("://", at)) >= 0:
        start += 3
        end = len(word)
        for stop in "/?# \t\n'\"":
            found = word.find(stop, start)
            end = found if 0 <= found < end else end
        userinfo, found_at, _ = word[start:end].rpartition("@")
        if found_at:
            user, colon, _password = userinfo.partition(":")
            if colon:
                masked = f"{user}:{MASK}"
            else:
                masked = MASK if word[max(0, start - 8) : start].lower().endswith(("http://", "https://")) else user
            word = word[:start] + masked + word[start + len(userinfo) :]
            end = start + len(masked)
        at = end
    return word
