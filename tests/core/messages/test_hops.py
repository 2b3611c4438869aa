"""What goes round and round: dead letters that are sent in again, and what each of them says of the error itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.lanes.steps import Settle, Start
from dispatcher.core.messages.call import Ambiguous, CallResult, NotSent
from dispatcher.core.messages.record import Header, Message, Record
from dispatcher.core.messages.reply import Fault
from tests.core.lanes.test_lane import finish, lane
from tests.specimens import DEAD_LETTERS, answer, now, record, value

ERRORS = "__dispatcher.errors."
HEADERS: tuple[Header, ...] = (("ce_id", b"order-7"), ("x", b"\xff"), ("x", None), ("kafka_correlationId", bytes(range(16))))
CONTENTS = {"fails at the callee": value(), "refused": b"{", "larger than the dlq takes": b"{" + bytes(3_000_000)}


def died(sent: Record) -> tuple[Message, Message]:
    """Send a record in, and give its dead letter and its reply: a good one fails at the callee, the others are refused."""
    made = lane(sent, attempts_max=1)
    step = made.next(now())
    if isinstance(step, Start):
        made.answered(answer(500), now(), 0.5)
        step = made.next(now())
    assert isinstance(step, Settle)
    letter, reply, *_ = step.outcome.fitted({DEAD_LETTERS: 1_000_000}).messages()
    return letter, reply


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_letter_that_is_sent_in_fifty_times_grows_by_nothing(content: bytes) -> None:
    """Letter and reply of each round are as long as the first ones, and hold the headers of the original in their order, once."""
    sent = record(content, headers=HEADERS)
    sizes = set()
    for number in range(50):
        letter, reply = died(sent)
        own = [name for name, _ in letter.headers if name.startswith(ERRORS)]
        assert len(own) == len(set(own))
        assert HEADERS == letter.headers[: len(HEADERS)]
        sizes.add((sum(len(name) + len(text or b"") for name, text in letter.headers), reply.size_bytes))
        # As somebody would send it in: the letter as it is, at the same place but for the offset.
        sent = replace(record(content, headers=letter.headers), offset=100 + number)
    assert len(sizes) <= 2, "the first one came from an offset of fewer digits"


@pytest.mark.parametrize(
    ("result", "kind", "words", "status"),
    [
        (answer(500), "http", "the callee answered 500", b"500"),
        (answer(429), "http", "the callee answered 429", b"429"),
        (Ambiguous("timeout", "no whole answer within 60 s"), "timeout", "no whole answer within 60 s", None),
        (Ambiguous("reset", "the connection broke"), "reset", "the connection broke", None),
        (Ambiguous("internal", "ValueError"), "internal", "ValueError", None),
        (NotSent("connect", "refused"), "connect", "refused", None),
        (NotSent("address_refused", "a private address"), "address_refused", "a private address", None),
    ],
)
def test_a_letter_names_the_error_itself(result: CallResult, kind: str, words: str, status: bytes | None) -> None:
    """Kind, words and HTTP status of the last call, and how many there were: never a wrapper around them; the reply says the same."""
    outcome = finish(lane(record(), attempts_max=1), result=result)
    assert outcome.letter is not None
    assert outcome.reply is not None
    own = dict(outcome.letter.letter().headers)
    assert kind == (own[f"{ERRORS}exception.class.name"] or b"").decode()
    assert words in (own[f"{ERRORS}message"] or b"").decode()
    assert b"1" == own[f"{ERRORS}delivery.count"]
    assert status == own.get(f"{ERRORS}http.status")
    assert Fault(kind, outcome.letter.message) == outcome.reply.fault
