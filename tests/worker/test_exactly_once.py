"""Exactly once: only as a member, and only under a name of one's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError

from dispatcher.adapters.kafka.sink import Failed, Undelivered
from dispatcher.adapters.kafka.source import Committed
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.messages.record import Message
from dispatcher.errors import BrokerError
from dispatcher.settings import Settings
from dispatcher.worker.clock import SystemClock
from dispatcher.worker.destinations import Destinations
from dispatcher.worker.exactly_once import EARLY_FENCES_FOR_S, EARLY_FENCES_MAX, EARLY_FENCES_S, IDLE_MAX_S, ExactlyOnce
from dispatcher.worker.frontier import Frontier
from dispatcher.worker.insistence import RENEWALS_MAX, RENEWALS_S, Insistence
from dispatcher.worker.letters import Snapshot
from dispatcher.worker.ready import Ready
from tests.specimens import alone

OWNER = Owner(0, 1)


class SharedName:
    """A producer whose every second commit is fenced: another worker opened one of the same name meanwhile."""

    undelivered: list[Undelivered]

    def __init__(self) -> None:
        self.undelivered = []
        self.fresh = True
        self.groups: list[object] = []
        self.opened = 0

    def take_places(self) -> dict[bytes, int]:
        return {}

    def open(self) -> None:
        self.fresh = True
        self.opened += 1

    def begin(self) -> None: ...
    def abort(self) -> None: ...
    def produce(self, messages: list[Message]) -> None: ...

    def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None:
        del positions
        self.groups.append(group)

    def commit(self) -> None:
        if not self.fresh:
            raise Failed(KafkaError(KafkaError._FENCED))
        self.fresh = False

    def committed(self, partitions: list[int]) -> dict[int, Committed]:
        return {n: Committed(0, None) for n in partitions}

    def limits(self) -> Mapping[str, int] | None:
        return None


class Clock(SystemClock):
    """Time that only passes when it is told to."""

    mono = 0.0

    def now(self) -> Instant:
        return Instant(self.mono, 0.0)

    def pause(self, wait_s: float) -> None: ...


class Quiet:
    """Hears nothing."""

    def publish_failed(self, what: str, name: str) -> None: ...


def published(clock: Clock, times: int, every_s: float) -> int:
    """Publish so often, and give how often it went through."""
    done: list[Outcome] = []
    settings = Settings()
    steps = Insistence(lambda: Snapshot(1, "member", frozenset({OWNER})), Quiet(), clock)
    way = ExactlyOnce(settings, Destinations(settings, {}), Frontier(alone(bytes(16), 1)), SharedName(), steps, done.extend)
    for number in range(times):
        way.publish([Ready(Outcome(OWNER, None, None, position=number), ())])
        clock.mono += every_s
    return len(done)


def test_two_workers_of_one_slot_that_fence_each_other_in_turn_are_told_so() -> None:
    """Each gets through once in a while, so that never two fences follow one another; they would go on so for ever.

    Not before their group had time to end one of them: both would go.
    """
    times = int(EARLY_FENCES_FOR_S)
    assert times == published(Clock(), times, 1.0)
    with pytest.raises(BrokerError, match="another worker has the slot"):
        published(Clock(), times + 2 * EARLY_FENCES_MAX, 1.0)


def test_a_fence_now_and_then_is_nobody_else() -> None:
    """Our own renewal echoes sometimes; that is no reason to end."""
    assert 3 * EARLY_FENCES_MAX == published(Clock(), 3 * EARLY_FENCES_MAX, EARLY_FENCES_S / (EARLY_FENCES_MAX - 1))


class Ruined(SharedName):
    """A producer that fails for good, and each that is made in its place does too."""

    def begin(self) -> None:
        raise Failed(KafkaError(KafkaError.UNKNOWN))


class Passing(Clock):
    """Time that passes while it is waited."""

    def pause(self, wait_s: float) -> None:
        self.mono += wait_s


def test_a_producer_that_fails_for_good_again_and_again_ends_its_worker() -> None:
    """It calls, publishes nothing, and would look alive for ever; but a minute is given to what passes by itself."""
    clock, sink = Passing(), Ruined()
    steps = Insistence(lambda: Snapshot(1, "member", frozenset({OWNER})), Quiet(), clock)
    way = ExactlyOnce(Settings(), Destinations(Settings(), {}), Frontier(alone(bytes(16), 1)), sink, steps, lambda _: None)
    with pytest.raises(BrokerError, match="fails for good again and again"):
        way.publish([Ready(Outcome(OWNER, None, None, position=1), ())])
    assert RENEWALS_S < clock.mono < 2 * RENEWALS_S
    assert RENEWALS_MAX < sink.opened < 100 * RENEWALS_MAX


def test_a_producer_that_fails_for_good_now_and_then_is_made_anew() -> None:
    """What goes through in between counts."""
    clock = Passing()
    steps = Insistence(Snapshot, Quiet(), clock)
    for _ in range(3 * RENEWALS_MAX):
        clock.mono += RENEWALS_S
        steps.renew("UNKNOWN")
        steps.renew("UNKNOWN")
        steps.ease()


def test_after_a_long_rest_it_begins_with_a_new_producer() -> None:
    """The broker has closed the old one's connections, and the client would take seconds to notice: those of the first reply."""
    clock, sink, done = Clock(), SharedName(), list[Outcome]()
    steps = Insistence(lambda: Snapshot(1, "member", frozenset({OWNER})), Quiet(), clock)
    way = ExactlyOnce(Settings(), Destinations(Settings(), {}), Frontier(alone(bytes(16), 1)), sink, steps, done.extend)
    way.open()
    for rest_s in (IDLE_MAX_S + 1, IDLE_MAX_S + 1, 0):
        clock.mono += rest_s
        sink.fresh = sink.fresh or rest_s == 0
        way.publish([Ready(Outcome(OWNER, None, None, position=1), ())])
    assert 3 == len(done)
    assert 3 == sink.opened


def test_an_assignment_that_ends_before_the_commit_takes_its_transaction_with_it() -> None:
    """The broker would take the position for any partition: that it is still ours is looked at last of all."""
    snapshot = [Snapshot(1, "member", frozenset({OWNER}))]
    steps_taken: list[str] = []

    class Slow(SharedName):
        def send_offsets(self, positions: Mapping[int, tuple[int, str]], group: object) -> None:
            del positions, group
            snapshot[0] = Snapshot(2, "member", frozenset())

        def abort(self) -> None:
            steps_taken.append("abort")

        def commit(self) -> None:
            steps_taken.append("commit")

    done: list[Outcome] = []
    steps = Insistence(lambda: snapshot[0], Quiet(), Clock())
    way = ExactlyOnce(Settings(), Destinations(Settings(), {}), Frontier(alone(bytes(16), 1)), Slow(), steps, done.extend)
    way.publish([Ready(Outcome(OWNER, None, None, position=1), ())])
    assert ["abort"] == steps_taken
    assert not done


def test_who_is_no_member_sends_no_positions() -> None:
    """The broker takes the positions of a transaction from anybody who names no member: a worker that was thrown out waits."""
    live = frozenset({OWNER})
    snapshots = [Snapshot(1, None, live), Snapshot(1, None, live), Snapshot(2, "member", live)]
    settings, sink, done = Settings(), SharedName(), list[Outcome]()
    steps = Insistence(lambda: snapshots.pop(0) if len(snapshots) > 1 else snapshots[0], Quiet(), Clock())
    way = ExactlyOnce(settings, Destinations(settings, {}), Frontier(alone(bytes(16), 1)), sink, steps, done.extend)
    way.publish([Ready(Outcome(OWNER, None, None, position=1), ())])
    assert ["member"] == sink.groups
    assert 1 == len(done)


def test_a_transaction_timeout_that_the_broker_does_not_allow_ends_the_worker() -> None:
    """Asking again mends nothing, and a worker that lives without a producer holds partitions for nothing."""

    class Refusing(SharedName):
        def open(self) -> None:
            raise Failed(KafkaError(KafkaError.INVALID_TRANSACTION_TIMEOUT))

    settings = Settings()
    steps = Insistence(Snapshot, Quiet(), Clock())
    way = ExactlyOnce(settings, Destinations(settings, {}), Frontier(alone(bytes(16), 1)), Refusing(), steps, lambda _: None)
    with pytest.raises(BrokerError) as caught:
        way.open()
    assert "transaction_timeout_s" in str(caught.value.hint)
