"""What is told of an ask that goes wrong, by a connection that does what a test says; the real one is in e2e."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from dispatcher import AskTimeout, BrokerError, DispatcherError, Receipt, Settings, SubmitUnknown, WaitTimeout
from dispatcher.adapters.kafka.loop import fill
from dispatcher.adapters.kafka.offsets import Place
from dispatcher.client.asking import Asking
from dispatcher.client.connection import Connection
from dispatcher.client.listener import Watch
from dispatcher.client.reply import Reply
from dispatcher.client.sender import Outgoing
from dispatcher.client.submitter import stamp
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.submission import Submission, request
from tests.waiting import eventually_async

SUBMISSION = request("doc:1", b'{"upstream": "u"}', stamp(request_id="mine"))
RECEIPT = Receipt("mine", "requests", 0, 7, b"doc:1", "2026-11-29T10:00:00.000Z")


def reply(offset: int = 7, value: bytes = b'{"status": "ok", "attempts": 1}', topic: str = "requests", at: int = 1) -> Record:
    """Make a reply to the request at `offset`."""
    place = {"topic": topic, "partition": "0", "offset": str(offset)}
    headers = [("ce_causationid", b"mine"), ("dispatcher-duration-ms", b"1")]
    headers += [(f"dispatcher-request-{name}", text.encode()) for name, text in place.items()]
    return Record("replies", 0, at, b"doc:1", value, tuple(headers))


NO_RIGHT = BrokerError("this user may not use the topic")


class Wire:
    """Stands for the connection, and for its listener: a test says what is heard, and what is acknowledged."""

    topics = Settings().topics
    request_topics = (topics.requests,)
    reply_topic = None

    def __init__(self) -> None:
        self.found: asyncio.Future[Record] = asyncio.get_running_loop().create_future()
        self.acknowledged: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self.sent: Outgoing | None = None
        self.released = False
        self.watched: Watch

    @property
    def listener(self) -> Wire:
        """Be it."""
        return self

    async def count(self, _topic: str) -> int:
        """Have one partition."""
        return 1

    async def reply_place(self, partition: int) -> Place:
        """Have the usual place."""
        return "replies", partition

    async def watch(self, name: str, places: Iterable[Place]) -> Watch:
        """Listen."""
        self.watched = Watch(name, tuple(places), self.found)
        return self.watched

    def release(self, _watch: Watch) -> None:
        """Listen no more."""
        self.released = True

    def send(self, submission: Submission) -> tuple[Outgoing, asyncio.Future[Receipt]]:
        """Take a request."""
        self.sent = Outgoing(submission, lambda _outcome: None)
        return self.sent, self.acknowledged

    def receipt(self, acknowledged: Receipt) -> Receipt:
        """Give it as it is."""
        return acknowledged

    def unsent(self, within_s: float) -> DispatcherError:
        """Say so."""
        return WaitTimeout(f"nothing was sent within {within_s:g} s")


async def asked(wire: Wire, *, handed: bool = True) -> tuple[Asking, asyncio.Task[Reply]]:
    """Ask, until the request is on its way."""
    asking = Asking(cast("Connection", cast("Any", wire)), "mine")
    task = asyncio.create_task(asking.answered(SUBMISSION))
    await eventually_async(lambda: wire.sent)
    assert wire.sent is not None
    wire.sent.handed = handed
    return asking, task


@pytest.mark.parametrize("acknowledgement", [RECEIPT, SubmitUnknown("lost", request_id="mine")])
async def test_the_reply_may_come_before_the_acknowledgement(acknowledgement: Receipt | DispatcherError) -> None:
    """Two threads tell of them; the reply is what counts, also where the acknowledgement was lost."""
    wire = Wire()
    asking, task = await asked(wire)
    wire.watched.hear(reply())
    await eventually_async(lambda: asking.early)
    fill(wire.acknowledged, acknowledgement)
    assert (await task).source == ("requests", 0, 7)
    assert wire.released


FOREIGN = [
    reply(value=b"{nope"),
    replace(reply(), value=None),
    replace(reply(), headers=(("ce_causationid", b"mine"),)),
    replace(reply(), headers=None),
    replace(reply(), headers=(("dispatcher-duration-ms", b"9" * 5000), *(reply().headers or ()))),
    replace(reply(), headers=(("dispatcher-duration-ms", "²".encode()), *(reply().headers or ()))),
    reply(offset=8),
    reply(topic="other"),
]


@pytest.mark.parametrize("is_acknowledged_first", [True, False])
async def test_what_is_no_reply_of_ours_is_passed_over(
    is_acknowledged_first: bool,  # noqa: FBT001 - pytest's
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Anybody may write the id of an open ask: values and headers that no reply has, and the reply to another request of that id.

    Each is warned of, and the true reply is heard behind them, before and after the acknowledgement.
    """
    wire = Wire()
    asking, task = await asked(wire)
    with caplog.at_level(logging.WARNING, "dispatcher.client"):
        if is_acknowledged_first:
            wire.acknowledged.set_result(RECEIPT)
            await eventually_async(lambda: asking._receipt)
        for record in [*FOREIGN, reply(at=99)]:
            wire.watched.hear(record)
        if not is_acknowledged_first:
            await eventually_async(lambda: asking.early)
            wire.acknowledged.set_result(RECEIPT)
        assert (await task).offset == 99
    assert len(FOREIGN) == len([line for line in caplog.messages if line.startswith("passed over: ")])


async def test_who_cannot_hear_takes_back_what_was_not_sent() -> None:
    """Then nothing was sent, and the error says why."""
    wire = Wire()
    _, task = await asked(wire, handed=False)
    wire.found.set_exception(NO_RIGHT)
    with pytest.raises(BrokerError, match="may not use"):
        await task
    assert wire.sent is not None
    assert wire.sent.withdrawn


@pytest.mark.parametrize("is_acknowledged_first", [True, False])
async def test_who_cannot_hear_is_told_that_the_request_is_there(is_acknowledged_first: bool) -> None:  # noqa: FBT001 - pytest's
    """With its receipt: it will be executed, whatever the reason (a right that is missing, a client that is closed). Exit 4."""
    wire = Wire()
    asking, task = await asked(wire)
    if is_acknowledged_first:
        wire.acknowledged.set_result(RECEIPT)
        await eventually_async(lambda: asking._receipt)
    wire.found.set_exception(NO_RIGHT)
    if not is_acknowledged_first:
        wire.acknowledged.set_result(RECEIPT)
    with pytest.raises(AskTimeout, match=r"is in its topic.*may not use") as told:
        await task
    assert (told.value.receipt, told.value.exit_code) == (RECEIPT, 4)


@pytest.mark.parametrize("error", [SubmitUnknown("unknown", request_id="mine"), BrokerError("not written")])
@pytest.mark.parametrize("is_deaf", [True, False])
async def test_what_the_sender_says_counts(error: DispatcherError, is_deaf: bool) -> None:  # noqa: FBT001 - pytest's
    """It knows best whether the request may be in its topic."""
    wire = Wire()
    _, task = await asked(wire)
    if is_deaf:
        wire.found.set_exception(NO_RIGHT)
    wire.acknowledged.set_exception(error)
    with pytest.raises(type(error)) as told:
        await task
    assert told.value is error


@pytest.mark.parametrize(("handed", "kind"), [(True, SubmitUnknown), (False, WaitTimeout)])
async def test_a_late_ask_tells_whether_it_may_have_been_sent(handed: bool, kind: type[Exception]) -> None:  # noqa: FBT001 - pytest's
    """And what was taken back in time stays taken back, however often it is looked at."""
    wire = Wire()
    asking, task = await asked(wire, handed=handed)
    task.cancel()
    await asyncio.wait({task})
    assert wire.sent is not None
    wire.sent.handed = True  # the thread has come by: it left it out, if it was taken back
    late = asking.late(1)
    assert type(late) is kind
    assert asking.late(1).message == late.message
