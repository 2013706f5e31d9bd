"""Secrets stay out of what sbx prints or stores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbx.launch.redact import MASK, MASK_BYTES, LiveMask, Redactor, is_sensitive, redactor_for

SOUND_SECRET = (
    "API_TOKEN GITHUB_TOKEN GH_PAT AWS_SECRET_ACCESS_KEY PGPASSWORD MYSQL_PWD DB_PASS NPM_CONFIG__AUTH api-key token "
    "SSH_PRIVATE_KEY GOOGLE_CREDENTIALS HTTP_AUTHORIZATION SENTRY_DSN OPENAI_API_KEY x-apikey"
)
HARMLESS = (
    "PATH HOME PWD OLDPWD KEYBOARD_LAYOUT GIT_AUTHOR_NAME AUTHOR SSH_AUTH_SOCK MONKEY PASSENGER SPINNER KEY "
    "GOOGLE_CREDENTIALS_FILE TURKEY_DIR COMPASS"
)


@pytest.mark.parametrize("name", SOUND_SECRET.split())
def test_names_that_sound_like_a_secret(name: str) -> None:
    assert is_sensitive(name)


@pytest.mark.parametrize("name", HARMLESS.split())
def test_names_that_do_not(name: str) -> None:
    assert not is_sensitive(name)


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["curl", "-H", "Authorization: Bearer abc"], ["curl", "-H", f"Authorization: {MASK}"]),
        (["x", "--password=abc"], ["x", f"--password={MASK}"]),
        (["x", "--password", "abc", "--token", "--verbose"], ["x", "--password", MASK, "--token", "--verbose"]),
        (["env", "API_TOKEN=abc", "A=b"], ["env", f"API_TOKEN={MASK}", "A=b"]),
        (["git", "clone", "https://u:p@example.com/a@b"], ["git", "clone", f"https://u:{MASK}@example.com/a@b"]),
        (["git", "clone", "https://abc@example.com/"], ["git", "clone", f"https://{MASK}@example.com/"]),
        (["git", "clone", "ssh://git@example.com/x"], ["git", "clone", "ssh://git@example.com/x"]),
        (["x", "--db=postgres://u:p%40@h/d http://a:b@c"], ["x", f"--db=postgres://u:{MASK}@h/d http://a:{MASK}@c"]),
        (["make", "-j4", "all", "http://example.com/@x"], ["make", "-j4", "all", "http://example.com/@x"]),
        (["mysql", "--defaults=secretvalue"], ["mysql", f"--defaults={MASK}"]),
    ],
)
def test_argv(argv: list[str], shown: list[str]) -> None:
    assert Redactor([b"secretvalue"]).argv(argv) == shown


def test_declared_secrets_are_masked_whatever_they_are_and_guesses_unless_too_short() -> None:
    environ = {b"PIN": b"12", b"MY_TOKEN": b"1", b"OTHER_TOKEN": b"longenough", b"PLAIN": b"visible"}
    redactor = redactor_for(environ, secret_names=[b"PIN"])
    assert redactor.text("12 1 longenough visible") == f"{MASK} 1 {MASK} visible"


def test_text_that_is_not_unicode_survives() -> None:
    text = b"a\xffsecret\xfe".decode("utf-8", "surrogateescape")
    assert Redactor([b"secret"]).text(text).encode("utf-8", "surrogateescape") == b"a\xff" + MASK_BYTES + b"\xfe"


def test_a_longer_secret_that_contains_a_shorter_one_is_masked_whole() -> None:
    assert Redactor([b"bc", b"abcd"]).data(b"xabcdx") == b"x" + MASK_BYTES + b"x"
    mask = LiveMask([b"bc", b"abcd"])
    assert b"".join([mask.feed(b"xabc"), mask.feed(b"dx"), mask.flush()]) == b"x" + MASK_BYTES + b"x"


def test_a_cut_stream_does_not_show_the_start_of_a_secret() -> None:
    mask = LiveMask([b"abcdef"])
    assert mask.feed(b"say abc") == b"say "
    assert mask.flush(cut=True) == MASK_BYTES


secrets = st.lists(st.binary(min_size=1, max_size=6).map(lambda b: bytes(x % 3 + 97 for x in b)), max_size=4)
pieces = st.lists(st.binary(max_size=12).map(lambda b: bytes(x % 3 + 97 for x in b)), max_size=8)


@given(secrets, pieces)
def test_in_pieces_as_in_one(values: list[bytes], parts: list[bytes]) -> None:
    """However the stream is split, no secret is left in it, and what is left is what one pass would leave."""
    mask = LiveMask(values)
    out = b"".join([*(mask.feed(part) for part in parts), mask.flush()])
    for text in out.split(MASK_BYTES):
        assert not any(value in text for value in values)
    assert out.replace(MASK_BYTES, b"") == Redactor(values).data(b"".join(parts)).replace(MASK_BYTES, b"")


def test_both_the_callers_and_the_commands_values_are_masked() -> None:
    redactor = redactor_for({b"API_TOKEN": b"of-the-caller"}, {b"API_TOKEN": b"of-the-command"})
    assert redactor.argv(["of-the-caller", "of-the-command", "other"]) == ["[REDACTED]", "[REDACTED]", "other"]
