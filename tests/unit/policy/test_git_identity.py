"""Which of the user's git configuration a command may read."""

from __future__ import annotations

import pytest

from sbx.policy.effective import effective_profile
from sbx.policy.git_identity import looks_secret

IDENTITY = "[user]\n\tname = A Person\n\temail = person@example.com\n"
PLAIN = [
    IDENTITY,
    "[alias]\n\tst = status\n[core]\n\texcludesFile = ~/.ignored\n",
    '[url "git@example.com:"]\n\tinsteadOf = https://example.com/\n',
    '[url "ssh://git@example.com/"]\n\tinsteadOf = https://example.com/\n',
    "[credential]\n\thelper = store\n",
]
SECRET = [
    '[http "https://example.com"]\n\textraHeader = "Authorization: Basic Zm9vOmJhcg=="\n',
    '[url "https://somebody:hunter2@example.com/"]\n\tinsteadOf = https://example.com/\n',
    '[url "https://0123456789abcdef@example.com/"]\n\tinsteadOf = https://example.com/\n',
    '[url "ssh://git:hunter2@example.com/"]\n\tinsteadOf = x\n',
    "[sendemail]\n\tsmtpPass = hunter2\n",
    "[github]\n\ttoken = 0123456789abcdef\n",
]


@pytest.mark.parametrize("text", PLAIN)
def test_what_holds_no_secret_is_readable_and_never_writable(text: str, workspace, load, ask) -> None:
    path = workspace.home / ".gitconfig"
    path.write_text(text)
    profile = effective_profile(load("denyRead: []\n"))
    assert ask(profile).reads(path)
    assert not ask(profile).modifies(path)


@pytest.mark.parametrize("text", SECRET)
def test_what_may_hold_a_secret_stays_hidden(text: str, workspace, load, ask) -> None:
    assert looks_secret(text.encode())
    path = workspace.home / ".config" / "git" / "config"
    path.parent.mkdir(parents=True)
    path.write_text(IDENTITY + text)
    assert not ask(effective_profile(load("denyRead: []\n"))).reads(path)


def test_a_deny_of_the_user_beats_it(workspace, load, ask) -> None:
    path = workspace.home / ".gitconfig"
    path.write_text(IDENTITY)
    profile = effective_profile(load("denyRead: ['~/.gitconfig']\n"))
    assert not ask(profile).reads(path)


def test_stored_passwords_are_not_part_of_it(workspace, load, ask) -> None:
    path = workspace.home / ".config" / "git" / "credentials"
    path.parent.mkdir(parents=True)
    path.write_text("https://somebody:hunter2@example.com\n")
    assert not ask(effective_profile(load("denyRead: []\n"))).reads(path)
