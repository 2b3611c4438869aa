"""The sample upstream as a process: listens, prints its URL, ends on SIGTERM or Ctrl-C with exit 0."""

from __future__ import annotations

import asyncio
import signal
import sys

import uvloop

from dispatcher.errors import ConfigError
from dispatcher.sample_upstream.server import Options, running


def serve(options: Options) -> None:
    """Serve until SIGTERM or SIGINT. Raises ConfigError if the address cannot be listened on."""
    try:
        uvloop.run(_serve(options))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {options.host}:{options.port}: {error.strerror or 'refused'}", "choose another one with --port, or 0"
        ) from None


async def _serve(options: Options) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    async with running(options) as upstream:
        sys.stdout.write(f"{upstream.url}\n")
        sys.stdout.flush()
        await ended.wait()
