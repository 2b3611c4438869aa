"""Pauses that waste nothing: a full partition is paused once what was fetched ahead of it has been taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.adapters.kafka.source import Batch
from dispatcher.core.record import Record
from dispatcher.worker.brakes import OVERSHOOT_MAX_BYTES, Brakes

MIDDLE, LAST = False, True


class Client:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []
        self.paused: set[int] = set()

    def pause(self, partition: int) -> None:
        self.told.append(("pause", partition))
        self.paused.add(partition)

    def resume(self, partition: int) -> None:
        self.told.append(("resume", partition))
        self.paused.discard(partition)


def batch(*partitions: int, is_all: bool, size: int = 100) -> Batch:
    """Make a batch of one record of each of these."""
    return Batch([Record("requests", n, 0, b"doc:1", bytes(size)) for n in partitions], is_all=is_all)


def test_what_was_fetched_ahead_is_taken_before_the_pause() -> None:
    """As long as a poll comes back full, a pause would throw away what the next one brings."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1)
    brakes.took(batch(0, 1, is_all=MIDDLE))
    brakes.took(batch(1, 1, is_all=MIDDLE))
    assert [] == client.told
    brakes.took(batch(0, is_all=LAST))
    assert [("pause", 1)] == client.told


def test_a_poll_that_brings_nothing_has_taken_all() -> None:
    """The pause is not put off until there is traffic."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1)
    brakes.took(Batch())
    assert [("pause", 1)] == client.told


def test_memory_counts_for_more_than_what_is_fetched_twice() -> None:
    """Where polls never take all that is there, a partition takes a bounded number of bytes beyond its room, and no other is paused."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1)
    taken = 0
    while not client.told:
        brakes.took(batch(0, 1, is_all=MIDDLE, size=100_000))
        taken += 100_000
    assert [("pause", 1)] == client.told
    assert OVERSHOOT_MAX_BYTES * 0.9 < taken < OVERSHOOT_MAX_BYTES + 100_000


def test_a_pause_that_had_not_come_to_be_is_taken_back_without_a_word() -> None:
    """To resume what was never paused would throw away what is fetched ahead just so."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1)
    brakes.resume(1)
    brakes.took(Batch())
    assert [] == client.told
    brakes.pause(1)
    brakes.took(Batch())
    brakes.resume(1)
    assert [("pause", 1), ("resume", 1)] == client.told


def test_a_partition_that_went_is_not_paused_late() -> None:
    """The next assignment begins without a pause that nobody knows of."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1)
    brakes.pause(2)
    brakes.forget([1])
    brakes.took(Batch())
    assert [("pause", 2)] == client.told


@given(st.lists(st.one_of(st.tuples(st.sampled_from(["pause", "resume"]), st.integers(0, 2)), st.booleans()), max_size=60))
def test_the_last_word_counts(steps: list[tuple[str, int] | bool]) -> None:
    """Whatever is wanted in whatever order, after a poll that took all each partition is as it was wanted last."""
    client = Client()
    brakes = Brakes(client)
    wanted: set[int] = set()
    for step in steps:
        match step:
            case ("pause", int(n)):
                brakes.pause(n)
                wanted.add(n)
            case ("resume", int(n)):
                brakes.resume(n)
                wanted.discard(n)
            case _:
                brakes.took(batch(0, 1, 2, is_all=step is True))
                assert step is not True or wanted == client.paused
    brakes.took(Batch())
    assert wanted == client.paused
