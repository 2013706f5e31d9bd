"""From what was touched to rules: folders a person would name, never a secret, never through a deny."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbx.policy.learning import EXEC, MODIFY, NOTHING, READ, Generalizer, Need, Proposal, asked_for, looks_secret
from sbx.policy.patch import difference, patched


@pytest.fixture
def places(tmp_path: Path) -> tuple[str, str]:
    root = tmp_path.resolve()
    (root / "home").mkdir()
    (root / "home" / "w").mkdir()
    return str(root / "home" / "w"), str(root / "home")


def propose(places: tuple[str, str], *needs: Need, denied: tuple[str, ...] = (), with_exec: bool = False) -> Proposal:
    workspace, home = places
    return Generalizer(workspace, home, lambda need: need.path in denied).propose(needs, with_exec=with_exec)


def test_four_thousand_files_of_a_cache_are_one_rule(places: tuple[str, str]) -> None:
    home = places[1]
    needs = [Need(f"{home}/.cache/pip/http/{number % 256:x}/{number}", READ, "read") for number in range(4000)]
    assert propose(places, *needs).read == ["~/.cache/pip/**"]


def test_a_tools_own_folder_is_granted_and_not_its_neighbours(places: tuple[str, str]) -> None:
    home = places[1]
    found = propose(
        places,
        Need(f"{home}/.config/tool/settings", READ, "read"),
        Need(f"{home}/.gitconfig", READ, "read"),
        Need(f"{home}/.local/share/tool/x", MODIFY, "create"),
        Need("/opt/tool/lib/x.so", READ, "read"),
    )
    assert found.read == ["/opt/tool/**", "~/.gitconfig", "~/.config/tool/**", "~/.local/share/tool/**"]
    assert found.modify == ["~/.local/share/tool/**"]


def test_what_the_run_made_is_its_own(places: tuple[str, str]) -> None:
    workspace = places[0]
    os.makedirs(f"{workspace}/made/deep/__pycache__")
    found = propose(
        places,
        Need(f"{workspace}/made", MODIFY, "mkdir", new=True),
        Need(f"{workspace}/made/deep", MODIFY, "mkdir", new=True),
        Need(f"{workspace}/made/deep/x.o", MODIFY, "create", new=True),
        Need(f"{workspace}/made/deep/__pycache__/x", MODIFY, "create", new=True),
        Need(f"{workspace}/src/x.c", READ, "read"),
    )
    assert found.modify == ["./made/**"]
    assert found.made == ["./made/**"]
    assert found.read == ["./**"]


def test_a_few_names_are_named(places: tuple[str, str]) -> None:
    workspace = places[0]
    found = propose(places, *(Need(f"{workspace}/{name}", MODIFY, "create", new=True) for name in ("m", "x.o", "y.o")))
    assert found.modify == ["./m", "./x.o", "./y.o"]
    assert found.read == ["./**"]  # a name can be made in a folder that is shown
    assert found.notes == []


def test_many_names_with_one_ending_are_a_glob(places: tuple[str, str]) -> None:
    workspace = places[0]
    names = [f"{workspace}/src/f{number}.o" for number in range(9)]
    found = propose(places, *(Need(name, MODIFY, "create", new=True) for name in (*names, f"{workspace}/src/all.a")))
    assert found.modify == ["./src/*.o", "./src/all.a"]
    many = [Need(f"{workspace}/{folder}/{folder}.o", MODIFY, "create", new=True) for folder in "abcdefgh"]
    assert propose(places, *many).modify == ["./**/*.o"]
    assert propose(places, *(Need(need.path.replace("/w/", "/w/x/"), MODIFY, "create") for need in many)).modify == [
        "./x/**/*.o"
    ]


def test_many_unlike_names_need_their_folder_and_the_rest_stays_protected(places: tuple[str, str]) -> None:
    workspace = places[0]
    os.mkdir(f"{workspace}/src")
    names = ("one", "two", "three", "four", "five", "six", "seven")
    found = propose(places, *(Need(f"{workspace}/{name}", MODIFY, "create", new=True) for name in names))
    assert found.modify == ["./**", "!./src/**"]
    assert found.notes == ["the whole workspace is proposed: 7 unlike names are made in the workspace itself"]
    below = propose(places, *(Need(f"{workspace}/src/{name}", MODIFY, "create", new=True) for name in names))
    assert (below.modify, below.notes) == (["./src/**"], [])


def test_what_is_granted_already_is_not_excepted(places: tuple[str, str]) -> None:
    workspace, home = places
    for name in ("src", "out"):
        os.mkdir(f"{workspace}/{name}")
    generalizer = Generalizer(workspace, home, lambda need: False, granted=lambda folder: folder[-1] == "out")
    need = Need(f"{workspace}/x7Gh2kLq", MODIFY, "create", new=True)
    assert generalizer.propose([need]).modify == ["./**", "!./src/**"]


def test_a_temporary_name_is_a_glob_if_something_of_it_stays(places: tuple[str, str]) -> None:
    workspace = places[0]
    cases = {"m.tmpX3kP9q": "./m.tmp*", ".m.x7Gh2k": None, ".#m": "./.#m", "sedQ2x0ab": "./sed??????"}
    for name, rule in cases.items():
        found = propose(places, Need(f"{workspace}/{name}", MODIFY, "create", new=True))
        assert found.modify == ["./.m.*" if rule is None else rule]
    found = propose(places, Need(f"{workspace}/x7Gh2kLq", MODIFY, "create", new=True))
    assert found.modify == ["./**"]
    assert found.notes == ["the whole workspace is proposed: the next name of ./x7Gh2kLq cannot be told"]
    below = propose(places, Need(f"{workspace}/data/x7Gh2kLq", MODIFY, "create", new=True))
    assert (below.modify, below.notes) == (["./data/**"], [])


def test_without_a_hand_a_new_name_takes_its_folder(places: tuple[str, str]) -> None:
    workspace, home = places
    generalizer = Generalizer(workspace, home, lambda need: False, by_hand=False)
    needs = [Need(f"{workspace}/src/x.o", MODIFY, "create", new=True), Need(f"{workspace}/log", MODIFY, "write")]
    assert generalizer.propose(needs).modify == ["./log", "./src/**"]


@pytest.mark.parametrize("operation", ["mknod", "chown", "setxattr", "access"])
def test_what_the_hand_cannot_do_takes_the_folder(places: tuple[str, str], operation: str) -> None:
    path = f"{places[0]}/src/x"
    os.mkdir(os.path.dirname(path))
    Path(path).touch()
    made = [Need(path, MODIFY, "create", new=True), Need(path, MODIFY, operation)]
    assert propose(places, *made).modify == ["./src/**"]
    if operation != "mknod":
        assert propose(places, Need(path, MODIFY, operation)).modify == ["./src/x"]


def test_the_folders_of_tools_are_granted_whole(places: tuple[str, str]) -> None:
    workspace = places[0]
    for name in (".venv", "src"):
        os.mkdir(f"{workspace}/{name}")
    found = propose(
        places,
        Need(f"{workspace}/pytest-cache-files-x81kd0_q", MODIFY, "mkdir", new=True),
        Need(f"{workspace}/pytest-cache-files-x81kd0_q/README.md", MODIFY, "create", new=True),
        Need(f"{workspace}/.pytest_cache/v/cache/nodeids", MODIFY, "write"),
        Need(f"{workspace}/web/node_modules/.cache/x", MODIFY, "write"),
        Need(f"{workspace}/thing.egg-info/PKG-INFO", MODIFY, "create", new=True),
        Need(f"{workspace}/src/deep/__pycache__/x.pyc", MODIFY, "create", new=True),
        Need(f"{workspace}/build/lib/__pycache__/x.pyc", MODIFY, "create", new=True),
        Need(f"{workspace}/target", MODIFY, "create", new=True),
    )
    assert found.modify == [
        "./target",
        "./.pytest_cache/**",
        "./build/**",
        "./thing.egg-info/**",
        "./**/__pycache__/**",
        "./web/node_modules/.cache/**",
        "!./.venv/**",
    ]
    assert len(found.needless) == 2


def test_a_folder_that_comes_and_goes_is_not_made_before(places: tuple[str, str]) -> None:
    workspace = places[0]
    found = propose(
        places,
        Need(f"{workspace}/t", MODIFY, "mkdir", new=True),
        Need(f"{workspace}/t/a", MODIFY, "create", new=True),
        Need(f"{workspace}/t", MODIFY, "rmdir", folder=True),
    )
    assert found.modify == ["./t", "./t/**/*"]
    assert found.made == []


def test_no_symlink_takes_a_place_that_a_rule_spells_out(places: tuple[str, str]) -> None:
    workspace = places[0]
    os.symlink("lib.so.1", f"{workspace}/lib.so")
    found = propose(places, Need(f"{workspace}/lib.so", MODIFY, "symlink", new=True))
    assert found.modify == ["./Cu??????", "./lib.so*"]


def test_a_shared_folder_is_not_granted_for_one_name_in_it(places: tuple[str, str]) -> None:
    assert propose(places, Need(f"{places[1]}/.cache/one", MODIFY, "create")).modify == ["~/.cache/one"]


def test_a_file_that_is_only_written_is_granted_alone(places: tuple[str, str]) -> None:
    workspace = places[0]
    Path(workspace, "log").touch()
    assert propose(places, Need(f"{workspace}/log", MODIFY, "write")).modify == ["./log"]


def test_who_asks_about_a_shared_folder_wants_the_name_it_looked_for(places: tuple[str, str]) -> None:
    home = places[1]
    os.mkdir(f"{home}/.cache")
    before = [Need(f"{home}/.toolrc", NOTHING, "stat")]
    asks = Need(f"{home}/.cache", MODIFY, "access")
    looks = [Need(f"{home}/.cache/tool/http", NOTHING, "stat"), Need(f"{home}/.cache/tool", NOTHING, "stat")]
    found = asked_for([*before, *looks, asks], home)
    assert propose(places, *found).modify == ["~/.cache/tool/**"]
    no_cache = [*looks, Need(f"{home}/.cache", NOTHING, "stat"), Need(home, MODIFY, "access")]
    assert propose(places, *asked_for(no_cache, home)).modify == ["~/.cache/tool/**"]
    assert asked_for([*before, asks], home) == []
    assert asked_for([*before, Need(home, MODIFY, "access")], home) == []
    os.mkdir(f"{places[0]}/out")
    own = asked_for([Need(f"{places[0]}/out", MODIFY, "access")], home)
    assert propose(places, *own).modify == ["./out/**"]


def test_denied_and_secret_paths_are_left_to_a_person(places: tuple[str, str]) -> None:
    workspace, home = places
    found = propose(
        places,
        Need(f"{home}/.npmrc", READ, "read"),
        Need(f"{workspace}/private/x", READ, "read"),
        Need(f"{workspace}/keys/server.pem", READ, "read"),
        Need(f"{workspace}/a", READ, "read"),
        denied=(f"{workspace}/private/x",),
    )
    assert found.secrets == [f"{home}/.npmrc", f"{workspace}/keys/server.pem"]
    assert found.denied == [f"{workspace}/private/x"]
    assert found.read == ["./**", "!./keys/server.pem"]


def test_a_folder_with_a_secret_in_it_keeps_it_out(places: tuple[str, str]) -> None:
    home = places[1]
    os.makedirs(f"{home}/.config/tool")
    Path(home, ".config/tool/access_token").touch()
    found = propose(places, Need(f"{home}/.config/tool/settings", READ, "read"))
    assert found.read == ["~/.config/tool/**", "!~/.config/tool/access_token"]


def test_exec_rules_only_where_the_profile_has_them(places: tuple[str, str]) -> None:
    need = Need("/opt/tool/bin/x", EXEC, "execute")
    assert propose(places, need).exec == []
    assert propose(places, need, with_exec=True).exec == ["/opt/tool/**"]


def test_odd_names_are_escaped(places: tuple[str, str]) -> None:
    assert propose(places, Need(f"{places[1]}/a*b[c]", READ, "read")).read == ["~/a\\*b\\[c\\]"]


@pytest.mark.parametrize(
    ("path", "secret"),
    [
        ("/h/.netrc", True), ("/h/x.pem", True), ("/h/id_rsa", True), ("/h/.env.local", True),
        ("/h/api_token.txt", True), ("/h/tokenizer.py", False), ("/etc/passwd", False), ("/h/readme", False),
    ],
)  # fmt: skip
def test_what_looks_secret(path: str, secret: bool) -> None:
    assert looks_secret(path) is secret


def test_a_patch_only_adds(places: tuple[str, str]) -> None:
    del places
    old = (
        "schemaVersion: 2\nfsProfiles:\n  a:          # mine\n    read: ['./x']\n  b:\n    read:\n      - ./y   # why\n"
    )
    proposal = Proposal(read=["./x", "./z"], modify=["./out/**"])
    new = patched(old, "b", proposal, extends="", description="d")
    lines = difference("sbx.yaml", old, new).splitlines()
    assert [line for line in lines if line.startswith("-") and not line.startswith("---")] == []
    added = [line[1:].strip() for line in lines if line.startswith("+") and not line.startswith("+++")]
    assert added == ['- "./x"', '- "./z"', "modify:", '- "./out/**"']


WITH_COMMENTS = """\
schemaVersion: 2
fsProfiles:
  a:
    read:
      - ./y   # why

    # what it may change
    modify: ['./z']   # short

  # about b
  b:
    read: ['./**']

# about denies
denyRead: ['./x']
"""


@pytest.mark.parametrize(
    ("name", "after", "added"),
    [
        ("a", "      - ./y   # why\n", '      - "./n"\n'),
        ("b", "    read: ['./**', \"./n\"]\n", '    modify:\n      - "./out/**"\n'),
        ("new", "    read: ['./**']\n", "  new:\n    # looks secret, left to you: /s.env\n    description: d\n"),
    ],
)
def test_what_is_added_stands_with_its_own_and_not_below_another_comment(name: str, after: str, added: str) -> None:
    proposal = Proposal(read=["./n"], modify=["./out/**"], secrets=["/s.env"])
    for newline in ("\n", "\r\n"):
        old = WITH_COMMENTS.replace("\n", newline)
        new = patched(old, name, proposal, extends="", description="d")
        assert (after + added).replace("\n", newline) in new
        assert new.endswith("\n# about denies\ndenyRead: ['./x']\n".replace("\n", newline))
        assert "    # what it may change\n    modify: ['./z'".replace("\n", newline) in new
        assert f"  # about b{newline}  b:{newline}" in new
        assert new.count("\r") == (new.count("\n") if newline == "\r\n" else 0)


def test_many_folders_in_one_are_that_one(tmp_path: Path) -> None:
    (tmp_path / "ws").mkdir()
    needs = [Need(str(tmp_path / f"ws/o/objects/{n:02x}/f"), MODIFY, "link") for n in range(40)]
    generalizer = Generalizer(str(tmp_path / "ws"), str(tmp_path / "home"), lambda need: False)
    assert generalizer.propose(needs).modify == ["./o/objects/**"]
    tops = [Need(str(tmp_path / f"ws/d{n}/f"), MODIFY, "create") for n in range(5)]
    assert generalizer.propose(tops).modify == [f"./d{n}/f" for n in range(5)]


def test_a_folder_with_an_odd_name_keeps_its_secrets_out_as_well(places: tuple[str, str]) -> None:
    home = places[1]
    folder = f"{home}/odd [1]\\x/data"
    os.makedirs(folder)
    names = [f"{folder}/{number}.txt" for number in range(9)]
    for name in (*names, f"{folder}/credentials.json"):
        Path(name).touch()
    found = propose(places, *(Need(name, READ, "read") for name in names))
    assert len(found.read) == 2 and found.read[0].endswith("/**")
    assert found.read[1].startswith("!") and found.read[1].endswith("/credentials.json")
    assert found.notes == []


def test_a_folder_that_is_too_large_to_look_through_is_told(
    places: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbx.policy.learning.MAX_LOOK", 5)
    folder = f"{places[1]}/data"
    os.makedirs(folder)
    names = [f"{folder}/{number}.txt" for number in range(9)]
    for name in names:
        Path(name).touch()
    found = propose(places, *(Need(name, READ, "read") for name in names))
    assert found.read == ["~/data/**"]
    assert found.notes == [f"{folder} holds more names than were looked at: see that no secret is among them"]
