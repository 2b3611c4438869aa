"""The command line: one module per command, `main` for the program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from functools import partial

from dispatcher.cli import (
    ask,
    broker,
    cancel,
    config,
    demo,
    dev,
    dlq,
    lanes,
    replay,
    replies,
    sample_upstream,
    schema,
    show,
    submit,
    topics,
    usage,
    version,
    worker,
)
from dispatcher.cli.app import Options, app
from dispatcher.cli.exits import exit_code

__all__ = ["main"]

for _command in (
    ask,
    broker,
    cancel,
    config,
    demo,
    dev,
    dlq,
    lanes,
    replay,
    replies,
    sample_upstream,
    schema,
    show,
    submit,
    topics,
    usage,
    version,
    worker,
):
    _command.register(app)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code. Errors are one sentence and a hint on stderr, never a traceback without -v."""
    options = Options()
    signal.signal(signal.SIGINT, options.interrupt)
    unraisable = sys.unraisablehook
    sys.unraisablehook = partial(options.interrupt_again, unraisable)
    try:
        code = app(args=arguments, prog_name="dispatcher", standalone_mode=False, obj=options)
        sys.stdout.flush()
    except SystemExit:
        raise
    except BaseException as failure:  # noqa: BLE001 - the outermost place: everything becomes a sentence and a code
        return exit_code(failure, options)
    finally:
        sys.unraisablehook = unraisable
    return code if isinstance(code, int) else 0
