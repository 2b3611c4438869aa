"""Pauses that waste nothing: a full partition is paused once what was fetched ahead of it has been taken."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dispatcher.adapters.kafka.source import Batch
from dispatcher.core.messages.record import Record
from dispatcher.worker.brakes import HOLD_S, OVERSHOOT_MAX_BYTES, TAKEN_S, Brakes

MIDDLE, LAST = False, True
NOW = 100.0


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
    brakes.pause(1, NOW)
    brakes.took(batch(0, 1, is_all=MIDDLE))
    brakes.took(batch(1, 1, is_all=MIDDLE))
    assert [] == client.told
    brakes.took(batch(0, is_all=LAST))
    assert [("pause", 1)] == client.told


def test_what_is_under_way_comes_in_before_all_is_taken() -> None:
    """For a moment nothing is taken, counted from the first that is full; nothing is waited for where none is."""
    brakes = Brakes(Client())
    assert 0 == brakes.wait_s(NOW)
    brakes.pause(1, NOW)
    brakes.pause(2, NOW + HOLD_S / 2)
    assert 0 < brakes.wait_s(NOW + HOLD_S / 2) < HOLD_S
    assert brakes.wait_s(NOW + HOLD_S) <= 0
    brakes.took(Batch())
    assert 0 == brakes.wait_s(NOW)


def test_there_is_no_poll_while_the_engine_is_at_what_it_got() -> None:
    """A busy event loop finds one poll's records in its memory; after a second there is a poll all the same, for a rebalance's sake."""
    brakes = Brakes(Client())
    brakes.handed(NOW)
    brakes.handed(NOW)
    brakes.taken()
    assert brakes.wait_s(NOW) > 0
    assert brakes.wait_s(NOW + TAKEN_S) <= 0
    brakes.taken()
    assert brakes.wait_s(NOW) <= 0


def test_a_partition_that_was_full_before_the_engine_had_it_goes_on_only_if_the_engine_finds_room() -> None:
    """To resume it, and pause it as soon as the engine has counted, would fetch for nothing."""
    client = Client()
    brakes = Brakes(client)
    for n in (1, 2):
        brakes.pause(n, NOW)
    brakes.took(Batch())
    for n in (1, 2):
        brakes.introduce(n)
        brakes.handed(NOW)
    brakes.taken()
    brakes.pause(1, NOW)
    brakes.taken()
    assert [("pause", 1), ("pause", 2), ("resume", 2)] == client.told


def test_a_poll_that_brings_nothing_has_taken_all() -> None:
    """The pause is not put off until there is traffic."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1, NOW)
    brakes.took(Batch())
    assert [("pause", 1)] == client.told


def test_memory_counts_for_more_than_what_is_fetched_twice() -> None:
    """Where polls never take all that is there, a partition takes a bounded number of bytes beyond its room, and no other is paused."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1, NOW)
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
    brakes.pause(1, NOW)
    brakes.resume(1)
    brakes.took(Batch())
    assert [] == client.told
    brakes.pause(1, NOW)
    brakes.took(Batch())
    brakes.resume(1)
    assert [("pause", 1), ("resume", 1)] == client.told


def test_a_partition_that_went_is_not_paused_late() -> None:
    """The next assignment begins without a pause that nobody knows of."""
    client = Client()
    brakes = Brakes(client)
    brakes.pause(1, NOW)
    brakes.pause(2, NOW)
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
                brakes.pause(n, NOW)
                wanted.add(n)
            case ("resume", int(n)):
                brakes.resume(n)
                wanted.discard(n)
            case _:
                brakes.took(batch(0, 1, 2, is_all=step is True))
                assert step is not True or wanted == client.paused
    brakes.took(Batch())
    assert wanted == client.paused
