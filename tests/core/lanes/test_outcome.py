"""Outcomes: what is published together, fitted to what the topics take, and readdressed where a sender's topic cannot be written."""

from __future__ import annotations

from dataclasses import replace

import orjson
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.envelope import Envelope
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.reply import Fault, Reply
from dispatcher.core.messages.status import Reason, Status
from tests.specimens import DEAD_LETTERS, OWNER, REPLIES, answer, record

MIB = 1024 * 1024
LIMITS = {REPLIES: 8 * MIB, DEAD_LETTERS: 8 * MIB}


def outcome(of: Record | None = None, body: bytes | None = b"{}", *, dead: bool = False, topic: str = REPLIES) -> Outcome:
    """An answered or, with `dead`, a given-up request."""
    of = of or record()
    reply = Reply(of, Envelope("id-1", "t/0/5@x", topic, 0), Status.OK, 1, "now", "dispatcher/g")
    reply = replace(reply, answer=None if body is None else answer(body=body))
    if not dead:
        return Outcome(OWNER, of, reply)
    reply = replace(reply, status=Status.DEAD, reason=Reason.ATTEMPTS_EXHAUSTED, fault=Fault("http", "given up"))
    return Outcome(OWNER, of, reply, DeadLetter(of, DEAD_LETTERS, 0, "g", Reason.ATTEMPTS_EXHAUSTED, "given up", "call", "http"))


def topics(of: Outcome) -> list[str]:
    """Where its messages go, in order."""
    return [message.topic for message in of.messages()]


def test_the_letter_goes_before_the_reply() -> None:
    """At least once, a crash between them may repeat, but never hide a dead letter."""
    assert topics(outcome(dead=True)) == [DEAD_LETTERS, REPLIES]
    assert topics(outcome()) == [REPLIES]
    assert topics(Outcome(OWNER, None, None, position=9)) == []


def test_what_fits_is_left_alone() -> None:
    """Byte for byte: the same object's worth."""
    whole = outcome(dead=True)
    assert whole == whole.fitted(LIMITS)
    assert whole == whole.fitted({})


def test_an_answer_over_the_limit_is_cut_not_lost() -> None:
    """The rest of the transaction must not pay for it: `reply_too_large`, no dead letter."""
    fitted = outcome(body=b"x" * 9 * MIB).fitted(LIMITS)
    (message,) = fitted.messages()
    assert message.size_bytes <= LIMITS[REPLIES]
    assert orjson.loads(message.value or b"")["reason"] == "reply_too_large"


def test_a_letter_that_still_does_not_fit_costs_the_reply_nothing() -> None:
    """A dlq that takes less than 64 KiB: the letter keeps a glimpse, the reply everything."""
    small = outcome(record(b"x" * 100_000), body=b"y" * 10_000, dead=True).fitted({DEAD_LETTERS: 16 * 1024})
    assert small.letter is not None
    assert small.letter.letter().value == b"x" * 1024
    assert small.reply == outcome(record(b"x" * 100_000), body=b"y" * 10_000, dead=True).reply


def test_letter_and_reply_are_cut_apart() -> None:
    """Only what is over its topic's limit gets shorter."""
    fitted = outcome(record(b"x" * 9 * MIB), dead=True).fitted(LIMITS)
    assert fitted.letter is not None
    assert fitted.reply is not None
    assert (fitted.letter.reason, fitted.reply.reason) == (Reason.TOO_LARGE, Reason.ATTEMPTS_EXHAUSTED)
    kept = outcome(body=b"x" * 9 * MIB, dead=True).fitted(LIMITS)
    assert kept.letter is not None
    assert kept.letter.reason is Reason.ATTEMPTS_EXHAUSTED


SIZES = st.sampled_from([0, 10, 70_000, 9 * MIB])


@hypothesis_settings(max_examples=25)
@given(SIZES, SIZES, SIZES, SIZES, st.booleans(), st.sampled_from([8 * MIB, 1 * MIB, 16 * 1024]), st.sampled_from([REPLIES, DEAD_LETTERS]))
def test_whatever_a_sender_made_large_fits(
    value: int,
    key: int,
    header: int,
    body: int,
    dead: bool,  # noqa: FBT001 - drawn
    limit: int,
    topic: str,
) -> None:
    """Value, key, header and answer of any size (a compressed batch hides them from the broker) end within the topics' limits."""
    sent = record(b"v" * value, key=b"k" * key, headers=(("h", b"h" * header),))
    fitted = outcome(sent, b"x" * body, dead=dead, topic=topic).fitted({REPLIES: limit, DEAD_LETTERS: limit})
    for message in fitted.messages():
        assert message.size_bytes <= limit
    assert fitted.record is sent


@hypothesis_settings(max_examples=25)
@given(SIZES, SIZES, SIZES, SIZES, st.booleans(), st.sampled_from([0, 1, 1024]))
def test_fitting_ends_where_nothing_fits(
    value: int,
    key: int,
    header: int,
    body: int,
    dead: bool,  # noqa: FBT001 - drawn
    limit: int,
) -> None:
    """Limits below what the headers alone take: cut as far as it goes, never an endless loop, never an exception."""
    sent = record(b"v" * value, key=b"k" * key, headers=(("h", b"h" * header),))
    fitted = outcome(sent, b"x" * body, dead=dead).fitted({REPLIES: limit, DEAD_LETTERS: limit})
    assert all(message.size_bytes < 512 * 1024 for message in fitted.messages())


@hypothesis_settings(max_examples=25)
@given(SIZES, SIZES, SIZES, st.booleans())
def test_the_size_of_a_batch_is_not_underrated(value: int, key: int, body: int, dead: bool) -> None:  # noqa: FBT001 - drawn
    """What the publisher adds up covers what it will hold, but for the bounded headers of each message."""
    sent = outcome(record(b"v" * value, key=b"k" * key), b"\xff" * body, dead=dead)
    assert sent.reply is not None
    sent = replace(sent, reply=replace(sent.reply, metadata=b'"' + b"m" * value + b'"'))
    assert sum(message.size_bytes for message in sent.messages()) <= sent.size_bytes + 8192 * len(sent.messages())


def test_a_topic_that_cannot_be_written_is_answered_on_the_default_one() -> None:
    """As a dead letter `reply_topic_forbidden`, with what is known of the call; the callee's answer is not lost."""
    moved = outcome(topic="team.replies").readdressed(REPLIES, DEAD_LETTERS, "g")
    assert topics(moved) == [DEAD_LETTERS, REPLIES]
    assert moved.reply is not None
    assert moved.letter is not None
    assert (moved.reply.status, moved.reply.reason, moved.letter.reason) == (
        Status.DEAD,
        Reason.REPLY_TOPIC_FORBIDDEN,
        Reason.REPLY_TOPIC_FORBIDDEN,
    )
    assert (moved.letter.attempts, moved.letter.http_status, moved.letter.stage) == (1, 200, "publish")
    assert orjson.loads(moved.reply.message().value or b"")["http"]["body"] == {}


def test_a_letter_that_is_there_stays() -> None:
    """A request that was dead before keeps its letter; its reply moves."""
    dead = outcome(dead=True, topic="team.replies")
    moved = dead.readdressed(REPLIES, DEAD_LETTERS, "g")
    assert moved.letter == dead.letter
    assert topics(moved) == [DEAD_LETTERS, REPLIES]


def test_a_mere_position_has_no_address() -> None:
    """An outcome without a reply stays what it is."""
    end = Outcome(OWNER, None, None, position=9)
    assert end == end.readdressed(REPLIES, DEAD_LETTERS, "g") == end.fitted({})
    assert end.size_bytes == 0
