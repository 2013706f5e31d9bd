"""SOCKS5 (RFC 1928) as far as a client without credentials needs it: CONNECT to a name or an address.

Pure functions on bytes: each takes what has arrived and says how much of it was a message.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

from sbx.network.hosts import NetDecision, decide_net
from sbx.network.settings import ProxySettings

VERSION = 5
NO_AUTHENTICATION = b"\x05\x00"
NO_ACCEPTABLE_METHOD = b"\x05\xff"
SOCKS4_REFUSED = b"\x00\x5b\x00\x00\x00\x00\x00\x00"

SUCCEEDED, FAILED, NOT_ALLOWED, COMMAND_UNSUPPORTED, ADDRESS_UNSUPPORTED = 0, 1, 2, 7, 8


class SocksError(Exception):
    """Ends the conversation with ``reply``."""

    def __init__(self, reply: bytes, reason: str) -> None:
        super().__init__(reason)
        self.reply = reply


def reply(code: int) -> bytes:
    # The bound address is of no use to a client behind a proxy, and none of its business.
    return bytes((VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0))


def read_greeting(data: bytes) -> int:
    """The length of the greeting, or 0 while it is incomplete."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return 0
    if 0 not in data[2 : 2 + data[1]]:
        raise SocksError(NO_ACCEPTABLE_METHOD, "the client insists on authentication")
    return 2 + data[1]


def read_request(data: bytes, settings: ProxySettings) -> tuple[int, NetDecision | None]:
    """The length of the request and its verdict, or 0 while it is incomplete."""
    if len(data) < 5:
        return 0, None
    version, command, _reserved, kind, first = data[:5]
    if version != VERSION:
        raise SocksError(reply(FAILED), "not a SOCKS5 request")
    if command != 1:
        raise SocksError(reply(COMMAND_UNSUPPORTED), "only CONNECT is served")
    if kind not in (1, 3, 4):
        raise SocksError(reply(ADDRESS_UNSUPPORTED), "unknown kind of address")
    start = 5 if kind == 3 else 4
    end = start + {1: 4, 3: first, 4: 16}[kind]
    if len(data) < end + 2:
        return 0, None
    raw, port = data[start:end], int.from_bytes(data[end : end + 2], "big")
    if kind == 1:
        host = str(IPv4Address(raw))
    elif kind == 4:
        host = str(IPv6Address(raw))
    else:
        # Bytes that are not UTF-8 become a character that no host has, and so a refusal that is reported as such.
        host = raw.decode("utf-8", "replace")
    return end + 2, decide_net(settings.rules, host, port)
