"""Compiled policy files, so that an unchanged one costs neither ruamel nor validation.

One entry per policy file: `header + sha256 of payload + payload`, where the payload is marshal of plain tuples (never
pickle) and starts with everything the entry depends on. Whatever is odd about an entry, it is as if it were not there.
"""

from __future__ import annotations

import marshal
import os
import sys

from sbx.model.profile import Environment, FutureDenies, Limits, Network, NetworkMode, Require
from sbx.model.source import Source
from sbx.policy.digest import sha256_hex
from sbx.policy.document import Baseline, FileStamp, PolicyFile, PolicyTest, ProfileSource, Specials, Written
from sbx.policy.folders import cache_folder
from sbx.policy.private_files import private_folder, read_private, write_private
from sbx.policy.read_file import stamp_of
from sbx.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

FORMAT = 2  # raise it with every change of the shapes below or of what validation accepts
_MAGIC = b"sbx-policy\n"
_DIGEST = 64


def load_cached(
    path: str, layer: str, environ: Mapping[str, str], load: Callable[[str, str], PolicyFile]
) -> PolicyFile:
    """The stored form of an unchanged file, or what `load` says of it, stored for the next time."""
    folder = os.path.join(cache_folder(environ), "policy")
    entry = os.path.join(folder, sha256_hex(f"{layer}\0{path}".encode("utf-8", "surrogateescape")))
    try:
        stamp = stamp_of(path, os.stat(path))
    except (OSError, ValueError):
        return load(path, layer)  # which finds the words
    found = _read(entry, layer, stamp)
    if found is not None:
        return found
    loaded = load(path, layer)
    if not loaded.racy:
        _write(folder, entry, loaded)
    return loaded


def _versions() -> tuple[int | str, ...]:
    return (FORMAT, VERSION, sys.version)


def _read(entry: str, layer: str, stamp: FileStamp) -> PolicyFile | None:
    content = read_private(entry)
    if content is None or not content.startswith(_MAGIC):
        return None
    digest, payload = content[len(_MAGIC) : len(_MAGIC) + _DIGEST], content[len(_MAGIC) + _DIGEST :]
    # marshal is not made for damaged input: the digest keeps it from ever seeing any.
    if digest != sha256_hex(payload).encode("ascii"):
        return None
    try:
        stored_versions, stored_stamp, file = marshal.loads(payload)
        if stored_versions != (*_versions(), layer) or stored_stamp != _stamp(stamp):
            return None
        return _file_from(file, layer, stamp)
    except (ValueError, TypeError, EOFError, KeyError, IndexError):
        return None


def _write(folder: str, entry: str, file: PolicyFile) -> None:
    payload = marshal.dumps(((*_versions(), file.layer), _stamp(file.stamp), _file_to(file)))
    try:
        private_folder(folder)
        write_private(entry, _MAGIC + sha256_hex(payload).encode("ascii") + payload)
    except OSError:
        return  # a full disk or a foreign folder costs time, nothing else


def _stamp(stamp: FileStamp) -> tuple[int | str, ...]:
    return (stamp.path, stamp.dev, stamp.ino, stamp.mtime_ns, stamp.ctime_ns, stamp.size)


# To and from plain tuples. All sources of one file share its path and layer: only line and column are stored.


def _place(source: Source) -> tuple[int, int]:
    return (source.line, source.column)


class _Places:
    def __init__(self, path: str, layer: str) -> None:
        self.path = path
        self.layer = layer

    def source(self, place: tuple[int, int]) -> Source:
        return Source(self.path, place[0], place[1], self.layer)

    def written(self, item: tuple[str, tuple[int, int]]) -> Written:
        return Written(item[0], self.source(item[1]))

    def all(self, items: tuple[tuple[str, tuple[int, int]], ...]) -> tuple[Written, ...]:
        return tuple(self.written(item) for item in items)


def _written(items: tuple[Written, ...]) -> tuple[Any, ...]:
    return tuple((item.text, _place(item.source)) for item in items)


def _env_to(env: Environment) -> tuple[Any, ...]:
    return (env.pass_names, env.set_values, env.secret, env.pass_all)


def _network_to(network: Network | None) -> tuple[Any, ...] | None:
    if network is None:
        return None
    allow = tuple((text, _place(source)) for text, source in network.allow)
    return (network.mode.value, allow, None if network.source is None else _place(network.source))


def _network_from(stored: tuple[Any, ...] | None, places: _Places) -> Network | None:
    if stored is None:
        return None
    mode, allow, source = stored
    pairs = tuple((text, places.source(place)) for text, place in allow)
    return Network(NetworkMode(mode), pairs, None if source is None else places.source(source))


def _limits_to(limits: Limits) -> tuple[Any, ...]:
    return tuple(getattr(limits, name) for name in Limits.__slots__)


def _profile_to(profile: ProfileSource) -> tuple[Any, ...]:
    return (
        profile.name,
        _place(profile.source),
        profile.description,
        None if profile.extends is None else _written((profile.extends,))[0],
        _written(profile.read),
        _written(profile.modify),
        None if profile.exec is None else _written(profile.exec),
        _written(profile.state_folders),
        _network_to(profile.network),
        _env_to(profile.env),
        _limits_to(profile.limits),
        None if profile.require is None else profile.require.value,
        None if profile.future_denies is None else profile.future_denies.value,
    )


def _profile_from(stored: tuple[Any, ...], places: _Places) -> ProfileSource:
    name, place, description, extends, read, modify, exec_, state, network, env, limits, require, future = stored
    return ProfileSource(
        name=name,
        layer=places.layer,
        source=places.source(place),
        description=description,
        extends=None if extends is None else places.written(extends),
        read=places.all(read),
        modify=places.all(modify),
        exec=None if exec_ is None else places.all(exec_),
        state_folders=places.all(state),
        network=_network_from(network, places),
        env=Environment(*env),
        limits=Limits(*limits),
        require=None if require is None else Require(require),
        future_denies=None if future is None else FutureDenies(future),
    )


def _file_to(file: PolicyFile) -> tuple[Any, ...]:
    base = file.baseline
    return (
        file.sha256,
        tuple(_profile_to(profile) for profile in file.profiles),
        _written(file.deny_read),
        _written(file.deny_modify),
        file.shipped_denies,
        tuple((test.profile, test.path, test.read, test.modify, _place(test.source)) for test in file.tests),
        None
        if base is None
        else (
            _written(base.read),
            _written(base.modify),
            _env_to(base.env),
            (base.specials.proc, base.specials.dev, base.specials.tmpfs),
        ),
    )


def _file_from(stored: tuple[Any, ...], layer: str, stamp: FileStamp) -> PolicyFile:
    sha256, profiles, deny_read, deny_modify, shipped_denies, tests, base = stored
    places = _Places(stamp.path, layer)
    return PolicyFile(
        path=stamp.path,
        layer=layer,
        sha256=sha256,
        stamp=stamp,
        profiles=tuple(_profile_from(profile, places) for profile in profiles),
        deny_read=places.all(deny_read),
        deny_modify=places.all(deny_modify),
        shipped_denies=shipped_denies,
        tests=tuple(PolicyTest(test[0], test[1], test[2], test[3], places.source(test[4])) for test in tests),
        baseline=None
        if base is None
        else Baseline(places.all(base[0]), places.all(base[1]), Environment(*base[2]), Specials(*base[3])),
    )
