"""The Linux plan, case by case, on real trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unit.planner.mount_model import Sandbox
from unit.planner.profiles import profile

from sbx.errors import SbxError
from sbx.model.guarantee import Exactness
from sbx.model.plan import Op, Plan
from sbx.model.profile import EffectiveProfile
from sbx.planner import linux
from sbx.planner.exceptions import EXCEPTIONS
from sbx.planner.linux import plan
from sbx.planner.observe import as_enforced
from sbx.planner.plan_json import plan_from_json, plan_to_json
from sbx.planner.render import shown_path, text_lines
from sbx.planner.walk import DirectoryReader, Entries


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = Path(os.path.realpath(tmp_path)) / "ws"
    for folder in ("src/deep", "build", ".git/hooks", ".git/objects"):
        (root / folder).mkdir(parents=True)
    for file in ("src/a.c", "src/b.h", "src/deep/c.c", "notes.env", ".git/config", ".git/hooks/pre-commit", "top"):
        (root / file).write_bytes(b"")
    return root


def operations(rules: EffectiveProfile, workspace: Path, **more: object) -> list[tuple[str, str]]:
    """Kind and path (relative to the workspace) of everything at or below the workspace."""
    found = plan(rules, "/", specials=(), **more)  # type: ignore[arg-type]
    below = [each for each in found.operations if each.path.startswith(str(workspace))]
    return [(each.op.value, os.path.relpath(each.path, workspace)) for each in below]


CASES: list[tuple[str, list[str], list[str], list[tuple[str, str]]]] = [
    ("a readable tree is one bind", ["./**"], [], [("bind-ro", ".")]),
    ("a modifiable tree is one bind", ["./**"], ["./**"], [("bind-rw", ".")]),
    ("a modifiable part", ["./**"], ["build/**"], [("bind-ro", "."), ("bind-rw", "build")]),
    ("a hidden part", ["./**", "!src/**"], ["./**"], [("bind-rw", "."), ("mask", "src")]),
    (
        "allowed inside denied inside allowed",
        ["./**", "!src/**", "src/deep/**"],
        [],
        [("bind-ro", "."), ("mask", "src"), ("bind-ro", "src/deep")],
    ),
    (
        "what protects a path is nailed down",
        ["./**"],
        ["./**", "!.git/hooks/**", "!.git/config"],
        [("bind-rw", "."), ("pin", ".git"), ("bind-ro", ".git/config"), ("bind-ro", ".git/hooks")],
    ),
    (
        "modifiable inside protected inside modifiable",
        ["./**"],
        ["./**", "!.git/**", ".git/objects/**"],
        [("bind-rw", "."), ("bind-ro", ".git"), ("bind-rw", ".git/objects")],
    ),
    ("a glob hides what exists", ["./**", "!**/*.env"], [], [("bind-ro", "."), ("mask", "notes.env")]),
    (
        "a glob grants what exists",
        ["src/*.c"],
        [],
        [("skeleton", "."), ("skeleton", "src"), ("bind-ro", "src/a.c")],
    ),
    (
        "a folder named by itself lists what is granted in it",
        [".", "top"],
        [],
        [("skeleton", "."), ("bind-ro", "top")],
    ),
    ("a single file", ["./**"], ["top"], [("bind-ro", "."), ("bind-rw", "top")]),
    (
        "a folder that is not there is made",
        ["./**"],
        ["out/deep/**"],
        [("make-dir", "out"), ("make-dir", "out/deep"), ("bind-ro", "."), ("bind-rw", "out/deep")],
    ),
    ("where the command may write it makes folders itself", ["./**"], ["./**", "out/**"], [("bind-rw", ".")]),
    ("a denial of what is not there needs nothing", ["./**", "!nothing/**"], [], [("bind-ro", ".")]),
    ("later rules win", ["./**", "!src/**", "./**"], [], [("bind-ro", ".")]),
]


@pytest.mark.parametrize(("read", "modify", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_operations(workspace: Path, read: list[str], modify: list[str], expected: list[tuple[str, str]]) -> None:
    assert operations(profile(str(workspace), read, modify), workspace) == expected


def by_path(found: Plan) -> dict[str, Op]:
    return {each.path: each.op for each in found.operations}


def test_a_skeleton_is_listable_only_if_the_rules_let_it_be_read(workspace: Path) -> None:
    found = plan(profile(str(workspace), ["src", "src/deep/**"]), "/", specials=())
    listable = {each.path: each.listable for each in found.operations if each.op is Op.SKELETON}
    assert listable[str(workspace / "src")]
    assert not listable[str(workspace)]


def test_operations_say_which_rule_caused_them(workspace: Path) -> None:
    found = plan(profile(str(workspace), ["./**", "!src/**"], ["build/**"]), "/", specials=())
    reasons = {each.path: (each.why, each.place) for each in found.operations}
    assert reasons[str(workspace / "src")] == ("!src/**", "policy.yaml:101")
    assert reasons[str(workspace / "build")] == ("build/**", "policy.yaml:200")


def test_a_symlink_is_protected_itself_and_its_target_is_judged_where_it_lies(workspace: Path) -> None:
    os.symlink("../elsewhere", workspace / ".git" / "link")
    rules = profile(str(workspace), ["./**"], ["./**", "!.git/link"])
    found = [each for each in plan(rules, "/", specials=()).operations if each.path.startswith(str(workspace))]
    assert [(each.op, each.is_link) for each in found] == [(Op.BIND_RW, False), (Op.PIN, False), (Op.BIND_RO, True)]
    hidden = profile(str(workspace), ["./**", "!.git/link"])
    assert operations(hidden, workspace) == [("bind-ro", ".")]


def test_links_that_rules_name_work_inside(workspace: Path) -> None:
    link = workspace.parent / "link"
    link.symlink_to("ws")
    rules = profile(str(workspace), ["src/**"], resolved=((f"{link}/src", f"{workspace}/src"),))
    found = plan(rules, str(workspace / "src"), specials=())
    links = [(each.path, each.source) for each in found.operations if each.op is Op.SYMLINK]
    assert (str(link), "ws") in links


def test_a_workspace_below_a_private_folder_is_led_to(workspace: Path) -> None:
    private = str(workspace.parent)
    specials = ((private, Op.TMPFS),)
    other = workspace.parent / "other"
    other.mkdir()
    rules = profile(
        str(workspace), ["/**", "./**"], ["./**"], baseline=[f"{private}/**"], baseline_modify=[f"{private}/**"]
    )
    kinds = by_path(plan(rules, str(workspace), specials=specials))
    assert kinds[private] is Op.TMPFS
    assert kinds[str(workspace)] is Op.BIND_RW
    assert str(other) not in kinds


def test_a_private_folder_that_the_profile_names_is_the_hosts(workspace: Path) -> None:
    private = str(workspace.parent)
    rules = profile(str(workspace), [f"{private}/**"], baseline=[f"{private}/**"], baseline_modify=[f"{private}/**"])
    kinds = by_path(plan(rules, str(workspace), specials=((private, Op.TMPFS),)))
    assert kinds[private] is Op.BIND_RO  # the baseline's right to modify is about the private one


def test_denies_hold_in_a_workspace_below_a_private_folder(workspace: Path) -> None:
    rules = profile(str(workspace), ["./**", "!**/*.env"], ["./**"])
    kinds = by_path(plan(rules, str(workspace), specials=((str(workspace.parent), Op.TMPFS),)))
    assert kinds[str(workspace / "notes.env")] is Op.MASK


def test_the_default_private_places(workspace: Path) -> None:
    kinds = by_path(plan(profile(str(workspace), ["./**"]), str(workspace)))
    wanted = {"/proc": Op.PROC, "/dev": Op.DEV, "/tmp": Op.TMPFS, "/var/tmp": Op.TMPFS, "/dev/shm": Op.TMPFS}
    assert {path: kinds.get(path) for path in wanted} == wanted


def test_proc_is_private_even_where_everything_is_granted() -> None:
    kinds = by_path(plan(profile("/", ["/**", "/proc/**"]), "/"))
    assert kinds["/"] is Op.BIND_RO
    assert kinds["/proc"] is Op.PROC


def test_a_working_directory_that_is_not_visible_is_refused_in_words(workspace: Path) -> None:
    rules = profile(str(workspace), ["src/**"])
    with pytest.raises(SbxError, match="not visible in profile 'test'") as caught:
        plan(rules, str(workspace / "build"), specials=())
    assert "--cwd" in caught.value.remedy
    masked = profile(str(workspace), ["./**", "!build/**"])
    with pytest.raises(SbxError, match="not visible"):
        plan(masked, str(workspace / "build"), specials=())
    assert plan(rules, str(workspace), specials=()).cwd == str(workspace)  # it leads to something granted


def test_execution_only_where_it_is_granted(workspace: Path) -> None:
    rules = profile(str(workspace), ["./**"], ["./**"], ["build/**"])
    found = plan(rules, "/", specials=())
    noexec = {each.path: each.noexec for each in found.operations if each.op in (Op.BIND_RO, Op.BIND_RW)}
    assert noexec == {str(workspace): True, str(workspace / "build"): False}
    executable = [grant.path for grant in found.grants if "EXECUTE" in grant.rights]
    assert executable == [str(workspace / "build")]


GUARANTEES = [
    (["./**"], [], "./**", Exactness.EXACT, ()),
    (["./**", "!src/**"], ["./**"], "!src/**", Exactness.EXACT, ()),
    (["./**", "!**/*.env"], ["./**"], "!**/*.env", Exactness.SNAPSHOT, ("snapshot-deny",)),
    (["./**", "!**/*.env"], [], "!**/*.env", Exactness.SNAPSHOT, ("snapshot-deny-outside",)),
    (["./**", "!nothing"], ["./**"], "!nothing", Exactness.SNAPSHOT, ("snapshot-deny",)),
    (["src/*.c"], [], "src/*.c", Exactness.SNAPSHOT, ("snapshot-grant",)),
    (["nothing"], [], "nothing", Exactness.SNAPSHOT, ("missing-grant",)),
    (["./**", "src/*.c"], [], "src/*.c", Exactness.EXACT, ()),
    (["./**"], ["top"], "top", Exactness.STRICTER, ("mount-point-stays",)),
    (["./**"], ["build"], "build", Exactness.STRICTER, ("directory-itself",)),
    (["./**"], ["out/**"], "out/**", Exactness.EXACT, ()),
]


@pytest.mark.parametrize(("read", "modify", "text", "exactness", "exceptions"), GUARANTEES)
def test_how_exactly_a_rule_holds(
    workspace: Path, read: list[str], modify: list[str], text: str, exactness: Exactness, exceptions: tuple[str, ...]
) -> None:
    found = plan(profile(str(workspace), read, modify), "/", specials=()).guarantees
    access = "modify" if text in modify and text not in read else "read"
    wanted = next(each for each in found if (each.rule, each.access) == (text, access))
    assert (wanted.exactness, wanted.exceptions) == (exactness, exceptions)
    assert all(EXCEPTIONS[name].sentence in wanted.note for name in exceptions)


HELD = [
    (["./**"], ["nothing"], "nothing", Exactness.STRICTER, ("own-path-link",)),
    (["./**"], ["top"], "top", Exactness.STRICTER, ("own-path-link",)),
    (["./**"], ["src/*.c"], "src/*.c", Exactness.EXACT, ()),
    (["nothing"], ["nothing"], "nothing", Exactness.SNAPSHOT, ("missing-grant",)),  # its folder is not shown
    (["./**", "!**/*.env"], ["./**"], "!**/*.env", Exactness.SNAPSHOT, ("snapshot-deny-outside",)),
]


@pytest.mark.parametrize(("read", "modify", "text", "exactness", "exceptions"), HELD)
def test_how_exactly_a_rule_holds_with_listener_and_hand(
    workspace: Path, read: list[str], modify: list[str], text: str, exactness: Exactness, exceptions: tuple[str, ...]
) -> None:
    found = plan(profile(str(workspace), read, modify), "/", specials=())
    held = as_enforced(found, listening=True, by_hand=True).guarantees
    access = "modify" if text in modify else "read"
    wanted = next(each for each in held if (each.rule, each.access) == (text, access))
    assert (wanted.exactness, wanted.exceptions, wanted.mechanism == "mounts") == (
        exactness,
        exceptions,
        "missing-grant" in exceptions,
    )
    assert as_enforced(found, listening=False, by_hand=False) == found


@pytest.mark.parametrize(
    ("modify", "folders"),
    [
        (["nothing", "src/*.c"], ["."]),  # the topmost alone
        (["src/*.c"], ["src"]),
        (["./**"], []),
        (["out/**"], ["."]),  # to remove `out` itself
        ([], []),
    ],
)
def test_folders_in_which_single_names_are_granted(workspace: Path, modify: list[str], folders: list[str]) -> None:
    found = plan(profile(str(workspace), ["./**"], modify), "/", specials=())
    assert found.single_names == tuple(os.path.normpath(workspace / folder) for folder in folders)


def test_too_many_mounts_are_refused_with_the_rule_that_wants_them(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linux, "MAX_MOUNTS", 3)
    for number in range(5):
        (workspace / f"{number}.env").touch()
    found = plan(profile(str(workspace), ["./**", "!*.env"]), "/", specials=())
    assert len(found.refusals) == 1
    assert "!*.env" in found.refusals[0]
    assert "policy.yaml:101" in found.refusals[0]


def test_odd_names_survive_json_and_print_on_one_line(workspace: Path) -> None:
    for name in (b"with space.env", b"new\nline.env", b"\xff\xfe.env"):
        Path(os.fsdecode(os.fsencode(workspace) + b"/" + name)).touch()
    for backend in ("namespaces", "landlock"):
        found = plan(profile(str(workspace), ["./**", "!**/*.env"], ["out/**"]), "/", specials=(), backend=backend)
        assert plan_from_json(plan_to_json(found)) == found
        assert all("\n" not in line for line in text_lines(found))
        "\n".join(text_lines(found)).encode()  # every byte can be printed
    assert shown_path("a\nb") == "a\\nb"
    assert shown_path(os.fsdecode(b"\xff")) == "\\xff"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 99}', '{"version": 1, "platform": "linux"}'])
def test_what_is_not_a_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        plan_from_json(text)


def test_the_text_names_rules_and_hides_values(workspace: Path) -> None:
    text = "\n".join(text_lines(plan(profile(str(workspace), ["./**", "!src/**"]), "/", specials=())))
    assert f"mask      {workspace}/src [not listable] # !src/**  policy.yaml:101" in text
    assert "every rule is enforced exactly" in text


def test_second_layer_grants_cover_what_the_mounts_show(workspace: Path) -> None:
    found = plan(profile(str(workspace), ["./**", "!src/**"], ["build/**", "top"]), str(workspace))
    rights = {grant.path: set(grant.rights) for grant in found.grants}
    assert rights[str(workspace)] == {"READ_FILE", "READ_DIR", "EXECUTE"}
    assert {"MAKE_REG", "REFER", "TRUNCATE"} <= rights[str(workspace / "build")]
    assert rights[str(workspace / "top")] == {"READ_FILE", "WRITE_FILE", "TRUNCATE", "EXECUTE", "RESOLVE_UNIX"}
    assert "IOCTL_DEV" in rights["/dev"]
    assert str(workspace / "src") not in rights


class OneClosed(DirectoryReader):
    """Root can list everything, so the closed directory is the reader's word."""

    def __init__(self, closed: Path) -> None:
        super().__init__()
        self.closed = str(closed)

    def entries(self, path: str) -> Entries | None:
        return None if path == self.closed else super().entries(path)


def test_a_directory_that_cannot_be_listed_is_hidden_where_names_would_be_excluded(workspace: Path) -> None:
    closed = workspace / "src"
    rules = profile(str(workspace), ["./**", "!**/*.env"])
    found = plan(rules, "/", specials=(), reader=OneClosed(closed))
    assert by_path(found)[str(closed)] is Op.MASK
    assert any(str(closed) in note for note in found.notes)
    alone = plan(rules, "/", specials=(), reader=OneClosed(closed), backend="landlock")
    assert str(workspace) not in {grant.path for grant in alone.grants if "READ_FILE" in grant.rights}
    assert not any(grant.path.startswith(f"{closed}") for grant in alone.grants)


def test_the_model_sees_through_a_wrong_order(workspace: Path) -> None:
    found = plan(profile(str(workspace), ["./**"], ["build/**"]), "/", specials=()).operations
    with pytest.raises(AssertionError):
        Sandbox(reversed(found))
