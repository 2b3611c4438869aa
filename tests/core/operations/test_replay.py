from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.core.messages.envelope import REPLAY_ID, REPLAY_OF
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Header, Message, Record
from dispatcher.core.messages.request import Decoder
from dispatcher.core.messages.request_id import time_ms_of, time_ordered
from dispatcher.core.operations.replay import KEYS_COUNTED_MAX, Ledger, Selection, Survey, due, replayed
from dispatcher.core.operations.replay_plan import Part, Plan
from dispatcher.errors import RefusedError
from dispatcher.settings import Settings

PARTITIONS = 3
KEYS = {n: next(k for i in range(99) if partition_for(k := f"doc:{i}".encode(), PARTITIONS) == n) for n in range(PARTITIONS)}
VALUE = b'{"upstream": "crm", "path": "/x"}'
REPLAY = time_ordered(1_700_000_000_000, 7)
NOW = "2026-11-29T10:00:00.000Z"


def selection(**fields: Any) -> Selection:
    """Take all keys, and no replays."""
    decoder = Decoder(Settings(), "topicid-rest", PARTITIONS, {"dispatcher.replies": PARTITIONS})
    return replace(Selection(decoder, 1_000_000), **fields)


def original(offset: int = 0, partition: int = 0, headers: tuple[Header, ...] | None = (), **fields: Any) -> Record:
    """Make a request of which a worker could make a call."""
    return replace(Record("requests", partition, offset, KEYS[partition], VALUE, headers), **fields)


def plan_of(*parts: Part, **fields: Any) -> Plan:
    """Make a plan."""
    return replace(Plan(REPLAY, b"t" * 16, PARTITIONS, parts), **fields)


def found(message: Message, offset: int) -> Record:
    """Give the record that a message becomes."""
    return Record(message.topic, message.partition, offset, message.key, message.value, message.headers)


def test_a_replayed_request_is_the_old_one_under_a_new_id() -> None:
    """Key, value, order of headers, duplicates, odd bytes and None stay; the id and the time are new; the marks say where from."""
    headers: tuple[Header, ...] = (
        ("x", b"\xff"),
        ("ce_id", b"old"),
        ("ce_time", b"then"),
        ("x", None),
        ("traceparent", b"00-a-b-01"),
        ("kafka_correlationId", bytes(range(16))),
        ("dispatcher-redrive-id", b"d"),
    )
    made = replayed(original(17, 2, headers), plan_of(), "old", NOW)
    assert ("requests", 2, KEYS[2], VALUE) == (made.topic, made.partition, made.key, made.value)
    new_id = (made.headers[1][1] or b"").decode()
    assert time_ms_of(new_id) == time_ms_of(REPLAY)
    assert (
        ("x", b"\xff"),
        ("ce_id", new_id.encode()),
        ("ce_time", NOW.encode()),
        *headers[3:],
        ("dispatcher-replay-of", b"old"),
        ("dispatcher-replay-id", REPLAY.encode()),
        ("dispatcher-replayed-from", b"requests/2/17"),
    ) == made.headers


def test_a_request_without_an_id_is_named_by_its_position() -> None:
    """A bare request from kcat gets an id and no other header of an envelope; the old one is its position with the topic's id."""
    old_id = selection().old_id(original(17, 2))
    assert "requests/2/17@topicid-" == old_id
    assert ["ce_id", "dispatcher-replay-of", "dispatcher-replay-id", "dispatcher-replayed-from"] == [
        name for name, _ in replayed(original(17, 2), plan_of(), old_id, NOW).headers
    ]


def test_a_new_id_is_made_of_the_replay_and_the_old_id() -> None:
    """The same replay gives the same id again, also to a second record of the old id; another replay and another id give another."""
    other = time_ordered(1_700_000_000_000, 8)
    ids = [
        replayed(original(offset, headers=(("ce_id", b"x"),)), plan_of(replay_id=replay_id), old_id, NOW).headers[0][1]
        for replay_id, old_id, offset in ((REPLAY, "a", 0), (REPLAY, "a", 1), (REPLAY, "b", 0), (other, "a", 0))
    ]
    assert ids[0] == ids[1]
    assert 3 == len(set(ids))


def test_a_replay_of_a_replay_has_the_marks_once() -> None:
    """Replayed again, the marks are those of the last replay."""
    first = replayed(original(3, headers=(("ce_id", b"a"),)), plan_of(), "a", NOW)
    again = replayed(found(first, 9), plan_of(replay_id=time_ordered(5, 5)), "b", NOW)
    assert [name for name, _ in first.headers] == [name for name, _ in again.headers]
    assert {REPLAY_OF: b"b", REPLAY_ID: time_ordered(5, 5).encode()}.items() <= dict(again.headers).items()


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (original(), None),
        (original(headers=(("ce_id", b"a"), ("traceparent", b"broken"))), None),
        (original(headers=(("reply_to", b"a-topic-of-theirs"),)), None),
        (original(value=b'{"upstream": "not configured here"}'), None),
        (original(value=None), "malformed"),
        (original(value=b"{"), "malformed"),
        (original(value=b'{"upstream": "crm", "unknown": 1}'), "malformed"),
        (original(value=b'{"upstream": "crm", "stream": true}'), "unsupported_field"),
        (original(key=None), "malformed"),
        (original(key=b""), "malformed"),
        (original(key=b"\xff"), "malformed"),
        (original(key=KEYS[1]), "wrong_partition"),
        (original(headers=None), "malformed"),
        (original(headers=(("ce_id", b"a"), ("ce_id", b"b"))), "malformed"),
        (original(headers=(("ce_id", b"a b"),)), "malformed"),
        (original(headers=(("ce_type", b"other"),)), "unsupported_schema"),
        (original(value=b'{"upstream": "crm", "metadata": "%s"}' % (b"x" * 999_900)), "too_large"),
        (original(headers=((REPLAY_OF, b"a"),)), "replay"),
    ],
)
def test_what_cannot_be_called_is_left_out_with_a_reason(record: Record, why: str | None) -> None:
    """Malformed originals, and copies that the topic would not take, are counted and never sent; what workers decide is theirs."""
    assert why == selection().skipped(record)


def test_replays_are_taken_when_told() -> None:
    """A replay is replayed only when somebody says so."""
    assert selection(include_replays=True).takes(original(headers=((REPLAY_OF, b"a"),)))


def test_a_survey_counts_what_a_person_must_know() -> None:
    """Requests by partition, keys, what is left out; what is of another key is not counted at all."""
    survey = Survey(selection())
    for record in (original(3), original(5, timestamp_ms=50), original(8, timestamp_ms=40), original(9, value=None), original(2, 1)):
        survey.take(record)
    assert (Part(0, 3, 9, 3, 20), Part(1, 2, 3, 1, 4)) == survey.parts({0: 20, 1: 4, 2: 0})
    assert ({"malformed": 1}, {KEYS[0]: 3, KEYS[1]: 1}, 40, 4) == (survey.skipped, survey.keys, survey.oldest_ms, survey.requests)
    only = Survey(selection(key=KEYS[1]))
    for record in (original(9, value=None), original(2, 1)):
        only.take(record)
    assert ((Part(1, 2, 3, 1, 4),), {}) == (only.parts({1: 4}), only.skipped)


def test_a_limit_ends_a_survey() -> None:
    """The first ones are taken, and nothing behind them is counted."""
    survey = Survey(selection(), 2)
    for offset in range(4):
        survey.take(original(offset))
    assert (True, (Part(0, 0, 2, 2, 4),)) == (survey.is_full, survey.parts({0: 4}))


def test_keys_are_counted_in_bounded_memory() -> None:
    """Of a range with more keys than are kept, it says that there are more."""
    survey = Survey(selection(decoder=replace(selection().decoder, partitions=1)))
    for number in range(KEYS_COUNTED_MAX + 5):
        survey.take(original(number, key=b"k%d" % number))
    assert (KEYS_COUNTED_MAX, False, KEYS_COUNTED_MAX + 5) == (len(survey.keys), survey.keys_are_all, survey.requests)


@st.composite
def logs(draw: st.DrawFn) -> tuple[dict[int, list[Record]], dict[int, int]]:
    """A topic with requests, others that are left out and holes; and how much of each partition was replayed already."""
    log: dict[int, list[Record]] = {}
    for partition in range(PARTITIONS):
        offsets = sorted(draw(st.sets(st.integers(0, 40), max_size=15)))
        log[partition] = [original(o, partition, value=draw(st.sampled_from((VALUE, VALUE, None)))) for o in offsets]
    counts = {n: sum(record.value is not None for record in records) for n, records in log.items()}
    return log, {n: draw(st.integers(0, count)) for n, count in counts.items()}


@given(logs(), st.booleans())
def test_whatever_was_sent_the_rest_follows_in_order(given_log: tuple[dict[int, list[Record]], dict[int, int]], others: bool) -> None:  # noqa: FBT001
    """Any beginning of each partition may stand in the log, between records of others: what is left goes out, each once, in order."""
    log, done = given_log
    survey, rule = Survey(selection()), selection()
    for record in (record for records in log.values() for record in records):
        survey.take(record)
    plan = plan_of(*survey.parts(dict.fromkeys(range(PARTITIONS), 100)))
    wanted = {n: [record for record in records if rule.takes(record)] for n, records in log.items()}
    ledger = Ledger(plan)
    for number, records in wanted.items():
        for offset, record in enumerate(records[: done[number]]):
            if others:
                ledger.take(found(replayed(record, plan_of(replay_id=time_ordered(1, 1)), "x", NOW), 100 + offset))
                ledger.take(original(100 + offset, number))
            ledger.take(found(replayed(record, plan, "x", NOW), 100 + offset))
    ranges = ledger.ranges()
    rest = [record for n, (start, stop) in ranges.items() for record in log[n] if start <= record.offset < stop]
    sent = list(due(ledger, rule, rest))
    assert {n: records[done[n] :] for n, records in wanted.items()} == {n: [r for r in sent if r.partition == n] for n in wanted}
    for record in sent:
        ledger.take(found(replayed(record, plan, "x", NOW), 200))
    assert ({}, {}, plan.requests) == (ledger.left(), ledger.ranges(), ledger.requests)


@pytest.mark.parametrize(("records", "how"), [((0, 1), "1 fewer"), ((0, 1, 2, 3), "more")])
def test_a_set_that_changed_is_refused(records: tuple[int, ...], how: str) -> None:
    """Fewer or more requests than planned are a refusal, which is exit code 5."""
    ledger = Ledger(plan_of(Part(0, 0, 9, 3, 9)))
    with pytest.raises(RefusedError, match=f"changed since the plan: partition 0 has {how}"):
        list(due(ledger, selection(), map(original, records)))


@pytest.mark.parametrize("places", [(0, 0), (1, 0), (0, 1, 2), ("x",)])
def test_a_log_that_holds_something_else_is_refused(places: tuple[int | str, ...]) -> None:
    """The same one twice, another order, more than planned, a place that is none: somebody else wrote under this replay's id."""
    ledger = Ledger(plan_of(Part(0, 0, 9, 2, 9)))
    for place in places:
        ledger.take(original(9, headers=((REPLAY_ID, REPLAY.encode()), ("dispatcher-replayed-from", f"requests/0/{place}".encode()))))
    with pytest.raises(RefusedError, match="other requests of this replay"):
        ledger.ranges()
