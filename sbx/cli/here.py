"""Where the command was called."""

from __future__ import annotations

import os

from sbx.errors import UsageError


def working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        raise UsageError("the working directory is gone", remedy="cd to one that exists") from None
