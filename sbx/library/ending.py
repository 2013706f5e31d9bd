"""The end of all that the library keeps for the next call."""

from __future__ import annotations

import sys


def shutdown() -> None:
    """End every sandbox of this process and the launcher that started them. The next call starts anew.

    At the end of the process the same happens by itself.
    """
    if sys.platform == "linux":
        from sbx.library import launcher
        from sbx.library.plans import PLANS

        PLANS.clear()
        launcher.shutdown()
