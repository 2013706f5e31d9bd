"""The small parser for every command but run: well-formed calls cost nothing, the rest goes to click for its words."""

from __future__ import annotations

from sbx.cli.commands import MANY
from sbx.launch.options import FLAG, Unusual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbx.cli.commands import Command
    from sbx.launch.options import Options


def parse(command: Command, arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """Options and words, in any order; after `--` only words. Raises Unusual."""
    known = {"--" + row[0]: (row[1], row[3]) for row in command.options}
    options: Options = {}
    words: list[str] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word == "--":
            words += rest
            break
        if word[:1] != "-" or word == "-":
            words.append(word)
            continue
        name, equals, value = word.partition("=")
        kind, repeatable = known.get(name, ("", False))
        if not kind or repeatable or (kind == FLAG and equals) or (kind != FLAG and not equals and not rest):
            raise Unusual(word)
        options[name[2:]] = True if kind == FLAG else value if equals else rest.pop(0)
    if len(words) < command.least or (command.most != MANY and len(words) > command.most):
        raise Unusual(" ".join(words))
    return options, words
