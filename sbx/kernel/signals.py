"""The interpreter's own signal functions: `signal` costs an import of enum to give the same numbers names."""

from __future__ import annotations

import sys

assert sys.platform == "linux"  # for type checkers on other platforms

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK = _signal.SIG_BLOCK, _signal.SIG_UNBLOCK, _signal.SIG_SETMASK
SIG_DFL, SIG_IGN = _signal.SIG_DFL, _signal.SIG_IGN
getsignal = _signal.getsignal
pthread_sigmask = _signal.pthread_sigmask
signal = _signal.signal
sigpending = _signal.sigpending
setitimer, ITIMER_REAL = _signal.setitimer, _signal.ITIMER_REAL
