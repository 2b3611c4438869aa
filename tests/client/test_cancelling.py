"""What a cancel writes, and what is told of one that goes wrong, by a connection that does what a test says; the real one is in e2e."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from dispatcher import CallFailed, DispatcherError, Receipt, Settings, SubmitUnknown, WaitTimeout
from dispatcher.client import cancelling
from dispatcher.client.cancelling import Cancelling
from dispatcher.client.connection import Connection
from dispatcher.client.search import Query
from dispatcher.client.sender import Outgoing
from dispatcher.client.shared import Turns
from dispatcher.core.internal.control import CANCEL, read_command
from dispatcher.core.messages.record import Header, Record
from dispatcher.core.messages.submission import Submission
from dispatcher.core.operations.sought import Sought, sought
from tests.waiting import eventually_async

SETTINGS = Settings.model_validate({"topics": {"reply_topics": ["tenant"]}})
TOPIC, TOPIC_ID = SETTINGS.topics.requests, "AbCdEfGhIjK"
PLACE = f"{TOPIC}/3/41"
POSITION_ID = f"{PLACE}@{TOPIC_ID[:8]}"
RECEIPT = Receipt("mine", TOPIC, 3, 41, b"doc:1", "2026-11-29T10:00:00.000Z")


def standing(*headers: Header) -> Record:
    """The request as it stands in the log."""
    return Record(TOPIC, 3, 41, b"doc:1", b"{}", (("ce_id", b"mine"), *headers), 1_764_410_400_000)


class Wire:
    """Stands for the connection and its lookback: a test says what is there, and what is acknowledged."""

    topics = SETTINGS.topics
    reply_topic = None

    def __init__(self, *, settled: bool = False) -> None:
        self.settled = settled
        self.acknowledged: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.sent: list[Outgoing] = []
        self.fault: DispatcherError | None = None

    @property
    def lookback(self) -> Wire:
        """Be it."""
        return self

    async def topic_id(self, _topic: str) -> str:
        """Know the topic."""
        return TOPIC_ID[:8]

    async def existing(self, _topic: str, partition: int) -> int:
        """Have every partition."""
        return partition

    async def count(self, _topic: str) -> int:
        """Have five partitions."""
        return 5

    async def is_settled(self, *_place: object) -> bool:
        """Say what the test says."""
        return self.settled

    def trouble(self) -> DispatcherError | None:
        """Say what the test says."""
        return self.fault

    def send(self, submission: Submission) -> tuple[Outgoing, asyncio.Future[Receipt]]:
        """Take it."""
        self.sent.append(Outgoing(submission, lambda _: None))
        return self.sent[-1], self.acknowledged


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[Sought]:
    """Have replies come at once; where they were waited for is noted."""
    asked: list[Sought] = []

    class Waiting:
        def __init__(self, _: Connection, wanted: Sought) -> None:
            asked.append(wanted)

        async def found(self) -> str:
            return "the reply"

    monkeypatch.setattr(cancelling, "Waiting", Waiting)
    return asked


def made(wire: Wire, wanted: Receipt | str, monkeypatch: pytest.MonkeyPatch, record: Record | None = standing()) -> Cancelling:  # noqa: B008
    """A cancel that finds this record, whatever it looks for."""

    async def first(view: Settings, query: Query) -> Record | None:
        del view, query
        return record

    monkeypatch.setattr(cancelling, "_first", first)
    return Cancelling(cast("Connection", wire), SETTINGS, sought(wanted, (TOPIC,)), "too slow", Turns(8))


@pytest.mark.parametrize("wanted", ["mine", PLACE, POSITION_ID, RECEIPT])
async def test_a_command_is_written_and_the_end_waited_for(monkeypatch: pytest.MonkeyPatch, heard: list[Sought], wanted: Any) -> None:
    """By id, place or receipt: one command, which names the request by its position and says whose it is."""
    wire = Wire()
    wire.acknowledged.set_result(RECEIPT)
    assert "the reply" == cast("Any", await made(wire, wanted, monkeypatch).ended())
    (sent,) = wire.sent
    of = sent.submission
    assert (SETTINGS.topics.control, f"request:{POSITION_ID}".encode()) == (of.topic, of.key)
    command = read_command(Record(SETTINGS.topics.control, 0, 0, of.key, of.value, of.headers))
    assert command is not None
    assert (CANCEL, "too slow", "doc:1") == (command.state, command.reason, command.key)
    (asked,) = heard
    assert (POSITION_ID, (TOPIC, 3, 41), SETTINGS.topics.replies, 3) == (
        *(asked.name, asked.request),
        *(asked.reply_topic, asked.reply_partition),
    )


async def test_the_reply_is_looked_for_where_the_request_wants_it(monkeypatch: pytest.MonkeyPatch, heard: list[Sought]) -> None:
    """In the topic that it names, if workers may write there; else where they answer what they refuse."""
    for name, expected in ((b"tenant", "tenant"), (b"foreign", SETTINGS.topics.replies)):
        wire = Wire(settled=True)
        await made(wire, "mine", monkeypatch, standing(("kafka_replyTopic", name))).ended()
        assert expected == heard[-1].reply_topic


async def test_nothing_is_written_about_what_has_ended(monkeypatch: pytest.MonkeyPatch, heard: list[Sought]) -> None:
    """Its reply is all that there is."""
    wire = Wire(settled=True)
    assert "the reply" == cast("Any", await made(wire, "mine", monkeypatch).ended())
    assert ([], 1) == (wire.sent, len(heard))


@pytest.mark.parametrize(
    "wanted",
    [
        replace(RECEIPT, request_id="another"),
        replace(RECEIPT, topic="another"),
        f"{PLACE}@Another1",
        replace(RECEIPT, request_id=f"{PLACE}@Another1"),
    ],
)
async def test_another_request_at_its_place_is_not_it(monkeypatch: pytest.MonkeyPatch, wanted: Receipt | str) -> None:
    """The topic was made anew, or the receipt is another cluster's: nobody else's request is cancelled."""
    wire = Wire()
    with pytest.raises(CallFailed, match="there is no request"):
        await made(wire, wanted, monkeypatch).ended()
    assert not wire.sent


@pytest.mark.parametrize("wanted", ["nobody", PLACE])
async def test_one_that_is_not_there_cannot_be_cancelled(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    """Nor is a command written that would wait for whoever comes to that place."""
    wire = Wire()
    with pytest.raises(CallFailed, match="there is no request"):
        await made(wire, wanted, monkeypatch, None).ended()
    assert not wire.sent


async def test_what_is_told_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was written; it may have been; it stands written, and its effect is waited for."""
    wire = Wire()
    early = made(wire, "mine", monkeypatch)
    assert "nothing was written" in early.late(3).message
    wire.fault = WaitTimeout("Kafka is away")
    assert wire.fault is early.late(3)
    wire.fault = None
    for is_handed, said in ((False, "nothing was written"), (True, "may stand written")):
        cancel = made(wire, "mine", monkeypatch)
        task = asyncio.create_task(cancel.ended())
        await eventually_async(lambda: bool(wire.sent))
        wire.sent[-1].handed = is_handed
        task.cancel()
        await asyncio.wait({task})
        assert said in cancel.late(3).message
        wire.sent.clear()
        wire.acknowledged = asyncio.get_running_loop().create_future()

    class Endless:
        def __init__(self, *_: object) -> None: ...
        async def found(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(cancelling, "Waiting", Endless)
    wire.acknowledged.set_result(RECEIPT)
    late = made(wire, "mine", monkeypatch)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(late.ended(), 0.05)
    assert "stands written, and it has not ended within 3 s" in late.late(3).message


async def test_a_command_without_an_acknowledgement_may_stand_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask again does no harm, and that is said; not what is said of requests."""
    wire = Wire()
    wire.acknowledged.set_exception(SubmitUnknown("no acknowledgement for request x", "submit it again"))
    with pytest.raises(WaitTimeout, match="may stand written") as told:
        await made(wire, "mine", monkeypatch).ended()
    assert not isinstance(told.value, SubmitUnknown)
