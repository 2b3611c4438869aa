"""What metrics say of a partition that does not get on."""

from __future__ import annotations

import pytest

from dispatcher.adapters.metrics import Metrics
from dispatcher.core.partition import Partition
from dispatcher.core.room import Room
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.observer import WorkerObserver
from tests.core.test_lane import finish
from tests.specimens import MONO, OWNER, decoder, record, settings, settled

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
