"""Ctrl-C in the children of a test run, wherever that was started from."""

from __future__ import annotations

import signal


def heed() -> None:
    """Let SIGINT be heeded again where it is ignored: as in all that a shell runs in its background.

    Children inherit that, and ignore it until they have a handler of their own; a shell that was born so cannot even trap it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
