"""What `sbx learn` knows of tools: the folders they fill, and the names they make for a moment.

The table is data (`profiles/learning.yaml`).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from sbx.errors import PolicyError
from sbx.model.glob import BadGlob, match, parse, split_path
from sbx.model.records import dataclass
from sbx.policy.folders import shipped_folder
from sbx.policy.nodes import Kind, Node, entries_of, shown, texts_of

if TYPE_CHECKING:
    from sbx.model.glob import Pattern

LEARNING_FILE = "learning.yaml"
LISTS = ("toolFolders", "scatteredFolders", "foreignFolders", "temporaryNames", "besideLinks")


@dataclass(frozen=True, slots=True)
class ToolFolders:
    """The table. Names are tuples of what stands between the slashes."""

    folders: tuple[Pattern, ...] = ()
    scattered: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    stand_ins: tuple[tuple[Pattern, str], ...] = ()
    temporary: tuple[tuple[str, Pattern], ...] = ()
    beside_links: tuple[str, ...] = ()

    def folder_of(self, names: tuple[str, ...], *, is_folder: bool) -> tuple[str, ...] | None:
        """The tool's folder that `names`, from the workspace, are or lie in: the outermost one."""
        for count in range(1, len(names) + is_folder):
            for pattern in self.folders:
                if match(pattern, names[:count]):
                    return names[:count]
        return None

    def scattered_at(self, names: tuple[str, ...]) -> int | None:
        """Where in `names` a scattered folder stands."""
        return next((at for at, name in enumerate(names) if name in self.scattered), None)

    def as_they_become(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """`names` where a folder has the name it will get."""
        return tuple(
            next((becomes for pattern, becomes in self.stand_ins if match(pattern, (name,))), name) for name in names
        )

    def temporary_glob(self, name: str) -> str | None:
        """The known kind of temporary name."""
        return next((text for text, pattern in self.temporary if match(pattern, (name,))), None)


def load_tool_folders(path: str | None = None) -> ToolFolders:
    """The shipped table. Raises PolicyError with file, line and column."""
    file = os.path.join(shipped_folder(), LEARNING_FILE) if path is None else path
    with open(file, encoding="utf-8") as stream:
        return parse_tool_folders(stream.read(), file)


def parse_tool_folders(text: str, path: str) -> ToolFolders:
    from sbx.policy.load import parse_text

    root = parse_text(text, path, "shipped")
    top = entries_of(root, ("schemaVersion", "learning"))
    if "schemaVersion" not in top or top["schemaVersion"].text != "2":
        raise PolicyError("schemaVersion must be 2", source=root.source)
    if "learning" not in top:
        raise PolicyError("has no key 'learning'", source=root.source)
    keys = entries_of(top["learning"], (*LISTS, "standIns"))
    lists = {key: texts_of(keys[key]) if key in keys else () for key in LISTS}
    for key in ("scatteredFolders", "foreignFolders"):
        for name in lists[key]:
            if len(split_path(name)) != 1:
                raise PolicyError(f"{shown(name)} must be one name", source=keys[key].source)
    return ToolFolders(
        folders=tuple(_anywhere(text, keys["toolFolders"]) for text in lists["toolFolders"]),
        scattered=lists["scatteredFolders"],
        foreign=lists["foreignFolders"],
        stand_ins=_stand_ins(keys["standIns"]) if "standIns" in keys else (),
        temporary=tuple((text, _anywhere(text, keys["temporaryNames"])) for text in lists["temporaryNames"]),
        beside_links=lists["besideLinks"],
    )


def _anywhere(text: str, node: Node) -> Pattern:
    try:
        return parse("**/" + text)
    except BadGlob as error:
        raise PolicyError(f"{shown(text)}: {error}", source=node.source) from None


def _stand_ins(node: Node) -> tuple[tuple[Pattern, str], ...]:
    if node.kind is not Kind.LIST or node.items is None:
        raise PolicyError(f"must be a list, not {node.kind.value}", source=node.source)
    found = []
    for item in node.items:
        pair = entries_of(item, ("name", "becomes"))
        if len(pair) != 2:
            raise PolicyError("needs 'name' and 'becomes'", source=item.source)
        found.append((_anywhere(pair["name"].text, item), pair["becomes"].text))
    return tuple(found)
