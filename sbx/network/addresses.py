"""What an IP address is for: public, or one of the many ranges that a name from outside must not lead to.

The standard library's ``is_private``/``is_global`` changed meaning between Python releases, and know nothing
of cloud metadata services, so the ranges are written out here.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

IPAddress = IPv4Address | IPv6Address

# The first match names the address, so the narrow ranges stand before the wide ones.
_IPV4: tuple[tuple[IPv4Network, str], ...] = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("169.254.169.254/32", "metadata"),
        ("169.254.170.2/32", "metadata"),  # container credentials
        ("100.100.100.200/32", "metadata"),
        ("168.63.129.16/32", "metadata"),  # a public address by number, a host agent in fact
        ("192.0.0.192/32", "metadata"),
        ("0.0.0.0/8", "unspecified"),  # Linux dials 0.0.0.0 as loopback
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),  # broadcast included
    )
)

_IPV6: tuple[tuple[IPv6Network, str], ...] = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("fd00:ec2::254/128", "metadata"),
        ("fd20:ce::254/128", "metadata"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "private"),  # the old site-local range
        ("fc00::/7", "private"),
        ("ff00::/8", "multicast"),
        ("64:ff9b:1::/48", "NAT64 of a private network"),
        ("2002::/16", "6to4"),
        ("2001::/32", "Teredo"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("3fff::/20", "reserved"),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = IPv6Network("2000::/3")

PUBLIC = "public"


@lru_cache(maxsize=1024)
def canonical_address(address: str | IPAddress) -> IPAddress:
    """The address with an IPv4-mapped IPv6 form undone: ``::ffff:127.0.0.1`` dials 127.0.0.1."""
    parsed = ip_address(address) if isinstance(address, str) else address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        return parsed.ipv4_mapped
    return parsed


@lru_cache(maxsize=1024)
def address_kind(address: IPAddress) -> str:
    """``public``, or the name of the range that makes the address unfit for a name to resolve to."""
    address = canonical_address(address)
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _IPV4 if address in network), PUBLIC)
    if address in _NAT64:
        # A network without IPv4 reaches every IPv4 host this way, so the range as such cannot be refused:
        # the address inside decides.
        inner = address_kind(IPv4Address(int(address) & 0xFFFFFFFF))
        return PUBLIC if inner == PUBLIC else f"NAT64 of a {inner}"
    for network, kind in _IPV6:
        if address in network:
            return kind
    # Everything else outside global unicast is unassigned or an embedding (::a.b.c.d, discard-only, …).
    return PUBLIC if address in _GLOBAL_UNICAST else "reserved"
