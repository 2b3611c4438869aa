"""Records that are in order and look odd: timestamps of another age, one key from several producers."""

from __future__ import annotations

import math
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from dispatcher.adapters.kafka import clients
from tests.e2e import operator, raw_produce
from tests.e2e.kinds import GOOD, body, key_on
from tests.e2e.stage import Stage, Worker, assert_all_is_well, header, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

# None, the first moment, a day of 1970, now as the others see it, and a day of 2099; milliseconds.
TIMESTAMPS = (-1, 0, 86_400_000, 4_070_908_800_000)
FOREVER = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
AGE_MAX_S = 120.0


def test_timestamps_of_another_age_make_no_negative_time(settings: SettingsFactory, tmp_path: Path) -> None:
    """No timestamp, 1970 and 2099: requests are executed, refused ones keep theirs, and no metric is negative or of that age."""
    with stage(settings, tmp_path, partitions=2) as set_up:
        topics, bootstrap = set_up.settings.topics, set_up.settings.kafka.bootstrap_servers
        operator.configure(set_up.settings, topics.requests, FOREVER)
        slow = body(path="/echo?latency_ms=1500")
        for at in TIMESTAMPS:
            for partition, value in ((0, slow), (1, GOOD), (1, b"{")):
                raw_produce.produce(bootstrap, topics.requests, partition, key_on(partition, 2), value, (), timestamp_ms=at)
        replies, letters = set_up.replies(), set_up.replies(topics.dead_letters)
        worker = set_up.worker()
        letters.await_count(len(TIMESTAMPS))
        _assert_sane(worker)
        replies.await_count(3 * len(TIMESTAMPS))
        _assert_sane(worker)
        assert {"ok", "dead"} == {header(record, "dispatcher-status") for record in replies.records}
        assert all(0 <= int(header(record, "dispatcher-duration-ms")) < AGE_MAX_S * 1000 for record in replies.records)
        told = [header(record, "__dispatcher.errors.timestamp") for record in letters.records]
        assert ["" if at < 0 else str(at) for at in TIMESTAMPS] == told
        assert not worker.events("bug") + worker.events("observer_failed")


def _assert_sane(worker: Worker) -> None:
    """Every number on the page is one, none is negative, and no age is one of decades."""
    for family in text_string_to_metric_families(worker.get("/metrics").text):
        for sample in family.samples:
            assert sample.value >= 0, sample
            assert not math.isnan(sample.value), sample
            if sample.name.endswith(("_age_seconds", "_seconds_sum", "_seconds_total")):
                assert sample.value < AGE_MAX_S, sample


def test_one_key_of_two_producers_is_one_lane(settings: SettingsFactory, tmp_path: Path) -> None:
    """The same bytes are the same key, whoever wrote them: a hundred requests of two producers in turn, called and answered in order.

    All replies of the key stand in one partition, the request's own.
    """
    with stage(settings, tmp_path, partitions=8) as set_up:
        topic = set_up.settings.topics.requests
        producers = [clients.producer(set_up.settings) for _ in range(2)]
        names = [f"r-{n}" for n in range(100)]
        for n, name in enumerate(names):
            producer = producers[n % 2]
            # Each its own bytes object, and no partition said: two clients find the same one.
            producer.produce(topic, GOOD, b"doc:" + str(7).encode(), headers=[("ce_id", name.encode())])
            assert 0 == producer.flush(30)
        set_up.worker()
        records = set_up.replies().await_count(len(names))
        assert_all_is_well(set_up, names, records)
        assert names == [header(record, "ce_causationid") for record in records]
        assert {str(records[0].partition)} == {header(record, "dispatcher-request-partition") for record in records}
        assert 1 == len({record.partition for record in records})
        _await_all_called(set_up, names)


def _await_all_called(set_up: Stage, names: list[str]) -> None:
    assert names == eventually(lambda: [call["id"] for call in set_up.calls()])
