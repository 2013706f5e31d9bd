"""Landlock on the running kernel: each case in a child, as root and as an ordinary user."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from capabilities import requires
from children import errno_of, in_child

from sbx.kernel import landlock
from sbx.kernel.process import no_new_privs

pytestmark = requires("landlock")

READ = ("EXECUTE", "READ_FILE", "READ_DIR")


def restricted(grants: dict[Path, int], work: Callable[[], Any], *, ports: dict[int, int] | None = None) -> Any:
    """The result of `work` in a child that is held to these grants by everything this kernel can restrict."""

    def child() -> Any:
        ruleset = landlock.create_ruleset(*landlock.handled(landlock.abi()))
        for path, access in grants.items():
            place = os.open(path, os.O_PATH)
            landlock.add_path(ruleset, place, access, is_dir=path.is_dir(), subject=path)
            os.close(place)
        for port, access in (ports or {}).items():
            landlock.add_port(ruleset, port, access)
        no_new_privs()
        landlock.restrict_self(ruleset)
        return work()

    return in_child(child)


def rights(*names: str) -> int:
    return landlock.rights_mask(names, landlock.abi())


def all_rights() -> int:
    return landlock.handled(landlock.abi())[0]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("open/file", "closed/file"):
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text("content")
    return tmp_path


def test_reading_is_allowed_where_granted_only(tree: Path) -> None:
    def work() -> list[str]:
        return [
            errno_of(lambda: (tree / "open/file").read_text()),
            errno_of(lambda: os.listdir(tree / "open")),
            errno_of(lambda: (tree / "open/file").write_text("x")),
            errno_of(lambda: (tree / "closed/file").read_text()),
            errno_of(lambda: os.listdir(tree / "closed")),
            errno_of(lambda: os.listdir(tree)),
        ]

    assert restricted({tree / "open": rights(*READ)}, work) == ["", "", "EACCES", "EACCES", "EACCES", "EACCES"]


def test_everything_granted_is_everything(tree: Path) -> None:
    def work() -> list[str]:
        folder = tree / "open"
        return [
            errno_of(lambda: (folder / "new").write_text("x")),
            errno_of(lambda: (folder / "new").unlink()),
            errno_of(lambda: (folder / "dir").mkdir()),
            errno_of(lambda: (folder / "dir").rmdir()),
            errno_of(lambda: (folder / "link").symlink_to("file")),
            errno_of(lambda: os.truncate(folder / "file", 1)),
            errno_of(lambda: (tree / "closed/file").unlink()),
        ]

    assert restricted({tree / "open": all_rights()}, work) == ["", "", "", "", "", "", "EACCES"]


def test_a_file_takes_the_rights_that_files_have(tree: Path) -> None:
    def work() -> list[str]:
        return [
            errno_of(lambda: (tree / "closed/file").read_text()),
            errno_of(lambda: (tree / "closed/file").write_text("more")),
            errno_of(lambda: (tree / "closed/file").unlink()),
        ]

    assert restricted({tree / "closed/file": all_rights()}, work) == ["", "", "EACCES"]


def test_directory_rights_on_a_file_are_refused_by_the_kernel_itself(tree: Path) -> None:
    """What the downgrade in add_path is for."""

    def work() -> str:
        ruleset = landlock.create_ruleset(all_rights())
        place = os.open(tree / "open/file", os.O_PATH)
        return errno_of(lambda: landlock.add_path(ruleset, place, rights("READ_DIR"), is_dir=True))

    assert in_child(work) == "EINVAL"


def test_a_right_the_kernel_does_not_know_fails_the_ruleset() -> None:
    """Why every mask goes through the table first."""
    assert in_child(lambda: errno_of(lambda: landlock.create_ruleset(1 << 40))) == "EINVAL"


def test_all_of_the_table_is_accepted_at_the_running_abi() -> None:
    assert in_child(lambda: errno_of(lambda: landlock.create_ruleset(*landlock.handled(landlock.abi())))) == ""


@requires(landlock=2)
def test_renames_between_directories(tree: Path) -> None:
    def move() -> str:
        return errno_of(lambda: os.rename(tree / "open/file", tree / "closed/moved"))

    both = {tree / "open": all_rights(), tree / "closed": all_rights()}
    assert restricted(both, move) == ""
    os.rename(tree / "closed/moved", tree / "open/file")
    without = all_rights() & ~rights("REFER")
    assert restricted({tree / "open": without, tree / "closed": without}, move) == "EXDEV"


@requires(landlock=3)
def test_truncation_needs_its_own_right(tree: Path) -> None:
    grants = {tree / "open": rights("READ_FILE", "WRITE_FILE")}
    assert restricted(grants, lambda: errno_of(lambda: os.truncate(tree / "open/file", 0))) == "EACCES"


@requires(landlock=4)
def test_tcp_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [server.getsockname()[1] for server in (first, second)]

        def work() -> list[str]:
            def connect(port: int) -> None:
                with socket.socket() as client:
                    client.connect(("127.0.0.1", port))

            def bind() -> None:
                with socket.socket() as server:
                    server.bind(("127.0.0.1", 0))

            return [errno_of(lambda: connect(ports[0])), errno_of(lambda: connect(ports[1])), errno_of(bind)]

        assert restricted({}, work, ports={ports[0]: landlock.NET_RIGHTS["CONNECT_TCP"][1]}) == ["", "EACCES", "EACCES"]


@requires(landlock=6)
def test_signals_stay_inside() -> None:
    parent = os.getpid()

    def work() -> list[str]:
        return [errno_of(lambda: os.kill(parent, 0)), errno_of(lambda: os.kill(os.getpid(), signal.SIGCONT))]

    assert restricted({}, work) == ["EPERM", ""]


@requires(landlock=6)
def test_abstract_sockets_of_others_are_out_of_reach() -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0sbx-test-" + os.urandom(8).hex())
        server.listen()
        name = server.getsockname()

        def work() -> str:
            with socket.socket(socket.AF_UNIX) as client:
                return errno_of(lambda: client.connect(name))

        assert restricted({}, work) == "EPERM"


@requires(landlock=9)
def test_sockets_with_a_path_of_others_are_out_of_reach(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        server.listen()

        def work() -> str:
            with socket.socket(socket.AF_UNIX) as client:
                return errno_of(lambda: client.connect(str(tmp_path / "s")))

        assert restricted({tmp_path: rights(*READ)}, work) == "EACCES"
        assert restricted({tmp_path: rights(*READ, "RESOLVE_UNIX")}, work) == ""


@requires(landlock=10)
def test_udp_ports() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]

        def work() -> str:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
                return errno_of(lambda: client.sendto(b"x", ("127.0.0.1", port)))

        assert restricted({}, work) == "EACCES"


def test_restricting_needs_no_new_privs() -> None:
    if os.geteuid() == 0:
        pytest.skip("root may restrict itself without")
    assert in_child(lambda: errno_of(lambda: landlock.restrict_self(landlock.create_ruleset(1)))) == "EPERM"


def test_failures_name_the_call_and_its_subject(tmp_path: Path) -> None:
    def work() -> str:
        with pytest.raises(OSError) as failure:
            landlock.add_path(-1, -1, 1, subject=str(tmp_path))
        return str(failure.value)

    words = in_child(work)
    assert "landlock_add_rule" in words and str(tmp_path) in words
