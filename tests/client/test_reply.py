"""Replies and dead letters as programs read them."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from dispatcher import CallFailed, DeadLetter, DispatcherError, Reply
from dispatcher.client.reply import reply_to_request
from dispatcher.core.messages.dead_letter import DeadLetter as Written
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.reply import Fault
from dispatcher.core.messages.reply import Reply as Published
from dispatcher.core.messages.status import Reason, Status
from tests import specimens
from tests.specimens import answer


def reply(of: Published) -> Reply:
    """Read what a worker publishes."""
    return Reply.of(_record(of.message()))


def published(**fields: Any) -> Published:
    """Make a reply as a worker does."""
    request = specimens.request()
    given: dict[str, Any] = {"status": Status.OK, "attempts": 1, "time": "2026-11-29T10:00:00Z", "source": "w", "duration_ms": 12} | fields
    return Published(request.record, request.envelope, **given)


def _record(message: Message) -> Record:
    return Record(message.topic, message.partition, 7, message.key, message.value, message.headers, 1000)


def test_an_ok_reply() -> None:
    """All that the value and the headers say; the body of the answer as it was written."""
    read = reply(published(answer=answer(body=b'{"n": 1.10}'), metadata=b'{"mine": [1]}'))
    assert (read.ok, read.status, read.attempts, read.reason, read.error) == (True, "ok", 1, None, None)
    assert (read.content, read.json(), read.metadata) == (b'{"n": 1.10}', {"n": 1.1}, {"mine": [1]})
    assert (read.topic, read.offset, read.timestamp_ms, read.duration_ms) == ("dispatcher.replies", 7, 1000, 12)
    assert read.request_id == specimens.request().envelope.request_id
    assert read.http is not None
    assert (read.http.status, read.raise_for_status()) == (200, read)


def test_a_body_that_is_not_json() -> None:
    """Bytes come back as they were; `json` says that they are none."""
    read = reply(published(answer=answer(body=b"\xff\x00", headers=(("content-type", "image/png"),))))
    assert read.content == b"\xff\x00"
    with pytest.raises(ValueError, match="not valid"):
        read.json()


def test_a_reply_without_an_answer() -> None:
    """Given up: no body, and one sentence that says why."""
    fault = Fault("connect", "cannot connect to upstream sample")
    read = reply(published(status=Status.DEAD, reason=Reason.ATTEMPTS_EXHAUSTED, fault=fault, attempts=3))
    assert (read.ok, read.http, read.content) == (False, None, b"")
    with pytest.raises(CallFailed, match=r"dead \(attempts_exhausted\): cannot connect to upstream sample") as caught:
        read.raise_for_status()
    assert caught.value.exit_code == 1


HEADERS = published().message().headers


def test_what_a_later_worker_adds_is_no_fault() -> None:
    """Further fields of a reply are passed over; what is no reply is an error that says where it stands."""
    record = Record("r", 1, 2, b"k", b'{"status": "ok", "attempts": 1, "later": {}}', HEADERS)
    assert Reply.of(record).ok
    for junk in (None, b"", b"[]", b'{"status": "never", "attempts": 1}'):
        with pytest.raises(DispatcherError, match="r/1/2"):
            Reply.of(Record("r", 1, 2, b"k", junk, HEADERS))


TEXTS, NUMBERS = ("ce_causationid", "dispatcher-request-topic"), ("dispatcher-duration-ms", "dispatcher-request-offset")


@pytest.mark.parametrize(
    ("name", "content"), [*product(TEXTS, (None, b"")), *product(NUMBERS, (None, b"", b"-1", "²".encode(), b"9" * 5000))]
)
def test_headers_that_no_reply_has(name: str, content: bytes | None) -> None:
    """What every reply says, and as the message schema has it; whatever else stands there is no reply."""
    with pytest.raises(DispatcherError, match="r/1/2"):
        Reply.of(Record("r", 1, 2, b"k", b'{"status": "ok", "attempts": 1}', ((name, content), *HEADERS)))


def test_the_reply_to_another_request_of_the_same_id() -> None:
    """Anybody may write an id: where the request stood tells them apart."""
    record = _record(published().message())
    source = Reply.of(record).source
    assert reply_to_request(record, source) == reply_to_request(record, None) == Reply.of(record)
    with pytest.raises(DispatcherError, match=rf"is the reply to {source[0]}/{source[1]}/{source[2]}, not to x/0/1"):
        reply_to_request(record, ("x", 0, 1))


def test_a_dead_letter() -> None:
    """The original record, why it is there and where it stood."""
    original = specimens.record(b"not JSON", offset=9)
    written = Written(original, "dispatcher.dlq", original.partition, "g", Reason.MALFORMED, "the value is not JSON", "decode", "Refusal")
    letter = DeadLetter.of(_record(written.letter()))
    assert (letter.reason, letter.message, letter.value, letter.key) == ("malformed", "the value is not JSON", b"not JSON", original.key)
    assert letter.source == (original.topic, original.partition, 9)
    assert letter.request_id == f"{original.topic}/{original.partition}/9"


def test_a_dead_letter_that_we_did_not_write() -> None:
    """Whatever stands in the topic can be shown."""
    letter = DeadLetter.of(Record("d", 0, 0, None, None, None))
    assert (letter.reason, letter.source, letter.headers) == ("", None, None)
    odd = [(f"__dispatcher.errors.{name}", text) for name, text in (("topic", b"t"), ("partition", "²".encode()), ("offset", b"1"))]
    assert DeadLetter.of(Record("d", 0, 0, None, None, tuple(odd))).source is None
