"""Every command as data: what it is called, where its code is, what it takes.

The parser, `--help`, the overview, the man pages and the completions are made from this table. Each module is imported
only when its command is called, and has a function `command(options, words) -> exit code`.
"""

from __future__ import annotations

from sbx.launch.options import COUNT, DURATION, FILE, FLAG, NAME, NET, RUN_OPTIONS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    # name, kind, metavar, repeatable, help, group: as in RUN_OPTIONS
    OptionRow: TypeAlias = tuple[str, str, str, bool, str, str]

MANY = -1

TEXT = "text"  # a kind of value: read by the command itself

JSON: OptionRow = ("json", FLAG, "", False, "Print JSON.", "")
PROFILE: OptionRow = ("profile", NAME, "NAME", False, "The profile to ask about (default: unrestricted).", "")
POLICY: OptionRow = ("policy", FILE, "FILE", False, "Use FILE in place of the workspace's sbx.yaml.", "")


class Command:
    """One row. `words` are the arguments that are not options: what they are called, how few and how many."""

    __slots__ = ("about", "examples", "least", "module", "most", "name", "options", "summary", "words")

    def __init__(
        self,
        name: str,
        module: str,
        summary: str,
        options: tuple[OptionRow, ...],
        *,
        words: str = "",
        least: int = 0,
        most: int = 0,
        about: str = "",
        examples: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.module = module
        self.summary = summary
        self.options = options
        self.words = words
        self.least = least
        self.most = most
        self.about = about
        self.examples = examples


COMMANDS = (
    Command(
        "run",
        "sbx.cli.run",
        "Run a command under a policy that the kernel enforces.",
        RUN_OPTIONS,
        words="COMMAND [ARGS]...",
        most=MANY,
        about="After the command, everything belongs to the command. The exit status is the command's own; 124 is a "
        "timeout, 125 a failure of sbx itself, 126 and 127 a command that cannot be executed or found.",
        examples=("sbx run -- make -j4", "sbx run --profile build --timeout 10m -- make -j4"),
    ),
    Command(
        "sh",
        "sbx.cli.run",
        "The same through /bin/sh: a shell for Makefiles and CI.",
        RUN_OPTIONS,
        words="(-c TEXT | FILE [ARGS]...)",
        most=MANY,
        about="In a Makefile, 'SHELL := sbx' and '.SHELLFLAGS := sh --profile build -c' sandbox every recipe.",
        examples=("sbx sh -c 'make && make test'",),
    ),
    Command(
        "explain",
        "sbx.cli.explain",
        "Say why a path is allowed or denied, and what would change it.",
        (
            PROFILE,
            POLICY,
            ("read", FLAG, "", False, "Only about reading.", ""),
            ("modify", FLAG, "", False, "Only about modifying.", ""),
            ("last", FLAG, "", False, "Explain what the last run in this workspace was denied.", ""),
            ("net", NET, "HOST:PORT", True, "Explain whether HOST:PORT may be reached.", ""),
            JSON,
        ),
        words="[PATH]...",
        most=MANY,
        about="Exit status: 0 when everything asked about is allowed, 1 when something is denied, 2 for an error.",
        examples=("sbx explain --profile build .env", "sbx explain --last", "sbx explain --net api.example.com:443"),
    ),
    Command(
        "check",
        "sbx.cli.check",
        "Validate and lint policies, and run the tests they contain.",
        (
            ("no-tests", FLAG, "", False, "Do not run the policy's own tests.", ""),
            ("schema", FLAG, "", False, "Print the JSON Schema of policies, for editors, and check nothing.", ""),
            JSON,
        ),
        words="[FILE]...",
        most=MANY,
        about="Without FILE, the policy in force here. Exit status: 0 when nothing was found, 1 when something was, 2 "
        "for a policy that cannot be used.",
        examples=("sbx check", "sbx check policies/*.yaml", "sbx check --schema > .sbx.schema.json"),
    ),
    Command(
        "profiles",
        "sbx.cli.profiles",
        "List the profiles in force, or show the effective rules of one.",
        (POLICY, ("names", FLAG, "", False, "Print the names alone, one a line.", ""), JSON),
        words="[list | show NAME]",
        most=2,
        examples=("sbx profiles", "sbx profiles show build"),
    ),
    Command(
        "plan",
        "sbx.cli.plan",
        "Say what would be done for a command, without doing it.",
        (
            *(row for row in RUN_OPTIONS if row[5] in ("Policy", "Limits") or row[0] in ("env", "env-all", "cwd")),
            ("platform", TEXT, "linux|macos|windows", False, "Plan for this platform (default: this one).", "Output"),
            ("format", TEXT, "text|json|sbpl|bwrap|systemd", False, "How to print it (default: text).", "Output"),
            ("json", FLAG, "", False, "Print JSON.", "Output"),
        ),
        words="[COMMAND [ARGS]...]",
        most=MANY,
        about="The operations in order with the rule that causes each, the Landlock rules, and how exactly each rule "
        "of the profile is enforced. Write '--' before a command that has options of its own. The formats bwrap and "
        "systemd are the nearest that those come to the plan, with a list of what they cannot express.",
        examples=("sbx plan --profile build -- make -j4", "sbx plan --platform macos --format sbpl"),
    ),
    Command(
        "learn",
        "sbx.cli.learn",
        "Run a command, see what it needs, and propose the smallest profile for it.",
        (
            ("profile", NAME, "NAME", False, "The profile to extend, or a new one's name (default: learned).", ""),
            ("write", FLAG, "", False, "Write the proposal to sbx.yaml, and approve it.", ""),
            ("policy", FILE, "FILE", False, "Use FILE in place of the workspace's sbx.yaml, and propose for it.", ""),
            *(row for row in RUN_OPTIONS if row[0] in ("net", "env", "env-all", "timeout")),
        ),
        words="COMMAND [ARGS]...",
        least=1,
        most=MANY,
        about="The command runs with your own rights but for the global denies, so use it for commands that you would "
        "run without sbx. Its output goes to standard error; the proposal is a patch on standard output. Write '--' "
        "before a command that has options of its own.",
        examples=("sbx learn -- make -j4", "sbx learn --profile build --write -- make -j4"),
    ),
    Command(
        "init",
        "sbx.cli.init",
        "Write a starter policy that fits this folder, and approve it.",
        (("print", FLAG, "", False, "Print it instead of writing it.", ""),),
        examples=("sbx init --print", "sbx init"),
    ),
    Command(
        "trust",
        "sbx.cli.trust",
        "Approve the content of a workspace's policy.",
        (
            ("list", FLAG, "", False, "List what was approved.", ""),
            ("forget", FLAG, "", False, "Withdraw the approval.", ""),
        ),
        words="[FILE]",
        most=1,
        about="Without FILE, the nearest sbx.yaml. A policy that changes has to be approved again.",
        examples=("sbx trust", "sbx trust --list", "sbx trust --forget"),
    ),
    Command(
        "audit",
        "sbx.cli.audit",
        "Read the audit log: what ran, under which profile, how it ended, what was denied.",
        (
            ("denied", FLAG, "", False, "Only runs that were denied something.", ""),
            ("last", TEXT, "N|all", False, "The last N records (default: 20).", ""),
            JSON,
        ),
        about="One record a run, oldest first. The log is in $XDG_STATE_HOME/sbx, readable by its owner only.",
        examples=("sbx audit --last 5", "sbx audit --denied --json"),
    ),
    Command(
        "batch",
        "sbx.cli.batch",
        "Run many commands, each in a sandbox of its own.",
        (
            ("jobs", COUNT, "N", False, "How many run at once (default: one for each processor).", ""),
            ("out", FILE, "FILE", False, "Write results to FILE (default: standard output).", ""),
            ("resume", FLAG, "", False, "Skip the jobs that have a result in FILE already.", ""),
            ("engine", TEXT, "local|dask://HOST:PORT", False, "Where the jobs run (default: local).", ""),
            ("profile", NAME, "NAME", False, "The profile of jobs that name none.", ""),
            ("policy", FILE, "FILE", False, "The policy of jobs that name none.", ""),
            ("timeout", DURATION, "S", False, "The wall-clock limit of jobs that name none.", ""),
        ),
        words="JOBS",
        least=1,
        most=1,
        about='JOBS is a file of JSON lines, or \'-\': {"cmd": ["make"], "id": …, "profile": …, "cwd": …, '
        '"env": …, "timeout": …}. Each result is one JSON line. Exit status: 0 when every job ended with status 0, '
        "1 when one did not, 130 when it was interrupted.",
        examples=("sbx batch --jobs 4 --out results.jsonl jobs.jsonl",),
    ),
    Command(
        "doctor",
        "sbx.cli.doctor",
        "Say what this machine can enforce, and what to do about the rest.",
        (JSON,),
        about="Exit status: 0 when a profile with 'require: full' can be enforced here, 1 otherwise.",
    ),
)

BY_NAME = {command.name: command for command in COMMANDS}
