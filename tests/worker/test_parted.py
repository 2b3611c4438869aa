"""What is published at least once goes out in two parts: tombstones behind all that they rest upon."""

from __future__ import annotations

from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message
from dispatcher.worker.ready import Ready, messages_of, parted

OWNER = Owner(0, 1)
REPLY = Message("replies", 0, b"doc:1", b"{}", ())
# A request without a value is malformed, and its dead letter is the record as it was.
EMPTY_LETTER = Message("dlq", 0, b"doc:1", None, ())


def aside(offset: int, value: bytes | None) -> Message:
    """A request that is parked, or its tombstone."""
    return Message("parked", 0, b"topic/0/%d" % offset, value, ())


def ready(*extra: Message, beside: tuple[Message, ...] = (REPLY,)) -> Ready:
    """An outcome with these messages."""
    return Ready(Outcome(OWNER, None, None, extra=extra), (*beside, *extra))


def test_a_tombstone_follows_the_reply_that_it_rests_upon() -> None:
    """Alone it would be a loss: a crash in between has to leave the request where it is found again."""
    pending = [ready(aside(1, None), beside=(EMPTY_LETTER, REPLY)), ready(), ready(aside(2, b"{}"), beside=())]
    first, last = parted(pending)
    assert [EMPTY_LETTER, REPLY, REPLY, aside(2, b"{}")] == messages_of(first)
    assert [aside(1, None)] == messages_of(last)
    assert [()] * 2 == [one.outcome.extra for one in first[:2]]


def test_a_tombstone_of_what_is_written_again_is_left_out() -> None:
    """A void copy is removed and its request parked anew in one publication: behind that, the tombstone would take the new copy away."""
    first, last = parted([ready(aside(1, None), beside=()), ready(aside(1, b"{}"), beside=()), ready(aside(3, None), beside=())])
    assert [aside(1, b"{}")] == messages_of(first)
    assert [aside(3, None)] == messages_of(last)
