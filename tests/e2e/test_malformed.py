"""Malformed input never blocks a lane and never disappears: every kind of it, on a real broker, in both publishing modes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest

from dispatcher.adapters.kafka import clients
from dispatcher.core.messages.record import Header, Record
from dispatcher.settings import Settings
from tests.e2e import raw_produce
from tests.e2e.kinds import CORRELATION, GOOD, KINDS, Kind, key_on
from tests.e2e.operator import made_topic
from tests.e2e.stage import Stage, header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

MODES = ["exactly_once", "at_least_once"]
PARTITIONS = len(KINDS)  # one for each kind to be the first in
INTERLEAVED = 3  # the partition in which all kinds stand one after another
FINE = Kind("good", None, GOOD)
ERRORS = "__dispatcher.errors."
NAMES = {"topic", "partition", "offset", "timestamp", "group", "delivery.count", "stage", "exception.class.name", "message", "reason"}
NAMES |= {"http.status", "upstream"}
ERRORS_MAX_BYTES = 4096
CORRELATIONS = {"kafka_correlationId", "correlation_id"}
Position = tuple[int, int]


@dataclass(frozen=True)
class Sent:
    """A record that stands in the request topic. `headers` None: the client cannot read them."""

    kind: Kind
    key: bytes | None
    headers: tuple[Header, ...] | None


class Writer:
    """Writes kinds to explicit partitions, and knows afterwards where each stands."""

    def __init__(self, settings: Settings) -> None:
        self.sent: dict[Position, Sent] = {}
        self._settings = settings
        self._producer = clients.producer(settings)

    def write(self, kind: Kind, partition: int) -> None:
        """Write one record, and wait for its acknowledgement: the next one must stand behind it."""
        topics = self._settings.topics
        key = kind.key_for(partition, topics.partitions)
        if kind.raw is not None:
            offset = raw_produce.produce(self._settings.kafka.bootstrap_servers, topics.requests, partition, key, kind.value, kind.raw)
            self.sent[partition, offset] = Sent(kind, key, None if kind.raw else ())
            return
        headers = kind.all_headers()

        def note(error: object, message: Any) -> None:
            assert error is None, error
            self.sent[partition, message.offset()] = Sent(kind, key, headers)

        self._producer.produce(topics.requests, kind.value, key, partition, note, headers=list(headers))

    def flush(self) -> None:
        assert self._producer.flush(30) == 0


@pytest.mark.parametrize("publishing", MODES)
def test_every_kind_ends_as_promised_and_the_next_request_runs(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """Each kind first in a partition of its own, and all kinds one after another in one partition, a good request behind each.

    Every record has exactly one reply, of the right status and reason, with its key, partition number and correlation id; what is
    refused stands in the dlq byte for byte; every good request was executed once; everything is committed.
    """
    given = {"partitions": PARTITIONS, "worker": {"publishing": publishing}, "upstream": {"credentials": ["team-a"]}}
    with stage(settings, tmp_path, **given, credentials={"team-a": {"value": "Bearer never-used"}}) as set_up:
        replies, letters = set_up.replies(), set_up.replies(set_up.settings.topics.dead_letters)
        writer = Writer(set_up.settings)
        for number, kind in enumerate(KINDS):
            for partition in (number, INTERLEAVED):
                for each in (kind, FINE):
                    writer.write(each, partition)
                    writer.flush()
        sent = writer.sent
        assert len(sent) == 4 * len(KINDS)
        worker = set_up.worker()

        replies.await_count(len(sent))
        _await_committed(set_up)
        executed = sum(each.kind.reason is None for each in sent.values())
        letters.await_count(len(sent) - executed)
        _judge_replies(sent, replies.read())
        _judge_letters(sent, letters.read(), set_up.settings)
        assert set_up.witness()["calls"] == executed
        assert not worker.events("bug") + worker.events("observer_failed")
        page = worker.get("/metrics").text
        counted = Counter(each.kind.reason for each in sent.values())
        assert {reason: _metric(page, f'dead_letters_total{{reason="{reason}"}}') for reason in counted if reason} == {
            reason: count for reason, count in counted.items() if reason
        }


@pytest.mark.parametrize("publishing", ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.soak)])
def test_a_reply_goes_where_spring_asks_for_it(settings: SettingsFactory, tmp_path: Path, prefix: str, publishing: str) -> None:
    """A listed reply topic with another partition count gets the reply on the partition asked for, correlation id untouched.

    Without a partition the request's own number is taken, as far as the topic has it; and `on_wrong_partition = "warn"` executes what
    stands on a wrong partition and counts it.
    """
    theirs = f"{prefix}-spring"
    worker_settings = {"publishing": publishing, "on_wrong_partition": "warn"}
    with (
        made_topic(settings, theirs, partitions=5),
        stage(settings, tmp_path, topics={"reply_topics": [theirs]}, worker=worker_settings, partitions=7) as set_up,
    ):
        replies, spring = set_up.replies(), set_up.replies(theirs)
        writer = Writer(set_up.settings)
        topic = ("kafka_replyTopic", theirs.encode())
        asked = Kind("spring", None, GOOD, (topic, ("kafka_replyPartition", (4).to_bytes(4, "big"))))
        refused = Kind("spring, refused", "malformed", b"{", (topic, ("kafka_replyPartition", (3).to_bytes(4, "big"))))
        writer.write(asked, 0)
        writer.write(refused, 1)
        writer.write(Kind("no partition", None, GOOD, (("reply_to", theirs.encode()),)), 6)
        writer.write(Kind("misplaced", None, GOOD, key="elsewhere"), 2)
        writer.flush()
        worker = set_up.worker()
        spring.await_count(3)
        replies.await_count(1)
        _await_committed(set_up)
        found = {int(header(record, "dispatcher-request-partition")): record for record in spring.read()}
        assert {n: record.partition for n, record in found.items()} == {0: 4, 1: 3, 6: 6 % 5}
        assert {n: header(record, "dispatcher-status") for n, record in found.items()} == {0: "ok", 1: "dead", 6: "ok"}
        assert all(("kafka_correlationId", CORRELATION) in (record.headers or ()) for record in found.values())
        assert {n: record.key for n, record in found.items()} == {n: key_on(n, 7) for n in (0, 1, 6)}
        (misplaced,) = replies.read()
        assert (misplaced.partition, misplaced.key, header(misplaced, "dispatcher-status")) == (2, key_on(3, 7), "ok")
        assert _metric(worker.get("/metrics").text, "wrong_partition_total") == 1


def _await_committed(set_up: Stage) -> None:
    eventually(lambda: (found := set_up.positions())[0] == found[1], 30, "committed == end")


def _judge_replies(sent: dict[Position, Sent], replies: list[Record]) -> None:
    """One reply per record, and it says what the record's kind promises."""
    found = Counter((record.partition, int(header(record, "dispatcher-request-offset"))) for record in replies)
    assert found == dict.fromkeys(sent, 1)
    for record in replies:
        each = sent[record.partition, int(header(record, "dispatcher-request-offset"))]
        kind, value = each.kind, orjson.loads(record.value or b"")
        status = "ok" if kind.reason is None else "dead"
        assert (status, kind.reason) == (value["status"], value.get("reason")), f"{kind.name}: {value}"
        assert header(record, "dispatcher-status") == status, kind.name
        assert record.key == each.key, kind.name
        assert tuple(pair for pair in record.headers or () if pair[0] in CORRELATIONS) == kind.echoed, kind.name
        if kind.causation is not None:
            assert header(record, "ce_causationid") == kind.causation, kind.name
        if kind.reason is None:
            assert value["http"] == {"status": 200, "headers": {"content-type": "application/json"}, "body": {"n": 1}}
        else:
            assert value["error"]["kind"] == kind.reason
            assert value["attempts"] == 0


def _judge_letters(sent: dict[Position, Sent], letters: list[Record], settings: Settings) -> None:
    """One dead letter per refused record: the record itself, and a bounded set of errors behind it."""
    refused = {position for position, each in sent.items() if each.kind.reason is not None}
    assert Counter((int(header(r, ERRORS + "partition")), int(header(r, ERRORS + "offset"))) for r in letters) == dict.fromkeys(refused, 1)
    for letter in letters:
        each = sent[letter.partition, int(header(letter, ERRORS + "offset"))]
        name = each.kind.name
        assert letter.headers is not None
        original = ((ERRORS + "headers", b"unreadable"),) if each.headers is None else each.headers
        assert (each.key, each.kind.value, original) == (letter.key, letter.value, letter.headers[: len(original)]), name
        errors = letter.headers[len(original) :]
        assert {n.removeprefix(ERRORS) for n, _ in errors} <= {*NAMES, "kafka_dlt-original-topic"}, name
        assert len({n for n, _ in errors}) == len(errors), name
        assert sum(len(n) + len(content or b"") for n, content in errors) < ERRORS_MAX_BYTES, name
        shown = {n: header(letter, ERRORS + n) for n in ("topic", "partition", "group", "stage", "reason")}
        assert shown == {
            "topic": settings.topics.requests,
            "partition": str(letter.partition),
            "group": settings.worker.group,
            "stage": "decode",
            "reason": each.kind.reason,
        }


def _metric(page: str, name: str) -> float:
    return next(float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(f"dispatcher_{name}"))
