"""The command's environment: an allow-list, what the profile and the options add, and what is true inside.

Order, later wins: the default set (or all of it), globs of `pass` and `secret`, what sbx knows better (HOME, TMPDIR,
PWD, the proxy), names written out, values that were set. Everything is bytes: an environment need not be text.
"""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import TypeAlias

    from sbx.model.glob import Component

    # A name, and the parsed glob when it is one.
    NameRule: TypeAlias = tuple[str, Component | None]
    EnvironmentRules: TypeAlias = tuple[
        tuple[NameRule, ...],  # pass
        tuple[tuple[str, str], ...],  # set
        tuple[NameRule, ...],  # secret
        bool,  # all
    ]

# What ordinary programs need to behave as they do outside; nothing here is a secret or makes a program run another.
_DEFAULT = (
    # who and where
    "HOME USER LOGNAME SHELL PATH PWD TMPDIR TZ "
    # language; LC_* comes on top
    "LANG LANGUAGE "
    # terminal and colours
    "TERM COLORTERM TERM_PROGRAM TERMINFO COLUMNS LINES NO_COLOR CLICOLOR CLICOLOR_FORCE FORCE_COLOR LS_COLORS "
    "EDITOR VISUAL PAGER LESS "
    # make, with its jobserver
    "MAKEFLAGS MFLAGS MAKELEVEL MAKE_TERMOUT MAKE_TERMERR CARGO_MAKEFLAGS "
    # where version managers keep programs
    "VIRTUAL_ENV CONDA_PREFIX CONDA_DEFAULT_ENV PYENV_ROOT PYENV_VERSION UV_PYTHON_INSTALL_DIR NVM_DIR NVM_BIN "
    "VOLTA_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN CARGO_HOME GOPATH GOROOT GOTOOLCHAIN ASDF_DIR ASDF_DATA_DIR "
    "MISE_DATA_DIR SDKMAN_DIR JAVA_HOME "
    # the user's folders
    "XDG_CONFIG_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_STATE_HOME CODEX_HOME CLAUDE_CONFIG_DIR "
    # that this is a CI run, not what it may do
    "CI GITHUB_ACTIONS GITLAB_CI BUILDKITE CIRCLECI JENKINS_URL TEAMCITY_VERSION TF_BUILD "
    # reproducible builds
    "SOURCE_DATE_EPOCH"
)
DEFAULT_NAMES = frozenset(_DEFAULT.split())
DEFAULT_PREFIXES = ("LC_",)

# Names that make a program load or run something else. A glob asks for them only when it spells out at least three
# characters (`LD_*`, `PYTHON*`); `*` does not.
EXEC_LIKE_PREFIXES = (
    "LD_", "DYLD_", "PYTHON", "PERL5", "BASH_FUNC_", "GIT_", "MALLOC_", "GCONV_", "RUBY", "NODE_", "NPM_CONFIG_",
)  # fmt: skip
_EXEC_LIKE = (
    "BASH_ENV ENV PERLLIB PROMPT_COMMAND PS4 SHELLOPTS BASHOPTS IFS CDPATH LOCPATH GLIBC_TUNABLES JAVA_TOOL_OPTIONS "
    "_JAVA_OPTIONS JDK_JAVA_OPTIONS LESSOPEN LESSCLOSE"
)
EXEC_LIKE_NAMES = frozenset(_EXEC_LIKE.split())

DEFAULT_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def environment_rules(
    pass_names: Iterable[str] = (),
    set_values: Iterable[tuple[str, str]] = (),
    secret: Iterable[str] = (),
    pass_all: bool = False,
) -> EnvironmentRules:
    """Compile: plain values that can be stored. Raises BadGlob."""
    return (
        tuple(_name_rule(name) for name in pass_names),
        tuple(set_values),
        tuple(_name_rule(name) for name in secret),
        pass_all,
    )


def with_options(rules: EnvironmentRules, extra: tuple[str, ...], env_all: bool) -> EnvironmentRules:
    """The profile's rules and the command line's: `--env NAME` passes on, `--env NAME=VALUE` sets."""
    passed, values, secret, pass_all = rules
    for entry in extra:
        name, equals, value = entry.partition("=")
        if name[:1] in ("", "-"):  # an option, or the '--' before the command, stands where the name should
            from sbx.errors import UsageError

            raise UsageError(f"--env {entry!r} names no variable", remedy="write --env NAME or --env NAME=VALUE")
        if equals:
            values = (*values, (name, value))
        else:
            passed = (*passed, (name, None))
    return (passed, values, secret, pass_all or env_all)


def build_environment(
    rules: EnvironmentRules, environ: Mapping[bytes, bytes], inside: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """What the command gets. `inside` is what is true for it, whatever the caller's environment says."""
    passed, values, secret, pass_all = rules
    wanted = (*passed, *secret)
    globs = tuple(rule for rule in wanted if rule[1] is not None)
    hidden = tuple(rule for rule in secret if rule[1] is not None)
    names = {rule[0].encode("utf-8", "surrogateescape") for rule in wanted if rule[1] is None}
    built: dict[bytes, bytes] = {}
    for key, value in environ.items():
        name = key.decode("utf-8", "surrogateescape")
        if pass_all or is_default(name) or (globs and _asked_for(globs, hidden, name)):
            built[key] = value
    built.pop(b"OLDPWD", None)  # a folder that the command never was in
    built.setdefault(b"PATH", DEFAULT_PATH)
    built.update(inside)
    for key in names:
        if key in environ and key != b"PWD":  # which is a fact and no wish
            built[key] = environ[key]
    for text, value_text in values:
        built[text.encode("utf-8", "surrogateescape")] = value_text.encode("utf-8", "surrogateescape")
    return built


def secret_names(rules: EnvironmentRules, environ: Mapping[bytes, bytes]) -> tuple[bytes, ...]:
    """The variables whose values the policy declares secret."""
    found = []
    for key in environ:
        name = key.decode("utf-8", "surrogateescape")
        if any(_matches(rule, name) for rule in rules[2]):
            found.append(key)
    return tuple(found)


def is_default(name: str) -> bool:
    return name in DEFAULT_NAMES or name.startswith(DEFAULT_PREFIXES)


def is_exec_like(name: str) -> bool:
    return name in EXEC_LIKE_NAMES or name.startswith(EXEC_LIKE_PREFIXES)


def _name_rule(name: str) -> NameRule:
    if not any(char in name for char in "*?[{\\"):
        return (name, None)
    from sbx.model.glob import parse

    pattern = parse("/" + name)
    return (name, pattern[0])


def _matches(rule: NameRule, name: str) -> bool:
    if rule[1] is None:
        return rule[0] == name
    from sbx.model.glob import match_name  # loaded only by profiles that have globs here

    return match_name(rule[1], name)


def _asked_for(globs: tuple[NameRule, ...], hidden: tuple[NameRule, ...], name: str) -> bool:
    """By a glob. One of `pass` does not bring a secret along (CARGO_* and CARGO_REGISTRY_TOKEN): that is asked for by
    its name or under `secret`."""
    from sbx.launch.redact import is_sensitive

    for rule in globs:
        if not _matches(rule, name):
            continue
        if is_exec_like(name) and len(_plain_start(rule[0])) < 3:
            continue
        if is_sensitive(name) and rule not in hidden:
            continue
        return True
    return False


def _plain_start(glob: str) -> str:
    for at, char in enumerate(glob):
        if char in "*?[{\\":
            return glob[:at]
    return glob


def jobserver(environ: Mapping[bytes, bytes]) -> tuple[tuple[int, ...], bytes]:
    """make's jobserver: the descriptors the command must inherit, and the path of the fifo it must reach (make 4.4).

    Only what is really there: a number in MAKEFLAGS that is no pipe may be any file of the caller's.
    """
    for variable in (b"MAKEFLAGS", b"CARGO_MAKEFLAGS", b"MFLAGS"):
        found = _jobserver_of(environ.get(variable, b""))
        if found[0] or found[1]:
            return found
    return (), b""


def _jobserver_of(makeflags: bytes) -> tuple[tuple[int, ...], bytes]:
    answer: tuple[tuple[int, ...], bytes] = ((), b"")
    for word in makeflags.split():
        if word == b"--":
            break  # variables of the command line follow, which may look like anything
        for option in (b"--jobserver-auth=", b"--jobserver-fds="):
            if word.startswith(option):
                answer = _checked_jobserver(word[len(option) :])  # the last one counts
    return answer


def _checked_jobserver(value: bytes) -> tuple[tuple[int, ...], bytes]:
    if value.startswith(b"fifo:"):
        return (), _own_fifo(value[5:])
    numbers = value.split(b",")
    if len(numbers) != 2 or not all(number.isdigit() and len(number) < 8 for number in numbers):
        return (), b""
    pair = (int(numbers[0]), int(numbers[1]))
    if min(pair) > 2 and _is_pipe_end(pair[0], os.O_WRONLY) and _is_pipe_end(pair[1], os.O_RDONLY):
        return pair, b""
    return (), b""


def _own_fifo(path: bytes) -> bytes:
    """Its real path if it is one, and the caller's own. Empty otherwise: a bind of it would show something else."""
    if sys.platform == "win32" or not path.startswith(b"/"):
        return b""
    else:
        try:
            real = os.path.realpath(path)
            found = os.lstat(real)
        except (OSError, ValueError):
            return b""
        return real if found.st_mode & 0o170000 == 0o010000 and found.st_uid == os.geteuid() else b""


def _is_pipe_end(descriptor: int, wrong_mode: int) -> bool:
    if sys.platform == "win32":
        return False
    else:
        import fcntl

        try:
            if os.fstat(descriptor).st_mode & 0o170000 != 0o010000:
                return False
            return fcntl.fcntl(descriptor, fcntl.F_GETFL) & 3 != wrong_mode
        except OSError:
            return False
