"""The annotated result: facts, plain lines, when it is printed."""

from __future__ import annotations

import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from sbx.model.guarantee import Applied
from sbx.model.result import Denial, Result, Status, Usage
from sbx.policy.folders import shipped_folder
from sbx.report.plain import facts, is_worth_telling, plain_lines
from sbx.report.run import report, terminal_lines


def result(status: Status = Status.OK, rc: int = 0, reason: str = "exited with status 0", **change: Any) -> Result:
    made = Result(status, rc, rc, None, reason, 1500, ("make", "-j4", "a b"), "/w", "build", "t", "namespaces")
    made.usage = Usage(20, 3 << 20, 2)
    for name, value in change.items():
        setattr(made, name, value)
    return made


class Done:
    def __init__(self, command: list[str] | None = None, candidates: tuple[bytes, ...] = (), **options: Any) -> None:
        self.options = options
        self.notes: list[str] = []
        self.command = command or ["make"]
        self.run = {"candidates": candidates}
        self.outcome: dict[str, Any] = {"failure": None, "exec_errno": 0}
        self.prepared: dict[str, Any] = {"network": ("none", ()), "enforced": ()}
        self.overheard, self.said = True, b""


def printed(made: Result, done: Done, capsys: pytest.CaptureFixture[str]) -> list[str]:
    report(made, done)  # type: ignore[arg-type]
    captured = capsys.readouterr()
    assert captured.out == "", "standard output belongs to the command"
    return captured.err.splitlines()


TIMEOUT = result(Status.TIMEOUT, 124, "process timed out after 2s")
DENIAL = Denial("read", "/home/u/.ssh/id", "cat", 2, "~/.ssh/**", "sbx.yaml:3", "add a rule")


def test_auto_says_nothing_of_a_plain_success(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(result(), Done(), capsys) == []
    assert printed(result(), Done(report="always"), capsys)[0] == "sbx: OK: exited with status 0"
    assert printed(TIMEOUT, Done(report="never"), capsys) == []


def test_anything_else_is_worth_telling() -> None:
    assert is_worth_telling(TIMEOUT)
    assert is_worth_telling(result(denials=(DENIAL,)))
    assert is_worth_telling(result(enforced={"memory": Applied(True, False, "x")}))
    assert is_worth_telling(result(network=({"host": "example.com", "port": 443, "verdict": "deny"},)))
    assert is_worth_telling(result(), ["a note"])
    assert not is_worth_telling(result(enforced={"memory": Applied(False, False, "x")}))


def test_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(TIMEOUT, Done(), capsys)
    assert lines == [
        "sbx: TIMEOUT: process timed out after 2s",
        "sbx: ran: make -j4 'a b' (profile build, namespaces, 1.5s)",
        "sbx: used: 1.50s, 0.02s cpu, 3 MiB, 2 processes",
        "sbx: next: give it more time with --timeout, or with limits.wall in profile build",
    ]


def test_denials_name_the_rule_and_its_place() -> None:
    lines = plain_lines(facts(result(Status.EXIT, 1, "exited with status 1", denials=(DENIAL,))))
    assert "sbx: denied: read /home/u/.ssh/id by cat (2 times): rule ~/.ssh/** at sbx.yaml:3" in lines
    assert "sbx: next: add a rule" in lines


def test_many_denials_stay_on_one_screen() -> None:
    many = tuple(Denial("read", f"/x/{number}") for number in range(500))
    lines = plain_lines(facts(result(denials=many)))
    assert len(lines) < 24
    assert any("488 more" in line for line in lines)


def test_what_was_not_enforced_and_refused_hosts() -> None:
    made = result(
        enforced={"memory": Applied(True, False, "no cgroup")},
        network=({"host": "example.com", "port": 443, "verdict": "deny", "reason": "no rule", "remedy": "--net x:1"},),
    )
    lines = plain_lines(facts(made, ["standard output was cut"]))
    assert "sbx: not enforced: memory: no cgroup" in lines
    assert "sbx: network: denied example.com:443, no rule; to allow it: --net x:1" in lines
    assert "sbx: note: standard output was cut" in lines


def test_each_fact_is_one_line_whatever_a_name_holds() -> None:
    made = result(Status.EXIT, 1, "exited\nwith", cmd=("a\nb", "\x1b[31mred"))
    for line in plain_lines(facts(made)):
        assert line.isprintable()
    for spans in terminal_lines(facts(made)):
        assert all(text.isprintable() for text, _ in spans)


def test_a_person_is_not_told_where_the_shipped_files_lie() -> None:
    denial = Denial("read", "/h/.ssh/id", "cat", 1, "!~/.ssh/**", f"{shipped_folder()}/denies.yaml:8")
    found = facts(result(Status.EXIT, 1, "exited", denials=(denial,)))
    shown = ["".join(text for text, _ in line) for line in terminal_lines(found)]
    assert any("rule !~/.ssh/** at denies.yaml:8" in line for line in shown)
    assert any(f" at {shipped_folder()}/denies.yaml:8" in line for line in plain_lines(found))


def test_not_found_looks_outside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "compile").write_text("#!/no/such/interpreter\n")
    (tmp_path / "compile").chmod(0o755)
    (tmp_path / "plain").touch()
    made = result(Status.NOT_FOUND, 127, "command not found")

    def hint(name: str) -> str:
        candidates = (bytes(tmp_path / name),)
        return printed(made, Done([name], candidates), capsys)[-1]

    assert "starts with #!/no/such/interpreter" in hint("compile")
    (tmp_path / "compile").write_bytes(b"\x7fELF")
    assert "does not let it be read" in hint("compile")
    assert "did you mean 'compile'?" in hint("compil")
    blocked = result(Status.NOT_EXECUTABLE, 126, "Permission denied")
    assert "chmod +x" in printed(blocked, Done(["plain"], (bytes(tmp_path / "plain"),)), capsys)[-1]
    assert "is a directory" in printed(blocked, Done([str(tmp_path)], (bytes(tmp_path),)), capsys)[-1]


def test_a_profile_in_the_place_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    made = result(Status.NOT_FOUND, 127, "command not found")
    lines = printed(made, Done(["build", "--", "make", "a b"], (b"/usr/bin/build",)), capsys)
    assert lines[-1] == "sbx: next: if 'build' is a profile: sbx run --profile build -- make 'a b'"


@pytest.mark.parametrize(
    ("failure", "exec_errno", "words"),
    [
        (("mount /x", errno.EPERM, "EPERM", b""), 0, "run 'sbx doctor'"),
        (("fork", errno.EAGAIN, "EAGAIN", b""), 0, "'ulimit -u'"),
        (("open", errno.EMFILE, "EMFILE", b"/x"), 0, "'ulimit -n'"),
        (None, errno.ENOMEM, "no memory left"),
        (None, 0, "run 'sbx doctor'"),
    ],
)
def test_a_failure_of_sbx_has_a_next_step(
    failure: tuple[Any, ...] | None, exec_errno: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    done = Done()
    done.outcome = {"failure": failure, "exec_errno": exec_errno}
    last = printed(result(Status.INTERNAL_ERROR, 125, "could not"), done, capsys)[-1]
    assert last.startswith("sbx: next: ")
    assert words in last


FAILED = result(Status.EXIT, 6, "exited with status 6")


def test_no_network_is_a_cause(capsys: pytest.CaptureFixture[str]) -> None:
    done = Done()
    done.said = b"curl: (6) Could not resolve host: example.com"
    (hint,) = [line for line in printed(FAILED, done, capsys) if line.startswith("sbx: next: ")]
    assert "profile build has no network" in hint and "--net HOST:PORT" in hint
    for network, enforced in ((("host", ()), ()), (("none", ()), (("network", True, False, "no way"),))):
        done.prepared = {"network": network, "enforced": enforced}
        assert not any("no network" in line for line in printed(FAILED, done, capsys))


def test_the_trace_is_proposed_where_it_can_tell(capsys: pytest.CaptureFixture[str]) -> None:
    def proposed(said: bytes, overheard: bool = True, *notes: str, **change: Any) -> bool:
        done = Done()
        done.said, done.overheard, done.notes = said, overheard, list(notes)
        return any("--trace" in line for line in printed(result(Status.EXIT, 1, "x", **change), done, capsys))

    assert proposed(b"cp: cannot open 'x': Permission denied")
    assert proposed(b"", overheard=False)
    assert not proposed(b"", False, "the limit of 5 processes was reached: a new one was refused")
    assert not proposed(b"", False, network=({"host": "x.org", "port": 443, "verdict": "deny"},))
    assert not proposed(b"sh: 0: Cannot fork")
    assert not proposed(b"cat: /usr/no-such-name: No such file or directory")
    assert proposed(b"cat: /usr/bin/env: No such file or directory")


def test_the_word_is_the_one_that_was_used(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done = Done()
    done.overheard = False
    monkeypatch.setattr(sys, "argv", ["sbx", "sh", "-c", "false"])
    assert "'sbx sh --trace …'" in printed(FAILED, done, capsys)[-1]


def test_an_interpreter_out_of_reach_is_not_called_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/closed/python\n")
    script.chmod(0o755)
    real = os.stat

    def closed(path: Any, *arguments: Any, **named: Any) -> os.stat_result:
        if path == "/closed/python":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "stat", closed)
    made = result(Status.NOT_FOUND, 127, "command not found")
    assert "which you may not look at" in printed(made, Done(["script"], (bytes(script),)), capsys)[-1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("no_color", [True, False])
def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch, no_color: bool) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    report(TIMEOUT, Done())  # type: ignore[arg-type]
    assert "process timed out" in stream.getvalue()
    assert ("\x1b[31m" in stream.getvalue() or "\x1b[1;31m" in stream.getvalue()) is not no_color


def test_a_closed_standard_error_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    report(TIMEOUT, Done())  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stderr", None)
    report(TIMEOUT, Done())  # type: ignore[arg-type]
