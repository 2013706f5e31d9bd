"""Capabilities as a value: round trips, what follows from it, and its private store."""

from __future__ import annotations

import marshal
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sbx.backends import capability_cache
from sbx.backends.capabilities import NAMESPACES, PRIVATE_ROOT, Capabilities, Reason
from sbx.cli.doctor import render, rows, verdict

ALL = Capabilities(
    kernel="6.18.0",
    machine="x86_64",
    uid=1000,
    **dict.fromkeys((*NAMESPACES, *PRIVATE_ROOT, "mount_api", "seccomp", "user_notif", "pidfd", "close_range"), True),
    landlock_abi=7,
    notif_flags=("addfd", "sync_wake_up"),
    cgroup_path="/sys/fs/cgroup/a",
    cgroup_mechanism="direct",
    cgroup_controllers=("memory", "pids"),
)
LANDLOCK_ONLY = replace(
    ALL,
    **dict.fromkeys((*NAMESPACES, *PRIVATE_ROOT, "mount_api"), False),
    reasons=(Reason("userns", "EPERM", "no", "do this"), Reason("mounts", "", "needs userns", "", "userns")),
)
NOTHING = Capabilities(kernel="6.18.0", machine="x86_64")


@pytest.mark.parametrize("value", [ALL, LANDLOCK_ONLY, NOTHING])
def test_round_trips(value: Capabilities) -> None:
    assert Capabilities.from_tuple(marshal.loads(marshal.dumps(value.to_tuple()))) == value
    assert Capabilities.from_json(value.to_json()) == value


def test_what_another_version_stored_is_refused() -> None:
    with pytest.raises(ValueError, match="another version"):
        Capabilities.from_tuple(ALL.to_tuple()[:-1])


def test_the_fingerprint_is_of_abilities_not_of_words() -> None:
    assert ALL.fingerprint() == replace(ALL, reasons=(Reason("x", "", "y"),)).fingerprint()
    assert len({each.fingerprint() for each in (ALL, LANDLOCK_ONLY, NOTHING, replace(ALL, landlock_abi=6))}) == 4


@pytest.mark.parametrize(
    ("value", "backend", "full"),
    [
        (ALL, "namespaces", True),
        (replace(ALL, landlock_abi=0), "namespaces", True),
        (replace(ALL, cgroup_ns=False), "namespaces", True),
        (replace(ALL, proc_mount=False), "landlock", False),
        (replace(ALL, net_ns=False), "landlock", False),
        (replace(ALL, seccomp=False), "none", False),
        (LANDLOCK_ONLY, "landlock", False),
        (replace(LANDLOCK_ONLY, landlock_abi=0), "none", False),
        (NOTHING, "none", False),
    ],
)
def test_the_strongest_backend(value: Capabilities, backend: str, full: bool) -> None:
    assert (value.backend, value.full) == (backend, full)


def test_doctor_names_state_cause_and_remedy() -> None:
    text = "\n".join("".join(span for span, _ in line) for line in render(LANDLOCK_ONLY))
    assert "full enforcement: no" in text and "--partial" in text
    assert "userns: no (EPERM)" in text
    assert "to do: do this" in text
    assert "and so: no mounts" in text
    assert [state for _, state, _ in rows(ALL)] == ["full"] * 6
    assert [state for _, state, _ in rows(NOTHING)] == ["missing"] * 5 + ["partial"]
    assert "refuses" in verdict(NOTHING)


def test_the_store_gives_back_what_it_got(tmp_path: Path) -> None:
    folder = str(tmp_path / "cache")
    assert capability_cache.load_cached(folder) is None
    capability_cache.store(ALL, folder)
    assert capability_cache.load_cached(folder) == ALL
    assert os.stat(folder).st_mode & 0o777 == 0o700
    assert os.listdir(folder) == [capability_cache.FILE]


def test_the_default_place_is_the_users_cache(home: Path) -> None:
    capability_cache.store(ALL)
    assert (home / ".cache/sbx" / capability_cache.FILE).exists()
    assert capability_cache.load_cached() == ALL


def _spoil(file: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "writable by others":
        file.chmod(0o622)
    elif how == "folder writable by others":
        file.parent.chmod(0o777)
    elif how == "symlink":
        file.rename(file.with_name("elsewhere"))
        file.symlink_to("elsewhere")
    elif how == "truncated":
        file.write_bytes(file.read_bytes()[:-20])
    elif how == "rubbish":
        file.write_bytes(b"rubbish")
    elif how == "another owner":
        monkeypatch.setattr(os, "geteuid", lambda: os.stat(file).st_uid + 1)
    else:
        monkeypatch.setattr(capability_cache, "machine_key", lambda: ("another boot",))


@pytest.mark.parametrize(
    "how",
    [
        "writable by others",
        "folder writable by others",
        "symlink",
        "truncated",
        "rubbish",
        "another owner",
        "another boot",
    ],
)
def test_a_spoilt_store_is_not_used(tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    capability_cache.store(ALL, str(folder))
    assert capability_cache.load_cached(str(folder)) == ALL
    _spoil(folder / capability_cache.FILE, how, monkeypatch)
    assert capability_cache.load_cached(str(folder)) is None


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    capability_cache.store(ALL, str(tmp_path / "file" / "cache"))
    assert capability_cache.load_cached(str(tmp_path / "file" / "cache")) is None
