"""For the tests of the installed command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from runs import BOTH, NAMESPACES, Host, with_command

if TYPE_CHECKING:
    from conftest import Sbx


@pytest.fixture(params=BOTH)
def host(request: pytest.FixtureRequest, sbx: Sbx, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Each way in which Linux can hold a command: with namespaces, and with Landlock alone."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    return with_command(request.param, sbx.command)


@pytest.fixture
def here(sbx: Sbx, monkeypatch: pytest.MonkeyPatch) -> Host:
    """This host as it is, for what does not depend on the way."""
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    return with_command(NAMESPACES, sbx.command)
