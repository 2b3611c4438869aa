"""`python -m dispatcher` is the command `dispatcher`."""

from __future__ import annotations

import signal
import sys


def main() -> int:
    """Run one command line and give its exit code. Ctrl-C while the program is still being loaded ends it without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the command line has a handler of its own
    from dispatcher.cli import main as run  # noqa: PLC0415 - what takes half a second to load

    return run()


if __name__ == "__main__":
    sys.exit(main())
