"""What programs need on macOS besides the policy's own baseline, and a profile in the form macOS sees.

The paths are ordinary rules with an origin and a source, first in the lists, so that every deny still applies to them
and `decide()` on the adapted profile says what the compiled profile says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sbx.model.glob import ANY_DEPTH, escape, match_name, parse
from sbx.model.profile import EffectiveProfile
from sbx.model.records import replace
from sbx.model.rules import Access, Origin, Rule
from sbx.model.source import Source

if TYPE_CHECKING:
    from sbx.model.glob import Pattern

SOURCE = Source("macOS baseline", layer="baseline")

READ = (
    # programs and libraries; dyld's shared cache lives in a cryptex
    "/usr/bin/**",
    "/usr/lib/**",
    "/usr/libexec/**",
    "/usr/sbin/**",
    "/usr/share/**",
    "/bin/**",
    "/sbin/**",
    "/System/Library/**",
    "/System/Cryptexes/**",
    "/System/Volumes/Preboot/Cryptexes/**",
    "/Library/Apple/System/Library/**",
    "/Library/Developer/CommandLineTools/**",
    "/Library/Frameworks/**",
    "/Library/Preferences/com.apple.dt.Xcode.plist",
    "/Applications/Xcode*.app/Contents/**",
    "/opt/homebrew/{bin,sbin,lib,libexec,include,share,opt,Cellar,Frameworks}/**",
    "/usr/local/{bin,sbin,lib,libexec,include,share,opt,Cellar,Frameworks}/**",
    "/private/var/db/dyld/**",
    "/private/var/select/**",  # which shell /bin/sh is, which developer folder xcrun uses
    "/private/var/db/xcode_select_link",
    # time zones
    "/private/var/db/timezone/**",
    "/private/etc/localtime",
    # name lookup and TLS roots, for programs that read files instead of asking a service
    "/private/etc/{hosts,passwd,group,protocols,services,shells,resolv.conf}",
    "/private/etc/ssl/{cert.pem,openssl.cnf}",
    "/private/var/run/resolv.conf",
)

DEVICES = ("/dev/{null,zero,tty,ptmx,dtracehelper}", "/dev/ttys[0-9]*")  # read and written: harmless nodes and ptys
READ_DEVICES = ("/dev/{random,urandom,autofs_nowait}", "/dev/fd/**")

PRIVATE = ("tmp", "var", "etc")  # symlinks in `/`: the kernel sees what they point to
_SHARED_TEMPORARY = (("tmp",), ("var", "tmp"), ("private", "tmp"), ("private", "var", "tmp"))


def adapted(profile: EffectiveProfile, tmp: str) -> EffectiveProfile:
    """The profile as macOS enforces it: with the platform's baseline, `/private` twins, and `tmp` in place of /tmp."""
    scratch = _rule(escape(tmp) + "/**", Access.READ)
    read = (scratch, *baseline(Access.READ), *_translated(profile.read))
    modify = (replace(scratch, access=Access.MODIFY), *baseline(Access.MODIFY), *_translated(profile.modify))
    execs = None if profile.exec is None else tuple(_translated(profile.exec))
    return replace(profile, read=read, modify=modify, exec=execs)


def baseline(access: Access) -> tuple[Rule, ...]:
    texts = (*READ, *DEVICES, *READ_DEVICES) if access is Access.READ else DEVICES
    return tuple(_rule(text, access) for text in texts)


def twins(pattern: Pattern, *, fold: bool = False) -> tuple[Pattern, ...]:
    """The pattern, and the places under /private that its first name leads to."""
    if not pattern or pattern[0] == ANY_DEPTH:
        return (pattern,)
    first = pattern[0]
    if fold and isinstance(first, str):
        first = first.lower()
    return (pattern, *(("private", name, *pattern[1:]) for name in PRIVATE if match_name(first, name)))


def _rule(text: str, access: Access) -> Rule:
    return Rule(text, False, access, Origin.BASELINE, SOURCE, twins(parse(text)))


def _translated(rules: Iterable[Rule]) -> Iterable[Rule]:
    for rule in rules:
        if rule.origin is Origin.BASELINE and not rule.negated and _shared_temporary(rule):
            continue  # there is no private /tmp here: a folder of the run's own, named by TMPDIR, stands in for it
        extended = [twin for pattern in rule.patterns for twin in twins(pattern, fold=rule.negated)]
        yield replace(rule, patterns=tuple(dict.fromkeys(extended)))


def _shared_temporary(rule: Rule) -> bool:
    return all(
        (pattern[:-1] if pattern and pattern[-1] == ANY_DEPTH else pattern) in _SHARED_TEMPORARY
        for pattern in rule.patterns
    )
