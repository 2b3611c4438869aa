"""A TCP proxy for one worker's way to the broker: on command it delays, cuts, swallows and goes silent, and heals.

What it does to bytes, it does to the connection as a whole: one that has lost any is reset by `heal`, as by a router that forgot it.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Literal, TypeVar

Way = Literal["requests", "answers"]
T = TypeVar("T")

_CHUNK = 64 * 1024
_COMMAND_S = 30.0
# Seconds to linger after a close: none, which makes the close a reset.
_RESET = struct.pack("ii", 1, 0)


class _Link:
    """A client's connection and ours to the broker behind it."""

    def __init__(self, *ends: asyncio.StreamWriter) -> None:
        self._ends = ends
        self.is_torn = False  # bytes were lost: nobody can go on with it

    def close(self) -> None:
        for end in self._ends:
            end.close()

    def reset(self) -> None:
        for end in self._ends:
            with suppress(OSError):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.transport.abort()


class Proxy:
    """Listens on `port` and passes everything on to the port behind it, until told otherwise. Its loop runs in a thread of its own."""

    def __init__(self) -> None:
        # Keeps the number while nobody listens: a refused client must not find a stranger there.
        self._holder = _bound(0)
        self.port: int = self._holder.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._behind = 0
        self._delay_s = 0.0
        self._lost: frozenset[Way] = frozenset()
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._healed = self._loop.create_future()
        self._thread = Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()

    def open(self, behind: int) -> None:
        """Begin to pass on, to that port of this machine."""
        self._behind = behind
        self._do(self._heal())

    def delay(self, seconds: float) -> None:
        """Hold back whatever comes, in both directions, by so long."""
        self._do(self._harm(delay_s=seconds))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._do(self._cut())

    def swallow(self, *ways: Way) -> None:
        """Take what goes in these directions, and an end of the connection too, and pass nothing on."""
        self._do(self._harm(lost=frozenset(ways)))

    def half_open(self) -> None:
        """Go on accepting connections, keep those that are there, and never answer."""
        self.swallow("requests", "answers")

    def heal(self) -> None:
        """Pass on again."""
        self._do(self._heal())

    def close(self) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._holder.close()

    def _do(self, command: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(command, self._loop).result(_COMMAND_S)

    async def _heal(self) -> None:
        self._delay_s, self._lost = 0.0, frozenset()
        for link in [link for link in self._links if link.is_torn]:
            link.reset()
        if not self._healed.done():
            self._healed.set_result(None)
        if self._server is None:
            self._server = await asyncio.start_server(self._accept, sock=_bound(self.port))

    async def _harm(self, *, delay_s: float = 0.0, lost: frozenset[Way] = frozenset()) -> None:
        self._delay_s, self._lost = delay_s, lost
        if self._healed.done():
            self._healed = self._loop.create_future()

    async def _cut(self) -> None:
        await self._harm()
        if self._server is not None:
            await self._stop_listening(self._server)
            self._server = None
        for link in list(self._links):
            link.reset()

    async def _stop_listening(self, server: asyncio.Server) -> None:
        """Close a server, after what it has accepted became a connection: asyncio leaks a socket whose server is closed before that."""
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await asyncio.sleep(0)
        server.close()

    async def _close(self) -> None:
        await self._cut()
        self._healed.set_result(None)
        # A connection that came a moment ago is still being accepted: one task begins another, and an abort closes in the next round.
        while rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest)
            await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", self._behind)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, behind_writer)
        self._links.add(link)
        if self._server is None:  # cut while we connected
            link.reset()
        await asyncio.gather(
            self._pump(link, "requests", reader, behind_writer),
            self._pump(link, "answers", behind_reader, writer),
        )
        self._links.discard(link)

    async def _pump(self, link: _Link, way: Way, from_: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        """Carry one direction of a connection until its end, or until it is reset."""
        with suppress(OSError):
            while data := await from_.read(_CHUNK):
                if self._delay_s:
                    await asyncio.wait({self._healed}, timeout=self._delay_s)
                if way in self._lost:
                    link.is_torn = True
                else:
                    to.write(data)
                    await to.drain()
        if way in self._lost:
            # The end gets lost as well: the other side goes on believing in the connection.
            link.is_torn = True
            await asyncio.wait({self._healed})
        link.close()


def _bound(port: int) -> socket.socket:
    """Bind a port of this machine that several sockets of ours may hold; who does not listen on it refuses."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind(("127.0.0.1", port))
    return made


@contextmanager
def proxy() -> Iterator[Proxy]:
    """Run one that has a port and passes nothing on yet."""
    made = Proxy()
    try:
        yield made
    finally:
        made.close()
