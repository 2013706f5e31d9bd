"""Which host and port may be reached: the one evaluator of network rules. Pure: no sockets, no lookups.

A rule and a request go through the same normalization, so that two spellings of one host cannot get two
verdicts, and what cannot be read in exactly one way is refused instead of guessed. The caller dials
``NetDecision.host``, never the text that the client sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from sbx.model.records import dataclass
from sbx.network.addresses import PUBLIC, IPAddress, address_kind, canonical_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.model.source import Source

MAX_NAME = 253
MAX_LABEL = 63
_LABEL_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")
_DIGITS = frozenset("0123456789")
_HEX_DIGITS = frozenset("0123456789abcdef")
_DOTS_OF_OTHER_SCRIPTS = str.maketrans("。．｡", "...")
# IDNA 2003 (the standard library's) and IDNA 2008 (curl, browsers) turn these into different domains,
# which may belong to different people.
_AMBIGUOUS_IN_IDNA = frozenset("ßẞς\u200c\u200d")


@dataclass(frozen=True, slots=True)
class HostRule:
    """One entry of an allow list. ``host`` is normalized; under ``wildcard`` it is the part after ``*.``."""

    text: str
    host: str
    port: int
    wildcard: bool = False
    source: Source | None = None

    @property
    def address(self) -> IPAddress | None:
        """The address, for a rule that was written as an IP literal."""
        return literal_address(self.host)

    def covers_host(self, host: str) -> bool:
        """Whether a normalized host is this rule's, whatever the port."""
        if self.wildcard:
            return host.endswith("." + self.host)
        return host == self.host


@dataclass(frozen=True, slots=True)
class NetDecision:
    allowed: bool
    host: str
    port: int
    rule: HostRule | None
    reason: str

    @property
    def authority(self) -> str:
        return join_authority(self.host, self.port)

    @property
    def remedy(self) -> str:
        """The option that would allow it; empty when it is allowed, or when no rule could be written for it."""
        if self.allowed or not 0 < self.port < 65536:
            return ""
        try:
            return "--net " + parse_rule(self.authority).text
        except ValueError:
            return ""


@dataclass(frozen=True, slots=True)
class AddressVerdict:
    allowed: bool
    address: str
    reason: str


def parse_rule(text: str, source: Source | None = None) -> HostRule:
    """An allow-list entry. Stricter than a request: an odd spelling in a policy is a mistake to be told about."""
    if not text:
        raise ValueError("empty network rule: write HOST:PORT, such as api.example.com:443")
    for mark, advice in (("://", "without the scheme"), ("/", "without a path"), ("@", "without a user")):
        if mark in text:
            raise ValueError(f"network rule {text!r}: write it as HOST:PORT, {advice}")
    try:
        host_text, port_text = _split_port(text)
    except ValueError as error:
        raise ValueError(f"network rule {text!r}: {error}") from None
    if port_text is None:
        raise ValueError(f"network rule {text!r} needs a port, such as {text}:443")
    if port_text == "*":
        raise ValueError(f"network rule {text!r}: a port must be a number, one rule for each port")
    wildcard = host_text.startswith("*.")
    if wildcard:
        host_text = host_text[2:]
    if "*" in host_text:
        raise ValueError(f"network rule {text!r}: a wildcard can only stand first, as in *.example.com:443")
    try:
        host, port = normalize_host(host_text), normalize_port(port_text)
    except ValueError as error:
        raise ValueError(f"network rule {text!r}: {error}") from None
    address = literal_address(host)
    if wildcard and (address is not None or "." not in host):
        raise ValueError(f"network rule {text!r}: a wildcard needs a domain of two parts or more, as in *.example.com")
    if address is not None:
        _check_literal(text, host_text, address)
    return HostRule(text, host, port, wildcard, source)


def _check_literal(text: str, host_text: str, address: IPAddress) -> None:
    if address_kind(address) == "unspecified":
        raise ValueError(f"network rule {text!r}: {address} is not an address that can be reached")
    if literal_address(host_text.strip("[]")) is None:
        raise ValueError(f"network rule {text!r}: write the address as {address}")


def parse_rules(texts: Iterable[str], source: Source | None = None) -> tuple[HostRule, ...]:
    return tuple(parse_rule(text, source) for text in texts)


def decide_net(rules: Sequence[HostRule], host: str, port: int | str) -> NetDecision:
    """May HOST:PORT, as a client spelled it, be reached? No rule is no network."""
    try:
        name = normalize_host(host)
        number = normalize_port(port) if isinstance(port, str) else _checked_port(port)
    except ValueError as error:
        shown = "".join(c if c.isprintable() else "?" for c in host[:MAX_NAME])
        return NetDecision(False, shown, port if isinstance(port, int) else 0, None, str(error))
    same_host = [rule for rule in rules if rule.covers_host(name)]
    for rule in same_host:
        if rule.port == number:
            return NetDecision(True, name, number, rule, f"rule {rule.text}")
    return NetDecision(False, name, number, None, _miss_reason(rules, same_host, name))


def _miss_reason(rules: Sequence[HostRule], same_host: Sequence[HostRule], name: str) -> str:
    if not rules:
        return "no rule: the allow list is empty"
    if same_host:
        ports = ", ".join(str(port) for port in sorted({rule.port for rule in same_host}))
        return f"no rule for this port, only for {ports}"
    for rule in rules:
        if rule.wildcard and rule.host == name:
            return f"no rule: {rule.text} covers the names below {name}, not {name} itself"
    return "no rule"


def address_verdict(address: str | IPAddress, rule: HostRule, rules: Iterable[HostRule] = ()) -> AddressVerdict:
    """May the address that ``rule``'s host resolved to be dialled?

    A public address may. Any other must be listed as such: by the rule itself being that IP literal, by another
    rule being that literal with the same port, or, for loopback, by the rule being ``localhost``.
    """
    target = canonical_address(address)
    kind = address_kind(target)
    if kind == PUBLIC:
        return AddressVerdict(True, str(target), "public address")
    if rule.address == target:
        return AddressVerdict(True, str(target), f"listed as {rule.text}")
    if kind == "loopback" and rule.host == "localhost" and not rule.wildcard:
        return AddressVerdict(True, str(target), "localhost is listed")
    for other in rules:
        if other.port == rule.port and other.address == target:
            return AddressVerdict(True, str(target), f"listed as {other.text}")
    reason = f"it resolves to {target} ({kind}), which is only reached if {join_authority(str(target), rule.port)}"
    return AddressVerdict(False, str(target), reason + " is listed too")


def split_authority(text: str, default_port: int | None = None) -> tuple[str, str]:
    """``[user@]host[:port]`` of a request as (host, port) texts, user dropped. Not yet normalized."""
    if text.count("@") > 1:
        raise ValueError("more than one @ in the address")
    host, port = _split_port(text.rpartition("@")[2])
    if port is None:
        if default_port is None:
            raise ValueError("the port is missing")
        return host, str(default_port)
    return host, port


def _split_port(text: str) -> tuple[str, str | None]:
    if text.startswith("["):
        host, bracket, rest = text.partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("unbalanced brackets around an IPv6 address")
        return host + bracket, rest[1:] if rest else None
    if text.count(":") > 1:
        raise ValueError("an IPv6 address needs brackets, as in [2001:db8::1]:443")
    host, colon, port = text.partition(":")
    return host, port if colon else None


def join_authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def normalize_port(text: str) -> int:
    # int() alone would take "+443", " 443", "4_43" and the digits of every script.
    if not text or len(text) > 5 or not _DIGITS.issuperset(text):
        raise ValueError(f"{text[:20]!r} is not a port number")
    return _checked_port(int(text))


def _checked_port(port: int) -> int:
    if not 0 < port < 65536:
        raise ValueError(f"{port} is not a port between 1 and 65535")
    return port


@lru_cache(maxsize=1024)
def literal_address(text: str) -> IPAddress | None:
    """The address, if the text is one in its ordinary spelling; the oddities of inet_aton are not."""
    if ":" not in text and (not text or text[-1] not in _DIGITS):
        return None  # spares every name the cost of an exception
    try:
        return canonical_address(IPv6Address(text) if ":" in text else IPv4Address(text))
    except AddressValueError:
        return None


def normalize_host(text: str) -> str:
    """The one spelling of a host: an A-label name in lower case without final dot, or an IP address."""
    if not text:
        raise ValueError("the host is empty")
    if len(text) > 4 * MAX_NAME:
        raise ValueError("the host name is too long")
    if any(character <= " " or character == "\x7f" for character in text):
        raise ValueError("the host contains a space or a control character")
    bracketed = text.startswith("[") and text.endswith("]")
    if bracketed:
        text = text[1:-1]
    if ":" in text or bracketed:
        return _normalize_ipv6(text)
    if "%" in text:
        raise ValueError("the host contains a percent sign: escapes are not undone")
    name = (text if text.isascii() else _to_ascii(text)).lower()
    labels = name.removesuffix(".").split(".")
    if _is_number(labels[-1]):
        return str(_parse_ipv4(labels))
    return _checked_name(labels)


def _normalize_ipv6(text: str) -> str:
    if "%" in text:
        raise ValueError("an IPv6 address with a zone is not a host that can be listed")
    try:
        return str(canonical_address(IPv6Address(text)))
    except AddressValueError:
        raise ValueError(f"{text[:60]!r} is not an IPv6 address") from None


def _to_ascii(text: str) -> str:
    if _AMBIGUOUS_IN_IDNA.intersection(text):
        raise ValueError("the host has a character that different programs encode differently: write its xn-- form")
    if len(text) > MAX_NAME:
        raise ValueError("the host name is too long")
    try:
        return text.translate(_DOTS_OF_OTHER_SCRIPTS).encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError("the host is not a valid international domain name") from None


def _checked_name(labels: list[str]) -> str:
    for label in labels:
        if not label:
            raise ValueError("the host has an empty label (two dots in a row, or a leading dot)")
        if len(label) > MAX_LABEL:
            raise ValueError(f"the host has a label of more than {MAX_LABEL} characters")
        if not _LABEL_CHARACTERS.issuperset(label):
            raise ValueError("the host has a character that no host name has")
        if label[0] == "-" or label[-1] == "-":
            raise ValueError("the host has a label that begins or ends with a hyphen")
    name = ".".join(labels)
    if len(name) > MAX_NAME:
        raise ValueError("the host name is too long")
    return name


def _is_number(label: str) -> bool:
    """Whether a last label makes the host an IPv4 address: the URL standard's rule, which no real domain breaks."""
    if label.startswith("0x"):
        return _HEX_DIGITS.issuperset(label[2:])
    return bool(label) and _DIGITS.issuperset(label)


def _parse_ipv4(parts: list[str]) -> IPv4Address:
    """What inet_aton would dial: decimal, octal and hexadecimal parts, the last one filling what is left."""
    if len(parts) > 4:
        raise ValueError("an IPv4 address has four parts at most")
    numbers = [_parse_ipv4_part(part) for part in parts]
    *heads, last = numbers
    if any(number > 255 for number in heads) or last >= 256 ** (4 - len(heads)):
        raise ValueError("a part of the IPv4 address is too large")
    value = last
    for position, number in enumerate(heads):
        value += number << (8 * (3 - position))
    return IPv4Address(value)


def _parse_ipv4_part(part: str) -> int:
    # The digits are checked by hand because int() would also take "0o17", "1_0" and "+1".
    if part.startswith("0x"):
        digits, base = part[2:] or "0", 16
    else:
        digits, base = part, 8 if part.startswith("0") else 10
    if not digits or len(digits) > 12 or not _HEX_DIGITS.issuperset(digits):
        raise ValueError(f"{part[:20]!r} is not a part of an IPv4 address")
    try:
        return int(digits, base)
    except ValueError:
        raise ValueError(f"{part!r} is not a part of an IPv4 address") from None
