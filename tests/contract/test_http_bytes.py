"""Answers byte for byte, legal, nearly so, or not at all: what each HTTP engine of the product makes of them."""

from __future__ import annotations

import gzip
from typing import NamedTuple

from dispatcher.adapters.http import HttpEngine
from dispatcher.core.messages.call import Ambiguous, Answered
from tests.contract.engines import CALL, LONG_S, Opener, answered_next
from tests.contract.hostile import OK, Act, HostileCallee, head

CHUNKED = head(b"Transfer-Encoding: chunked")
LENGTH = b"Content-Length: 2"
BOMB = gzip.compress(b"\0" * 20_000_000)
KEPT_BYTES = 1000


class Bytes(NamedTuple):
    """What a callee sends; `status` and `body` of the answer that it is, None where it is none. `is_moot`: libraries differ, and may.

    `closes`: what waits for more gets none.
    """

    name: str
    sent: bytes
    status: int | None
    body: bytes = b"{}"
    is_moot: bool = False
    closes: bool = False


def chunks(name: str, sent: bytes, *, is_answer: bool = False) -> Bytes:
    """A body in chunks."""
    return Bytes(name, CHUNKED + sent, 200 if is_answer else None, b"abc")


def headed(name: str, *lines: bytes, is_answer: bool = False, is_moot: bool = False) -> Bytes:
    """An answer of two bytes, with these headers."""
    return Bytes(name, head(*lines) + b"{}", 200 if is_answer or is_moot else None, is_moot=is_moot)


ROWS = (
    chunks("a chunk extension", b"3;a=b\r\nabc\r\n0;c\r\n\r\n", is_answer=True),
    chunks("spaces behind a chunk size", b"3  \r\nabc\r\n0\r\n\r\n", is_answer=True),
    chunks("trailers", b"3\r\nabc\r\n0\r\nx-a: b\r\n\r\n", is_answer=True),
    chunks("trailers without end", b"3\r\nabc\r\n0\r\n" + b"x-a: b\r\n" * 50_000),
    chunks("a negative chunk size", b"-3\r\nabc\r\n0\r\n\r\n"),
    chunks("a chunk size as Python writes it", b"0x3\r\nabc\r\n0\r\n\r\n"),
    chunks("a chunk size as Python reads it", b"1_0\r\nabc\r\n0\r\n\r\n"),
    Bytes("a chunk size beyond 64 bits", CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n", None, closes=True),
    Bytes("a chunk that nobody could keep", CHUNKED + b"7fffffffffffffff\r\nabc\r\n", None, closes=True),
    chunks("no chunk size", b"\r\nabc\r\n0\r\n\r\n"),
    chunks("a chunk size that is no text", b"\xff\xfe\r\nabc\r\n0\r\n\r\n"),
    chunks("a chunk longer than its size", b"3\r\nabcX\r\n0\r\n\r\n"),
    Bytes("a length and chunks", head(LENGTH, b"Transfer-Encoding: chunked") + b"3\r\nabc\r\n0\r\n\r\n", 200, b"abc", is_moot=True),
    Bytes("chunked twice", head(*[b"Transfer-Encoding: chunked"] * 2) + b"3\r\nabc\r\n0\r\n\r\n", 200, b"abc", is_moot=True),
    headed("an unknown transfer coding", b"Transfer-Encoding: xchunked", LENGTH),
    headed("a length with a sign", b"Content-Length: +2"),
    headed("a length in base 16", b"Content-Length: 0x2"),
    headed("a length as Python reads it", b"Content-Length: 0_2"),
    headed("a length beyond 64 bits", b"Content-Length: 99999999999999999999999"),
    headed("an empty length", b"Content-Length:"),
    headed("the same length twice", LENGTH, LENGTH, is_moot=True),
    headed("a list of lengths", b"Content-Length: 2, 2", is_moot=True),
    Bytes("a body longer than its length", head(LENGTH) + b"{}" + head(b"Content-Length: 4") + b"evil", 200),
    Bytes("100 behind an answer", head(LENGTH) + b"{}" + head(status=b"100 Continue"), 200),
    headed("NUL in a header", LENGTH, b"x-a: a\0b"),
    headed("CR in a header", LENGTH, b"x-a: a\rb"),
    headed("a control character in a header", LENGTH, b"x-a: a\x01b", is_answer=True),
    headed("a folded header", LENGTH, b"x-a: a", b" b", is_answer=True),
    headed("a header without a colon", LENGTH, b"x-a"),
    headed("a header without a name", LENGTH, b": b"),
    headed("a space before the colon", LENGTH, b"x-a : b"),
    headed("a header's name beyond ASCII", LENGTH, "é: b".encode()),
    headed("2,500 headers", LENGTH, *(b"x-%d: a" % n for n in range(2500)), is_moot=True),
    Bytes("LF alone", b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}", 200),
    Bytes("empty lines before the status", b"\r\n\r\n" + OK, 200, is_moot=True),
    Bytes("no version that we speak", b"HTTP/1.2 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200, is_moot=True),
    Bytes("a version in small letters", b"http/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", None),
    Bytes("a radio", b"ICY 200 OK\r\nContent-Length: 2\r\n\r\n{}", None),
    Bytes("a status of four digits", head(LENGTH, status=b"2000 OK") + b"{}", None),
    Bytes("a status of two digits", head(LENGTH, status=b"99 OK") + b"{}", None),
    Bytes("status 000", head(LENGTH, status=b"000 OK") + b"{}", None),
    Bytes("a negative status", head(LENGTH, status=b"-200 OK") + b"{}", None),
    Bytes("a status that is a word", head(LENGTH, status=b"OK") + b"{}", None),
    Bytes("a status that nobody knows", head(LENGTH, status=b"999 x") + b"{}", 999),
    Bytes("a reason phrase that is no text", head(LENGTH, status=b"200 \xff\xfe") + b"{}", 200),
    Bytes("200 times 102", head(status=b"102 Processing") * 200 + OK, 200),
    Bytes("205 with a body", head(LENGTH, status=b"205 Reset Content") + b"{}", 205),
    Bytes("307 to somebody else", head(b"Location: http://127.0.0.1:1/x", LENGTH, status=b"307 Temporary Redirect") + b"{}", 307),
    Bytes("308 to itself", head(b"Location: /v1/x", LENGTH, status=b"308 Permanent Redirect") + b"{}", 308),
    Bytes("401 that asks for a password", head(b'WWW-Authenticate: Basic realm="a"', LENGTH, status=b"401 Unauthorized") + b"{}", 401),
    Bytes("a connection that is to be kept for no time", head(LENGTH, b"Keep-Alive: timeout=0") + b"{}", 200),
    Bytes("a bomb in gzip", head(b"Content-Encoding: gzip", b"Content-Length: %d" % len(BOMB)) + BOMB, 200, bytes(KEPT_BYTES)),
    Bytes("a bomb in br", head(b"Content-Encoding: br", LENGTH) + b"\x00\x01", 200, b"\x00\x01"),
)


async def check(engine: HttpEngine, callee: HostileCallee, row: Bytes) -> None:
    """Check one row on an engine that has met others."""
    met = len(callee.requests)
    callee.play(Act((row.sent,), "close" if row.closes else "keep"))
    result = await engine.call(CALL)
    if isinstance(result, Answered):
        assert (row.status, row.body, row.name) == (result.status, result.body, row.name)
    else:
        assert isinstance(result, Ambiguous), row.name
        assert row.status is None or row.is_moot, (row.name, result)
        assert (result.kind, row.name) in {("protocol", row.name), ("truncated", row.name)}
    assert (met + 1, row.name) == (len(callee.requests), row.name)
    await answered_next(engine)


async def test_each_answer_is_what_it_is_or_a_typed_failure(opened: Opener, callee: HostileCallee) -> None:
    """Asked once, nothing followed or unpacked, no more kept than may be; no HTTP is ambiguous; and the next call has its own answer."""
    engine = opened(callee.url, response_max_bytes=KEPT_BYTES)
    for row in ROWS:
        await check(engine, callee, row)


async def test_an_answer_need_not_wait_for_the_end_of_its_connection(opened: Opener, callee: HostileCallee) -> None:
    """A callee that says close, and closes late or never, has answered once its length is read; and that connection is used no more."""
    engine = opened(callee.url, first_byte_timeout_s=LONG_S, idle_timeout_s=LONG_S)
    for send in (head(LENGTH, b"Connection: close") + b"{}", head(b"Connection: close", status=b"204 No Content")):
        callee.play(Act((send,), "hang"))
        assert isinstance(await engine.call(CALL), Answered)
        await answered_next(engine)
    assert len(callee.requests) == 4
