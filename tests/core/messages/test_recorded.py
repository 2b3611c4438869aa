"""Recorded replies: read back as they were published, and said once more to a duplicate without a change."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from dispatcher.core.internal.journal import Known
from dispatcher.core.lanes.ending import Endings
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.call import Answered
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.recorded import Recorded, read_recorded
from dispatcher.core.messages.reply import Fault, Reply
from dispatcher.core.messages.status import Reason, Status
from tests.specimens import OWNER, REPLIES, WALL, decoder, now, record, request, value

ENDINGS = Endings(OWNER, decoder())
KNOWN = Known(5, Status.OK, WALL, REPLIES, 0)
# Numbers and names that change in most hands.
BODY = b'{"big":123456789012345678901234567890,"small":1.10,"twice":1,"twice":2,"text":"\\u00e9"}'
DUPLICATE = record(value(metadata={"mine": 2}), offset=9, headers=(("ce_id", b"r-1"), ("kafka_correlationId", b"\0\7")))


def written(message: Message) -> Record:
    """A message as it stands in its topic."""
    return Record(message.topic, message.partition, 3, message.key, message.value, message.headers)


def reply(**changed: Any) -> Reply:
    """The first reply, with some of it changed."""
    of = request(record(value(metadata={"mine": 1}), headers=(("ce_id", b"r-1"),)))
    facts: dict[str, Any] = {
        "record": of.record,
        "envelope": of.envelope,
        "status": Status.OK,
        "attempts": 2,
        "time": "then",
        "source": "dispatcher/one",
        "duration_ms": 1500,
        "metadata": of.metadata,
        "shown_headers": ("content-type",),
        "answer": Answered(200, (("content-type", "application/json"),), BODY),
    }
    return Reply(**(facts | changed))


def again(of: Reply | None, known: Known = KNOWN) -> Outcome:
    """The end of the duplicate, of which this is recorded."""
    recorded = None if of is None else read_recorded(written(of.message()))
    assert (of is None) == (recorded is None)
    return ENDINGS.again(request(DUPLICATE), known, recorded, now())


def said(of: Outcome) -> tuple[Any, dict[str, bytes | None], bytes]:
    """Value, headers and raw value of the reply to the duplicate."""
    assert of.reply is not None
    message = of.reply.message()
    return orjson.loads(message.value or b""), dict(message.headers), message.value or b""


def test_the_answer_is_said_again_byte_for_byte() -> None:
    """With what is the duplicate's own: where it stands, its correlation, its metadata; and marked."""
    content, headers, raw = said(again(reply()))
    assert BODY in raw
    assert ("ok", 2, True, {"mine": 2}) == (content["status"], content["attempts"], content["duplicate"], content["metadata"])
    assert {"content-type": "application/json"} == content["http"]["headers"]
    assert (b"9", b"r-1", b"\0\7") == (headers["dispatcher-request-offset"], headers["ce_causationid"], headers["kafka_correlationId"])
    assert (b"200", b"1500", b"2") == tuple(headers[f"dispatcher-{name}"] for name in ("http-status", "duration-ms", "attempt"))
    assert headers["ce_id"] == b"dispatcher.requests/0/9@pX3kQ9aZ/reply"


def test_a_dead_end_is_said_again_without_another_letter() -> None:
    """Status, reason and error are the original's; no key is halted, and the journal learns nothing."""
    fault = Fault("timeout", "no whole answer", "2026-11-29T11:00:00Z")
    outcome = again(reply(status=Status.DEAD, reason=Reason.ATTEMPTS_EXHAUSTED, fault=fault, answer=None))
    content, headers, _ = said(outcome)
    assert ("dead", "attempts_exhausted") == (content["status"], content["reason"])
    assert {"kind": "timeout", "message": "no whole answer", "retry_at": "2026-11-29T11:00:00Z"} == content["error"]
    assert "dispatcher-http-status" not in headers
    assert (None, None, None, ()) == (outcome.letter, outcome.halt, outcome.finished, outcome.extra)


@pytest.mark.parametrize(("ended", "status"), [(Status.OK, "error"), (Status.ERROR, "error"), (Status.DEAD, "dead")])
def test_where_the_reply_is_gone_that_is_the_answer(ended: Status, status: str) -> None:
    """Rather an error than a second call; how the request had ended is told."""
    content, _, _ = said(again(None, Known(5, ended, WALL, REPLIES, 0)))
    assert (status, "reply_gone", True, 0) == (content["status"], content["error"]["kind"], content["duplicate"], content["attempts"])
    assert f"ended as {ended.value} before" in content["error"]["message"]


def test_what_later_versions_say_is_passed_on() -> None:
    """A member that this one does not know is part of the answer."""
    message = reply().message()
    raw = (message.value or b"").replace(b'{"status"', b'{"of_later":{"tokens":7},"status"')
    recorded = read_recorded(Record(REPLIES, 0, 3, message.key, raw, message.headers))
    content, _, _ = said(ENDINGS.again(request(DUPLICATE), KNOWN, recorded, now()))
    assert {"tokens": 7} == content["of_later"]


def test_a_duplicate_of_a_duplicate_reads_the_first() -> None:
    """What is recorded of a reply is the same, however often it was said again."""
    first = read_recorded(written(reply().message()))
    assert isinstance(first, Recorded)
    outcome = ENDINGS.again(request(DUPLICATE), KNOWN, first, now())
    assert outcome.reply is not None
    assert first == read_recorded(written(outcome.reply.message()))


@pytest.mark.parametrize(
    "raw",
    [
        *(None, b"", b"{", b"[1]", b"7", b"\xff", b"[" * 100_000),
        *(b'{"status":"ok"}', b'{"status":"fine","attempts":1}', b'{"status":"ok","attempts":"x"}'),
        *(b'{"status":"ok","attempts":1,"reason":"unheard_of"}', b'{"status":"dead","attempts":1,"error":"no"}'),
    ],
    ids=lambda raw: repr(raw)[:30],
)
def test_what_cannot_be_read_is_nothing(raw: bytes | None) -> None:
    """Whoever wrote it."""
    assert read_recorded(Record(REPLIES, 0, 3, b"doc:42", raw, reply().message().headers)) is None


def test_a_reply_without_its_headers_is_nothing() -> None:
    """It is none of ours."""
    assert read_recorded(Record(REPLIES, 0, 3, b"doc:42", reply().message().value, None)) is None


def test_one_that_does_not_fit_any_more_loses_its_metadata_first() -> None:
    """Then the answer, and says so: the duplicate's reply topic may take less than the original's."""
    outcome = again(reply())
    assert outcome.reply is not None
    whole = outcome.reply.message().size_bytes
    content, _, raw = said(outcome.fitted({REPLIES: whole - 1}))
    assert BODY in raw
    assert "metadata" not in content
    content, _, _ = said(outcome.fitted({REPLIES: 700}))
    assert ("error", "reply_too_large", True) == (content["status"], content["reason"], content["duplicate"])
    assert "http" not in content


def test_what_is_said_again_counts_as_memory() -> None:
    """Answers wait to be published as those of calls do."""
    assert len(BODY) <= again(reply()).size_bytes
