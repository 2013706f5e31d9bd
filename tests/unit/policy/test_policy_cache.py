"""The compiled form is the same policy, and whatever is odd about an entry, it is as if it were not there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import ruamel.yaml

from sbx.policy import cache, read_file
from sbx.policy.document import PolicyFile
from sbx.policy.folders import shipped_folder
from sbx.policy.load import load_file

TEXT = """schemaVersion: 2
denyRead: ["./a", "~/.x/**"]
denyModify: [".git/hooks/**"]
fsProfiles:
  full:
    description: Everything
    extends: build
    read: ["./**"]
    modify: ["./build/**"]
    exec: ["/usr/bin/**"]
    network: {allow: ["api.example.com:443"]}
    env: {pass: [CC, "CARGO_*"], set: {CI: "1"}, secret: [API_TOKEN]}
    limits: {wall: 10m, cpu: 5m, memory: 2GiB, pids: 256, nofile: 1024, stdout: 1MiB, stderr: 256KiB, grace: 500ms}
    require: partial
    futureDenies: required
  bare: {}
  hosted: {network: host, exec: []}
tests:
  - {profile: full, path: ./x, read: allow, modify: deny}
  - {path: y, read: deny}
"""


class Loader:
    """load_file, counting."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, path: str, layer: str) -> PolicyFile:
        self.calls += 1
        return load_file(path, layer)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(TEXT)
    make_old(path)
    return path


@pytest.fixture(autouse=True)
def any_age_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard against racy stamps looks at ctime, which a test cannot set back; one test below wants it."""
    monkeypatch.setattr(read_file, "RACY_NS", 0)


def make_old(path: Path) -> None:
    os.utime(path, (1_000_000_000, 1_000_000_000))


def entries() -> list[Path]:
    return sorted((Path(os.environ["XDG_CACHE_HOME"]) / "sbx" / "policy").iterdir())


def get(path: Path, loader: Callable[[str, str], PolicyFile], layer: str = "user") -> PolicyFile:
    return cache.load_cached(str(path), layer, os.environ, loader)


def test_what_comes_back_is_what_went_in(policy: Path) -> None:
    loader = Loader()
    first = get(policy, loader)
    second = get(policy, loader)
    assert loader.calls == 1
    assert second == first == load_file(str(policy), "user")


@pytest.mark.parametrize("name", ["baseline.yaml", "denies.yaml", "profiles.yaml"])
def test_the_shipped_files_too(name: str) -> None:
    path = Path(shipped_folder()) / name
    loader = Loader()
    assert get(path, loader, "shipped") == get(path, loader, "shipped") == load_file(str(path), "shipped")
    assert loader.calls == 1


def test_a_change_is_seen(policy: Path) -> None:
    loader = Loader()
    get(policy, loader)
    policy.write_text(TEXT.replace("bare", "bore"))
    make_old(policy)  # same size, same mtime: ctime tells
    assert {each.name for each in get(policy, loader).profiles} == {"full", "bore", "hosted"}
    replacement = policy.with_name("new")
    replacement.write_text(TEXT)
    make_old(replacement)
    replacement.rename(policy)
    assert {each.name for each in get(policy, loader).profiles} == {"full", "bare", "hosted"}
    assert loader.calls == 3


def test_another_layer_is_another_entry(policy: Path) -> None:
    loader = Loader()
    assert get(policy, loader, "user").layer == "user"
    assert get(policy, loader, "system").layer == "system"
    assert loader.calls == 2


def test_another_version_starts_over(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = Loader()
    get(policy, loader)
    monkeypatch.setattr(cache, "VERSION", "99.0")
    get(policy, loader)
    assert loader.calls == 2


def test_a_file_changed_just_now_is_not_stored(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_file, "RACY_NS", 10**18)
    loader = Loader()
    get(policy, loader)
    get(policy, loader)
    assert loader.calls == 2


def test_entries_are_private_and_nothing_else_is_left(policy: Path) -> None:
    get(policy, Loader())
    (entry,) = entries()
    assert entry.stat().st_mode & 0o777 == 0o600
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def test_deleting_it_costs_only_time(policy: Path) -> None:
    loader = Loader()
    first = get(policy, loader)
    for entry in entries():
        entry.unlink()
    assert get(policy, loader) == first
    assert loader.calls == 2
    assert len(entries()) == 1


def spoil_truncate(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-7])


def spoil_flip(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 0xFF
    entry.write_bytes(content)


def spoil_garbage(entry: Path) -> None:
    entry.write_bytes(os.urandom(4096))


def spoil_empty(entry: Path) -> None:
    entry.write_bytes(b"")


def spoil_mode(entry: Path) -> None:
    entry.chmod(0o622)


def spoil_folder(entry: Path) -> None:
    entry.parent.chmod(0o777)


def spoil_symlink(entry: Path) -> None:
    moved = entry.parent.parent / "moved"
    entry.rename(moved)
    entry.symlink_to(moved)


def spoil_fifo(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry, 0o600)


def spoil_owner(entry: Path) -> None:
    os.chown(entry, 12345, 12345)


SPOILS = [spoil_truncate, spoil_flip, spoil_garbage, spoil_empty, spoil_mode, spoil_folder, spoil_symlink, spoil_fifo]


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_an_odd_entry_is_ignored(policy: Path, spoil: Callable[[Path], None]) -> None:
    loader = Loader()
    first = get(policy, loader)
    (entry,) = entries()
    spoil(entry)
    assert get(policy, loader) == first
    assert loader.calls == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_foreign_entry_is_ignored(policy: Path) -> None:
    loader = Loader()
    get(policy, loader)
    spoil_owner(entries()[0])
    get(policy, loader)
    assert loader.calls == 2


def test_a_cache_that_cannot_be_written_costs_only_time(policy: Path) -> None:
    (Path(os.environ["XDG_CACHE_HOME"]) / "sbx").write_text("in the way")
    loader = Loader()
    get(policy, loader)
    get(policy, loader)
    assert loader.calls == 2


def test_a_valid_payload_of_another_shape_is_ignored(policy: Path) -> None:
    import marshal

    from sbx.policy.digest import sha256_hex

    loader = Loader()
    get(policy, loader)
    (entry,) = entries()
    for value in (None, (1, 2), ((1,), (2,), (3,)), "text"):
        payload = marshal.dumps(value)
        entry.write_bytes(cache._MAGIC + sha256_hex(payload).encode() + payload)
        assert get(policy, loader).sha256
    assert loader.calls == 5


def test_an_unchanged_policy_imports_no_yaml(workspace) -> None:
    """Nor re, json or click: in a fresh interpreter, on the second call."""
    workspace.user_policy(TEXT)
    code = (
        "import os, sys; sys.path[:0] = sys.argv[1:];"
        "import sbx.policy.read_file; sbx.policy.read_file.RACY_NS = 0;"
        "from sbx.policy.layers import load_policy, effective_profile;"
        "effective_profile(load_policy(os.getcwd(), environ=os.environ), 'full');"
        "print(sorted({'ruamel', 'rich', 'click', 'json', 'hashlib', 'difflib', 'subprocess'} & "
        "{name.partition('.')[0] for name in sys.modules}))"
    )
    root = str(Path(cache.__file__).parents[2])
    yaml = str(Path(ruamel.yaml.__file__).parents[2])
    cold = subprocess.run([sys.executable, "-c", code, root, yaml], capture_output=True, text=True, check=True)
    # Without site-packages there is no ruamel to import: the second call works from the cache or not at all.
    warm = subprocess.run([sys.executable, "-S", "-c", code, root], capture_output=True, text=True, check=True)
    assert "ruamel" in cold.stdout
    assert warm.stdout.strip() == "[]"
