"""Broken policies: one line each, with the place and what to write instead; never a traceback, never a default."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from sbx.errors import EXIT_INTERNAL, PolicyError
from sbx.policy.document import USER, WORKSPACE
from sbx.policy.layers import effective_profile, load_policy
from sbx.policy.load import load_file

V2 = "schemaVersion: 2\n"
PROFILE = V2 + "fsProfiles:\n  p:\n"

# name, text, place (line:column), a piece of the message, a piece of the remedy
TEXTS: list[tuple[str, str | bytes, str, str, str]] = [
    ("empty", "", "1:1", "empty", "schemaVersion: 2"),
    ("only a comment", "# nothing\n", "1:1", "empty", "schemaVersion: 2"),
    ("only null", "---\n~\n", "2:1", "empty", "schemaVersion: 2"),
    ("a list", "- a\n", "1:1", "map of keys", "schemaVersion: 2"),
    ("a word", "hello\n", "1:1", "map of keys", "schemaVersion: 2"),
    ("no version", "denyRead: []\n", "1:1", "schemaVersion is missing", "fsProfiles"),
    ("version 1", "schemaVersion: 1\nprofiles: {}\n", "1:16", "schemaVersion 1", "'profiles' to 'fsProfiles'"),
    ("version 3", "schemaVersion: 3\n", "1:16", "unknown", "schemaVersion: 2"),
    ("version in quotes", 'schemaVersion: "2"\n', "1:16", "unknown", "a number"),
    ("version 2.0", "schemaVersion: 2.0\n", "1:16", "unknown", "schemaVersion: 2"),
    ("version a map", "schemaVersion: {a: 1}\n", "1:16", "must be the number 2", "schemaVersion: 2"),
    ("unknown key", V2 + "denyreed: []\n", "2:1", "'denyreed' is not a key", "did you mean 'denyRead'"),
    ("unknown key, snake case", V2 + "deny_read: []\n", "2:1", "not a key", "did you mean 'denyRead'"),
    ("version 1 key", V2 + "profiles: {}\n", "2:1", "not a key", "did you mean 'fsProfiles'"),
    ("deny", V2 + "deny: []\n", "2:1", "not a key", "denyRead and denyModify"),
    ("a key like nothing", V2 + "zzzzzzzz: 1\n", "2:1", "not a key", "known: denyModify"),
    ("unknown profile key", PROFILE + "    write: []\n", "4:5", "not a key of profile 'p'", "did you mean 'modify'"),
    ("misspelt profile key", PROFILE + "    modfiy: []\n", "4:5", "not a key", "did you mean 'modify'"),
    ("unknown limit", PROFILE + "    limits: {timeout: 3}\n", "4:14", "not a key", "did you mean 'wall'"),
    ("unknown env key", PROFILE + "    env: {keep: []}\n", "4:11", "not a key", "pass"),
    ("a shipped key", PROFILE + "    stateFolders: []\n", "4:5", "come with sbx", "read and modify"),
    ("baseline", V2 + "baseline: {}\n", "2:1", "come with sbx", "rules"),
    ("duplicate key", V2 + "denyRead: []\ndenyRead: []\n", "3:1", "twice", "keep one"),
    ("duplicate profile", V2 + "fsProfiles:\n  a: {}\n  a: {}\n", "4:3", "first at line 3", "keep one"),
    ("duplicate version", V2 + V2, "2:1", "twice", "keep one"),
    ("duplicate variable", PROFILE + '    env: {set: {A: "1", A: "2"}}\n', "4:25", "twice", "keep one"),
    ("denies a text", V2 + "denyRead: ~/.ssh\n", "2:11", "must be a list", '["~/.ssh"]'),
    ("denies a map", V2 + "denyRead: {a: b}\n", "2:11", "must be a list", "write denyRead:"),
    ("denies nothing", V2 + "denyRead:\n", "2:1", "not nothing", "write denyRead:"),
    ("a number as rule", PROFILE + "    read: [12]\n", "4:12", "is a number", 'in quotes: "12"'),
    ("a truth as rule", PROFILE + "    read: [true]\n", "4:12", "true or false", "in quotes"),
    ("nothing as rule", PROFILE + "    read: [~]\n", "4:12", "is empty", "remove it"),
    ("an empty item", PROFILE + "    read:\n      -\n", "5:8", "is empty", "remove it"),
    ("a list as rule", PROFILE + "    read: [[a]]\n", "4:12", "is a list", "quotes"),
    ("unquoted braces", PROFILE + "    read: [{a,b}]\n", "4:12", "is a map", "quotes"),
    ("profiles a list", V2 + "fsProfiles: []\n", "2:13", "a map from profile names", "write fsProfiles:"),
    ("a profile a list", V2 + "fsProfiles: {p: []}\n", "2:17", "must be a map", "read:"),
    ("a profile empty", V2 + "fsProfiles:\n  p:\n", "3:3", "must be a map", "read:"),
    ("a profile's name", V2 + 'fsProfiles: {"a b": {}}\n', "2:14", "cannot name a profile", "letters, digits"),
    ("a name like an option", V2 + "fsProfiles: {-x: {}}\n", "2:14", "cannot name", "starting with a letter"),
    ("a null key", V2 + "fsProfiles: {~: {}}\n", "2:14", "a key", "plain word"),
    ("description a list", PROFILE + "    description: [a]\n", "4:18", "must be text", "write description:"),
    ("description a number", PROFILE + "    description: 5\n", "4:18", "must be text", 'quotes: "5"'),
    ("require", PROFILE + "    require: ful\n", "4:14", "cannot be 'ful'", "did you mean 'full'"),
    ("require a truth", PROFILE + "    require: true\n", "4:14", "cannot be 'true'", "full or partial"),
    ("futureDenies", PROFILE + "    futureDenies: yes\n", "4:19", "cannot be 'yes'", "best"),
    ("network", PROFILE + "    network: all\n", "4:14", "cannot be 'all'", "none or host"),
    ("network a list", PROFILE + '    network: ["a:1"]\n', "4:14", "a list", "{allow:"),
    ("network a host", PROFILE + "    network: api.example.com:443\n", "4:14", "cannot be", '{allow: ["api.'),
    ("network deny", PROFILE + "    network: {deny: []}\n", "4:15", "not a key", "allow"),
    ("host without port", PROFILE + '    network: {allow: ["example.com"]}\n', "4:23", "port", "HOST:PORT"),
    ("host with scheme", PROFILE + '    network: {allow: ["https://example.com"]}\n', "4:23", "scheme", "HOST:PORT"),
    ("host with bad port", PROFILE + '    network: {allow: ["example.com:99999"]}\n', "4:23", "port", "HOST:PORT"),
    ("duration", PROFILE + "    limits: {wall: soon}\n", "4:20", "'soon'", "30s"),
    ("duration unit", PROFILE + "    limits: {wall: 5x}\n", "4:20", "unit of time", "1h30m"),
    ("duration zero", PROFILE + "    limits: {wall: 0}\n", "4:20", "zero", "leave it out"),
    ("duration negative", PROFILE + "    limits: {cpu: -5s}\n", "4:19", "'-5s'", "30s"),
    ("duration nothing", PROFILE + "    limits: {cpu: }\n", "4:14", "not nothing", "write cpu: 5m"),
    ("size", PROFILE + "    limits: {memory: lots}\n", "4:22", "'lots'", "512MiB"),
    ("size unit", PROFILE + "    limits: {memory: 5 apples}\n", "4:22", "not a size", "512MiB"),
    ("size zero", PROFILE + "    limits: {memory: 0}\n", "4:22", "zero", "leave it out"),
    ("count", PROFILE + "    limits: {pids: many}\n", "4:20", "not a count", "256"),
    ("count fraction", PROFILE + "    limits: {pids: 1.5}\n", "4:20", "not a count", "whole number"),
    ("few files", PROFILE + "    limits: {nofile: 5}\n", "4:22", "too small to start a command", "give at least 16"),
    ("a space", PROFILE + "    limits: {wall: 10 minutes}\n", "4:20", "has a space in it", "write it in one"),
    ("count zero", PROFILE + "    limits: {nofile: 0}\n", "4:22", "zero", "leave it out"),
    ("limits a list", PROFILE + "    limits: [wall]\n", "4:13", "must be a map", "write limits:"),
    ("variable value", PROFILE + "    env: {set: {CI: 1}}\n", "4:21", "must be text", 'quotes: "1"'),
    ("variable name", PROFILE + '    env: {pass: ["A B"]}\n', "4:18", "name of a variable", "letters"),
    ("variable with value", PROFILE + '    env: {pass: ["A=1"]}\n', "4:18", "gives a value", "set:"),
    ("secret a text", PROFILE + "    env: {secret: TOKEN}\n", "4:19", "must be a list", '["TOKEN"]'),
    ("shippedDenies here", V2 + "shippedDenies: false\n", "2:1", "not for a workspace", "your own policy"),
    ("negated deny", V2 + 'denyRead: ["!a"]\n', "2:12", "cannot be negated", "write 'a'"),
    ("rule empty", PROFILE + '    read: [""]\n', "4:12", "empty", "./**"),
    ("rule only a sign", PROFILE + '    read: ["!"]\n', "4:12", "empty", "./**"),
    ("rule negated twice", PROFILE + '    read: ["!!a"]\n', "4:12", "twice", "one '!'"),
    ("rule with slash at end", PROFILE + '    read: ["src/"]\n', "4:12", "end with a slash", "'src/**'"),
    ("rule with glued stars", PROFILE + '    read: ["src**"]\n', "4:12", "'**' must stand alone", "a/**/b"),
    ("rule with open class", PROFILE + '    read: ["a[b"]\n', "4:12", "not closed", "[abc]"),
    ("rule with open brace", PROFILE + '    read: ["a{b"]\n', "4:12", "not closed", "{a,b}"),
    ("rule with backward range", PROFILE + '    read: ["[z-a]"]\n', "4:12", "backwards", "manual"),
    ("rule with lone backslash", PROFILE + "    read: ['a\\']\n", "4:12", "lone backslash", "\\\\"),
    ("rule with dots after a star", PROFILE + '    read: ["*/../x"]\n', "4:12", "'..' cannot follow", "without it"),
    ("rule with dots far behind", PROFILE + '    read: ["*/a/../x"]\n', "4:12", "'..' cannot follow", "without it"),
    ("rule with somebody's home", PROFILE + '    read: ["~bob/x"]\n', "4:12", "your own home", "'~/…'"),
    ("rule with a bare variable", PROFILE + '    read: ["$HOME/x"]\n', "4:12", "braces", "${NAME}"),
    ("rule with open variable", PROFILE + '    read: ["${HOME/x"]\n', "4:12", "not closed", "${NAME}"),
    ("rule with odd variable", PROFILE + '    read: ["${a-b}/x"]\n', "4:12", "not a variable's name", "${NAME}"),
    ("rule with NUL", PROFILE + '    read: ["a\\0b"]\n', "4:12", "control characters", "'?'"),
    ("rule too long", PROFILE + f'    read: ["{"a" * 5000}"]\n', "4:12", "longer than", "split"),
    ("rule too deep", PROFILE + f'    read: ["{"a/" * 200}b"]\n', "4:12", "more than 128 names", "**"),
    ("rule with many braces", PROFILE + f'    read: ["{"{a,b}" * 12}"]\n', "4:12", "alternatives", "split"),
    ("rule with nested braces", PROFILE + f'    read: ["{"{" * 900 + "a" + "}" * 900}"]\n', "4:12", "braces", "split"),
    ("unquoted star", V2 + "denyRead: [**/*.env]\n", "2:12", "alias", "in quotes"),
    ("unquoted sign", PROFILE + "    read: [!./x]\n", "4:12", "tag", "in quotes"),
    ("an alias", V2 + "denyRead: [*x]\n", "2:12", "alias", "extends"),
    ("an anchor", V2 + "denyRead: &x []\n", "2:11", "anchor", "extends"),
    ("a python tag", V2 + "denyRead: !!python/object:os.system []\n", "2:11", "tag", "quotes"),
    ("an ordinary tag", V2 + "denyRead: !!seq []\n", "2:11", "tag", "quotes"),
    ("a merge key", PROFILE + "    <<: {read: []}\n", "4:5", "not a key", "extends"),
    ("tabs", V2 + "fsProfiles:\n\tp: {}\n", "3:1", "not YAML", "spaces, not tabs"),
    ("bad indentation", V2 + "denyRead: []\n fsProfiles: {}\n", "3:2", "not YAML", "indentation"),
    ("two colons", V2 + "denyRead: a: b\n", "2:12", "not YAML", "quotes"),
    ("open bracket", V2 + "denyRead: [a\n", "3:1", "not YAML", "close the bracket"),
    ("open quote", V2 + 'denyRead: ["a]\n', "3:1", "not YAML", "close the quote"),
    ("a percent sign", V2 + "denyRead: [%a]\n", "2:12", "not YAML", "quotes"),
    ("two documents", V2 + "---\n" + V2, "2:1", "second document", "one file is one policy"),
    ("deep nesting", V2 + "denyRead: " + "[" * 400 + "]" * 400 + "\n", "2:23", "nested too deeply", "indentation"),
    ("unending nesting", V2 + "denyRead: " + "[" * 100_000, "2:23", "nested too deeply", "indentation"),
    ("NUL bytes", V2.encode() + b"\0\0", "2:1", "control character", "plain text"),
    ("an executable", b"\x7fELF\x02\x01\x01" + bytes(64), "1:1", "control character", "plain text"),
    ("latin-1", V2.encode() + b"# caf\xe9\n", "2:6", "not UTF-8", "save it as UTF-8"),
    ("utf-16", V2.encode("utf-16"), "1:1", "not UTF-8", "save it as UTF-8"),
    ("escapes in a key", V2 + '"\\e[31mred": 1\n', "2:1", "\\x1b[31mred", "known"),
    ("escapes in a rule", PROFILE + '    read: ["a\\e]0;x"]\n', "4:12", "control characters", "'?'"),
    ("a rule that reads backwards", PROFILE + '    read: ["a\\u202Eb"]\n', "4:12", "control characters", "'?'"),
    ("escapes in a description", PROFILE + '    description: "\\e[2J"\n', "4:18", "control character", "plain text"),
    ("escapes in a lone rule", PROFILE + '    read: "\\e[2J"\n', "4:11", "must be a list", "read: ["),
    ("a test without path", V2 + "tests: [{read: allow}]\n", "2:9", "no 'path'", "add path:"),
    ("a test without verdict", V2 + "tests: [{path: a}]\n", "2:9", "expects nothing", "read: allow"),
    ("a test's verdict", V2 + "tests: [{path: a, read: yes}]\n", "2:25", "cannot be 'yes'", "allow or deny"),
    ("tests a map", V2 + "tests: {}\n", "2:8", "must be a list", "write tests:"),
    ("extends a list", PROFILE + "    extends: [a]\n", "4:14", "name of a profile", "write extends:"),
]  # fmt: skip


def refusal(path: Path, layer: str = WORKSPACE) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        load_file(str(path), layer)
    return caught.value


def check(error: PolicyError, path: Path, place: str, message: str, remedy: str) -> None:
    assert error.exit_code == EXIT_INTERNAL
    assert error.__cause__ is None
    line = str(error)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
    assert len(line) < 600
    assert line.startswith(f"{path}:{place}: " if place else f"{path}: ")
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(("name", "text", "place", "message", "remedy"), TEXTS, ids=[row[0] for row in TEXTS])
def test_each_mistake_is_one_line_with_place_and_remedy(
    tmp_path: Path, name: str, text: str | bytes, place: str, message: str, remedy: str
) -> None:
    path = tmp_path / "sbx.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    check(refusal(path), path, place, message, remedy)


def test_an_alias_bomb_is_refused_at_its_first_anchor(tmp_path: Path) -> None:
    bomb = V2 + "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    path = tmp_path / "sbx.yaml"
    path.write_text(bomb)
    check(refusal(path), path, "2:5", "anchor", "write the value out")


def test_two_mebibytes_are_not_even_parsed(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    path.write_text(V2 + "# " + "x" * (2 * 1024 * 1024))
    check(refusal(path), path, "", "over 1 MiB", "shorten")


def test_one_mebibyte_is_still_a_policy(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    path.write_text((V2 + "# ").ljust(1024 * 1024, "x"))
    assert load_file(str(path), USER).profiles == ()


def test_a_directory(tmp_path: Path) -> None:
    check(refusal(tmp_path), tmp_path, "", "is a directory", "the file inside")


def test_a_fifo_never_blocks(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    os.mkfifo(path)
    check(refusal(path), path, "", "is a FIFO", "regular file")


def test_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s")
        check(refusal(tmp_path / "s"), tmp_path / "s", "", "is a socket", "regular file")


def test_a_device() -> None:
    check(refusal(Path("/dev/zero")), Path("/dev/zero"), "", "is a device", "regular file")


def test_a_missing_file(tmp_path: Path) -> None:
    check(refusal(tmp_path / "no.yaml"), tmp_path / "no.yaml", "", "no such file", "sbx init")


def test_a_loop_of_symlinks(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    path.symlink_to("other")
    (tmp_path / "other").symlink_to("sbx.yaml")
    check(refusal(path), path, "", "loop of symlinks", "the file itself")


def test_a_dangling_symlink(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    path.symlink_to("nowhere")
    check(refusal(path), path, "", "no such file", "check the name")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "sbx.yaml"
    path.write_text(V2)
    path.chmod(0)
    check(refusal(path), path, "", "may not be read", "chmod")


def test_a_refused_read_has_words_for_root_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "sbx.yaml"
    path.write_text(V2)

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("sbx.policy.read_file.os.open", refuse)
    check(refusal(path), path, "", "may not be read", "chmod")


def test_a_symlinked_policy_is_fine(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text(V2)
    (tmp_path / "sbx.yaml").symlink_to("real.yaml")
    assert load_file(str(tmp_path / "sbx.yaml"), USER).path == str(tmp_path / "sbx.yaml")


CHAINS = [
    ("itself", "a: {extends: a}", "3:16", "extends itself", "name another profile"),
    ("a circle", "a: {extends: b}\n  b: {extends: c}\n  c: {extends: a}", "5:16", "a -> b -> c -> a", "remove one"),
    ("unknown", "mine: {extends: biuld}", "3:19", "'biuld', which does not exist", "did you mean 'build'"),
    ("unlike anything", "mine: {extends: zzzzzz}", "3:19", "does not exist", "known: agent"),
]


@pytest.mark.parametrize(("name", "body", "place", "message", "remedy"), CHAINS, ids=[row[0] for row in CHAINS])
def test_extends_that_lead_nowhere(workspace, name: str, body: str, place: str, message: str, remedy: str) -> None:
    path = workspace.policy(V2 + f"fsProfiles:\n  {body}\n")
    with pytest.raises(PolicyError) as caught:
        load_policy(str(workspace.root), policy_file=str(path), environ=os.environ)
    check(caught.value, path, place, message, remedy)


RULES = [
    ("unset variable", 'read: ["${NO_SUCH}/x"]', "4:12", "NO_SUCH is not set", "${NO_SUCH:-default}"),
    ("empty variable", 'read: ["${EMPTY}/**"]', "4:12", "EMPTY is empty", "${EMPTY:-default}"),
    ("empty default", 'read: ["${NO_SUCH:-}/x"]', "4:12", "NO_SUCH is not set", "default"),
    ("modify without read", 'modify: ["./out/**"]', "4:14", "not covered by a read rule", "add './out/**' to read"),
    ("modify beside read", 'read: ["./src/**"]\n    modify: ["./srcs/**"]', "5:14", "not covered", "to read"),
    ("modify above read", 'read: ["./src/**"]\n    modify: ["./**"]', "5:14", "not covered", "to read"),
    ("loop in a rule", 'read: ["./loop/**"]', "4:12", "loop of symlinks", "another path"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "place", "message", "remedy"), RULES, ids=[row[0] for row in RULES])
def test_rules_that_cannot_be_expanded(
    workspace, monkeypatch: pytest.MonkeyPatch, name: str, body: str, place: str, message: str, remedy: str
) -> None:
    monkeypatch.setenv("EMPTY", "")
    (workspace.root / "loop").symlink_to("loop")
    path = workspace.policy(PROFILE + f"    {body}\n")
    policy = load_policy(str(workspace.root), policy_file=str(path), environ=os.environ)
    with pytest.raises(PolicyError) as caught:
        effective_profile(policy, "p")
    check(caught.value, path, place, message, remedy)


def test_nothing_of_a_broken_layer_is_applied(workspace) -> None:
    """Also a mistake far down, in a profile that the run would not use."""
    workspace.user_policy(V2 + "fsProfiles:\n  good: {read: []}\n  bad: {reed: []}\n")
    with pytest.raises(PolicyError, match=r"policy\.yaml:4:9"):
        load_policy(str(workspace.root), environ=os.environ)
