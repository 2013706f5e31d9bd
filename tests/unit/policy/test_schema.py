"""The table of keys: does each row hold what it says of itself?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbx.errors import PolicyError
from sbx.policy.document import SHIPPED, SYSTEM, USER, WORKSPACE
from sbx.policy.load import load_file, parse_text
from sbx.policy.schema import DOCUMENT, PROFILE_KEYS, TEST_KEYS, Key, Type, json_schema
from sbx.policy.validate import _VALIDATORS, validate


def all_keys(key: Key = DOCUMENT, path: str = "") -> Iterator[tuple[str, Key]]:
    for each in key.keys:
        yield f"{path}{each.name}", each
        yield from all_keys(each, f"{path}{each.name}.")


KEYS = list(all_keys())


@pytest.mark.parametrize(("path", "key"), KEYS, ids=[path for path, _ in KEYS])
def test_the_example_of_each_key_is_valid(path: str, key: Key) -> None:
    """It is what an error message tells people to write."""
    root = parse_text(f"{key.name}: {key.example}\n", "example.yaml", SHIPPED)
    (_, node), *_ = root.entries or ()
    validate(node, key, path)


@pytest.mark.parametrize(
    ("path", "key"), [(path, key) for path, key in KEYS if key.default], ids=lambda it: str(it)[:30]
)
def test_the_default_of_each_key_is_valid(path: str, key: Key) -> None:
    root = parse_text(f"{key.name}: {key.default}\n", "example.yaml", SHIPPED)
    (_, node), *_ = root.entries or ()
    validate(node, key, path)


@pytest.mark.parametrize(("path", "key"), KEYS, ids=[path for path, _ in KEYS])
def test_each_key_has_words(path: str, key: Key) -> None:
    assert key.doc.endswith(".")


def test_every_type_has_a_validator() -> None:
    assert set(_VALIDATORS) == set(Type)


@pytest.mark.parametrize(("layer", "accepted"), [(SHIPPED, False), (SYSTEM, True), (USER, True), (WORKSPACE, False)])
def test_who_may_drop_the_shipped_denies(tmp_path: Path, layer: str, accepted: bool) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("schemaVersion: 2\nshippedDenies: false\n")
    if accepted:
        assert load_file(str(path), layer).shipped_denies is False
    else:
        with pytest.raises(PolicyError):
            load_file(str(path), layer)


def test_the_json_schema_names_what_people_may_write_and_nothing_else() -> None:
    schema = json.loads(json.dumps(json_schema()))
    assert schema["required"] == ["schemaVersion"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(DOCUMENT.names) - {"baseline"}
    profile = schema["properties"]["fsProfiles"]["additionalProperties"]
    assert set(profile["properties"]) == {key.name for key in PROFILE_KEYS} - {"stateFolders"}
    assert profile["properties"]["require"]["enum"] == ["full", "partial"]
    assert set(schema["properties"]["tests"]["items"]["properties"]) == {key.name for key in TEST_KEYS}


def test_yaml_1_2_words_are_texts(tmp_path: Path) -> None:
    """`yes`, `on` and `0755` are no surprises; a comma at the end, quotes and block lists are all fine."""
    path = tmp_path / "p.yaml"
    path.write_text(
        "%YAML 1.2\n---\nschemaVersion: 2\nfsProfiles:\n  on:\n    read:\n    - yes\n    - 'no'\n    - \"off\"\n"
        "    - |-\n      block\n    env: {pass: [Y, N,], set: {A: no}}\n"
    )
    (profile,) = load_file(str(path), USER).profiles
    assert profile.name == "on"
    assert [rule.text for rule in profile.read] == ["yes", "no", "off", "block"]
    assert profile.env.pass_names == ("Y", "N")
    assert profile.env.set_values == (("A", "no"),)


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(b"\xef\xbb\xbfschemaVersion: 2\r\ndenyRead:\r\n  - a\r\n")
    assert [(rule.text, rule.source.line, rule.source.column) for rule in load_file(str(path), USER).deny_read] == [
        ("a", 3, 5)
    ]
