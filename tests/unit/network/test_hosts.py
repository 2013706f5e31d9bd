"""Host rules: what may be written, what a client's spelling means, and what is refused for having two meanings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.model.source import Source
from sbx.network.hosts import (
    HostRule,
    address_verdict,
    decide_net,
    join_authority,
    normalize_host,
    normalize_port,
    parse_rule,
    parse_rules,
    split_authority,
)

RULES = parse_rules(
    [
        "api.example.com:443",
        "*.wild.example.com:443",
        "xn--mnchen-3ya.example:443",
        "127.0.0.1:8080",
        "10.0.0.5:8080",
        "8.8.8.8:443",
        "[2001:db8::1]:443",
        "localhost:8000",
    ]
)

# (what a client asks for, the rule that lets it through or None)
API, WILD, IDN, LOOP, TEN, EIGHT, SIX, LOCAL = (rule.text for rule in RULES)
SPELLINGS: list[tuple[str, int | str, str | None]] = [
    # names
    ("api.example.com", 443, API),
    ("API.Example.COM", 443, API),
    ("api.example.com.", 443, API),
    ("API.EXAMPLE.COM.", "443", API),
    ("api.example.com..", 443, None),
    (".api.example.com", 443, None),
    ("api..example.com", 443, None),
    ("api.example.com ", 443, None),
    (" api.example.com", 443, None),
    ("api.example.com\0", 443, None),
    ("api.example.com\0.evil.example.net", 443, None),
    ("evil.example.net\r\napi.example.com", 443, None),
    ("api.example.com\n", 443, None),
    ("api.example.com\t", 443, None),
    ("api.example.com\x7f", 443, None),
    ("xapi.example.com", 443, None),
    ("api.example.com.evil.example.net", 443, None),
    ("api.example.comx", 443, None),
    ("example.com", 443, None),
    ("sub.api.example.com", 443, None),
    ("*", 443, None),
    ("*.example.com", 443, None),
    ("", 443, None),
    (".", 443, None),
    ("-api.example.com", 443, None),
    ("api.example.com/", 443, None),
    ("api.example.com?", 443, None),
    ("api.example.com#@evil.example.net", 443, None),
    ("api.example.com\\", 443, None),
    ("user@api.example.com", 443, None),  # a user is cut off by split_authority, never here
    ("a" * 64 + ".example.com", 443, None),
    (("a" * 60 + ".") * 5 + "example.com", 443, None),
    ("a" * 5000, 443, None),
    # percent escapes
    ("%61pi.example.com", 443, None),
    ("api%2eexample.com", 443, None),
    ("api.example.com%00", 443, None),
    ("api.example.com%0d%0a", 443, None),
    # international names and look-alikes
    ("münchen.example", 443, IDN),
    ("MÜNCHEN.example", 443, IDN),
    ("XN--MNCHEN-3YA.example", 443, IDN),
    ("mu\u0308nchen.example", 443, IDN),
    ("ａｐｉ.example.com", 443, API),
    ("api。example。com", 443, API),
    ("api．example．com", 443, API),
    ("api｡example｡com", 443, API),
    ("аpi.example.com", 443, None),  # a Cyrillic letter
    ("api\u200d.example.com", 443, None),
    ("straße.example", 443, None),
    ("api.example.com\u2025", 443, None),
    ("℀pi.example.com", 443, None),
    ("\udcff.example.com", 443, None),
    # wildcards
    ("a.wild.example.com", 443, WILD),
    ("a.b.wild.example.com", 443, WILD),
    ("A.Wild.Example.com.", 443, WILD),
    ("wild.example.com", 443, None),
    (".wild.example.com", 443, None),
    ("notwild.example.com", 443, None),
    ("a.wild.example.com.evil.example.net", 443, None),
    # ports
    ("api.example.com", 80, None),
    ("api.example.com", 0, None),
    ("api.example.com", -1, None),
    ("api.example.com", 65536 + 443, None),
    ("api.example.com", "0443", API),
    ("api.example.com", "00443", API),
    ("api.example.com", "000443", None),
    ("api.example.com", "+443", None),
    ("api.example.com", "-443", None),
    ("api.example.com", " 443", None),
    ("api.example.com", "443 ", None),
    ("api.example.com", "443/", None),
    ("api.example.com", "4_43", None),
    ("api.example.com", "0x1bb", None),
    ("api.example.com", "443.0", None),
    ("api.example.com", "４４３", None),
    ("api.example.com", "٤٤٣", None),
    ("api.example.com", "65979", None),
    ("api.example.com", "", None),
    # IPv4
    ("127.0.0.1", 8080, LOOP),
    ("127.0.0.1.", 8080, LOOP),
    ("127.1", 8080, LOOP),
    ("127.0.1", 8080, LOOP),
    ("2130706433", 8080, LOOP),
    ("0x7f000001", 8080, LOOP),
    ("0X7F.0.0.1", 8080, LOOP),
    ("0177.0.0.1", 8080, LOOP),
    ("0x7f.1", 8080, LOOP),
    ("017700000001", 8080, LOOP),
    ("１２７.0.0.1", 8080, LOOP),
    ("①②⑦.0.0.1", 8080, LOOP),
    ("012.0.0.5", 8080, TEN),
    ("10.0.0.5", 8080, TEN),
    ("010.0.0.5", 8080, None),  # octal: 8.0.0.5
    ("127.0.0.2", 8080, None),
    ("127.0.0.1.1", 8080, None),
    ("127.0.0.256", 8080, None),
    ("256.0.0.1", 8080, None),
    ("4294967296", 8080, None),
    ("127.0.0.08", 8080, None),
    ("0o177.0.0.1", 8080, None),
    ("1_27.0.0.1", 8080, None),
    ("127.0.0.0x", 8080, None),
    ("127..1", 8080, None),
    ("0.0.0.0", 8080, None),
    ("0", 8080, None),
    ("134744072", 443, EIGHT),
    # IPv6
    ("2001:db8::1", 443, SIX),
    ("[2001:db8::1]", 443, SIX),
    ("2001:DB8:0:0:0:0:0:1", 443, SIX),
    ("[2001:0db8:0000::0001]", 443, SIX),
    ("[2001:db8::1", 443, None),
    ("2001:db8::1%eth0", 443, None),
    ("[2001:db8::1%25eth0]", 443, None),
    ("2001:db8::2", 443, None),
    ("::ffff:127.0.0.1", 8080, LOOP),
    ("::ffff:7f00:1", 8080, LOOP),
    ("[::ffff:8.8.8.8]", 443, EIGHT),
    ("::127.0.0.1", 8080, None),
    ("64:ff9b::127.0.0.1", 8080, None),
    ("::1", 8080, None),
    ("[127.0.0.1]", 8080, None),
    ("[localhost]", 8000, None),
    # localhost is a name and nothing else
    ("localhost", 8000, LOCAL),
    ("LOCALHOST.", 8000, LOCAL),
    ("127.0.0.1", 8000, None),
    ("a.localhost", 8000, None),
]


@pytest.mark.parametrize(("host", "port", "rule"), SPELLINGS)
def test_spellings(host: str, port: int | str, rule: str | None) -> None:
    decision = decide_net(RULES, host, port)
    assert decision.allowed == (rule is not None)
    assert (decision.rule.text if decision.rule else None) == rule
    assert decision.reason
    if decision.rule and not decision.rule.wildcard:
        # What will be dialled is the rule's own spelling.
        assert (decision.host, decision.port) == (decision.rule.host, decision.rule.port)


def test_the_table_is_a_table() -> None:
    assert len(SPELLINGS) >= 60
    assert len(set(SPELLINGS)) == len(SPELLINGS)
    assert sum(rule is None for _, _, rule in SPELLINGS) >= 40


@pytest.mark.parametrize(("host", "port"), [(host, port) for host, port, _ in SPELLINGS])
def test_an_empty_list_is_no_network(host: str, port: int | str) -> None:
    assert not decide_net((), host, port).allowed


@pytest.mark.parametrize(
    ("text", "host", "port", "wildcard"),
    [
        ("api.example.com:443", "api.example.com", 443, False),
        ("API.example.com.:443", "api.example.com", 443, False),
        ("*.example.com:443", "example.com", 443, True),
        ("[2001:db8::1]:443", "2001:db8::1", 443, False),
        ("[2001:DB8:0::1]:443", "2001:db8::1", 443, False),
        ("10.0.0.5:8080", "10.0.0.5", 8080, False),
        ("localhost:8000", "localhost", 8000, False),
        ("my_service:80", "my_service", 80, False),
        ("bücher.example:443", "xn--bcher-kva.example", 443, False),
    ],
)
def test_rules(text: str, host: str, port: int, wildcard: bool) -> None:
    source = Source("sbx.yaml", 3, 5)
    assert parse_rule(text, source) == HostRule(text, host, port, wildcard, source)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("api.example.com", "api.example.com:443"),
        ("api.example.com:", "not a port"),
        ("api.example.com:*", "number"),
        ("api.example.com:0", "between 1 and 65535"),
        ("api.example.com:99999", "between 1 and 65535"),
        ("api.example.com:+443", "not a port"),
        ("https://api.example.com:443", "without the scheme"),
        ("api.example.com:443/", "without a path"),
        ("user@api.example.com:443", "without a user"),
        ("*:443", "wildcard"),
        ("*.com:443", "two parts"),
        ("*.10.0.0.1:443", "two parts"),
        ("a.*.example.com:443", "wildcard"),
        ("*example.com:443", "wildcard"),
        ("*.*.example.com:443", "wildcard"),
        ("2001:db8::1:443", "brackets"),
        ("[2001:db8::1:443", "brackets"),
        ("[2001:db8::1]443", "brackets"),
        ("[fe80::1%eth0]:443", "zone"),
        ("0x7f.1:443", "write the address as 127.0.0.1"),
        ("2130706433:443", "write the address as 127.0.0.1"),
        ("010.0.0.1:443", "write the address as 8.0.0.1"),
        ("0.0.0.0:443", "not an address"),
        ("[::]:443", "not an address"),
        (" api.example.com:443", "space"),
        ("straße.example:443", "xn--"),
    ],
)
def test_bad_rules_say_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="network rule") as caught:
        parse_rule(text)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("text", "default", "parts"),
    [
        ("example.com:443", None, ("example.com", "443")),
        ("example.com", 80, ("example.com", "80")),
        ("user:pass@example.com:443", None, ("example.com", "443")),
        ("api.example.com:443@evil.example.net:443", None, ("evil.example.net", "443")),
        ("[::1]:80", None, ("[::1]", "80")),
        ("[::1]", 80, ("[::1]", "80")),
    ],
)
def test_authorities(text: str, default: int | None, parts: tuple[str, str]) -> None:
    assert split_authority(text, default) == parts


@pytest.mark.parametrize("text", ["example.com", "a@b@example.com:443", "::1:80", "[::1", "[::1]x:80", "a:1:2"])
def test_bad_authorities(text: str) -> None:
    with pytest.raises(ValueError, match=r"port is missing|@|brackets"):
        split_authority(text)


def test_reasons_point_at_the_near_miss() -> None:
    rules = parse_rules(["api.example.com:443", "api.example.com:8443", "*.example.org:443"])
    assert "443, 8443" in decide_net(rules, "api.example.com", 80).reason
    assert "not example.org itself" in decide_net(rules, "example.org", 443).reason
    assert decide_net(rules, "evil.example.net", 443).reason == "no rule"


@pytest.mark.parametrize(
    ("host", "port", "remedy"),
    [
        ("Evil.example.net.", 443, "--net evil.example.net:443"),
        ("2001:db8::9", 443, "--net [2001:db8::9]:443"),
        ("0x7f.1", 80, "--net 127.0.0.1:80"),
        ("0.0.0.0", 80, ""),
        ("bad host", 80, ""),
        ("evil.example.net", 0, ""),
    ],
)
def test_the_remedy_is_an_option_that_works(host: str, port: int, remedy: str) -> None:
    decision = decide_net(RULES, host, port)
    assert decision.remedy == remedy
    if remedy:
        assert decide_net((parse_rule(remedy.removeprefix("--net ")),), host, port).allowed


SERVICE = parse_rule("api.example.com:443")


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_dialled(address: str) -> None:
    assert address_verdict(address, SERVICE).allowed


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.5", "169.254.169.254", "::1", "fd00::1", "fe80::1"])
def test_other_addresses_must_be_listed(address: str) -> None:
    verdict = address_verdict(address, SERVICE)
    assert not verdict.allowed
    assert address in verdict.reason
    listed = parse_rule(join_authority(address, 443))
    assert address_verdict(address, listed).allowed
    assert address_verdict(address, SERVICE, [SERVICE, listed]).allowed
    other_port = parse_rule(join_authority(address, 444))
    assert not address_verdict(address, SERVICE, [SERVICE, other_port]).allowed


def test_localhost_means_loopback_and_nothing_else() -> None:
    rule = parse_rule("localhost:8000")
    assert address_verdict("127.0.0.1", rule).allowed
    assert address_verdict("::1", rule).allowed
    assert not address_verdict("10.0.0.1", rule).allowed
    assert not address_verdict("127.0.0.1", parse_rule("a.localhost:8000")).allowed


def test_a_mapped_address_is_the_address_inside() -> None:
    verdict = address_verdict("::ffff:127.0.0.1", SERVICE)
    assert (verdict.allowed, verdict.address) == (False, "127.0.0.1")


@given(st.text(max_size=80), st.one_of(st.integers(), st.text(max_size=8)))
def test_any_text_gets_a_verdict(host: str, port: int | str) -> None:
    decision = decide_net(RULES, host, port)
    assert decision.allowed == (decision.rule is not None)
    assert decision.host.isprintable()


NAMES = st.from_regex(r"[A-Za-z0-9_.\-:\[\]%@。ßü]{1,60}", fullmatch=True)


@given(NAMES)
def test_normalizing_twice_changes_nothing(text: str) -> None:
    try:
        once = normalize_host(text)
    except ValueError:
        return
    assert normalize_host(once) == once
    assert once.isascii() and once == once.lower()


@given(st.integers(0, 2**32 - 1))
def test_every_number_is_one_address(number: int) -> None:
    spellings = (str(number), hex(number), "0" + oct(number)[2:], f"{number >> 24}.{number & 0xFFFFFF}")
    assert len({normalize_host(spelling) for spelling in spellings}) == 1


@given(st.text(max_size=8))
def test_a_port_is_ascii_digits(text: str) -> None:
    try:
        port = normalize_port(text)
    except ValueError:
        return
    assert 0 < port < 65536
    assert text.isascii() and text.isdigit()
