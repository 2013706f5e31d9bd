"""The policy's keys as data: the validator, the JSON Schema and the manual page are made from this one table."""

from __future__ import annotations

from sbx.model.records import dataclass
from sbx.model.str_enum import StrEnum
from sbx.policy.document import SHIPPED, SYSTEM, USER

SCHEMA_VERSION = 2


class Type(StrEnum):
    """The shapes a value can have. The validator has one function for each."""

    VERSION = "the number 2"
    TEXT = "text"
    FLAG = "true or false"
    CHOICE = "one of a few words"
    PROFILE_NAME = "the name of a profile"
    RULES = "a list of rules"
    DENIES = "a list of rules without '!'"
    PATHS = "a list of absolute paths"
    NETWORK = "none, host or {allow: [host:port, …]}"
    HOSTS = "a list of host:port"
    NAMES = "a list of variable names"
    VALUES = "a map of variable names to texts"
    DURATION = "a duration such as 30s, 5m or 1h30m"
    SIZE = "a size such as 512MiB"
    COUNT = "a whole number"
    TESTS = "a list of expectations"
    FIXED = "a map of the keys below"
    NAMED = "a map from profile names to profiles"


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    type: Type
    doc: str
    example: str  # a valid spelling of the value, shown when the type is wrong
    default: str = ""
    choices: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    layers: tuple[str, ...] = ()  # empty: every layer
    required: bool = False

    def key(self, name: str) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


NETWORK_KEYS = (
    Key("allow", Type.HOSTS, "The only host:port pairs that can be reached. An empty list is no network.",
        '["api.example.com:443"]'),
)  # fmt: skip

ENV_KEYS = (
    Key("pass", Type.NAMES, "Variables that reach the command, by name or glob.", '[CC, "CARGO_*"]'),
    Key("set", Type.VALUES, "Variables with a value of the policy's.", '{CI: "1"}'),
    Key("secret", Type.NAMES, "Variables that reach the command and are masked in all that sbx prints or stores.",
        "[API_TOKEN]"),
)  # fmt: skip

LIMIT_KEYS = (
    Key("wall", Type.DURATION, "Wall-clock time of the run.", "10m"),
    Key("cpu", Type.DURATION, "CPU time of the whole process tree.", "5m"),
    Key("memory", Type.SIZE, "Memory of the whole process tree.", "2GiB"),
    Key("pids", Type.COUNT, "Processes and threads at one time.", "256"),
    Key("nofile", Type.COUNT, "Open files of each process.", "1024"),
    Key("stdout", Type.SIZE, "Captured standard output; what is over it is cut and counted.", "1MiB"),
    Key("stderr", Type.SIZE, "Captured standard error; what is over it is cut and counted.", "256KiB"),
    Key("grace", Type.DURATION, "Time between the first signal and SIGKILL.", "5s", default="5s"),
)

PROFILE_KEYS = (
    Key("description", Type.TEXT, "One line for people.", "Compile inside the workspace"),
    Key("extends", Type.PROFILE_NAME, "Another profile, whose rules come first. Its own name means the profile of "
        "that name in a weaker layer.", "base"),
    Key("read", Type.RULES, "What may be read.", '["./**"]', default="[]"),
    Key("modify", Type.RULES, "What may be created, changed and removed. Each rule needs a read rule that covers it.",
        '["./build/**"]', default="[]"),
    Key("exec", Type.RULES, "What may be executed. Without it, whatever may be read.", '["/usr/bin/**"]'),
    Key("network", Type.NETWORK, "What the command may reach.", "none", default="none", choices=("none", "host"),
        keys=NETWORK_KEYS),
    Key("env", Type.FIXED, "Which variables reach the command, besides a harmless default set.",
        '{pass: [CC], set: {CI: "1"}}', keys=ENV_KEYS),
    Key("limits", Type.FIXED, "Bounds on time, memory, processes and output.", "{wall: 10m, memory: 2GiB}",
        keys=LIMIT_KEYS),
    Key("require", Type.CHOICE, "full: refuse to run if anything asked for cannot be enforced. partial: run, and "
        "report every capability that was not applied.", "full", default="full", choices=("full", "partial")),
    Key("futureDenies", Type.CHOICE, "required: refuse to run if a deny cannot be held for names that appear during "
        "the run. best: report it as a snapshot.", "best", default="best", choices=("best", "required")),
    Key("stateFolders", Type.RULES, "Folders that may be read and modified in spite of the shipped denies; a '!rule' "
        "takes back the modifying only.", '["~/.agent/**"]', layers=(SHIPPED,)),
)  # fmt: skip

TEST_KEYS = (
    Key("profile", Type.PROFILE_NAME, "The profile that is asked.", "build", default="unrestricted"),
    Key("path", Type.TEXT, "The path; a relative one starts at the workspace, ~/ is the home.", "./build/x.o",
        required=True),
    Key("read", Type.CHOICE, "The expected verdict.", "allow", choices=("allow", "deny")),
    Key("modify", Type.CHOICE, "The expected verdict.", "deny", choices=("allow", "deny")),
)  # fmt: skip

SPECIAL_KEYS = (
    Key("proc", Type.PATHS, "A private /proc.", "[/proc]"),
    Key("dev", Type.PATHS, "A /dev with the harmless nodes only.", "[/dev]"),
    Key("tmpfs", Type.PATHS, "Private, empty, writable directories.", "[/tmp]"),
)

BASELINE_KEYS = (
    Key("read", Type.RULES, "What every profile may read.", '["/usr/**"]'),
    Key("modify", Type.RULES, "What every profile may modify.", '["/tmp/**"]'),
    Key("env", Type.FIXED, "Variables that reach every command.", "{pass: [PATH]}", keys=ENV_KEYS),
    Key("special", Type.FIXED, "Places that are made for the command.", "{proc: [/proc]}", keys=SPECIAL_KEYS),
)

DOCUMENT = Key("", Type.FIXED, "A policy file.", "schemaVersion: 2", keys=(
    Key("schemaVersion", Type.VERSION, "The version of this format.", "2", required=True),
    Key("denyRead", Type.DENIES, "Never read, whatever a profile says. Denies of all layers accumulate.",
        '["~/.ssh/**"]', default="[]"),
    Key("denyModify", Type.DENIES, "Never modified, whatever a profile says. Denies of all layers accumulate.",
        '[".git/hooks/**"]', default="[]"),
    Key("shippedDenies", Type.FLAG, "false drops the denies that come with sbx. Only in the system's and the user's "
        "own policy.", "false", default="true", layers=(SYSTEM, USER)),
    Key("fsProfiles", Type.NAMED, "The profiles by name.", "{build: {read: [\"./**\"]}}", keys=PROFILE_KEYS),
    Key("tests", Type.TESTS, "Expectations that `sbx check` verifies.", "[{profile: build, path: ./x, read: allow}]",
        keys=TEST_KEYS),
    Key("baseline", Type.FIXED, "What every profile starts from.", "{read: []}", keys=BASELINE_KEYS,
        layers=(SHIPPED,)),
))  # fmt: skip

# What version 1 and hasty fingers call things; the nearest spelling alone would not find these.
OTHER_NAMES = {
    "version": "schemaVersion", "profiles": "fsProfiles", "write": "modify", "allowRead": "read",
    "allowWrite": "modify", "denyWrite": "denyModify", "deny": "denyRead and denyModify", "execute": "exec",
    "inherits": "extends", "extend": "extends", "net": "network", "environment": "env", "timeout": "wall",
    "mem": "memory", "processes": "pids", "files": "nofile", "inherit": "extends",
}  # fmt: skip

MIGRATION = (
    "write 'schemaVersion: 2', rename 'profiles' to 'fsProfiles' and 'write' to 'modify', "
    "split 'deny' into 'denyRead' and 'denyModify', and give a directory and all below it as 'X/**'"
)


def json_schema() -> dict[str, object]:
    """The table as a JSON Schema (2020-12), for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sbx policy",
        **_as_json(DOCUMENT),
    }


def _as_json(key: Key) -> dict[str, object]:
    texts: dict[str, object] = {"type": "array", "items": {"type": "string"}}
    inside: dict[str, object] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {each.name: _as_json(each) for each in key.keys if SHIPPED not in each.layers},
    }
    required = [each.name for each in key.keys if each.required]
    if required:
        inside["required"] = required
    shapes: dict[Type, dict[str, object]] = {
        Type.VERSION: {"const": SCHEMA_VERSION},
        Type.FLAG: {"type": "boolean"},
        Type.CHOICE: {"enum": list(key.choices)},
        Type.NETWORK: {"anyOf": [{"enum": list(key.choices)}, inside]},
        Type.VALUES: {"type": "object", "additionalProperties": {"type": "string"}},
        Type.DURATION: {"type": ["string", "number"]},
        Type.SIZE: {"type": ["string", "integer"]},
        Type.COUNT: {"type": "integer", "minimum": 1},
        Type.TESTS: {"type": "array", "items": inside},
        Type.FIXED: inside,
        Type.NAMED: {"type": "object", "additionalProperties": inside},
        Type.TEXT: {"type": "string"},
        Type.PROFILE_NAME: {"type": "string"},
    }
    shape = dict(shapes.get(key.type, texts))
    if key.doc:
        shape["description"] = key.doc
    return shape
