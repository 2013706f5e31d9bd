"""Every way in which a kernel's verdict may differ from decide(), named once for docs, plans and tests.

What is not in this table is a bug.
"""

from __future__ import annotations

from sbx.model.guarantee import Exactness
from sbx.model.records import dataclass

NAMESPACES, LANDLOCK = "namespaces", "landlock"
BOTH = (NAMESPACES, LANDLOCK)


@dataclass(frozen=True, slots=True)
class KnownException:
    """`exactness` is what a rule touched by it is worth: stricter, exact for what was there, or for content."""

    id: str
    sentence: str
    backends: tuple[str, ...]
    exactness: Exactness


def _known(id: str, exactness: Exactness, backends: tuple[str, ...], sentence: str) -> KnownException:
    return KnownException(id, sentence, backends, exactness)


_STRICTER, _SNAPSHOT, _CONTENT = Exactness.STRICTER, Exactness.SNAPSHOT, Exactness.CONTENT

EXCEPTIONS: dict[str, KnownException] = {
    each.id: each
    for each in (
        _known(
            "mount-point-stays",
            _STRICTER,
            BOTH,
            "A path that is protected by itself cannot be removed, renamed or replaced; nor can one that is granted by "
            "itself, or the topmost folder of a grant, unless single names are made by hand.",
        ),
        _known(
            "directory-itself",
            _STRICTER,
            BOTH,
            "A folder that may be modified, but not every name that could be made in it, is read-only itself, unless "
            "single names are made by hand; what exists in it keeps its own verdict.",
        ),
        _known(
            "snapshot-grant",
            _SNAPSHOT,
            BOTH,
            "A grant by wildcard inside a folder that is not granted holds for the names that existed at the start, "
            "unless single names are made by hand.",
        ),
        _known(
            "missing-grant",
            _SNAPSHOT,
            BOTH,
            "A granted path that did not exist at the start, in a folder that may not be modified, cannot be made, "
            "unless single names are made by hand.",
        ),
        _known(
            "own-path-link",
            _STRICTER,
            (NAMESPACES,),
            "Where single names are made by hand, no symlink can take the place of a path that a rule spells out: the "
            "next run would follow it.",
        ),
        _known(
            "snapshot-deny",
            _SNAPSHOT,
            BOTH,
            "A denial holds for the names that existed at the start; the command could make a new one in a folder "
            "that it may modify.",
        ),
        _known(
            "snapshot-deny-outside",
            _SNAPSHOT,
            BOTH,
            "A denial holds for the names that existed at the start; the command cannot make a new one, but programs "
            "outside the sandbox could.",
        ),
        _known(
            "unlistable-directory",
            _STRICTER,
            BOTH,
            "A folder that cannot be listed at the start is hidden where a wildcard would have to be searched in it.",
        ),
        _known(
            "symlink-name",
            _STRICTER,
            (NAMESPACES,),
            "A symlink that may not be read is missing in a folder of which not everything is shown, unless a rule "
            "names it; its target keeps its verdict.",
        ),
        _known(
            "link-text",
            _CONTENT,
            BOTH,
            "The text of a symlink in a folder that is shown can be read; what it points to keeps its verdict.",
        ),
        _known(
            "masked-name",
            _CONTENT,
            BOTH,
            "The name of a denied path shows in the listing of a folder that may be read; its content does not.",
        ),
        _known(
            "private-place",
            _STRICTER,
            (NAMESPACES,),
            "/tmp, /var/tmp, /dev, /dev/shm and /proc are the sandbox's own: the host's files there are missing unless "
            "a rule of the profile names the place, and what the command makes there is gone after the run.",
        ),
        _known(
            "rename-across-mounts",
            _STRICTER,
            (NAMESPACES,),
            "rename and link fail with EXDEV between two places that are mounted separately; programs copy instead.",
        ),
        _known(
            "unix-socket",
            _STRICTER,
            BOTH,
            "A Unix socket of the host that may be read but not modified is masked: connecting is writing. Before "
            "Landlock ABI 9 this holds for sockets that listen when the plan is made, under an absolute name.",
        ),
        _known(
            "landlock-no-sockets",
            _STRICTER,
            (LANDLOCK,),
            "Before Landlock ABI 9 no Unix socket can be made but a pair: nothing else keeps those of the host away.",
        ),
        _known(
            "landlock-split-create",
            _STRICTER,
            (LANDLOCK,),
            "In a folder with an exception below it, no name can be made, removed or renamed; what existed at the "
            "start keeps its own verdict.",
        ),
        _known(
            "landlock-move-apart",
            _STRICTER,
            (LANDLOCK,),
            "rename and link between two folders fail with EXDEV where one of them is not granted as a whole; programs "
            "copy instead.",
        ),
        _known(
            "landlock-split-list",
            _STRICTER,
            (LANDLOCK,),
            "A folder with a hidden folder below it cannot be listed.",
        ),
        _known(
            "landlock-metadata",
            _CONTENT,
            (LANDLOCK,),
            "Landlock does not hide that a path exists, nor its size, owner and times, and does not stop chmod, chown, "
            "utime or extended attributes.",
        ),
        _known(
            "landlock-hard-link",
            _STRICTER,
            (LANDLOCK,),
            "A file with several names is granted by itself only with all of them in sight, and then by the verdict of "
            "the most restricted one.",
        ),
        _known(
            "landlock-no-private-place",
            _STRICTER,
            (LANDLOCK,),
            "There is no private /tmp, /dev/shm, /proc or /dev: temporary folders are granted only where a rule of the "
            "profile names them, of /dev the harmless nodes are, and /proc shows the host's processes.",
        ),
    )
}

_WEAKNESS = (
    Exactness.EXACT,
    Exactness.STRICTER,
    Exactness.CONTENT,
    Exactness.SNAPSHOT,
    Exactness.NOT_ENFORCED,
)


def sentences(ids: tuple[str, ...]) -> str:
    return " ".join(EXCEPTIONS[each].sentence for each in ids)


def weakest(ids: tuple[str, ...]) -> Exactness:
    """What a rule is worth that all of these apply to."""
    if not ids:
        return Exactness.EXACT
    return max((EXCEPTIONS[each].exactness for each in ids), key=_WEAKNESS.index)
