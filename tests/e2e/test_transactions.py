"""Transactions: others' do not hold us up, and ours outlive stale metadata. Crashes inside them: `test_crashes.py`."""

from __future__ import annotations

import base64
import signal
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer, TopicPartition

from dispatcher.adapters.kafka import clients
from tests.e2e.stage import Stage, assert_all_is_well, header, ids, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually


def test_others_transactions_between_requests_do_not_hold_us_up(settings: SettingsFactory, tmp_path: Path) -> None:
    """Aborted records and markers in the request topic are passed over; one that stays open holds back only what stands behind it.

    At the end committed == end behind trailing markers, so that lag reads 0.
    """
    with stage(settings, tmp_path, partitions=1) as set_up:
        replies = set_up.replies()
        set_up.worker().ready()
        names = []
        for round_ in range(3):
            names += set_up.submit(["doc:1"] * 5, prefix=f"before{round_}")
            other = _foreign(set_up, f"other-{round_}")
            other.begin_transaction()
            other.produce(set_up.settings.topics.requests, b"{}", b"doc:1", 0)
            other.flush(10)
            names += set_up.submit(["doc:1"] * 5, prefix=f"behind{round_}")
            replies.await_count(len(names) - 5)
            assert not [name for name in ids(replies.read()) if name.startswith(f"behind{round_}")]
            other.abort_transaction(10)
            replies.await_count(len(names))
        assert names == [header(record, "ce_causationid") for record in replies.records]
        eventually(lambda: len({tuple(part.items()) for part in set_up.positions()}) == 1, 15, "committed == end")


def _foreign(set_up: Stage, name: str) -> Producer:
    producer = clients.producer(set_up.settings, transactional_id=f"{set_up.settings.topics.prefix}-{name}")
    producer.init_transactions(10)
    return producer


@pytest.mark.parametrize("text", [pytest.param("hello", marks=pytest.mark.soak), "large"])
def test_foreign_commit_metadata_is_ignored_and_named(settings: SettingsFactory, tmp_path: Path, text: str) -> None:
    """Another tool's words beside a committed position are nobody's epoch: logged, and the position counts."""
    words = text if text == "hello" else base64.b64encode(Random(7).randbytes(3069)).decode()
    with stage(settings, tmp_path, partitions=1) as set_up:
        names = set_up.submit(["doc:1"] * 3)
        consumer = clients.consumer(set_up.settings, group=set_up.settings.worker.group)
        consumer.commit(offsets=[TopicPartition(set_up.settings.topics.requests, 0, 1, metadata=words)], asynchronous=False)
        consumer.close()
        worker = set_up.worker()
        records = set_up.replies().await_count(2)
        assert names[1:] == [header(record, "ce_causationid") for record in records]
        assert worker.events("commit_metadata_ignored")
        assert set_up.calls()[0]["epoch"] > 1_700_000_000


@pytest.mark.parametrize(
    ("protocol", "publishing"),
    [
        ("consumer", "exactly_once"),
        # Commits in a rebalance are also in simulated worlds, in each protocol, and at the orderly end of `test_at_least_once.py`.
        pytest.param("cooperative", "at_least_once", marks=pytest.mark.soak),
        pytest.param("cooperative", "exactly_once", marks=pytest.mark.soak),
    ],
)
def test_a_join_while_publishing_loses_nothing(settings: SettingsFactory, tmp_path: Path, protocol: str, publishing: str) -> None:
    """Members come and go in the middle of transactions and commits: no reply is lost or doubled, no call repeated, nothing taken away.

    Exactly once their metadata of the group becomes stale by it; at least once commits fall into a rebalance.
    """
    worker = {"commit_interval_ms": 0, "protocol": protocol, "publishing": publishing}
    with stage(settings, tmp_path, latency_ms=5, partitions=4, worker=worker) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n % 40}" for n in range(3000)])
        host = set_up.worker()
        replies.await_count(50)
        for _ in range(2):
            guest = set_up.worker().ready()
            guest.signal(signal.SIGTERM)
            assert 0 == guest.wait()
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records)
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"]
        assert [] == host.events("lost")
