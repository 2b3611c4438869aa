"""`dispatcher worker`: run lanes until SIGTERM."""

from __future__ import annotations

import os
import signal

import typer

from dispatcher.cli.app import Options
from dispatcher.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("worker")(_worker)


def _worker(ctx: typer.Context) -> None:
    """Run lanes until SIGTERM: take requests, make calls in order, publish replies and dead letters. Logs JSON lines on stderr.

    SIGTERM, Ctrl-C or a terminal that closes (SIGHUP) drains: the calls in hand end (at most worker.drain_s), are published, and it exits
    with 0. A second one ends it at once, with 130: what was in hand is called again by the next worker, or ends there as `outcome_unknown`
    if it must not be.
    """
    # Nothing is in hand until the worker has handlers of its own: a stop is a clean end, also while the libraries load.
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: os._exit(0))

    import uvloop  # the command line stays fast for everything else

    from dispatcher.adapters.config import resolve_secrets
    from dispatcher.adapters.logs import configure, logger
    from dispatcher.worker.process import run_worker

    options: Options = ctx.obj
    settings = options.settings()
    if not settings.upstreams:
        # Most often the file was forgotten, and this worker would join the group of those that have one.
        raise ConfigError("no [upstreams.NAME] is configured: every request would end as a dead letter", "name the file with --config")
    secrets = resolve_secrets(settings, os.environ)
    configure(settings, secrets)
    for name, upstream in settings.upstreams.items():
        if upstream.call_timeout_s > settings.worker.drain_s:
            hint = "call_timeout_s is over worker.drain_s: on a hand-over such a call is cut off, and made again if it may be"
            logger().warning("calls_may_be_cut", upstream=name, hint=hint)
    uvloop.run(run_worker(settings, secrets))
