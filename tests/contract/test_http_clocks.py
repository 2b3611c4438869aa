"""The clocks of every HTTP engine of the product: each part of a call has its time, and what takes longer is cut off, really."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from dispatcher.adapters.http import open_engine, transport_aiohttp
from dispatcher.core.messages.call import Ambiguous, Answered, CallResult, NotSent
from dispatcher.settings import Settings
from tests.contract.engines import CALL, LONG_S, SHORT_S, Opener, answered_next
from tests.contract.hostile import HANGS, OK, Act, HostileCallee, head, listening
from tests.waiting import eventually_async

WHOLE_S = 2.0  # a call that must time out, and not before it has been sent
FIRST = {"first_byte_timeout_s": SHORT_S, "idle_timeout_s": LONG_S}
IDLE = {"first_byte_timeout_s": LONG_S, "idle_timeout_s": SHORT_S}
LONG = {"first_byte_timeout_s": LONG_S, "idle_timeout_s": LONG_S}
NONE = {"first_byte_timeout_s": None, "idle_timeout_s": None}
CHUNKED = head(b"Transfer-Encoding: chunked")


def slow(*parts: bytes) -> Act:
    """A callee that sends these parts with pauses, and then nothing."""
    return Act(parts, "hang", pause_s=0.02)


def drip(text: bytes) -> Act:
    """A callee that sends this byte by byte, and then nothing."""
    return slow(*(text[n : n + 1] for n in range(len(text))))


class Row(NamedTuple):
    """What the callee does, the clocks, the time of the whole call, and which time is over."""

    name: str
    act: Act
    clocks: dict[str, Any]
    timeout_s: float
    kind: str


CLOCKS = (
    *(Row(name, act, NONE, WHOLE_S, "timeout") for name, act in HANGS),
    *(Row(f"{name}, clocks that are not over", act, LONG, WHOLE_S, "timeout") for name, act in HANGS),
    Row("no answer at all", Act((), "hang"), FIRST, LONG_S, "first_byte_timeout"),
    Row("half a status line", Act((b"HTTP/1.1 2",), "hang"), FIRST, LONG_S, "first_byte_timeout"),
    Row("a head that stops", Act((b"HTTP/1.1 200 OK\r\nx-a: b\r\n",), "hang"), FIRST, LONG_S, "first_byte_timeout"),
    Row("a head byte by byte", drip(b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 1000), FIRST, LONG_S, "first_byte_timeout"),
    Row("headers without end", slow(b"HTTP/1.1 200 OK\r\n", *(b"x-a: b\r\n",) * 1000), FIRST, LONG_S, "first_byte_timeout"),
    Row("100 without end", slow(*(head(status=b"100 Continue"),) * 1000), FIRST, LONG_S, "first_byte_timeout"),
    Row("103 without end", slow(*(head(b"link: a", status=b"103 Early Hints"),) * 1000), FIRST, LONG_S, "first_byte_timeout"),
    Row("a head alone", Act((head(b"Content-Length: 10"),), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("a body that stops", Act((head(b"Content-Length: 10") + b"abc",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("chunks that stop", Act((CHUNKED + b"3\r\nabc\r\n",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("half a chunk", Act((CHUNKED + b"5\r\nabc",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("half a chunk size", Act((CHUNKED + b"3\r\nabc\r\n1",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("a last chunk without its end", Act((CHUNKED + b"3\r\nabc\r\n0\r\n",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("until close, and no close", Act((head(b"Connection: close") + b"abc",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("HTTP/1.0 without a close", Act((b"HTTP/1.0 200 OK\r\n\r\nabc",), "hang"), IDLE, LONG_S, "idle_timeout"),
    Row("a body byte by byte", drip(head(b"Content-Length: 1000") + b"a" * 999), LONG, WHOLE_S, "timeout"),
    Row("chunks byte by byte", drip(CHUNKED + b"1\r\na\r\n" * 200), LONG, WHOLE_S, "timeout"),
    Row("chunks without end", slow(CHUNKED, *(b"1\r\na\r\n",) * 1000), LONG, WHOLE_S, "timeout"),
)


async def test_what_takes_too_long_is_named_and_cut_off(engine_name: str) -> None:
    """Ambiguous, with the kind of the time that is over; the callee sees the connection end, and the next call has another one."""
    async with AsyncExitStack() as stack:
        callees = {f"up-{number}": await stack.enter_async_context(listening()) for number in range(len(CLOCKS))}
        rows = dict(zip(callees, CLOCKS, strict=True))
        upstreams = {name: {"base_url": callees[name].url, "allow_private": True} | rows[name].clocks for name in rows}
        # One engine for all, since each loads the system's certificates; and all at once, since most of it is waiting.
        engine = open_engine(Settings.model_validate({"worker": {"http_engine": engine_name}, "upstreams": upstreams}), {})
        stack.push_async_callback(engine.close)

        async def check(name: str) -> None:
            callee, row, call = callees[name], rows[name], replace(CALL, upstream=name, credential=None)
            callee.play(row.act)
            result = await engine.call(replace(call, timeout_s=row.timeout_s))
            assert isinstance(result, Ambiguous), (row.name, result)
            assert (row.kind, row.name) == (result.kind, row.name)
            await eventually_async(lambda: (callee.left, callee.open) == (1, 0), what=f"that the connection ends ({row.name})")
            await answered_next(engine, call)
            assert (2, 2, row.name) == (len(callee.requests), callee.connections, row.name)

        async with asyncio.TaskGroup() as checks:
            for name in rows:
                checks.create_task(check(name))


async def test_what_comes_in_time_is_answered(opened: Opener, callee: HostileCallee) -> None:
    """Clocks that are not over change nothing: in one piece, in many, with no body, and on a connection that was kept."""
    engine = opened(callee.url, first_byte_timeout_s=LONG_S, idle_timeout_s=LONG_S)
    for act, body in (
        (Act(), b"{}"),
        (Act(tuple(OK[n : n + 1] for n in range(len(OK)))), b"{}"),
        (Act((CHUNKED, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")), b"abcde"),
        (Act((head(status=b"204 No Content"),)), b""),
        (Act((b"HTTP/1.0 200 OK\r\n\r\n", b"abc"), "close", pause_s=0.02), b"abc"),
    ):
        callee.play(act)
        result = await engine.call(CALL)
        assert isinstance(result, Answered)
        assert body == result.body


async def test_the_time_of_a_call_that_never_connects_is_no_ambiguous_one(opened: Opener) -> None:
    """Where the whole call's time is over before there is a connection, nothing was sent, and that is what is said."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]  # nobody accepts: the queue holds one or two, further ones are not answered
        for client in waiting:
            client.settimeout(0)
            client.connect_ex(("127.0.0.1", port))
        result = await opened(f"http://127.0.0.1:{port}", connect_timeout_s=LONG_S).call(replace(CALL, timeout_s=SHORT_S))
        for client in waiting:
            client.close()
    assert isinstance(result, NotSent)
    assert "connect_timeout" == result.kind


@asynccontextmanager
async def deaf() -> AsyncIterator[socket.socket]:
    """A callee that accepts connections and reads nothing before it is told to; its buffers are small."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.settimeout(0)
        yield server


async def heard(connection: socket.socket) -> int:
    """Read to the end of a connection, and tell how many bytes there were."""
    loop, size = asyncio.get_running_loop(), 0
    with suppress(ConnectionError):
        async with asyncio.timeout(60):
            while part := await loop.sock_recv(connection, 1024 * 1024):
                size += len(part)
    return size


BODY_BYTES = 24 * 1024 * 1024  # far more than the buffers of two kernels hold


@pytest.mark.parametrize(
    ("answer", "clocks", "timeout_s", "kinds"),
    [
        (b"", NONE, 1.0, {"timeout"}),
        (b"", FIRST, LONG_S, {"first_byte_timeout"}),
        # httpx reads nothing before it has written everything.
        (head(b"Content-Length: 5") + b"abc", IDLE | {"first_byte_timeout_s": SHORT_S}, LONG_S, {"idle_timeout", "first_byte_timeout"}),
        (head(b"Content-Length: 2") + b"{}", NONE, 1.0, {"answered", "timeout"}),
    ],
    ids=["whole call", "first byte", "idle", "answered early"],
)
@pytest.mark.filterwarnings("ignore:Sending a large body")
async def test_a_request_that_was_cut_off_is_not_sent_to_its_end(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, answer: bytes, clocks: dict[str, Any], timeout_s: float, kinds: set[str]
) -> None:
    """A callee that reads slowly does not get the rest of a request, and execute it, after its caller was told that it failed."""
    monkeypatch.setattr(transport_aiohttp, "_BYTES_MAX", BODY_BYTES)  # all of it is handed over at once, as with less on a slow line
    async with deaf() as server:
        engine = opened(f"http://127.0.0.1:{server.getsockname()[1]}", **clocks)
        call = asyncio.create_task(engine.call(replace(CALL, body=b"x" * BODY_BYTES, timeout_s=timeout_s)))
        loop = asyncio.get_running_loop()
        connection, _ = await loop.sock_accept(server)
        with connection:
            if answer:
                await loop.sock_recv(connection, 10)  # a part of the request: an answer to none is not taken for one
                await loop.sock_sendall(connection, answer)
            result: CallResult = await call
            assert (result.kind if isinstance(result, Ambiguous) else type(result).__name__.lower()) in kinds
            assert await heard(connection) < BODY_BYTES
