"""What every HTTP engine of the product does with callees that misbehave: the same for each, on both event loops."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from dispatcher.adapters.http import HttpEngine, open_engine
from dispatcher.core.messages.call import Ambiguous, Answered, CallResult, NotSent, Withheld
from dispatcher.errors import ConfigError
from tests.contract.engines import CALL, CANARY, SHORT_S, Opener, answered_next, make_settings
from tests.contract.hostile import HANGS, OK, Act, HostileCallee, head
from tests.waiting import eventually_async


async def test_a_call_arrives_as_written_with_its_credential_and_nothing_else(engine: HttpEngine, callee: HostileCallee) -> None:
    """Path and query arrive byte for byte, headers with duplicates, the body whole; the credential is added; no cookie, no encoding."""
    call = replace(CALL, path="/v1/a%2Fb/../c?q=%2F+%7E|x", headers=(("x-a", "1"), ("X-A", "2"), ("x-u", "北")))
    expected = Answered(200, (("content-type", "application/json"), ("content-length", "2")), b"{}")
    assert expected == await engine.call(call)
    first, *lines = callee.requests[0].split(b"\r\n")
    assert first == b"POST /v1/a%2Fb/../c?q=%2F+%7E|x HTTP/1.1"
    assert [value for name, _, value in (line.partition(b": ") for line in lines) if name.lower() == b"x-a"] == [b"1", b"2"]
    names = Counter(line.partition(b":")[0].lower() for line in lines if b":" in line and b"{" not in line)
    once = {b"host", b"authorization", b"accept", b"accept-encoding", b"user-agent", b"content-length", b"x-u"}
    assert names == Counter(dict.fromkeys(once, 1) | {b"x-a": 2})
    assert b"accept-encoding: identity" in callee.requests[0].lower()
    assert "x-u: 北".encode() in callee.requests[0].lower()
    assert f"authorization: {CANARY}".encode().lower() in callee.requests[0].lower()
    assert callee.requests[0].endswith(b'\r\n\r\n{"n":1}')


async def test_base_url_has_a_path_prefix(opened: Opener, callee: HostileCallee) -> None:
    """The path of a call is put behind the path of base_url, with one slash between."""
    await answered_next(opened(callee.url + "/api/"))
    assert callee.requests[0].startswith(b"POST /api/v1/x HTTP/1.1\r\n")


HEADERS = (
    ("two of a name", (b"X-A: 1", b"x-b: 2", b"X-A: 3"), (("x-a", "1"), ("x-b", "2"), ("x-a", "3"))),
    ("utf-8", ("x-a: é北".encode(),), (("x-a", "é北"),)),
    ("not utf-8", (b"x-a: \xff\xe9",), (("x-a", "ÿé"),)),
    ("empty", (b"x-a:",), (("x-a", ""),)),
    ("1000", tuple(b"x-%d: a" % n for n in range(1000)), tuple((f"x-{n}", "a") for n in range(1000))),
    ("60 KB", (b"x-a: " + b"a" * 60_000,), (("x-a", "a" * 60_000),)),
    ("odd cookie", (b'set-cookie: =;;\x01"; a',), None),
)


@pytest.mark.parametrize(("lines", "expected"), [row[1:] for row in HEADERS], ids=[row[0] for row in HEADERS])
async def test_response_headers_are_all_read(
    engine: HttpEngine, callee: HostileCallee, lines: tuple[bytes, ...], expected: tuple[tuple[str, str], ...] | None
) -> None:
    """Headers are kept in the callee's order with duplicates, whatever bytes they hold; what is no HTTP at all is a typed failure."""
    callee.play(Act((head(b"Content-Length: 2", *lines) + b"{}",)))
    result = await engine.call(CALL)
    if expected is not None:
        assert Answered(200, (("content-length", "2"), *expected), b"{}") == result
    else:
        assert isinstance(result, Answered) or ambiguous_kind(result) == "protocol"
    await answered_next(engine)
    assert b"cookie" not in callee.requests[-1].lower()


ANSWERS = (
    ("empty reason phrase", (b"HTTP/1.1 529 \r\nContent-Length: 2\r\n\r\n{}",), "keep", 529, b"{}"),
    ("no reason phrase at all", (b"HTTP/1.1 503\r\nContent-Length: 2\r\n\r\n{}",), "keep", 503, b"{}"),
    ("no content-length", (head() + b'{"a":1}',), "close", 200, b'{"a":1}'),
    ("chunked", (head(b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n"), "keep", 200, b"abcde"),
    ("204", (head(status=b"204 No Content"),), "keep", 204, b""),
    ("304 with a length", (head(b"Content-Length: 5", status=b"304 Not Modified"),), "keep", 304, b""),
    ("1xx before", (head(status=b"100 Continue") + head(b"link: a", status=b"103 Early Hints"), OK), "keep", 200, b"{}"),
    ("HTTP/1.0", (b"HTTP/1.0 200 OK\r\n\r\nabc",), "close", 200, b"abc"),
    ("redirect", (head(b"Location: /other", b"Content-Length: 0", status=b"302 Found"),), "keep", 302, b""),
    ("byte by byte", tuple(OK[n : n + 1] for n in range(len(OK))), "keep", 200, b"{}"),
    ("says gzip, is none", (head(b"Content-Encoding: gzip", b"Content-Length: 3") + b"{} ",), "keep", 200, b"{} "),
    ("says Brotli", (head(b"Content-Encoding: br", b"Content-Length: 3") + b"\x0b\x01\x80",), "keep", 200, b"\x0b\x01\x80"),
    ("gzip of nothing", (head(b"Content-Encoding: gzip", b"Content-Length: 3") + b"\x1f\x8b\x00",), "keep", 200, b"\x1f\x8b\x00"),
    ("close said", (head(b"Connection: close", b"Content-Length: 2") + b"{}",), "close", 200, b"{}"),
)


@pytest.mark.parametrize(("send", "then", "status", "body"), [row[1:] for row in ANSWERS], ids=[row[0] for row in ANSWERS])
async def test_odd_answers_are_answers(
    engine: HttpEngine, callee: HostileCallee, send: tuple[bytes, ...], then: Any, status: int, body: bytes
) -> None:
    """What is legal HTTP, or nearly, is an answer with its status and body as sent: not followed, and not unpacked if it is not whole."""
    callee.play(Act(send, then))
    result = await engine.call(CALL)
    assert (status, body, False) == (result.status, result.body, result.truncated) if isinstance(result, Answered) else result
    assert len(callee.requests) == 1
    await answered_next(engine)


async def test_head_has_no_body(engine: HttpEngine, callee: HostileCallee) -> None:
    """The length in an answer to HEAD is that of a body that does not come."""
    callee.play(Act((head(b"Content-Length: 500"),)))
    result = await engine.call(replace(CALL, method="HEAD", body=None))
    assert Answered(200, (("content-length", "500"),), b"") == result
    await answered_next(engine)


async def test_a_call_that_is_withheld_is_not_sent(engine: HttpEngine, callee: HostileCallee) -> None:
    """Its limit is not ours any more when there is a connection: nothing goes onto it, and the next call is made as if nothing had been."""

    def sent() -> None:
        raise Withheld

    with pytest.raises(Withheld):
        await engine.call(CALL, sent)
    assert [] == callee.requests
    await answered_next(engine)


FAULTS = (
    ("length longer than the body", Act((b'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"a"',), "close"), {"truncated"}),
    ("chunks broken off", Act((head(b"Transfer-Encoding: chunked") + b"5\r\nabc",), "close"), {"truncated"}),
    ("chunks without an end", Act((head(b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n",), "close"), {"truncated"}),
    ("reset in the body", Act((head(b"Content-Length: 100") + b"abc",), "reset"), {"truncated", "reset"}),
    ("chunk size is no number", Act((head(b"Transfer-Encoding: chunked") + b"zz\r\nabc\r\n",), "hang"), {"protocol", "truncated"}),
    ("head broken off", Act((b"HTTP/1.1 200 OK\r\nContent-Le",), "close"), {"reset", "protocol"}),
    ("closed after reading", Act((), "close"), {"reset"}),
    ("reset after reading", Act((), "reset"), {"reset"}),
    ("closed without reading", Act((), "close", read=False), {"reset"}),
    ("reset without reading", Act((), "reset", read=False), {"reset"}),
    ("garbage", Act((b"\x00\x01\x02 what?\r\n\r\n",), "hang"), {"protocol"}),
    ("another protocol", Act((b"SSH-2.0-OpenSSH_9.6\r\n",), "close"), {"protocol", "reset"}),
    ("garbage that echoes", Act((f"HTTP/1.1 {CANARY}\r\nauthorization {CANARY}\r\n\r\n".encode(),), "close"), {"protocol"}),
    ("two lengths", Act((head(b"Content-Length: 2", b"Content-Length: 3") + b"{}",), "close"), {"protocol"}),
    ("negative length", Act((head(b"Content-Length: -1") + b"{}",), "close"), {"protocol"}),
    ("a header of 300 KB", Act((head(b"x-a: " + b"a" * 300_000),), "close"), {"protocol", "reset"}),
    ("no end of headers", Act((b"HTTP/1.1 200 OK\r\n" + b"x-a: b\r\n" * 100_000,), "close"), {"protocol", "reset"}),
    ("101 unasked", Act((head(b"Upgrade: x", b"Connection: upgrade", status=b"101 Switching Protocols"),), "hang"), {"protocol"}),
)


def ambiguous_kind(result: CallResult) -> str:
    """Give the kind of a result that must be ambiguous and must not show the credential."""
    assert isinstance(result, Ambiguous), result
    assert "canary" not in repr(result)
    return result.kind


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("act", "kinds"), [row[1:] for row in FAULTS], ids=[row[0] for row in FAULTS])
async def test_faults_are_ambiguous_and_sent_once(
    engine: HttpEngine, callee: HostileCallee, act: Act, kinds: set[str], method: str
) -> None:
    """No whole answer means ambiguous with a kind; the request left exactly once; the connection is not used again."""
    call = replace(CALL, method=method, body=b"{}" if method == "POST" else None)
    callee.play(act)
    assert ambiguous_kind(await engine.call(call)) in kinds
    assert callee.connections == 1
    assert len(callee.requests) == act.read
    await answered_next(engine, call)
    assert callee.connections == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_kept_connection_that_breaks_is_no_second_request(engine: HttpEngine, callee: HostileCallee, method: str) -> None:
    """A request on a reused connection that closes unanswered is ambiguous: no library sends a GET again behind our back."""
    call = replace(CALL, method=method, body=b"{}" if method == "POST" else None)
    callee.play(Act(), Act((), "close"), Act(), Act((), "reset"))
    await answered_next(engine, call)
    assert ambiguous_kind(await engine.call(call)) == "reset"
    await answered_next(engine, call)
    assert ambiguous_kind(await engine.call(call)) == "reset"
    assert len(callee.requests) == 4
    await answered_next(engine, call)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_kept_connection_closed_while_idle_is_replaced(engine: HttpEngine, callee: HostileCallee, method: str) -> None:
    """Where the callee closed an idle connection and that is known here, the next call opens another and succeeds."""
    call = replace(CALL, method=method, body=b"{}" if method == "POST" else None)
    callee.play(*(Act(then="close") for _ in range(5)))
    for n in range(1, 6):
        await answered_next(engine, call)
        await eventually_async(lambda n=n: callee.ended == n)  # type: ignore[misc]
        await asyncio.sleep(0)
    assert len(callee.requests) == 5


async def test_a_request_that_crosses_with_the_closing_is_never_sent_twice(engine: HttpEngine, callee: HostileCallee) -> None:
    """Calls right behind an answer whose connection closes: each is answered or ambiguous, and none is seen twice."""
    callee.play(*(Act(then="close") for _ in range(100)))
    results = {n: await engine.call(replace(CALL, method="GET", body=None, path=f"/{n}")) for n in range(60)}
    seen = Counter(request.split(b" ", 2)[1].decode() for request in callee.requests)
    assert set(seen.values()) == {1}
    for n, result in results.items():
        assert (isinstance(result, Answered) and seen[f"/{n}"] == 1) or ambiguous_kind(result) == "reset"


async def test_an_answer_to_no_request_is_not_taken_for_the_next_one(engine: HttpEngine, callee: HostileCallee) -> None:
    """Bytes behind an answer are not read as the answer of the next call."""
    callee.play(Act((OK + head(b"Content-Length: 4") + b"evil",)))
    await engine.call(CALL)
    result = await engine.call(CALL)
    assert isinstance(result, Answered)
    assert result.body == b"{}"


async def test_a_late_answer_to_no_request_is_not_taken_either(engine: HttpEngine, callee: HostileCallee) -> None:
    """The same where the stray bytes come on a connection that has been idle for a while."""
    callee.play(Act((OK, b"", head(b"Content-Length: 4") + b"evil"), pause_s=0.05))
    await answered_next(engine)
    await eventually_async(lambda: not callee.playing)
    result = await engine.call(CALL)
    assert isinstance(result, Answered)
    assert result.body == b"{}"


async def test_a_callee_that_speaks_first(engine: HttpEngine, callee: HostileCallee) -> None:
    """A greeting, as of a mail server, is a typed failure; the request was sent once or not at all."""
    callee.play(*(Act((b"220 mail.test ESMTP\r\n",), "hang", read=False) for _ in range(5)))
    result = await engine.call(replace(CALL, timeout_s=SHORT_S * 10))
    assert isinstance(result, NotSent | Ambiguous)
    callee.acts.clear()
    await answered_next(engine)


async def test_the_default_engine_reuses_connections(callee: HostileCallee) -> None:
    """Calls one after another share one connection: over TLS a new one each would cost several round trips."""
    engine = open_engine(make_settings("aiohttp", callee.url), {"team-a": CANARY})
    for _ in range(10):
        await answered_next(engine)
    await engine.close()
    assert callee.connections == 1
    assert len(callee.requests) == 10


async def test_a_large_request_refused_early(engine: HttpEngine, callee: HostileCallee) -> None:
    """A callee that answers and closes without reading 8 MB gives its answer or an ambiguous result, and never NotSent."""
    callee.play(Act((head(b"Content-Length: 2", b"Connection: close", status=b"413 Too Large") + b"{}",), "close", read=False))
    result = await engine.call(replace(CALL, body=b"x" * 8_000_000))
    assert isinstance(result, Answered | Ambiguous)
    await answered_next(engine)


@pytest.mark.parametrize("act", [row[1] for row in HANGS], ids=[row[0] for row in HANGS])
async def test_cancelling_ends_the_connection(engine: HttpEngine, callee: HostileCallee, act: Act) -> None:
    """A cancelled call raises CancelledError, its connection is really closed, and its place is free again."""
    callee.play(act)
    task = asyncio.create_task(engine.call(CALL))
    await eventually_async(lambda: len(callee.requests) == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually_async(lambda: (callee.left, callee.open) == (1, 0))
    await answered_next(engine)


BODIES: tuple[tuple[str, Callable[[bytes], tuple[bytes, ...]]], ...] = (
    ("length", lambda body: (head(b"Content-Length: %d" % len(body)) + body,)),
    ("chunked", lambda body: (head(b"Transfer-Encoding: chunked") + b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n",)),
    ("until close", lambda body: (head(b"Connection: close"), body)),
)


@pytest.mark.parametrize("framed", [row[1] for row in BODIES], ids=[row[0] for row in BODIES])
@pytest.mark.parametrize(("size", "truncated"), [(1000, False), (1001, True), (300_000, True)])
async def test_long_bodies_are_cut(
    opened: Opener, callee: HostileCallee, framed: Callable[[bytes], tuple[bytes, ...]], size: int, *, truncated: bool
) -> None:
    """At most response_max_bytes are kept; a longer answer is marked; the next call is not disturbed."""
    engine = opened(callee.url, response_max_bytes=1000)
    send = framed(b"a" * size)
    callee.play(Act(send, "close" if len(send) == 2 else "keep"))
    result = await engine.call(CALL)
    assert (1000, truncated) == (len(result.body), result.truncated) if isinstance(result, Answered) else result
    await answered_next(engine)


def deflated(body: bytes, window: int) -> bytes:
    """Compress with the head that zlib has for that window."""
    packer = zlib.compressobj(wbits=window)
    return packer.compress(body) + packer.flush()


PACKED = (
    ("gzip", b"gzip", gzip.compress),
    ("in capitals", b"GZip", gzip.compress),
    ("two members", b"x-gzip", lambda body: gzip.compress(body[:7]) + gzip.compress(body[7:])),
    ("deflate", b"deflate", lambda body: deflated(body, 15)),
    ("deflate without a head", b"deflate", lambda body: deflated(body, -15)),
)


@pytest.mark.parametrize(("coding", "pack"), [row[1:] for row in PACKED], ids=[row[0] for row in PACKED])
async def test_an_answer_that_was_compressed_unasked_is_read(
    opened: Opener, callee: HostileCallee, coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    """It is unpacked, so that its errors are seen and an echoed secret is masked; its length and coding, true no more, are left out."""
    engine = opened(callee.url)
    packed = pack(b'{"echoed": "%s"}' % CANARY.encode())
    callee.play(Act((head(b"Content-Encoding: " + coding, b"X-A: 1", b"Content-Length: %d" % len(packed)) + packed,)))
    result = await engine.call(CALL)
    assert isinstance(result, Answered)
    assert (("x-a", "1"),) == result.headers
    assert result.body.startswith(b'{"echoed": "')
    assert CANARY.encode() not in result.body
    await answered_next(engine)


async def test_a_compressed_body_unpacks_to_what_is_kept(opened: Opener, callee: HostileCallee) -> None:
    """A small answer that unpacks to a hundred megabytes takes no more memory than a large one."""
    engine = opened(callee.url, response_max_bytes=200_000)
    packed = gzip.compress(b"a" * 100_000_000)
    callee.play(Act((head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(packed)) + packed,)))
    assert Answered(200, (), b"a" * 200_000, truncated=True) == await engine.call(CALL)


async def test_an_endless_body_is_cut_at_once(opened: Opener, callee: HostileCallee) -> None:
    """A body without end is cut at the limit, not at the timeout."""
    engine = opened(callee.url, response_max_bytes=1000)
    callee.play(Act((head(), b"a" * 5000), "hang"))
    result = await engine.call(CALL)
    assert Answered(200, (), b"a" * 1000, truncated=True) == result
    await eventually_async(lambda: (callee.left, callee.open) == (1, 0))


async def test_connections_do_not_exceed_the_calls(opened: Opener, callee: HostileCallee) -> None:
    """With more calls than inflight_max at once, never more connections are open than that."""
    engine = opened(callee.url, inflight_max=5)
    results = await asyncio.gather(*(engine.call(replace(CALL, path=f"/{n}")) for n in range(40)))
    assert all(isinstance(result, Answered) for result in results)
    assert callee.open_most <= 5


UNWRITABLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("header value with a line break", {"headers": (("x-a", "b\r\nx-c: d"),)}),
    ("header name with a colon", {"headers": (("x-a: b", "c"),)}),
    ("framing header", {"headers": (("Transfer-Encoding", "chunked"),)}),
    ("second credential", {"headers": (("AUTHORIZATION", "mine"),)}),
    ("path with a space", {"path": "/a b"}),
    ("path with a line break", {"path": "/a HTTP/1.1\r\nx: y"}),
    ("path not ASCII", {"path": "/é"}),
    ("path with a fragment", {"path": "/a#b"}),
    ("method of two words", {"method": "G T"}),
    ("unknown upstream", {"upstream": "nobody"}),
    ("unknown credential", {"credential": "nobody"}),
)


@pytest.mark.parametrize("change", [row[1] for row in UNWRITABLE], ids=[row[0] for row in UNWRITABLE])
async def test_what_cannot_be_written_is_not_sent(engine: HttpEngine, callee: HostileCallee, change: dict[str, Any]) -> None:
    """A request that would not be one request with these headers never leaves, and is NotSent(invalid_request)."""
    result = await engine.call(replace(CALL, **change))
    assert isinstance(result, NotSent)
    assert result.kind == "invalid_request"
    assert callee.connections == 0
    assert "canary" not in repr(result)


@pytest.mark.parametrize("secret", ["a\r\nb", None])
async def test_a_credential_that_cannot_be_sent_stops_the_start(engine_name: str, secret: str | None) -> None:
    """A missing secret, or one with a line break, is found at start, and the message does not show it."""
    settings = make_settings(engine_name, "http://127.0.0.1")
    with pytest.raises(ConfigError, match="team-a") as caught:
        open_engine(settings, {} if secret is None else {"team-a": secret})
    assert "\n" not in str(caught.value)


async def test_the_secret_does_not_print(engine: HttpEngine) -> None:
    """Neither the engine nor what it holds shows a credential in its repr."""
    shown = [engine, *vars(engine).values(), *engine._targets.values()]
    assert "canary" not in repr(shown)
    assert callable(engine.call)


async def test_many_faults_at_once(engine: HttpEngine, callee: HostileCallee) -> None:
    """Good and bad calls at once do not touch each other: each bad one ends typed, each good one is answered."""
    bad = [Act((), "reset"), Act((b"garbage\r\n\r\n",), "close"), Act((head(b"Content-Length: 9"),), "close"), Act()] * 10
    callee.play(*bad)
    calls: list[Awaitable[CallResult]] = [engine.call(replace(CALL, path=f"/{n}")) for n in range(60)]
    kinds = Counter(type(result).__name__ for result in await asyncio.gather(*calls))
    assert kinds == {"Answered": 30, "Ambiguous": 30}
    assert len(callee.requests) == 60
