"""The parts of ruamel.yaml that make events from text: reader, scanner and parser, without the rest of the package.

`import ruamel.yaml` loads constructors, emitters, representers, `re`, `datetime` and `typing`, which costs more than
reading a policy does. So its modules are executed here under their own names but outside of `sys.modules`, with an
import statement that knows only those of them that are needed. Whoever imports ruamel.yaml meets nothing of this.
"""

from __future__ import annotations

import _collections_abc
import builtins
import sys
from _collections import OrderedDict  # type: ignore[import-not-found, unused-ignore]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, ModuleType
    from typing import Any

PACKAGE = "ruamel.yaml"
NEEDED = ("error", "docinfo", "compat", "tag", "tokens", "events", "scanner", "parser", "reader")
YAML_VERSION = (1, 2)

_loaded: dict[str, ModuleType] = {}


def modules() -> dict[str, ModuleType]:
    """By their short names. Loaded once."""
    if not _loaded:
        _loaded.update(_Importer().load())
    return _loaded


def events(text: str) -> Iterator[Any]:
    """What `YAML(typ="safe", pure=True).parse(text)` yields."""
    parts = modules()
    loader = _Loader(parts["docinfo"].DocInfo())
    parts["reader"].Reader(text, loader=loader)
    parts["scanner"].Scanner(loader=loader)
    parser = parts["parser"].Parser(loader=loader)
    while parser.check_event():
        yield parser.get_event()


class _Loader:
    """What reader, scanner and parser know each other by."""

    comment_handling = None
    version = None

    def __init__(self, info: Any) -> None:
        self._reader = self._scanner = self._parser = None
        self._resolver = self  # nothing is resolved: only its version is asked for
        self.doc_infos = [info]
        self.tags: dict[str, str] = {}

    @property
    def processing_version(self) -> Any:
        return getattr(self._scanner, "yaml_version", None) or YAML_VERSION


class _LaterPattern:
    """A regular expression that most texts have no use for, compiled at its first."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        import re

        return getattr(re.compile(self._text), name)


class _Importer:
    """Executes the modules, and answers their import statements."""

    def __init__(self) -> None:
        self.made: dict[str, ModuleType] = {}
        self.builtins = {**vars(builtins), "__import__": self.statement}
        self.package = type(sys)(PACKAGE)
        self.top = type(sys)("ruamel")
        vars(self.top)["yaml"] = self.package
        # In their place: of `util` the reader wants patterns; of `comments` those parsers want names that keep them.
        self.stand_in("util", RegExp=_LaterPattern)
        self.stand_in("comments", C_PRE=None, C_POST=None, C_SPLIT_ON_FIRST_BLANK=None)
        # The interpreter's own halves of `collections`, which takes as long to load as all of the parts.
        self.collections = type(sys)("collections")
        vars(self.collections).update(abc=_collections_abc, OrderedDict=OrderedDict)

    def stand_in(self, short: str, **values: object) -> None:
        module = self.made[short] = type(sys)(f"{PACKAGE}.{short}")
        vars(module).update(values)

    def load(self) -> dict[str, ModuleType]:
        for short in NEEDED:
            self.module(short)
        return self.made

    def module(self, short: str) -> ModuleType:
        if short not in self.made:
            name = f"{PACKAGE}.{short}"
            if short not in NEEDED:
                raise ImportError(f"{name} is not one of the parts")
            module = self.made[short] = type(sys)(name)
            vars(module).update(__builtins__=self.builtins, __package__=PACKAGE)
            exec(code_of(name), vars(module))
            setattr(self.package, short, module)
        return self.made[short]

    def statement(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        if level:
            name = f"{PACKAGE}.{name}"
        if not name.startswith(f"{PACKAGE}."):
            if name in ("collections", "collections.abc"):
                return self.collections
            return __import__(name, globals, locals, fromlist, level)
        found = self.module(name.removeprefix(f"{PACKAGE}."))
        return found if fromlist else self.top


def code_of(name: str) -> CodeType:
    """The compiled module, wherever the import system would find it. Imports nothing but the empty package above it."""
    for finder in sys.meta_path:  # see launch.compile_side
        kept: CodeType | None = getattr(finder, "kept_code", lambda name: None)(name)
        if kept is not None:
            return kept
    folders: Any = __import__("ruamel").__path__
    for part in ("yaml", name.rpartition(".")[2]):
        inner = f"ruamel.{part}" if part == "yaml" else name
        spec = next((found for each in sys.meta_path if (found := each.find_spec(inner, folders)) is not None), None)
        if spec is None or spec.loader is None:
            raise ImportError(f"{name} is not installed", name=name)
        folders = spec.submodule_search_locations
    code: CodeType = spec.loader.get_code(name)  # type: ignore[union-attr]
    return code
