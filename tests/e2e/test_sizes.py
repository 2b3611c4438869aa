"""What is too large, and topics that are smaller than expected: each record still ends, alone, as it must."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Producer

from dispatcher.core.messages.record import Record
from dispatcher.settings import MIB, Settings
from tests.e2e import operator
from tests.e2e.kinds import body, key_on
from tests.e2e.stage import Stage, header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

MODES = ["exactly_once", pytest.param("at_least_once", marks=pytest.mark.soak)]
ERRORS = "__dispatcher.errors."
KEPT = 64 * 1024
KIB = 1024


class Sender:
    """Sends values to partitions of the request topic under fitting keys; what is large travels in a compressed batch."""

    def __init__(self, settings: Settings) -> None:
        self._topics = settings.topics
        given: dict[str, Any] = {"bootstrap.servers": settings.kafka.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(
            given | {"compression.type": "zstd", "message.max.bytes": 100 * MIB, "queue.buffering.max.kbytes": 200 * KIB}
        )

    def send(self, partition: int, *values: bytes, **headers: bytes) -> None:
        """Send values, in this order, and wait for their acknowledgement."""
        key = key_on(partition, self._topics.partitions)
        failed: list[object] = []

        def note(error: object, _: object) -> None:
            failed.extend(() if error is None else (error,))

        for value in values:
            pairs: list[tuple[str, str | bytes | None]] = list(headers.items())
            self._producer.produce(self._topics.requests, value, key, partition, note, headers=pairs)
        assert self._producer.flush(60) == 0
        assert not failed


def numbered(number: int, fill: int = 1000, **fields: Any) -> bytes:
    """Write a good request of about `fill` bytes that is echoed."""
    return body(body={"n": number, "fill": "x" * fill}, **fields)


def by_offset(records: list[Record], name: str = "dispatcher-request-offset") -> dict[tuple[int, int], Record]:
    """Index replies or dead letters by partition and offset of their request; each may stand there once."""
    found = [(record.partition, int(header(record, name))) for record in records]
    assert max(Counter(found).values(), default=1) == 1, f"more than one: {Counter(found).most_common(3)}"
    return dict(zip(found, records, strict=True))


def letters_by_offset(records: list[Record]) -> dict[tuple[int, int], Record]:
    """Index dead letters."""
    return by_offset(records, ERRORS + "offset")


def value(record: Record) -> dict[str, Any]:
    """Parse a reply."""
    parsed: dict[str, Any] = orjson.loads(record.value or b"")
    return parsed


def ending(record: Record) -> tuple[str, str | None]:
    """Give status and reason of a reply."""
    return value(record)["status"], value(record).get("reason")


def reason(letter: Record) -> str:
    """Give the reason of a dead letter."""
    return header(letter, ERRORS + "reason")


def assert_committed(set_up: Stage) -> None:
    """Everything is committed, or will be in a moment."""
    eventually(lambda: (found := set_up.positions())[0] == found[1], 30, "committed == end")


def assert_hashed(letter: Record, original: bytes) -> None:
    """The letter holds the hash, the size and the beginning of what no topic takes."""
    assert reason(letter) == "too_large"
    assert header(letter, ERRORS + "value.sha256") == hashlib.sha256(original).hexdigest()
    assert header(letter, ERRORS + "value.bytes") == str(len(original))
    assert original.startswith(letter.value or b"")


@pytest.mark.parametrize("publishing", MODES)
def test_what_is_too_large_is_answered_once_and_the_next_request_runs(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """5 MB of zeros in a compressed batch become a whole dead letter, 20 MB their hash and first 64 KiB.

    An answer over the limit of answers, or of the reply topic, is `reply_too_large` with its first 64 KiB and is not asked for again.
    """
    options: Mapping[str, Any] = {
        "partitions": 4,
        "topics": {"reply_max_bytes": 256 * KIB},
        "upstream": {"response_max_bytes": 512 * KIB},
        "worker": {"publishing": publishing},
    }
    large, huge = bytes(5_000_000), bytes(20_000_000)
    over_reply, over_answer = numbered(1, 300 * KIB), numbered(2, 600 * KIB)
    with stage(settings, tmp_path, **options) as set_up:
        sender = Sender(set_up.settings)
        for partition, first in enumerate((large, huge, over_reply, over_answer)):
            sender.send(partition, first, numbered(10), first, numbered(11), kafka_correlationId=b"\xff")
        set_up.worker()
        replies = by_offset(set_up.replies().await_count(16))
        letters = letters_by_offset(set_up.replies(set_up.settings.topics.dead_letters).await_count(4))
        assert_committed(set_up)

        assert all(("kafka_correlationId", b"\xff") in (record.headers or ()) for record in replies.values())
        assert all(record.key == key_on(record.partition, 4) for record in (*replies.values(), *letters.values()))
        assert {ending(replies[n, offset]) for n in range(4) for offset in (1, 3)} == {("ok", None)}
        assert {ending(replies[n, offset]) for n in (0, 1) for offset in (0, 2)} == {("dead", "too_large")}
        assert {ending(replies[n, offset]) for n in (2, 3) for offset in (0, 2)} == {("error", "reply_too_large")}
        assert set(letters) == {(n, offset) for n in (0, 1) for offset in (0, 2)}
        assert all(letters[0, offset].value == large and reason(letters[0, offset]) == "too_large" for offset in (0, 2))
        for offset in (0, 2):
            assert_hashed(letters[1, offset], huge)
            assert letters[1, offset].value == huge[:KEPT]
        for partition, sent in ((2, over_reply), (3, over_answer)):
            reply = value(replies[partition, 0])
            echoed = orjson.dumps(orjson.loads(sent)["body"])
            assert (reply["http"]["status"], reply["attempts"]) == (200, 1)
            assert base64.b64decode(reply["http"]["body_base64"]) == echoed[:KEPT]
        assert set_up.witness()["calls"] == 4 * 2 + 2 * 2


@pytest.mark.parametrize("publishing", MODES)
@pytest.mark.parametrize("lowered", [pytest.param("before the start", marks=pytest.mark.soak), "while running"])
def test_topics_that_take_less_than_the_settings_say(settings: SettingsFactory, tmp_path: Path, publishing: str, lowered: str) -> None:
    """Limits far below the settings cut what is over them, and nothing else: many small records at once all stay whole.

    Both for topics that were so from the start and for those that an operator changed under a running worker.
    """
    limit, many = 20_000, 150
    with stage(settings, tmp_path, partitions=2, worker={"publishing": publishing, "commit_interval_ms": 500}) as set_up:
        topics, sender = set_up.settings.topics, Sender(set_up.settings)
        if lowered == "while running":
            set_up.worker().ready()
            sender.send(0, numbered(0))
            set_up.replies().await_count(1)
        for name in (topics.replies, topics.dead_letters):
            operator.limit(set_up.settings, name, limit)
        bad = b"{" + b"x" * 1000
        large_bad, large_good = b"{" + b"y" * 100_000, numbered(1, 100_000)
        sender.send(1, *[bad] * many, large_bad, *[bad] * many)
        sender.send(0, *[numbered(2)] * many, large_good, *[numbered(3)] * many)
        if lowered == "before the start":
            set_up.worker()
        before = int(lowered == "while running")
        replies = by_offset(set_up.replies().await_count(2 * (2 * many + 1) + before))
        letters = letters_by_offset(set_up.replies(topics.dead_letters).await_count(2 * many + 1))
        assert_committed(set_up)

        assert Counter(ending(record) for record in replies.values()) == {
            ("ok", None): 2 * many + before,
            ("error", "reply_too_large"): 1,
            ("dead", "malformed"): 2 * many + 1,
        }
        assert Counter(reason(letter) for letter in letters.values()) == {"malformed": 2 * many, "too_large": 1}
        assert all(letter.value == bad for letter in letters.values() if reason(letter) == "malformed")
        assert_hashed(letters[1, many], large_bad)
        assert set_up.witness()["calls"] == 2 * many + 1 + before


@pytest.mark.parametrize("publishing", MODES)
def test_what_the_producer_refuses_is_not_committed_without_it(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """A topic that takes more than our producer sends: the letter is cut as if the topic took less, and is never left out."""
    huge = bytes(20_000_000)
    with stage(settings, tmp_path, partitions=1, worker={"publishing": publishing}) as set_up:
        letters = set_up.settings.topics.dead_letters
        operator.limit(set_up.settings, letters, 50 * MIB)
        Sender(set_up.settings).send(0, huge, numbered(1))
        set_up.worker()
        replies = by_offset(set_up.replies().await_count(2))
        assert_committed(set_up)
        assert [ending(replies[0, offset]) for offset in (0, 1)] == [("dead", "too_large"), ("ok", None)]
        (letter,) = set_up.replies(letters).await_count(1)
        assert_hashed(letter, huge)


@pytest.mark.parametrize("publishing", MODES)
def test_without_a_dead_letter_topic_all_stands_and_then_goes_on(settings: SettingsFactory, tmp_path: Path, publishing: str) -> None:
    """The dlq is deleted under a running worker: nothing is committed past the record that needs it, and the worker says so.

    Nor is anything of another partition published, since all goes out in order and in one piece: what is called meanwhile waits. `/readyz`
    says so. Once the topic is there again everything is answered once and in order.
    """
    with stage(settings, tmp_path, partitions=2, worker={"publishing": publishing, "topic_check_s": 1}) as set_up:
        topics, sender = set_up.settings.topics, Sender(set_up.settings)
        sender.send(0, b"{", numbered(0))
        worker, replies = set_up.worker(), set_up.replies()
        replies.await_count(2)
        assert_committed(set_up)
        cluster = operator.connected(set_up.settings)
        operator.delete(cluster, topics.dead_letters)
        sender.send(0, b"{", numbered(1))
        eventually(lambda: worker.events("publish_failed"), 30, "the worker says that it cannot publish")
        sender.send(1, numbered(2))
        eventually(lambda: [call for call in set_up.calls(partition=1) if "end_s" in call], what="the other partition is called")
        failed = len(worker.events("publish_failed"))
        eventually(lambda: len(worker.events("publish_failed")) > failed, what="it was tried again since")
        assert set_up.positions()[0] == {0: 2, 1: 0}
        assert {record.partition for record in replies.read()} == {0}
        assert worker.get("/livez").status_code == 200
        eventually(lambda: worker.get("/readyz").status_code == 503, what="it is not ready")
        assert topics.dead_letters in worker.get("/readyz").text
        operator.create(cluster, topics.dead_letters, topics.partitions)
        found = by_offset(replies.await_count(5))
        assert_committed(set_up)
        assert {position: ending(record)[0] for position, record in found.items()} == {
            (0, 0): "dead",
            (0, 1): "ok",
            (0, 2): "dead",
            (0, 3): "ok",
            (1, 0): "ok",
        }
        assert [int(header(record, "dispatcher-request-offset")) for record in replies.records if record.partition == 0] == [0, 1, 2, 3]
        assert set(letters_by_offset(set_up.replies(topics.dead_letters).await_count(1))) == {(0, 2)}
        assert set_up.witness()["calls"] == 3
        worker.ready()


@pytest.mark.parametrize("publishing", MODES)
def test_a_reply_topic_that_is_gone_costs_only_those_who_asked_for_it(
    settings: SettingsFactory, tmp_path: Path, prefix: str, publishing: str
) -> None:
    """A listed reply topic is deleted after the start: who asks for it is answered on the default topic, with a dead letter.

    The call was made and its answer stands in the reply; everybody else is answered as ever.
    """
    theirs = f"{prefix}-theirs"
    with (
        operator.made_topic(settings, theirs, partitions=1),
        stage(settings, tmp_path, partitions=2, topics={"reply_topics": [theirs]}, worker={"publishing": publishing}) as set_up,
    ):
        topics, sender = set_up.settings.topics, Sender(set_up.settings)
        sender.send(0, numbered(0), kafka_replyTopic=theirs.encode())
        sender.send(0, numbered(1))
        set_up.worker()
        replies = set_up.replies()
        set_up.replies(theirs).await_count(1)
        replies.await_count(1)
        operator.delete(operator.connected(set_up.settings), theirs)
        sender.send(1, numbered(2))
        sender.send(0, numbered(3), b"{", kafka_replyTopic=theirs.encode())
        sender.send(0, numbered(4))
        found = by_offset(replies.await_count(5))
        letters = letters_by_offset(set_up.replies(topics.dead_letters).await_count(2))
        assert_committed(set_up)
        ok, gone = ("ok", None), ("dead", "reply_topic_forbidden")
        assert {position: ending(record) for position, record in found.items()} == {
            (0, 1): ok,
            (1, 0): ok,
            (0, 2): gone,
            (0, 3): gone,
            (0, 4): ok,
        }
        assert value(found[0, 2])["http"]["body"]["n"] == 3
        assert {position: reason(letter) for position, letter in letters.items()} == {(0, 2): gone[1], (0, 3): "malformed"}
        assert letters[0, 2].value == numbered(3)
        assert set_up.witness()["calls"] == 5
