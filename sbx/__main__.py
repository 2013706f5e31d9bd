"""main(): decides between the hot path and everything else, and is the only place that exits."""

from __future__ import annotations

import sys

from sbx.kernel import system as os  # not `os`: it costs a millisecond

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Objects before they are looked through: a compilation makes about as many, and hardly any garbage.
GARBAGE = 50_000


def main() -> NoReturn:
    arguments = sys.argv[1:]
    done = None
    if arguments and arguments[0] in ("run", "sh") and sys.platform == "linux":
        from sbx.launch.main import fast_run, is_plain_success

        done = fast_run(arguments[0], arguments[1:])
        if done is not None and is_plain_success(done):
            from sbx.launch.audit_line import record_success

            if done["recorded"] or record_success(done):
                if sys.flags.no_site and sys.modules["sbx"].__spec__ is not None:
                    from sbx.launch.bundle import write_bundle

                    write_bundle(done["environ"])  # there was none, or one of another installation
                leave(0)
    _prepare(arguments[:1])
    from sbx.cli.main import finish_run
    from sbx.cli.main import main as command_line

    leave(command_line(arguments) if done is None else finish_run(done))


def _prepare(word: list[str]) -> None:
    """For the compile side, which the `sbx` command starts as bare as the hot path."""
    if not sys.flags.no_site:
        return
    import gc

    gc.enable()
    gc.set_threshold(GARBAGE)
    if sys.platform != "linux":
        import site

        site.main()
        return
    sys.meta_path.append(_SiteOnDemand())
    if word in (["run"], ["sh"]):
        from sbx.launch.compile_side import load

        load(os.environ)


class _SiteOnDemand:
    """Packages that only the site module finds are rare beside an installed sbx: it is asked when one is missing."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if path is not None:
            return None
        import site

        sys.meta_path.remove(self)
        site.main()
        return sys.modules["_frozen_importlib_external"].PathFinder.find_spec(name)


def leave(code: int) -> NoReturn:
    """Exit without Python's finalization, which costs 2 ms and has nothing left to do."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(code)


if __name__ == "__main__":
    main()
