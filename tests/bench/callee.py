"""A callee that can keep thousands of calls open, and counts: `python -m tests.bench.callee` prints its address.

`?ms=` is how long a call takes, `?refuse=` answers 503 with that many seconds to wait. `GET /figures` tells what it saw, by the ids that
callers give (`Idempotency-Key`). Written on bare sockets, so that it costs little beside the worker that is measured.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from collections import Counter
from urllib.parse import parse_qs, urlsplit


class Figures:
    """What was seen: open calls now and at most, answered ones, how often each id was answered well, and by whose calls.

    A call is told as `epoch/attempt`: another attempt of one epoch is a retry, whose answer did not reach the worker.
    """

    def __init__(self) -> None:
        self.open = self.peak = self.answered = 0
        self.calls: dict[str, tuple[str, ...]] = {}
        self.well: Counter[str] = Counter()

    def told(self) -> bytes:
        """Everything but the ids; of those only how many there are, and the calls of those that were called again after a good answer."""
        again = {name: calls for name, calls in self.calls.items() if len(calls) > 1 and self.well[name] > 1}
        seen = {"open": self.open, "peak": self.peak, "answered": self.answered, "ids": len(self.well), "again": again}
        return json.dumps(seen).encode()


class Callee(asyncio.Protocol):
    """One connection: one call at a time, as HTTP/1.1 clients without pipelining make them."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._read = b""
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
            self._figures.open -= 1

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, rest = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        self._read = rest[length:]
        call = f"{headers.get('dispatcher-epoch', '')}/{headers.get('dispatcher-attempt', '')}"
        self._called(lines[0].split(" ")[1], headers.get("idempotency-key", ""), sys.intern(call))

    def _called(self, target: str, name: str, call: str) -> None:
        url = urlsplit(target)
        if url.path == "/figures":
            self._write(200, self._figures.told())
            return
        asked = {field: values[0] for field, values in parse_qs(url.query).items()}
        figures = self._figures
        figures.open += 1
        figures.peak = max(figures.peak, figures.open)
        figures.calls[name] = (*figures.calls.get(name, ()), call)
        delay_s = float(asked.get("ms", "0")) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._answer, name, asked.get("refuse"))

    def _answer(self, name: str, refuse_s: str | None) -> None:
        self._timer = None
        self._figures.open -= 1
        if refuse_s is not None:
            self._write(503, b"{}", f"Retry-After: {refuse_s}\r\n")
            return
        self._figures.answered += 1
        self._figures.well[name] += 1
        self._write(200, b"{}")

    def _write(self, status: int, body: bytes, header: str = "") -> None:
        assert self._transport is not None
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{header}\r\n"
        self._transport.write(head.encode() + body)


async def serve() -> None:
    """Serve until killed."""
    figures = Figures()
    server = await asyncio.get_running_loop().create_server(lambda: Callee(figures), "127.0.0.1", 0, backlog=8192)
    sys.stdout.write(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    asyncio.run(serve())
