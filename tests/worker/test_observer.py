"""What metrics say of a partition that does not get on."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from decimal import Decimal

import pytest

from dispatcher.adapters import logs
from dispatcher.adapters.metrics import Metrics
from dispatcher.core.callees.billing import OTHER, Bill
from dispatcher.core.internal.control import PAUSED
from dispatcher.core.internal.parked import Entry
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.room import Room
from dispatcher.core.messages.usage import Tokens, Usage
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.observer import WorkerObserver
from tests.core.lanes.test_lane import finish
from tests.specimens import MONO, OWNER, decoder, now, record, settings, settled

ROOM = Room(records=100, size_bytes=1 << 20, unpublished_s=10.0)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_an_outcome_that_cannot_be_published_is_as_late_as_a_call_that_does_not_end(ordering: str) -> None:
    """Kafka is away, or a topic is missing, and nothing else comes: the age grows all the same, from the end of the call on."""
    metrics = Metrics(ordering, "exactly_once")
    observer = WorkerObserver(metrics, SystemClock())
    partition = Partition(OWNER, 5, decoder(settings(worker={"ordering": ordering})), ROOM)

    def age(later_s: float) -> float | None:
        observer.measured(partition, 6, MONO + later_s)
        return metrics.registry.get_sample_value("dispatcher_lane_oldest_age_seconds", {"partition": "0"})

    assert 0 == age(0)
    (lane,) = partition.accept([record(offset=5)], MONO)
    assert 4 == age(4)
    planned = settled(partition, finish(lane), MONO + 5)
    assert 60 == age(65)
    partition.acknowledge(planned)
    assert 0 == age(66)


def test_that_no_more_can_be_parked_is_told_when_it_begins_and_when_it_ends() -> None:
    """Once each, and by the state of the partition meanwhile; the next assignment begins anew."""
    lines = io.StringIO()
    logs.configure(Settings(), {}, stream=lines)
    metrics = Metrics("key", "exactly_once")
    observer = WorkerObserver(metrics, SystemClock())
    room = replace(ROOM, records=4, parked=1)

    def assigned() -> Partition:
        held = Partition(OWNER, 50, decoder(settings(worker={"ordering": "key"})), room, (), lambda _: PAUSED)
        held.restore([Entry(7, b"old", 3, 100, 0.0, "queued")], now())
        return held

    def told(partition: Partition) -> tuple[float | None, list[str]]:
        observer.measured(partition, 60, MONO)
        observer.measured(partition, 60, MONO)
        told = [json.loads(line)["event"] for line in lines.getvalue().splitlines()]
        lines.seek(0)
        lines.truncate()
        return metrics.registry.get_sample_value("dispatcher_lane_state", {"partition": "0"}), told

    held = assigned()
    assert (2, []) == told(held)
    held.accept([record(key=b"a", offset=50), record(key=b"b", offset=51), record(key=b"c", offset=52)], MONO)
    assert (4, ["parked_limit"]) == told(held)
    held.parked = 0
    assert (2, ["parked_limit_eased"]) == told(held)
    held.parked = 1
    assert (4, ["parked_limit"]) == told(held)
    observer.gone(OWNER)
    assert (2, []) == told(assigned())
    logs.configure(Settings())


def test_tokens_and_money_are_counted_by_models_that_are_configured() -> None:
    """Each token once; what it cost where that is known, else that it is not; what was saved. No name that a callee made up."""
    metrics = Metrics("key", "exactly_once")
    observer = WorkerObserver(metrics, SystemClock())
    used = Usage(Tokens(1000, 100, cache_read=800, reasoning=60), "m-2026-01-01", Decimal("0.0025"), Decimal("0.5"))
    observer.billed("openai", Bill(used, "m"))
    observer.billed("openai", Bill(replace(used, savings=Decimal(-3)), "m"))
    observer.billed("openai", Bill(Usage(Tokens(7, 1), "made-up"), OTHER))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"dispatcher_{name}", {"upstream": "openai", **labels})

    kinds = {kind: value("tokens_total", model="m", kind=kind) for kind in ("input", "cache_read", "cache_write", "output")}
    assert {"input": 400, "cache_read": 1600, "cache_write": 0, "output": 200} == kinds
    assert (0.005, 0.5) == (value("cost_usd_total", model="m"), value("cost_savings_usd_total", model="m"))
    assert (None, 1) == (value("price_unknown_total", model="m"), value("price_unknown_total", model="other"))
    assert (None, 7) == (value("cost_usd_total", model="other"), value("tokens_total", model="other", kind="input"))
    assert "made-up" not in metrics.page().decode()


def test_what_of_a_limit_is_ours_is_shown() -> None:
    """By the limit's name, and what is counted."""
    metrics = Metrics("key", "exactly_once")
    WorkerObserver(metrics, SystemClock()).lent("team", "requests", 17)
    assert b'dispatcher_limit_share{limit="team",quantity="requests"} 17.0' in metrics.page()
