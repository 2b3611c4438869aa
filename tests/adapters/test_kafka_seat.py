"""A place in the group, and a client that has lost it: what is said, and what is done about it. No broker is asked."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from dispatcher.adapters.kafka import seat as seats
from dispatcher.adapters.kafka import source as sources
from dispatcher.adapters.kafka.clients import GroupProtocol
from dispatcher.adapters.kafka.seat import Seat
from dispatcher.adapters.kafka.source import Source
from dispatcher.errors import BrokerError
from tests.broken_client import break_for_good
from tests.waiting import eventually

NOBODY = "127.0.0.1:1"
FENCED, UNRELEASED = KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID


class Duties:
    """Nothing comes, nothing goes."""

    def on_assigned(self, _: list[int]) -> None: ...
    def on_revoked(self, _: list[int]) -> None: ...
    def on_lost(self, _: list[int]) -> None: ...


def consumer(protocol: GroupProtocol = "cooperative") -> Consumer:
    """Make a client that no broker answers."""
    kind = {"group.protocol": "consumer"} if protocol == "consumer" else {"partition.assignment.strategy": "cooperative-sticky"}
    return Consumer({"bootstrap.servers": NOBODY, "group.id": "g", "group.instance.id": "7", "log_level": 0} | kind)


def seated(made: list[Consumer], protocol: GroupProtocol, patience_s: float = 0) -> Source:
    """Make a source whose clients are kept in `made`."""

    def make() -> Consumer:
        made.append(consumer(protocol))
        return made[-1]

    source = Source(make(), "requests", incremental=True, seat=Seat("7", make, patience_s, leaves=True))
    source.subscribe(Duties())
    return source


@pytest.mark.parametrize(("protocol", "code"), [("cooperative", FENCED), ("eager", FENCED), ("consumer", FENCED), ("consumer", UNRELEASED)])
def test_who_loses_its_seat_says_so_and_ends(protocol: GroupProtocol, code: int) -> None:
    """Never alive but idle: the next poll names the slot and what to do; a client that is of no use is not asked to leave."""
    made: list[Consumer] = []
    source = seated(made, protocol)
    assert not source.poll(0).records
    break_for_good(made[0], code)
    with pytest.raises(BrokerError, match="another worker has the slot '7'") as caught:
        eventually(lambda: source.poll(0.1).records)
    assert "worker.slot" in caught.value.hint
    assert "start it again" in caught.value.hint  # it had no partition: it may have been fenced by itself
    source.close()


@pytest.mark.parametrize("code", [KafkaError.GROUP_MAX_SIZE_REACHED, KafkaError.INVALID_REQUEST, KafkaError.UNKNOWN])
@pytest.mark.parametrize("protocol", ["cooperative", "consumer"])
def test_a_client_that_fails_for_good_ends_its_worker(protocol: GroupProtocol, code: int) -> None:
    """Whatever the cause: librdkafka tells of it once, and is silent afterwards, as if no records came."""
    made: list[Consumer] = []
    source = seated(made, protocol)
    break_for_good(made[0], code)
    with pytest.raises(BrokerError, match="Kafka ended this worker's membership"):
        eventually(lambda: source.poll(0.1).records)
    source.close()


def test_a_failure_is_heard_while_partitions_come_and_go() -> None:
    """Librdkafka's message names partition 0, and is not about it: it was dropped with the records of an assignment that had just ended."""
    made: list[Consumer] = []
    source = seated(made, "cooperative")
    source._unsought[0] = 5
    source._touched.add(0)
    break_for_good(made[0], FENCED)
    message = eventually(lambda: made[0].poll(0.1))
    assert message is not None
    error = message.error()
    assert error is not None
    with pytest.raises(BrokerError):
        source._sorted([(message, error)])


def test_a_seat_that_a_dead_one_holds_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a new client each time, for as long as a session may last; then another one has it."""
    monkeypatch.setattr(sources, "AGAIN_S", 0.05)
    made: list[Consumer] = []
    source = seated(made, "consumer", patience_s=1)
    until = time.monotonic() + 1

    def refused_for_ever() -> None:
        broken = 0
        while True:
            if broken < len(made):
                break_for_good(made[-1], UNRELEASED)
                broken = len(made)
            source.poll(0.05)

    with pytest.raises(BrokerError, match="another worker has the slot"):
        refused_for_ever()
    assert time.monotonic() >= until
    assert len(made) > 2
    source.close()


def test_a_seat_that_was_ours_is_waited_for_anew() -> None:
    """A member that was missed for a moment is refused its own name until the session that it had is over: nobody else has it."""
    seat = Seat("7", consumer, patience_s=0, leaves=True)
    refused = KafkaError(UNRELEASED)
    with pytest.raises(BrokerError):
        eventually(lambda: not seat.is_awaited(refused, is_taken=False))
    later = Seat("7", consumer, patience_s=60, leaves=True)
    assert later.is_awaited(refused, is_taken=False)
    later._until = 0.0
    later.taken()
    assert later.is_awaited(refused, is_taken=False)


class Rejoining:
    """A consumer that has partitions until it is told to leave."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.callbacks: dict[str, Any] = {}

    def subscribe(self, topics: list[str], **callbacks: Any) -> None:
        self.asked.append(topics)
        self.callbacks = callbacks

    def unsubscribe(self) -> None:
        self.asked.append("unsubscribe")

    def memberid(self) -> str:
        return "m"

    def poll(self, _: float) -> None: ...
    def incremental_assign(self, _: list[Any]) -> None: ...
    def incremental_unassign(self, _: list[Any]) -> None: ...


class Taking(Duties):
    """Takes what comes, and gives back what is taken away."""

    source: Source

    def on_assigned(self, partitions: list[int]) -> None:
        self.source.assign(dict.fromkeys(partitions, 0))

    def on_revoked(self, partitions: list[int]) -> None:
        self.source.unassign(partitions)


def test_a_client_that_missed_something_leaves_and_joins_again() -> None:
    """It gives back what it has before; where it has heard of something since it was found, it stays."""
    client: Any = Rejoining()
    source, duties = Source(client, "requests", incremental=True), Taking()
    duties.source = source
    source.subscribe(duties)
    client.callbacks["on_assign"](client, [TopicPartition("requests", 0)])
    assert source.held is not None
    assert frozenset({0}) == source.held.partitions
    source.rejoin(source.held.changes - 1)
    source.poll(0)
    assert [["requests"]] == client.asked
    source.rejoin(source.held.changes)
    source.poll(0)
    assert [["requests"], "unsubscribe"] == client.asked
    assert source.held is None
    client.callbacks["on_revoke"](client, [TopicPartition("requests", 0)])
    source.poll(0)
    assert [["requests"], "unsubscribe", ["requests"]] == client.asked


class Leaving:
    """A consumer that has left some polls after it was told to."""

    def __init__(self, polls: int) -> None:
        self.asked: list[str] = []
        self._polls = polls

    def unsubscribe(self) -> None:
        self.asked.append("unsubscribe")

    def poll(self, _: float) -> None:
        self._polls -= 1

    def memberid(self) -> str | None:
        return "7-1" if self._polls > 0 else None


def test_a_seat_is_left_before_its_client_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka keeps the partitions of a named member that only closes. It is not waited for without an end."""
    seat = Seat("7", consumer, 0, leaves=True)
    leaving: Any = Leaving(10)
    seat.vacate(leaving)
    assert (["unsubscribe"], None) == (leaving.asked, leaving.memberid())
    monkeypatch.setattr(seats, "VACATE_S", 0)
    never: Any = Leaving(1_000_000)
    seat.vacate(never)
    assert never.memberid()
