"""Manual pages in man(7): sbx(1), one for each command, sbx-policy(5). Made from the tables in the code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from generators.facts import DATE, FILES, STATUSES, VARIABLES
from sbx.cli.commands import COMMANDS, Command
from sbx.launch.options import FLAG
from sbx.policy.document import SHIPPED
from sbx.policy.schema import DOCUMENT, Key, Type
from sbx.version import VERSION


def pages() -> dict[str, str]:
    """File name -> page."""
    found = {"sbx.1": _overview(), "sbx-policy.5": _policy()}
    for command in COMMANDS:
        found[f"sbx-{command.name}.1"] = _command(command)
    return {name: _wrapped(page) for name, page in found.items()}


def _wrapped(page: str) -> str:
    """No line of text beyond 80 bytes, as mandoc wants its input. Not in examples, nor in the tag of a paragraph."""
    lines: list[str] = []
    filled = True
    for line in page.splitlines():
        filled = {".nf": False, ".EX": False, ".fi": True, ".EE": True}.get(line, filled)
        is_tag = bool(lines) and lines[-1].startswith(".TP")
        if line.startswith((".", "'")) or not filled or is_tag:
            lines.append(line)
            continue
        lines.append("")
        for word in line.split(" "):
            joined = f"{lines[-1]} {word}" if lines[-1] else word
            if len(joined.encode()) <= 80 or not lines[-1]:
                lines[-1] = joined
            else:
                lines.append("\\&" + word if word[:1] in (".", "'") else word)
    return "\n".join(lines) + "\n"


def text(words: str) -> str:
    """Running text: nothing in it is a request or an escape of roff's."""
    escaped = words.replace("\\", "\\e").replace("…", "...")
    return "\\&" + escaped if escaped[:1] in (".", "'") else escaped


def literal(words: str) -> str:
    """Something to be typed as it is: dashes stay dashes, quotes straight."""
    escaped = words.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return escaped.replace("^", "\\(ha").replace("~", "\\(ti")


def bold(words: str) -> str:
    return f"\\fB{literal(words)}\\fR"


def italic(words: str) -> str:
    return f"\\fI{literal(words)}\\fR"


def _head(name: str, section: int, summary: str) -> Iterator[str]:
    yield '.\\" Made by docs/generate.py from the tables in the code: change those.'
    yield f'.TH {name.upper()} {section} {DATE} "sbx {VERSION}" "sbx manual"'
    yield ".SH NAME"
    yield f"{literal(name)} \\- {text(summary)}"


def _items(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    for tag, words in pairs:
        yield ".TP"
        yield tag
        yield text(words)


def _examples(lines: Iterable[str]) -> Iterator[str]:
    yield ".EX"
    yield from (literal(line) for line in lines)
    yield ".EE"


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"


def _lower(summary: str) -> str:
    """A summary as NAME wants it: no capital, no full stop."""
    return summary[:1].lower() + summary[1:].rstrip(".")


def _see_also(*names: tuple[str, int]) -> Iterator[str]:
    yield ".SH SEE ALSO"
    pairs = [f".BR {literal(name)} ({section})" for name, section in names]
    yield from (pair + " ," for pair in pairs[:-1])
    yield pairs[-1]


def _overview() -> str:
    return _joined(_overview_lines())


def _overview_lines() -> Iterator[str]:
    yield from _head("sbx", 1, "run one command under a policy that the kernel enforces")
    yield ".SH SYNOPSIS"
    yield f"{bold('sbx')} {italic('COMMAND')} [{italic('OPTIONS')}] [{italic('ARGUMENTS')}]"
    yield ".br"
    yield f"{bold('sbx')} {bold('--help')} | {bold('--version')}"
    yield ".SH DESCRIPTION"
    yield text("sbx runs one command under a filesystem, network, environment and resource policy that the kernel")
    yield text("enforces. It supervises the command until its last descendant is gone, and says what happened: an")
    yield text("annotated result on standard error, a normalized exit status, a JSON record on request.")
    yield ".PP"
    yield text(
        "Without a profile, the command may read and change the workspace and nothing else of yours; the system's"
    )
    yield text("programs and libraries can be read; there is no network. A policy file says otherwise:")
    yield f"see {bold('sbx-policy')}(5)."
    yield ".SH COMMANDS"
    for command in COMMANDS:
        yield ".TP"
        yield f"{bold('sbx-' + command.name)}(1)"
        yield text(command.summary)
    yield ".SH EXIT STATUS"
    yield f"Of {bold('run')} and {bold('sh')}, with the status that the report and the JSON record name:"
    yield from _items((f"{bold(code)} {literal(status.value)}", words[:1].upper() + words[1:] + ".")
                      for status, code, words in STATUSES)  # fmt: skip
    yield ".PP"
    yield text("Other commands exit with 0, with 1 when they found something, with 2 for an error.")
    yield ".SH ENVIRONMENT"
    yield from _items((bold(name), words) for name, words in VARIABLES)
    yield ".SH FILES"
    yield from _items((italic(name), words) for name, words in FILES)
    yield ".SH EXAMPLES"
    yield from _examples(example for command in COMMANDS for example in command.examples[:1])
    yield ".SH NOTES"
    yield text("Docker ships another program that is called sbx. Where both are installed, this one can be called as")
    yield f"{bold('python3 -m sbx')}."
    yield from _see_also(*((f"sbx-{command.name}", 1) for command in COMMANDS), ("sbx-policy", 5))


def _command(command: Command) -> str:
    return _joined(_command_lines(command))


def _command_lines(command: Command) -> Iterator[str]:
    yield from _head(f"sbx-{command.name}", 1, _lower(command.summary))
    yield ".SH SYNOPSIS"
    options = f" [{italic('OPTIONS')}]" if command.options else ""
    dashes = " [\\-\\-]" if command.name == "run" else ""
    words = f" {literal(command.words)}" if command.words else ""
    yield f"{bold('sbx ' + command.name)}{options}{dashes}{words}"
    yield ".SH DESCRIPTION"
    yield text(command.summary)
    if command.about:
        yield text(command.about)
    yield from _option_lines(command)
    if command.name in ("run", "sh"):
        yield ".SH EXIT STATUS"
        yield f"See {bold('sbx')}(1)."
    if command.examples:
        yield ".SH EXAMPLES"
        yield from _examples(command.examples)
    yield from _see_also(("sbx", 1), ("sbx-policy", 5))


def _option_lines(command: Command) -> Iterator[str]:
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, kind, metavar, repeatable, words, group in command.options:
        value = "" if kind == FLAG else f" {italic(metavar)}"
        often = " Can be given more than once." if repeatable else ""
        groups.setdefault(group, []).append((f"{bold('--' + name)}{value}", words + often))
    groups.setdefault("", []).append((f"{bold('-h')}, {bold('--help')}", "Print help and exit."))
    yield ".SH OPTIONS"
    for group in sorted(groups, key=lambda name: name == ""):
        if len(groups) > 1:
            yield f".SS {group or 'Help'}"
        yield from _items(groups[group])


RULES = (
    "Rules are globs over paths. The characters ?, *, [a-c] and {a,b} stay within one component of a path; ** crosses "
    "them. X/** is X and all below it; X is exactly X. A rule that starts with / is absolute; with ~/ it is in the "
    "home folder; with **/ it matches anywhere; everything else starts at the workspace. ${VAR} and ${VAR:-default} "
    "expand. A leading ! negates. A backslash takes the meaning from the next character."
)
EVALUATION = (
    "There is one list for reading and one for modifying. They are read in order, the last rule that matches decides, "
    "and no match is a denial. The lists are made of the shipped baseline, the rules of the extended profile, those of "
    "the profile, and then every denyRead and denyModify of every layer as negated rules. What may not be read may not "
    "be modified. Paths are decided by their real location: symlinks are resolved first."
)
LAYERS = (
    "Weakest first: the shipped profiles; /etc/sbx/policy.yaml; $XDG_CONFIG_HOME/sbx/policy.yaml; the workspace's "
    "sbx.yaml, which is the nearest one at or above the working directory, or --policy FILE in its place. A later "
    "layer replaces a profile of the same name. Denies of all layers accumulate and cannot be undone."
)
TRUST = (
    "A workspace's policy that was merely found can come from anybody's repository. It is used once its content was "
    "approved with 'sbx trust'. Naming it with --policy is consent, and so is SBX_TRUST_WORKSPACE=1."
)


def _policy() -> str:
    return _joined(_policy_lines())


def _policy_lines() -> Iterator[str]:
    yield from _head("sbx-policy", 5, "the format of sbx policies")
    yield ".SH DESCRIPTION"
    yield text("A policy is a YAML file of at most 1 MiB. Unknown keys, wrong types, duplicate keys and bad rules are")
    yield text("errors with file, line and column; nothing of such a file is used.")
    yield f"{bold('sbx check')} validates and lints it; {bold('sbx check --schema')} prints its JSON Schema."
    yield ".SH KEYS"
    yield from _key_lines(DOCUMENT, "")
    for title, words in (("RULES", RULES), ("EVALUATION", EVALUATION), ("LAYERS", LAYERS), ("TRUST", TRUST)):
        yield f".SH {title}"
        yield text(words)
    yield ".SH EXAMPLES"
    yield from _examples(EXAMPLE.splitlines())
    yield from _see_also(("sbx", 1), ("sbx-check", 1), ("sbx-explain", 1), ("sbx-trust", 1))


EXAMPLE = """\
schemaVersion: 2
denyRead: ["./**/*.env"]
fsProfiles:
  build:
    description: Compile inside the workspace
    read: ["./**"]
    modify: ["./build/**"]
    network: none
    limits: {wall: 10m, memory: 2GiB}
tests:
  - {profile: build, path: build/x.o, modify: allow}
  - {profile: build, path: .env, read: deny}"""


def _key_lines(parent: Key, path: str) -> Iterator[str]:
    """The keys of one map, then each map among them under a heading that says where it is."""
    shown = [key for key in parent.keys if SHIPPED not in key.layers]
    for key in shown:
        yield ".TP"
        yield f"{bold(key.name)}: {text(key.type.value)}"
        yield text(key.doc)
        yield from _details(key)
    for key in shown:
        if key.keys:
            below = path + key.name + {Type.NAMED: ".NAME", Type.TESTS: "[]"}.get(key.type, "")
            yield f".SS {literal(below)}"
            yield from _key_lines(key, f"{below}.")


def _details(key: Key) -> Iterator[str]:
    if key.default:
        yield f"Default: {literal(key.default)}."
    if key.required:
        yield "Required."
    if key.layers:
        yield f"Only in the policy of: {', '.join(key.layers)}."
    if key.example and not key.keys:
        yield f"Example: {literal(key.example)}"
