"""The ranges that a name must not lead to."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from sbx.network.addresses import PUBLIC, address_kind


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.216.34", PUBLIC),
        ("100.63.255.255", PUBLIC),
        ("100.128.0.0", PUBLIC),
        ("172.15.255.255", PUBLIC),
        ("172.32.0.0", PUBLIC),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.255", "loopback"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "carrier-grade NAT"),
        ("169.254.1.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("100.100.100.200", "metadata"),
        ("192.0.2.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("203.0.113.9", "reserved"),
        ("224.0.0.1", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("2606:2800:220:1::1", PUBLIC),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:93.184.216.34", PUBLIC),
        ("fe80::1", "link-local"),
        ("fec0::1", "private"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "metadata"),
        ("ff02::1", "multicast"),
        ("100::1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2002:7f00:1::", "6to4"),
        ("2001:0:7f00:1::", "Teredo"),
        ("64:ff9b::7f00:1", "NAT64 of a loopback"),
        ("64:ff9b::a9fe:a9fe", "NAT64 of a metadata"),
        ("64:ff9b::5db8:d822", PUBLIC),
        ("64:ff9b:1::5db8:d822", "NAT64 of a private network"),
        ("4000::1", "reserved"),
    ],
)
def test_kinds(address: str, kind: str) -> None:
    assert address_kind(ip_address(address)) == kind
