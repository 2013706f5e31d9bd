"""`sbx run` and `sbx sh`: each platform has its own way to hold a command."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def command(options: dict[str, Any], words: list[str]) -> int:
    """The whole run, from the options as given. Raises SbxError only before anything was started."""
    if sys.platform == "linux":
        if sys.flags.no_site:  # started by the sbx command
            from sbx.launch.compile_side import load_all

            load_all()
        from sbx.cli.run_linux import command as run
    else:
        from sbx.cli.run_elsewhere import command as run
    return run(options, words)
