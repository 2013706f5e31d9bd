"""What a traced run was denied, as it is told: each thing once, real failures first, with its rule and its remedy.

The listener inside says what the rules deny and the kernel refused, as far as it could see. Whether a hidden file
exists at all is only known out here: a program that looks for its configuration in ten places was denied nothing where
there is nothing.
"""

from __future__ import annotations

import os
import sys

from sbx.model.glob import split_path
from sbx.model.location import real_location
from sbx.model.result import Denial
from sbx.model.verdict import EXEC, MODIFY, READ, consult
from sbx.report.change import FINAL, changes, has_file, is_above_home
from sbx.report.view import Row, View, from_entry
from sbx.report.words import place_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sbx.supervise.execute import Done

# As in launch.observe, which only Linux can import.
SURE, TARGET, PARENT = 0, 1, 2

LOOKS = ("stat", "access", "readlink", "chdir", "watch", "connect")
MAKES = ("create", "mkdir", "mknod", "symlink", "link", "bind")
MOVES = ("unlink", "rmdir", "rename")
OWNS = ("chmod", "chown", "utime")
ACCESS_NAMES = ("read", "modify", "exec")


def traced(done: Done) -> None:
    """Put the denials of a traced run, and what has to be said about them, into `done`."""
    entry = done.prepared.get("view")
    view = None if entry is None else from_entry(entry)
    told = done.outcome.get("denied", [])
    counts, unseen, left_out = done.outcome.get("counted", ((), 0, 0))
    if view is not None:
        cwd = os.fsdecode(done.prepared["launch"]["cwd"])
        hidden: set[str] = set()
        found, missing = judged(view, told, counts, cwd, hidden)
        done.denials = (*done.denials, *found)
        if missing and found:
            tries = "harmless try is" if missing == 1 else "harmless tries are"
            done.notes.append(
                f"{missing} {tries} not shown: looks at the home folder or what does not exist, compiled modules"
            )
        if hidden and done.outcome["status"] != 0:
            paths = "path is" if len(hidden) == 1 else "paths are"
            done.notes.append(f"{len(hidden)} {paths} hidden here and could not be read outside either")
    if unseen:
        calls = "call" if unseen == 1 else "calls"
        done.notes.append(f"{unseen} {calls} could not be looked at: no other process may read its memory")
    if left_out:
        done.notes.append(f"more than {len(told)} different denials: {left_out} more not shown")


def judged(
    view: View,
    told: list[tuple[str, int, bytes, int, bool, bytes, int]],
    counts: tuple[int, ...],
    cwd: str,
    hidden: set[str] | None = None,
) -> tuple[list[Denial], int]:
    """The denials in the order they are told, and how many tries were left out as harmless. `hidden` takes what is
    there, cannot be seen inside, and could not be read outside either."""
    found: dict[tuple[int, str, str], tuple[int, int, Denial]] = {}
    missing = 0
    for position, (word, access, location, evidence, follow, program, mode) in enumerate(told):
        count = max(1, counts[position] if position < len(counts) else 1)
        path = os.fsdecode(location)
        # A name that is not shown inside may be a link: only the outside knows where it leads.
        if not mode and (evidence != SURE or (follow and os.path.islink(path))):
            real = real_location(path, "/", follow=follow)
            if real is None:
                continue
            path = real
        if not _meant_something(word, path, evidence) or _is_compiled(view, access, path) or _at_home(view, word, path):
            missing += count
            continue
        denial = denial_of(view, word, access, path, cwd, program=os.fsdecode(program), count=count)
        if denial is None:
            continue
        if not (_changed(path, mode) or _possible(word, access, path)):
            if hidden is not None and evidence != SURE and access == READ and word not in LOOKS:
                hidden.add(path)
            continue
        key = (access, word, path)
        earlier = found.get(key)
        if earlier is not None:
            found[key] = (*earlier[:2], _times(earlier[2], earlier[2].count + count))
        else:
            found[key] = (_rank(word), position, denial)
    return _without_echoes(found), missing


def denial_of(
    view: View, word: str, access: int, path: str, cwd: str, *, program: str = "", count: int = 1, likely: bool = False
) -> Denial | None:
    """The denial with the rule that decided and what would allow it; None where the rules allow it after all."""
    answers = consult(view.judge, access, split_path(path))
    denied: list[tuple[str, Row | None]] = []
    for position, allowed, winner, _ in answers:
        if not allowed:
            rows = view.rows[position] or ()
            denied.append((ACCESS_NAMES[position], Row(rows[winner]) if winner >= 0 else None))
    if not denied:
        return None
    row = denied[0][1]
    # Who looks at a folder does not ask for all that is in it, nor does `mkdir -p` of one that is there; who makes one
    # wants to put something into it.
    looks = access == READ and word in LOOKS
    whole = False if looks else not os.path.isdir(path) if word == "mkdir" else None
    above, compiled, _ = path.partition("/__pycache__/")  # whose files have other names each time
    wanted = above + "/__pycache__" if compiled else path
    advice = changes(view, wanted, denied, whole=True if compiled else whole)
    remedy = advice[0][1] if advice else ""
    if not has_file(view):
        remedy = next((text for kind, text in advice if kind == "option"), remedy)
    final = [each for _, each in denied if each is not None and each.origin in FINAL]
    if final and row not in final:
        remedy = f"even with a rule that allows it: {remedy}"
    elif not final and not compiled and word in MAKES and word != "mkdir" and _cannot_come(view, path):
        remedy += "; create it before the run: where the folder is hidden, a rule can only show what exists"
    return Denial(
        operation=word,
        path=path,
        program=program,
        count=count,
        rule="" if row is None else row.text,
        place="" if row is None else place_of(row.file, row.line, cwd),
        remedy=remedy,
        likely=likely,
    )


def _cannot_come(view: View, path: str) -> bool:
    """A name that is not there, in a folder that is not shown: no rule for the name alone lets it be made."""
    folder = consult(view.judge, READ, split_path(os.path.dirname(path)))
    return not os.path.lexists(path) and not all(allowed for _, allowed, _, _ in folder)


def access_of(operation: str) -> int:
    """What an operation needs, for whoever explains it later."""
    if operation == "execute":
        return EXEC
    return READ if operation in ("read", "list", *LOOKS) and operation != "connect" else MODIFY


def _meant_something(word: str, path: str, evidence: int) -> bool:
    """Is there, outside, what the call was about?"""
    if evidence == TARGET:
        return os.path.lexists(path)
    if evidence == PARENT:
        return os.path.isdir(os.path.dirname(path))
    return True


def _at_home(view: View, word: str, path: str) -> bool:
    """A mere look at the home folder, or at what is above it, as many programs have before they go on."""
    return word in LOOKS and is_above_home(view, split_path(path))


def _is_compiled(view: View, access: int, path: str) -> bool:
    """Python keeps compiled modules beside their source where it can, and does without where it cannot."""
    names = split_path(path)
    workspace = split_path(view.workspace)
    return access == MODIFY and "__pycache__" in names and names[: len(workspace)] != workspace


def _changed(path: str, mode: int) -> bool:
    """Is there something else now than what the listener saw, if it saw anything? Then only it can know."""
    try:
        return mode != 0 and os.lstat(path).st_mode != mode
    except OSError:
        return True


def _possible(word: str, access: int, path: str) -> bool:
    """Would the system itself have let it happen? What fails everywhere is no denial of ours."""
    if word in MAKES or word in MOVES:
        folder = os.path.dirname(path) or "/"
        # Gone, or a link by now: nobody can tell any more, and the listener was sure.
        return os.access(folder, os.W_OK) or not os.path.isdir(folder) or os.path.realpath(folder) != folder
    if word == "access" and access == MODIFY:
        return os.access(path, os.W_OK)
    if not os.path.lexists(path) or word in LOOKS:
        return True
    if word in OWNS:
        return sys.platform != "win32" and os.geteuid() in (0, os.lstat(path).st_uid)
    if word == "execute":
        return os.path.isfile(path) and os.access(path, os.X_OK)
    if word in ("write", "truncate", "setxattr"):
        return os.access(path, os.W_OK) and not os.path.isdir(path)
    return os.access(path, os.R_OK)


def _rank(word: str) -> int:
    """What most likely made the command fail comes first; mere looks come last."""
    return 1 if word in LOOKS else 0


def _without_echoes(found: dict[tuple[int, str, str], tuple[int, int, Denial]]) -> list[Denial]:
    """A look at what was then read as well is not worth a line of its own."""
    stronger = {(access, path) for access, word, path in found if word not in LOOKS}
    stronger |= {(READ, path) for access, word, path in found if access == EXEC and word == "execute"}
    kept = [
        entry for (access, word, path), entry in found.items() if word not in LOOKS or (access, path) not in stronger
    ]
    return [denial for _, _, denial in sorted(kept, key=lambda entry: entry[:2])]


def _times(denial: Denial, count: int) -> Denial:
    from sbx.model.records import replace

    return replace(denial, count=count)
