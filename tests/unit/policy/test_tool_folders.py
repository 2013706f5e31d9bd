"""The table of tools' folders: shipped data, and what is wrong in it is said."""

from __future__ import annotations

import pytest

from sbx.errors import PolicyError
from sbx.policy.tool_folders import load_tool_folders, parse_tool_folders

HEAD = "schemaVersion: 2\nlearning:\n"


def test_the_shipped_table() -> None:
    tools = load_tool_folders()
    assert tools.folder_of((".mypy_cache", "x"), is_folder=False) == (".mypy_cache",)
    assert tools.folder_of(("web", "node_modules", ".cache", "x"), is_folder=False) == ("web", "node_modules", ".cache")
    assert tools.folder_of(("a.egg-info",), is_folder=True) == ("a.egg-info",)
    assert tools.folder_of(("build",), is_folder=False) is None  # a file of that name
    assert tools.as_they_become(("pytest-cache-files-ab12", "x")) == (".pytest_cache", "x")
    assert tools.scattered_at(("src", "__pycache__", "x.pyc")) == 1
    assert tools.temporary_glob("a.cpython-311.pyc.140213") == "*.pyc.*"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("schemaVersion: 1\nlearning: {}\n", "schemaVersion must be 2"),
        ("schemaVersion: 2\n", "no key 'learning'"),
        (HEAD + "  other: []\n", "unknown key 'other'"),
        (HEAD + "  toolFolders: build\n", "must be a list"),
        (HEAD + "  toolFolders: ['[']\n", "'['"),
        (HEAD + "  scatteredFolders: [a/b]\n", "must be one name"),
        (HEAD + "  standIns: [{name: x}]\n", "needs 'name' and 'becomes'"),
    ],
)
def test_a_table_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_tool_folders(text, "learning.yaml")
    assert message in str(caught.value)
