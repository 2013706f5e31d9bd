"""What callers hand in, before anything is started."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

import sbx
from sbx.backends.capabilities import Capabilities
from sbx.errors import UsageError
from sbx.library.probing import strengths_of
from sbx.library.types import Enforcement, OnUnavailable, Rules, make_rules, words_of
from sbx.model.profile import Limits


def rules(**given: object) -> Rules:
    nothing: dict[str, object] = {
        "policy": None, "profile": None, "read": (), "modify": (), "deny": (), "net": None, "limits": None,
        "timeout": None, "on_unavailable": OnUnavailable.REFUSE,
    }  # fmt: skip
    return make_rules(**{**nothing, **given})  # type: ignore[arg-type]


def test_rules_speak_the_language_of_the_command_line() -> None:
    made = rules(
        profile=sbx.SandboxProfile.READ_ONLY,
        read=["~/x/**"],
        net="host",
        timeout=1.5,
        limits=Limits(memory_bytes=1 << 20, wall_s=9),
        on_unavailable=OnUnavailable.PARTIAL,
    )
    assert made.options() == {
        "profile": "read-only", "read": ("~/x/**",), "net": ("host",), "timeout": "1s500ms", "memory": "1048576",
        "partial": True,
    }  # fmt: skip
    assert made.arguments() == [
        "--profile=read-only", "--read=~/x/**", "--net=host", "--partial", "--timeout=1s500ms", "--memory=1048576",
    ]  # fmt: skip


@pytest.mark.parametrize("wrong", ["make -j4", b"make", [], [""], ["a", "b\0c"]])
def test_a_command_is_a_list_of_words(wrong: object) -> None:
    with pytest.raises(UsageError):
        words_of(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"read": "x"}, {"limits": Limits(pids=-1)}, {"timeout": float("nan")}])
def test_what_cannot_be_meant_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        rules(**wrong).options()


def test_everything_a_pool_carries_pickles() -> None:
    result = sbx.Result(sbx.Status.EXIT, 3, 3, None, "why", 1, ("a",), "/", "p", "t", "b", output={"parsed": [1]})
    for value in (result, sbx.SandboxPolicy(), sbx.Limits(pids=3), rules(), sbx.CommandFailed(result)):
        copy = pickle.loads(pickle.dumps(value))
        assert str(copy) == str(value)
    assert pickle.loads(pickle.dumps(sbx.CommandFailed(result))).result == result


def test_importing_the_package_imports_nothing_else() -> None:
    script = "import sys; before = set(sys.modules); import sbx; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['sbx']\n"


def test_every_public_name_is_there() -> None:
    for names in sbx._PLACES.values():
        for name in names:
            assert getattr(sbx, name).__name__ == name
    assert sbx.__version__
    with pytest.raises(AttributeError, match="no_such_name"):
        sbx.no_such_name  # type: ignore[attr-defined]  # noqa: B018


def test_strengths_follow_the_machine() -> None:
    nothing = strengths_of(Capabilities())
    assert set(nothing.values()) == {Enforcement.NONE}
    landlock = strengths_of(Capabilities(landlock_abi=6, seccomp=True))
    assert landlock["filesystem"] is Enforcement.PARTIAL
    assert landlock["syscalls"] is Enforcement.FULL
    assert landlock["wall"] is Enforcement.SUPERVISED
