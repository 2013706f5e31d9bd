"""Strings, filters and the fixed sections of a macOS profile."""

from __future__ import annotations

import pytest

from sbx.errors import PolicyError
from sbx.model.glob import parse
from sbx.model.guarantee import Exactness
from sbx.model.profile import EffectiveProfile, Network, NetworkMode
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source
from sbx.planner.ancestors import covered, may_overlap
from sbx.planner.macos import compile_sbpl, plan
from sbx.planner.macos_baseline import adapted, twins
from sbx.planner.sbpl import filter_for, quote

TMP = "/private/tmp/sbx-1"
SOURCE = Source("sbx.yaml", 3)


def rule(text: str, access: Access, origin: Origin = Origin.PROFILE) -> Rule:
    negated = text.startswith("!")
    return Rule(text.lstrip("!"), negated, access, origin, SOURCE, (parse(text.lstrip("!")),))


def profile(read: tuple[str, ...] = ("/w/**",), modify: tuple[str, ...] = (), **more: object) -> EffectiveProfile:
    return EffectiveProfile(
        "p",
        "/w",
        tuple(rule(text, Access.READ) for text in read),
        tuple(rule(text, Access.MODIFY) for text in modify),
        **more,  # type: ignore[arg-type]
    )


def test_strings_are_escaped() -> None:
    assert quote('/w/a"b\\c') == '"/w/a\\"b\\\\c"'
    assert quote("/w/日本 x") == '"/w/日本 x"'
    long = quote("/w/" + '"日' * 150)
    assert long.startswith('(string-append "/w/')
    assert all(len(piece.encode()) <= 220 for piece in long.split('" "'))


@pytest.mark.parametrize("text", ["/w/a\nb", "/w/\x1b2J", "/w/\x7f", "/w/\t", "/w/\udcff"])
def test_control_characters_are_refused_with_their_place(text: str) -> None:
    with pytest.raises(PolicyError) as caught:
        compile_sbpl(profile(read=(text,)), proxy_port=None, tmp=TMP)
    assert caught.value.source == SOURCE
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("/", '(literal "/")'),
        ("/w/a", '(literal "/w/a")'),
        ("/w/a/**", '(subpath "/w/a")'),
        ("/**", '(subpath "/")'),
        ("/w/*.c", '(regex "^/w/[^/]*\\\\.c$")'),
        ("**/.env", '(regex "^(/[^/]+)*/\\\\.env$")'),
        ("/w/*/**", '(regex "^/w/[^/]+(/[^/]+)*$")'),
        ("/w/{a,b}", '(regex "^/w/(a|b)$")'),
        ("/w/[a-c]", '(regex "^/w/[a-c]$")'),
        ("/w/[]^-]", '(regex "^/w/(-|\\\\]|\\\\^)$")'),
        ("/w/a+(b)/*", '(regex "^/w/a\\\\+\\\\(b\\\\)/[^/]+$")'),
    ],
)
def test_globs_become_the_simplest_filter(glob: str, expected: str) -> None:
    assert filter_for(parse(glob), widen=False, fold=False) == expected


def test_case_is_folded_for_letters_only() -> None:
    assert filter_for(parse("/w/.Git/1"), widen=True, fold=True) == '(regex "^/[wW]/\\\\.[Gg][iI][tT]/1$")'
    assert filter_for(parse("/1/2/**"), widen=True, fold=True) == '(subpath "/1/2")'
    spelled = ("Users", "u")
    assert filter_for(parse("/Users/u/**"), widen=True, fold=True, spelled=spelled) == '(subpath "/Users/u")'
    assert filter_for(parse("/Users/u/a"), widen=True, fold=True, spelled=spelled) == '(regex "^/Users/u/[aA]$")'
    assert filter_for(parse("/Users/1"), widen=True, fold=True, spelled=("Users", "u", "w")) == '(literal "/Users/1")'


def test_every_rule_names_its_place() -> None:
    text = compile_sbpl(profile(("/w/**", "!/w/secret")), proxy_port=None, tmp=TMP)
    assert "; !/w/secret  sbx.yaml:3" in text
    assert text.startswith("(version 1)\n(deny default)\n")
    assert text.endswith(")\n")


def test_a_remark_cannot_end_its_line() -> None:
    hostile = Rule("/w/x\n(allow default)", True, Access.READ, Origin.DENY, SOURCE, (parse("/w/x"),))
    text = compile_sbpl(EffectiveProfile("p", "/w", (hostile,), ()), proxy_port=None, tmp=TMP)
    assert "\n(allow default)" not in text


@pytest.mark.parametrize(
    ("network", "port", "expected", "absent"),
    [
        (Network(), 4711, "", "(remote"),
        (Network(NetworkMode.HOST), None, "(allow network*)", "(remote"),
        (Network(NetworkMode.ALLOW, ()), 4711, "", "(remote"),
        (
            Network(NetworkMode.ALLOW, (("api.example.com:443", SOURCE),)),
            4711,
            '(allow network-outbound (remote tcp "localhost:4711"))',
            "(allow network*)",
        ),
        (Network(NetworkMode.ALLOW, (("api.example.com:443", SOURCE),)), None, "when the run starts", "(remote"),
    ],
)
def test_the_proxy_port_is_the_only_network(network: Network, port: int | None, expected: str, absent: str) -> None:
    text = compile_sbpl(profile(network=network), proxy_port=port, tmp=TMP)
    assert expected in text
    assert absent not in text
    assert ('mach-lookup\n  (global-name "com.apple.SystemConfiguration' in text) is (network.mode is NetworkMode.HOST)


def test_shared_temporary_folders_of_the_baseline_give_way_to_the_runs_own() -> None:
    shared = profile()
    lists = [
        (*shared.read, rule("/tmp/**", Access.READ, Origin.BASELINE)),
        (rule("/tmp/**", Access.MODIFY, Origin.BASELINE),),
    ]
    text = compile_sbpl(EffectiveProfile("p", "/w", lists[0], lists[1]), proxy_port=None, tmp=TMP)
    assert f'(subpath "{TMP}")' in text
    assert '(subpath "/tmp")' not in text
    asked_for = compile_sbpl(profile(("/tmp/**",), ("/tmp/**",)), proxy_port=None, tmp=TMP)
    assert '(subpath "/tmp") (subpath "/private/tmp")' in asked_for, "a person's own rule is kept"


def test_a_temporary_folder_must_be_a_real_place() -> None:
    for tmp in ("", "tmp", "/"):
        with pytest.raises(PolicyError):
            compile_sbpl(profile(), proxy_port=None, tmp=tmp)


def test_twins() -> None:
    assert twins(parse("/tmp/x")) == (("tmp", "x"), ("private", "tmp", "x"))
    assert twins(parse("/home/tmp")) == (("home", "tmp"),)
    assert twins(parse("**/tmp")) == (parse("**/tmp"),)
    assert ("private", "etc", "x") in twins(parse("/{etc,opt}/x"))
    assert twins(parse("/TMP/x"), fold=True)[1] == ("private", "tmp", "x")


def test_overlap_and_cover_err_on_the_safe_side() -> None:
    assert not may_overlap(parse("/a/b"), parse("/a/c/**"), fold=False)
    assert may_overlap(parse("/a/b/**"), parse("/a/*"), fold=False)
    assert may_overlap(parse("/A/b"), parse("/a/B"), fold=True)
    assert not may_overlap(parse("/a"), parse("/a/b"), fold=False)
    assert may_overlap(parse("/a/**"), parse("/a"), fold=False)
    assert covered(parse("/a/b/*.c"), [parse("/a/**")])
    assert not covered(parse("/ab"), [parse("/a/**")])
    assert not covered(parse("/**"), [parse("/a/**")])


def test_the_plan_says_how_far_each_deny_reaches() -> None:
    made = plan(
        profile(
            ("/w/**", "!**/*.env", "!/w/a/secret", "!/w/**/key", "!/h/.ssh/**"),
            ("/w/**", "!/w/*/locked"),
        ),
        "/w",
    )
    held = {(each.rule, each.access): each for each in made.guarantees}
    assert made.platform == "macos"
    assert made.backend == "sandbox-exec"
    assert held["/w/**", "read"].exactness is Exactness.EXACT
    assert held["!**/*.env", "read"].exactness is Exactness.EXACT
    assert held["!/h/.ssh/**", "read"].note == ""
    assert "cannot be made, renamed or removed" in held["!/w/a/secret", "read"].note
    for rule_text, access in (("!/w/**/key", "read"), ("!/w/*/locked", "modify")):
        assert held[rule_text, access].exactness is Exactness.SNAPSHOT
        assert "begin the rule with '**/'" in held[rule_text, access].note
    assert all(each.place for each in made.guarantees)


def test_the_adapted_profile_keeps_order_and_origin() -> None:
    made = adapted(profile(("/etc/x", "!/w/y")), TMP)
    assert [str(each) for each in made.read[-2:]] == ["/etc/x", "!/w/y"]
    assert made.read[0].patterns == (parse(f"{TMP}/**"),)
    assert made.read[-2].patterns == (("etc", "x"), ("private", "etc", "x"))
    assert {each.origin for each in made.read[:-2]} == {Origin.BASELINE}
