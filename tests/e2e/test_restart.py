"""The broker goes away while requests flow, and comes back."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from dispatcher.adapters.local_broker import LocalBroker
from tests.e2e import keyed
from tests.e2e.history import assert_guarantees
from tests.e2e.keyed import Operator
from tests.e2e.stage import Stage, Worker, assert_all_is_well, is_stopped, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

pytestmark = [pytest.mark.faults, pytest.mark.long]


def _between_transactions(set_up: Stage) -> Worker:
    """Give a worker whose transaction has just ended; the next one begins an interval later."""
    running = set_up.worker(commit_interval_ms=3000).ready()
    replies = set_up.replies()
    seen = len(replies.await_count(1))
    replies.await_count(seen + 1)
    return running


def _inside_a_transaction(set_up: Stage) -> Worker:
    """Give a worker that stands still between the offsets of its transaction and the commit."""
    frozen = set_up.worker(fault=("freeze_after_offsets", 8), transaction_timeout_s=60)
    eventually(lambda: is_stopped(frozen), what="the worker froze inside a transaction")
    return frozen


# Not while the broker itself is about to end a transaction: started again, it has no leaders for a moment, takes such partitions for
# deleted and forgets their markers, so that everybody's replies stay hidden for good (Kafka 4.4, a lone broker; the same where the timeout
# of a transaction passes in that moment, hence the 60 s). No client can mend it.
@pytest.mark.parametrize(
    ("moment", "grace_s"),
    [
        pytest.param(_between_transactions, 0, id="crash-between-transactions", marks=pytest.mark.soak),
        pytest.param(_inside_a_transaction, 0, id="crash-inside-a-transaction"),
        pytest.param(_between_transactions, 20, id="clean", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("ordering", ["partition", pytest.param("key", marks=pytest.mark.soak)])
def test_a_worker_outlives_its_broker(
    own_broker: LocalBroker, tmp_path: Path, prefix: str, moment: Callable[[Stage], Worker], grace_s: float, ordering: str
) -> None:
    """Stopped or killed in the middle and started again: the worker goes on by itself and was alive all the time.

    Every request has one reply, in order. No call is made again because its transaction failed.
    """
    settings = SettingsFactory(str(own_broker.status().bootstrap), prefix)
    latency_ms, worker = (100, keyed.WORKER) if ordering == "key" else (10, {})
    with stage(settings, tmp_path, latency_ms=latency_ms, partitions=4, worker=worker) as set_up:
        operator = Operator(set_up)
        names = operator.hold() + set_up.submit([f"doc:{n % 40}" for n in range(1500)])
        running = moment(set_up)
        own_broker.down(grace_s)
        running.signal(signal.SIGCONT)
        assert httpx.codes.OK == running.get("/livez").status_code
        own_broker.up()
        replies = set_up.replies()
        operator.let_go()
        eventually(lambda: operator.look() and len(replies.read()) >= len(names), 120, "all replies")
        operator.assert_done(replies.records)
        assert httpx.codes.OK == running.get("/livez").status_code
        assert_all_is_well(set_up, names, replies.read())
        assert_guarantees(set_up, running)
        assert 0 == set_up.witness()["repeated"]["same_epoch"]
        assert running.popen.poll() is None
