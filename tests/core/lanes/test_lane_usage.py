"""What the answers to a request were billed for: all attempts, whoever made them, once, in its one reply."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from dispatcher.core.callees.verdict import Tries
from dispatcher.core.instant import Instant
from dispatcher.core.internal.parked import PARKED_HEADER, read_parked
from dispatcher.core.internal.tried import read_tried
from dispatcher.core.lanes.ending import Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.parking import Bounds
from dispatcher.core.lanes.steps import Settle, Start, Tell
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.recorded import read_recorded
from dispatcher.core.messages.usage import Tokens, Usage
from tests.core.lanes.test_lane import lane, settle, start, value_of
from tests.specimens import MONO, OWNER, REQUESTS, TOPIC_ID, answer, decoder, noted, now, record, settings

FAILED = Usage(Tokens(100, 5), "m", Decimal("0.01"))
DONE = Usage(Tokens(100, 20, cache_read=80), "m", Decimal("0.02"), Decimal("0.5"))
KEYED = decoder(settings(worker={"ordering": "key"}))


def usage_of(outcome: Outcome) -> Any:
    """What the published reply says."""
    return value_of(outcome).get("usage")


def written(of: Lane) -> Record:
    """The note that the lane hands out now, as it stands in its topic."""
    step = of.next(now(), may_call=True)
    assert isinstance(step, Tell), step
    assert of.noted(step.note)
    message = step.note.message
    return Record(message.topic, message.partition, 0, message.key, message.value, message.headers)


def test_a_reply_says_what_its_answer_was_billed_for() -> None:
    """And one whose answer says nothing of tokens says nothing."""
    made = lane(record(offset=5), record(offset=6))
    start(made)
    made.answered(answer(), now(), 0.5, DONE)
    expected = {"model": "m", "input_tokens": 100, "output_tokens": 20, "cache_read_tokens": 80, "cost_usd": "0.02", "savings_usd": "0.5"}
    assert expected == usage_of(settle(made))
    start(made)
    made.answered(answer(), now(), 0.5)
    assert usage_of(settle(made)) is None


def test_an_attempt_that_failed_was_billed_too() -> None:
    """A 500 with usage, and then an answer: both are in the one reply; a call that gave none adds nothing."""
    made = lane(record())
    for used in (FAILED, None):
        start(made, 40)
        made.answered(answer(500), now(), 0.5, used)
    start(made, 80)
    made.answered(answer(), now(80), 0.5, DONE)
    assert {"model": "m", "input_tokens": 200, "output_tokens": 25, "cache_read_tokens": 80, "cost_usd": "0.03"} == usage_of(
        settle(made, 80)
    )


def test_what_a_former_owner_was_billed_for_is_known() -> None:
    """It stands beside the tries: a worker that dies between two attempts does not make the first one free."""
    made = lane(record())
    start(made)
    made.answered(answer(500), now(), 0.5, FAILED)
    known = read_tried(written(made), TOPIC_ID)
    assert known is not None
    assert FAILED == known.used
    heir = Lane(OWNER, decoder(), tried={5: known})
    heir.add(record(), MONO)
    start(heir, 40)
    heir.answered(answer(), now(40), 0.5, DONE)
    assert "0.03" == usage_of(settle(heir, 40))["cost_usd"]


def test_what_is_moved_aside_takes_its_bill_along() -> None:
    """The parked record has it, within what such a record may take more than its original."""
    made = Lane(OWNER, KEYED, b"doc:42")
    made.add(record(), MONO)
    start(made)
    made.answered(answer(500), now(), 0.5, Usage(Tokens(*([10**12] * 8)), "m" * 100, Decimal("123456789.123456789"), Decimal(-1)))
    written(made)
    ((moved, *_), _) = made.park(0, Bounds(1 << 20), now())
    (message,) = moved.extra
    place = Record(message.topic, message.partition, 9, message.key, message.value, message.headers)
    read = read_parked(place, TOPIC_ID, REQUESTS)
    assert read is not None
    assert (Tries(1, 1), "m" * 100) == (read.tries, read.used and read.used.model)
    assert len(dict(message.headers)[PARKED_HEADER] or b"") < 900
    made.placed(5, 9)
    made.fetched([read], [], now(40))
    start(made, 40)
    made.answered(answer(), now(40), 0.5, DONE)
    assert 10**12 + 100 == usage_of(settle(made, 40))["input_tokens"]


def test_an_early_end_says_what_was_billed_before() -> None:
    """Skipped after a failed attempt: nothing was done, and it was paid for."""
    made = lane(record())
    start(made)
    made.answered(answer(500), now(), 0.5, FAILED)
    ended = made.end(5, Skipped("enough"), now())
    assert isinstance(ended, Outcome)
    assert "0.01" == usage_of(ended)["cost_usd"]


def test_an_end_without_a_turn_says_it_too() -> None:
    """Queued behind others, called by a former owner only."""
    made = lane(record(offset=4))
    start(made)
    made.answered(answer(500), now(), 0.5, FAILED)
    known = read_tried(written(made), TOPIC_ID)
    assert known is not None
    heir = Lane(OWNER, decoder(), tried={4: known})
    heir.add(record(offset=3), MONO)
    heir.add(record(offset=4), MONO)
    start(heir)
    ended = heir.end(4, Skipped("enough"), now())
    assert isinstance(ended, Outcome)
    assert "0.01" == usage_of(ended)["cost_usd"]


def test_a_duplicate_is_billed_for_nothing() -> None:
    """It is answered from the record, whose bill was of the original; the rest is said again."""
    made = lane(record())
    start(made)
    made.answered(answer(body=b'{"a":1}'), now(), 0.5, DONE)
    outcome = settle(made)
    assert outcome.reply is not None
    message = outcome.reply.message()
    recorded = read_recorded(Record(message.topic, message.partition, 3, message.key, message.value, message.headers))
    assert recorded is not None
    assert {"http"} == set(recorded.rest)


@pytest.mark.parametrize("raw", [b"null", b"1", b'{"input_tokens":-1}'])
def test_a_bill_that_cannot_be_read_is_no_reason_to_forget_the_tries(raw: bytes) -> None:
    """Written by a later version, or broken: how often it was called counts all the same."""
    made = lane(record())
    start(made)
    made.answered(answer(500), now(), 0.5, FAILED)
    note = written(made)
    facts = orjson.loads(note.value or b"") | {"used": orjson.loads(raw)}
    read = read_tried(Record(note.topic, note.partition, 0, note.key, orjson.dumps(facts), ()), TOPIC_ID)
    assert read is not None
    assert (1, None) == (read.tries.calls, read.used)


def test_the_head_is_billed_and_nobody_else() -> None:
    """The next request of the lane begins without a bill."""
    made = lane(record(offset=5), record(offset=6))
    start(made)
    made.answered(answer(), now(), 0.5, DONE)
    settle(made)
    step = noted(made, Instant(MONO, 0))
    assert isinstance(step, Start)
    made.answered(answer(404), now(), 0.5)
    after = noted(made, now())
    assert isinstance(after, Settle)
    assert usage_of(after.outcome) is None
