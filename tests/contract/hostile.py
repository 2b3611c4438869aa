"""A callee on a raw socket that does to each request what the test tells it, and remembers what it saw."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def head(*lines: bytes, status: bytes = b"200 OK") -> bytes:
    """Write an answer's head."""
    return b"\r\n".join((b"HTTP/1.1 " + status, *lines, b"", b""))


@dataclass(frozen=True)
class Act:
    """What happens to one request: these bytes are written, `pause_s` apart, and then the connection is treated as said."""

    send: tuple[bytes, ...] = (OK,)
    then: Literal["keep", "close", "reset", "hang"] = "keep"
    pause_s: float = 0
    read: bool = True  # False: act as soon as the connection is there, and never read the request


# Callees that never answer in full.
HANGS = (
    ("no answer", Act((), "hang")),
    ("head only", Act((head(b"Content-Length: 10"),), "hang")),
    ("half a head", Act((b"HTTP/1.1 200 OK\r\n",), "hang")),
    ("half a body", Act((head(b"Content-Length: 10") + b"abc",), "hang")),
    ("drip", Act(tuple(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"[n : n + 1] for n in range(40)), "hang", pause_s=0.02)),
    ("endless body", Act((head(), *(b"x" for _ in range(1000))), "hang", pause_s=0.02)),
    ("1xx for ever", Act(tuple(head(status=b"100 Continue") for _ in range(1000)), "hang", pause_s=0.02)),
)


class HostileCallee:
    """Plays `acts` one per request, then answers 200. `requests` are whole requests in order of arrival, over all connections."""

    def __init__(self) -> None:
        self.acts: deque[Act] = deque()
        self.requests: list[bytes] = []
        self.connections = 0
        self.open = 0  # connections now
        self.open_most = 0
        self.playing = 0  # acts that are being written now
        self.ended = 0  # connections that this side ended
        self.left = 0  # connections that the client ended while it was being answered
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._server = await asyncio.start_server(self._accept, host, 0, ssl=tls)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def play(self, *acts: Act) -> None:
        self.acts.extend(acts)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.open_most = max(self.open_most, self.open)
        try:
            while await self._act(reader, writer):
                pass
            self.ended += 1
        except (OSError, asyncio.IncompleteReadError):  # the client is gone, between requests or in one
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _act(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Do to one request what was told; False once the connection is to be closed from here."""
        early = self.acts.popleft() if self.acts and not self.acts[0].read else None
        if early is None:
            self.requests.append(await _request(reader))
        act = early or (self.acts.popleft() if self.acts else Act())
        self.playing += 1
        try:
            for part in act.send:
                await self._write(writer, part)
                if act.pause_s:
                    await self._hear_leaving(reader, act.pause_s)
        finally:
            self.playing -= 1
        if act.then == "hang":
            await self._hear_leaving(reader, None)
        if act.then == "reset":
            taken: socket.socket = writer.get_extra_info("socket")
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return act.then == "keep"

    async def _write(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        try:
            writer.write(part)
            await writer.drain()
        except OSError:
            self.left += 1
            raise

    async def _hear_leaving(self, reader: asyncio.StreamReader, within_s: float | None) -> None:
        """Wait so long for the client to close its end. Raises IncompleteReadError then, OSError where it reset."""
        try:
            async with asyncio.timeout(within_s):
                gone = await reader.read(1) == b""
        except TimeoutError:
            return
        except OSError:
            self.left += 1
            raise
        assert gone, "a client that was not answered sent more"
        self.left += 1
        raise asyncio.IncompleteReadError(b"", None)


@asynccontextmanager
async def listening() -> AsyncIterator[HostileCallee]:
    """Listen on a free loopback port, until all that the callee has is closed."""
    callee = HostileCallee()
    await callee.listen()
    try:
        yield callee
    finally:
        await callee.stop()


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    return head + await reader.readexactly(length)
