"""Which variables reach the command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sbx.launch.environment import (
    DEFAULT_NAMES,
    build_environment,
    environment_rules,
    is_default,
    is_exec_like,
    jobserver,
    secret_names,
)
from sbx.launch.redact import is_sensitive

if TYPE_CHECKING:
    from sbx.launch.environment import EnvironmentRules

INSIDE = {b"HOME": b"/home/u", b"TMPDIR": b"/tmp", b"PWD": b"/w"}
OUTSIDE = {
    b"PATH": b"/usr/bin",
    b"HOME": b"/elsewhere",
    b"TMPDIR": b"/var/tmp/u",
    b"PWD": b"/old",
    b"OLDPWD": b"/older",
    b"LANG": b"C.UTF-8",
    b"LC_TIME": b"de_DE",
    b"MAKEFLAGS": b" -j4",
    b"CARGO_TERM_COLOR": b"always",
    b"CARGO_REGISTRY_TOKEN": b"cio-secret",
    b"API_TOKEN": b"abc-secret",
    b"LD_PRELOAD": b"/x.so",
    b"LD_LIBRARY_PATH": b"/lib",
    b"PYTHONPATH": b"/p",
    b"BASH_ENV": b"/rc",
    b"CC": b"clang",
    b"BINARY": b"\xff\xfe",
    b"N\xc3\xa4me": b"v",
}


def built(rules: EnvironmentRules, **more: bytes) -> dict[bytes, bytes]:
    return build_environment(rules, {**OUTSIDE, **{k.encode(): v for k, v in more.items()}}, INSIDE)


def added(rules: EnvironmentRules) -> set[bytes]:
    return set(built(rules)) - set(built(environment_rules()))


def test_the_default_set() -> None:
    assert built(environment_rules()) == {
        b"PATH": b"/usr/bin",
        b"LANG": b"C.UTF-8",
        b"LC_TIME": b"de_DE",
        b"MAKEFLAGS": b" -j4",
        **INSIDE,
    }


def test_the_default_set_holds_no_secret_and_nothing_that_runs_something_else() -> None:
    assert [name for name in DEFAULT_NAMES if is_sensitive(name) or is_exec_like(name)] == []
    assert is_default("LC_ALL") and not is_default("LD_PRELOAD")


def test_a_path_is_always_there() -> None:
    assert b"/usr/bin" in build_environment(environment_rules(), {}, INSIDE)[b"PATH"].split(b":")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["CC"], {b"CC"}),
        (["CARGO_*"], {b"CARGO_TERM_COLOR"}),  # the token is asked for by name
        (["CARGO_*", "CARGO_REGISTRY_TOKEN"], {b"CARGO_TERM_COLOR", b"CARGO_REGISTRY_TOKEN"}),
        (["LD_*"], {b"LD_PRELOAD", b"LD_LIBRARY_PATH"}),
        (["L*"], set()),
        (["*"], {b"CARGO_TERM_COLOR", b"CC", b"BINARY", b"N\xc3\xa4me"}),
        (["{CC,BINARY}"], {b"CC", b"BINARY"}),
        (["PYTHONPATH", "BASH_ENV"], {b"PYTHONPATH", b"BASH_ENV"}),
        (["Näme"], {b"N\xc3\xa4me"}),
        (["ABSENT"], set()),
    ],
)
def test_pass(names: list[str], expected: set[bytes]) -> None:
    assert added(environment_rules(pass_names=names)) == expected


def test_all_is_all_but_the_truth_inside() -> None:
    everything = built(environment_rules(pass_all=True))
    assert everything == {**{k: v for k, v in OUTSIDE.items() if k != b"OLDPWD"}, **INSIDE}


def test_what_is_named_or_set_beats_the_truth_inside() -> None:
    assert built(environment_rules(pass_names=["TMPDIR"]))[b"TMPDIR"] == b"/var/tmp/u"
    assert built(environment_rules(pass_names=["TMP*"]))[b"TMPDIR"] == b"/tmp"
    assert built(environment_rules(pass_names=["CC"], set_values=[("CC", "gcc"), ("HOME", "/h")])) == {
        **built(environment_rules()),
        b"CC": b"gcc",
        b"HOME": b"/h",
    }


def test_secrets_are_passed_and_known() -> None:
    rules = environment_rules(secret=["API_*", "CARGO_REGISTRY_TOKEN"])
    assert added(rules) == {b"API_TOKEN", b"CARGO_REGISTRY_TOKEN"}
    assert set(secret_names(rules, OUTSIDE)) == {b"API_TOKEN", b"CARGO_REGISTRY_TOKEN"}


def test_jobserver_descriptors_must_be_open_pipes(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    with (tmp_path / "file").open("w") as file:
        good = b"-j4 --jobserver-auth=%d,%d" % (read_fd, write_fd)
        assert jobserver({b"MAKEFLAGS": good}) == ((read_fd, write_fd), b"")
        assert jobserver({b"CARGO_MAKEFLAGS": b"--jobserver-fds=%d,%d" % (read_fd, write_fd)})[0] == (read_fd, write_fd)
        for bad in (
            b"--jobserver-auth=%d,%d" % (write_fd, read_fd),
            b"--jobserver-auth=%d,%d" % (file.fileno(), file.fileno()),
            b"--jobserver-auth=-2,-2",
            b"--jobserver-auth=0,1",
            b"--jobserver-auth=%d" % read_fd,
            b"--jobserver-auth=",
            b"-- X=--jobserver-auth",
            b"k -- --jobserver-auth=%d,%d" % (read_fd, write_fd),
            b"",
        ):
            assert jobserver({b"MAKEFLAGS": bad})[0] == ()
    os.close(read_fd)
    os.close(write_fd)
    assert jobserver({b"MAKEFLAGS": good})[0] == ()


def test_jobserver_fifo(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "file").touch()
    assert jobserver({b"MAKEFLAGS": b"-j4 --jobserver-auth=fifo:" + os.fsencode(fifo)}) == ((), os.fsencode(fifo))
    assert jobserver({b"MAKEFLAGS": b"--jobserver-auth=fifo:" + os.fsencode(tmp_path / "file")}) == ((), b"")
    assert jobserver({b"MAKEFLAGS": b"--jobserver-auth=fifo:/no/such"}) == ((), b"")
    (tmp_path / "link").symlink_to(fifo)  # where it leads to is what can be shown
    assert jobserver({b"MAKEFLAGS": b"--jobserver-auth=fifo:%s/link" % os.fsencode(tmp_path)})[1] == os.fsencode(fifo)


def test_jobserver_fifo_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    monkeypatch.setattr("sbx.launch.environment.os.geteuid", lambda: os.getuid() + 1)
    assert jobserver({b"MAKEFLAGS": b"--jobserver-auth=fifo:" + os.fsencode(fifo)}) == ((), b"")
