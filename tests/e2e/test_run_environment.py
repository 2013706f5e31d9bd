"""What the command finds in its environment, and what sbx never tells anybody of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from capabilities import requires
from runs import Host

if TYPE_CHECKING:
    from conftest import Workspace

pytestmark = pytest.mark.usefixtures("workspace")

# It looks like nothing else, so that finding it anywhere means something.
VALUE = "hunter2-c0ffee-swordfish"


def environment(host: Host, *options: str, env: dict[str, str] | None = None) -> dict[str, str]:
    done = host.run(*options, "--", "env", "-0", env=env or {})
    assert done.returncode == 0, done.stderr
    pairs = (entry.partition("=") for entry in done.stdout.decode("utf-8", "surrogateescape").split("\0") if entry)
    return {name: value for name, _, value in pairs}


def test_the_default_set(here: Host) -> None:
    passed = {"LANG": "C.UTF-8", "LC_TIME": "C", "TZ": "Asia/Tokyo", "NO_COLOR": "1", "EDITOR": "vi", "CI": "true"}
    kept_back = {
        "MY_VARIABLE": "x", "AWS_SECRET_ACCESS_KEY": VALUE, "GITHUB_TOKEN": VALUE, "SSH_AUTH_SOCK": "/run/agent",
        "LD_PRELOAD": "", "LD_LIBRARY_PATH": "/tmp", "PYTHONPATH": "/tmp", "BASH_ENV": "/tmp/x",
        "DBUS_SESSION_BUS_ADDRESS": "x",
        "HTTP_PROXY": "http://example.com", "DISPLAY": ":0", "GIT_DIR": "/tmp", "OLDPWD": "/",
    }  # fmt: skip
    found = environment(here, env={**passed, **kept_back})
    assert {name: found.get(name) for name in passed} == passed
    assert not found.keys() & kept_back.keys()


def test_home_tmpdir_and_pwd_are_true_inside(host: Host, workspace: Workspace) -> None:
    below = workspace.root / "below"
    below.mkdir()
    found = environment(host, "--cwd", "below", env={"TMPDIR": os.environ["TMPDIR"], "PWD": "/nowhere"})
    assert found["HOME"] == str(workspace.home)
    assert found["PWD"] == str(below)
    done = host.run("--", "sh", "-c", 'cd "$TMPDIR" && touch made-inside && pwd -P && ls -d made*')
    folder, made, _ = done.stdout.decode().split("\n")
    assert made == "made-inside", done.stderr
    if host.name == "namespaces":
        assert folder == "/tmp"
        assert not os.path.exists("/tmp/made-inside")
    else:
        assert folder.startswith(os.path.realpath(os.environ["TMPDIR"]) + "/sbx-")
        assert not os.path.exists(folder)  # gone with the run


def test_pwd_by_way_of_a_link(host: Host, workspace: Workspace) -> None:
    """A shell keeps the name under which a folder was entered; that stays true inside, and nothing else is."""
    link = workspace.root.parent / "link"
    link.symlink_to(workspace.root)
    found = environment(host, env={"PWD": str(link)})
    assert found["PWD"] == str(link)
    assert environment(host, "--env", "PWD", env={"PWD": "/etc"})["PWD"] == str(workspace.root)


def test_options(here: Host) -> None:
    given = {"MY_VARIABLE": "mine", "OTHER": "x"}
    assert "MY_VARIABLE" not in environment(here, env=given)
    found = environment(
        here, "--env", "MY_VARIABLE", "--env", "NEW=a=b", "--env", "EMPTY=", "--env", "ABSENT", env=given
    )
    assert (found["MY_VARIABLE"], found["NEW"], found["EMPTY"]) == ("mine", "a=b", "")
    assert "ABSENT" not in found and "OTHER" not in found
    everything = environment(here, "--env-all", env={**given, "LD_LIBRARY_PATH": "/nowhere"})
    assert (everything["OTHER"], everything["LD_LIBRARY_PATH"]) == ("x", "/nowhere")


def test_the_value_of_an_option_is_of_this_run_alone(here: Host) -> None:
    """The plan is stored, the value is not."""
    assert environment(here, "--env", "NEW=one")["NEW"] == "one"
    assert environment(here, "--env", "NEW=two")["NEW"] == "two"
    assert "NEW" not in environment(here)


def test_the_profile(here: Host, workspace: Workspace) -> None:
    workspace.policy(
        "schemaVersion: 2\n"
        "fsProfiles:\n"
        "  p:\n"
        "    read: ['./**']\n"
        "    env: {pass: [CC, 'CARGO_*'], set: {CI: '1', CC: clang}, secret: [DEPLOY_KEY]}\n"
    )
    options = ("--policy", "sbx.yaml", "--profile", "p")
    given = {"CC": "gcc", "CARGO_X": "1", "CARGO_REGISTRY_TOKEN": VALUE, "DEPLOY_KEY": VALUE, "CI": "0"}
    found = environment(here, *options, env=given)
    assert {name: found.get(name) for name in given} == {
        "CC": "clang", "CARGO_X": "1", "CARGO_REGISTRY_TOKEN": None, "DEPLOY_KEY": VALUE, "CI": "1",
    }  # fmt: skip
    # A flag beats the profile.
    assert environment(here, *options, "--env", "CC=tcc", env=given)["CC"] == "tcc"


def test_preloading_only_when_asked_for(here: Host, workspace: Workspace) -> None:
    assert "LD_PRELOAD" not in environment(here)
    found = environment(here, "--env", "LD_PRELOAD=./missing.so")
    assert found["LD_PRELOAD"] == "./missing.so"


def test_bytes_that_are_no_text(here: Host) -> None:
    name, value = "LC_ODD", os.fsdecode(b"\xff\xfe")
    assert environment(here, env={name: value})[name] == value


def stored(workspace: Workspace) -> str:
    """All that sbx left in the user's folders and in the workspace."""
    texts = []
    for folder in (workspace.home, workspace.root):
        texts += [path.read_bytes().decode("latin-1") for path in Path(folder).rglob("*") if path.is_file()]
    return "\n".join(texts)


@pytest.mark.parametrize("end", ["exit 0", "exit 3", "kill -TERM $$"], ids=["ok", "exit", "signal"])
def test_secrets_are_told_to_nobody(here: Host, workspace: Workspace, end: str) -> None:
    """Not in messages, not in the record, not in the audit log, not in the store; the command itself has them."""
    workspace.policy("schemaVersion: 2\nfsProfiles:\n  p: {read: ['./**'], env: {secret: [DEPLOY_KEY]}}\n")
    options = ("--policy", "sbx.yaml", "--profile", "p", "--report", "always", "--env", f"API_TOKEN={VALUE}-2")
    text = f"echo $DEPLOY_KEY $API_TOKEN; {end}"
    argument = f"--password={VALUE}-3"
    for record in (("--json", "result.json"), ()):
        done = here.run(*options, *record, "--", "sh", "-c", text, "sh", argument, env={"DEPLOY_KEY": VALUE})
        assert done.stdout.decode().split() == [VALUE, f"{VALUE}-2"], done.stderr
        assert VALUE not in done.stderr.decode()
    assert "[REDACTED]" in json.loads((workspace.root / "result.json").read_text())["stdout"]
    assert VALUE not in stored(workspace)
    assert "p" in stored(workspace)  # there was something to look at
    shown = here.run(word="audit")
    assert VALUE not in shown.stdout.decode()


def test_a_failure_tells_no_secret_either(here: Host, workspace: Workspace) -> None:
    done = here.run(
        "--json", "result.json", "--env", f"API_TOKEN={VALUE}", "--", f"./{VALUE}", env={"MY_SECRET": VALUE}
    )
    assert done.returncode == 127
    assert VALUE not in done.stderr.decode()
    assert VALUE not in stored(workspace)


def test_the_callers_environment_cannot_be_seen_from_inside(host: Host) -> None:
    """The process that leads the sandbox was born with it."""
    text = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'"
    done = host.run("--env", f"GIVEN={VALUE}-given", "--", "sh", "-c", text, env={"KEPT_BACK": VALUE + "-kept"})
    assert f"{VALUE}-given" in done.stdout.decode()
    assert f"{VALUE}-kept" not in done.stdout.decode()


def test_the_fifo_of_makes_jobserver(
    host: Host, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """make 4.4 names a fifo in the temporary folder, where nothing else of the caller's is to be seen."""
    folder = tmp_path_factory.mktemp("temporary")
    fifo, other = folder / "GMfifo1", folder / "other"
    os.mkfifo(fifo, 0o600)
    other.write_text("hidden\n")
    # A token is taken and put back; nothing beside the fifo is there to be read.
    text = 'dd if="$1" bs=1 count=1 status=none && printf + >"$1"; cat "$2"; rm -f "$1"'
    tokens = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    try:
        os.write(tokens, b"+")
        env = {"MAKEFLAGS": f" -j2 --jobserver-auth=fifo:{fifo}"}
        done = host.run("--", "sh", "-c", text, "sh", str(fifo), str(other), env=env)
        assert done.stdout == b"+", done.stderr
        assert os.read(tokens, 2) == b"+"
        assert fifo.exists()
    finally:
        os.close(tokens)
    # Only what is a fifo is shown.
    env = {"MAKEFLAGS": f" -j2 --jobserver-auth=fifo:{other}"}
    assert host.run("--", "cat", str(other), env=env).stdout == b""
    # And only the caller's own: a policy's words or an option could name any fifo.
    given = f"MAKEFLAGS=--jobserver-auth=fifo:{fifo}"
    opened = host.run("--env", given, "--", "dd", f"if={fifo}", "iflag=nonblock", "count=0", "status=none")
    assert opened.returncode == 1


@requires("userns")
def test_a_value_for_this_run_is_masked_in_the_audit_log(sbx: Any, workspace: Any) -> None:
    for _ in range(2):  # once compiled, once from the stored plan
        assert sbx("run", "--env", "API_TOKEN=hunter2hunter2", "--", "sh", "-c", "true", "hunter2hunter2").rc == 0
    log = (workspace.home / ".local/state/sbx/audit.jsonl").read_text()
    assert log.count("[REDACTED]") == 2
    assert "hunter2" not in log
