"""Validated values -> the policy file's own types."""

from __future__ import annotations

from sbx.model.profile import Environment, FutureDenies, Limits, Network, NetworkMode, Require
from sbx.model.source import Source
from sbx.policy.document import Baseline, FileStamp, PolicyFile, PolicyTest, ProfileSource, Specials, Written
from sbx.policy.nodes import Node
from sbx.policy.schema import DOCUMENT
from sbx.policy.validate import validate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT_PROFILE = "unrestricted"


def build_file(root: Node, *, path: str, layer: str, sha256: str, stamp: FileStamp, racy: bool) -> PolicyFile:
    """The whole file or nothing: any mistake in it raises PolicyError."""
    values = validate(root, DOCUMENT)
    profiles = values.get("fsProfiles", {})
    baseline = values.get("baseline")
    return PolicyFile(
        path=path,
        layer=layer,
        sha256=sha256,
        stamp=stamp,
        racy=racy,
        profiles=tuple(_profile(name, layer, source, keys) for name, (source, keys) in profiles.items()),
        deny_read=values.get("denyRead", ()),
        deny_modify=values.get("denyModify", ()),
        shipped_denies=values.get("shippedDenies"),
        tests=tuple(_test(source, keys) for source, keys in values.get("tests", ())),
        baseline=None if baseline is None else _baseline(baseline),
    )


def _profile(name: str, layer: str, source: Source, keys: dict[str, Any]) -> ProfileSource:
    require, future = keys.get("require"), keys.get("futureDenies")
    return ProfileSource(
        name=name,
        layer=layer,
        source=source,
        description=" ".join(keys.get("description", "").split()),
        extends=keys.get("extends"),
        read=keys.get("read", ()),
        modify=keys.get("modify", ()),
        exec=keys.get("exec"),
        state_folders=keys.get("stateFolders", ()),
        network=_network(*keys["network"]) if "network" in keys else None,
        env=_environment(keys.get("env", {})),
        limits=_limits(keys.get("limits", {})),
        require=None if require is None else Require(require),
        future_denies=None if future is None else FutureDenies(future),
    )


def _network(source: Source, value: str | dict[str, Any]) -> Network:
    if isinstance(value, str):
        return Network(NetworkMode(value), source=source)
    allow: tuple[Written, ...] = value.get("allow", ())
    if not allow:  # an empty list is no network, never all
        return Network(NetworkMode.NONE, source=source)
    return Network(NetworkMode.ALLOW, tuple((each.text, each.source) for each in allow), source)


def _environment(keys: dict[str, Any]) -> Environment:
    return Environment(keys.get("pass", ()), keys.get("set", ()), keys.get("secret", ()))


def _limits(keys: dict[str, Any]) -> Limits:
    return Limits(
        wall_s=keys.get("wall"),
        cpu_s=keys.get("cpu"),
        memory_bytes=keys.get("memory"),
        pids=keys.get("pids"),
        nofile=keys.get("nofile"),
        stdout_bytes=keys.get("stdout"),
        stderr_bytes=keys.get("stderr"),
        grace_s=keys.get("grace"),
    )


def _test(source: Source, keys: dict[str, Any]) -> PolicyTest:
    profile: Written | None = keys.get("profile")
    expected = {name: keys[name] == "allow" for name in ("read", "modify") if name in keys}
    name = DEFAULT_PROFILE if profile is None else profile.text
    return PolicyTest(name, keys["path"], expected.get("read"), expected.get("modify"), source)


def _baseline(keys: dict[str, Any]) -> Baseline:
    special = keys.get("special", {})
    return Baseline(
        read=keys.get("read", ()),
        modify=keys.get("modify", ()),
        env=_environment(keys.get("env", {})),
        specials=Specials(special.get("proc", ()), special.get("dev", ()), special.get("tmpfs", ())),
    )
