"""Ctrl-C, and a terminal that closes, in the children of a test run, wherever that was started from."""

from __future__ import annotations

import signal


def heed() -> None:
    """Let SIGINT be heeded again where it is ignored: as in all that a shell runs in its background. And SIGHUP, as under nohup.

    Children inherit that, and ignore it until they have a handler of their own; a shell that was born so cannot even trap it. The run
    itself outlives its terminal as before: a handler that does nothing is not inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
