"""The end of a client, and what it says of Kafka, without one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine

import pytest
from confluent_kafka import KafkaError

from dispatcher import BrokerError, Dispatcher, Settings, WaitTimeout
from dispatcher.client import connection
from dispatcher.errors import BrokerAway
from tests.waiting import eventually_async

SETTINGS = Settings.model_validate({"kafka": {"bootstrap_servers": "127.0.0.1:1"}})


async def hang() -> None:
    """Never end."""
    await asyncio.Event().wait()


async def fail() -> None:
    """Have a bug."""
    raise RuntimeError("bug")


@pytest.mark.parametrize("end", [hang, fail])
async def test_the_sender_ends_whatever_becomes_of_the_rest(
    end: Callable[[], Coroutine[None, None, None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close that is cancelled, or fails on the way, leaves no thread behind."""
    client = await Dispatcher(SETTINGS).__aenter__()
    begun = asyncio.Event()

    async def close() -> None:
        begun.set()
        await end()

    monkeypatch.setattr(client._connection.listener, "close", close)
    closing = asyncio.create_task(client.close())
    await begun.wait()
    if end is hang:
        closing.cancel()
    done, _ = await asyncio.wait({closing}, timeout=60)
    assert done == {closing}
    assert closing.cancelled() or isinstance(closing.exception(), RuntimeError)
    names = {"dispatcher-sender", "dispatcher-positions_0"}
    await eventually_async(lambda: not names & {thread.name for thread in threading.enumerate()})
    await client.close()


async def test_kafka_is_out_of_reach_only_where_something_speaks_for_it() -> None:
    """No time at all is no reason to blame it: exit 4, not 3. And what is over is over."""
    async with Dispatcher(SETTINGS) as client:
        connection = client._connection
        assert isinstance(connection.unsent(0), WaitTimeout)
        complaints = connection._inquiry._complaints
        complaints.heard(KafkaError(KafkaError._TRANSPORT))
        away = connection.unsent(1)
        assert isinstance(away, BrokerError)
        assert "cannot reach Kafka at 127.0.0.1:1" in away.message
        complaints.forget()
        assert "nothing was sent within 1 s" in connection.unsent(1).message


async def test_that_kafka_is_away_is_told_once_and_waited_out(caplog: pytest.LogCaptureFixture) -> None:
    """Somebody looks at a silent terminal meanwhile."""
    answers: list[BrokerAway | str] = [BrokerAway("cannot reach Kafka"), BrokerAway("cannot reach Kafka"), "here"]

    async def ask() -> str:
        answer = answers.pop(0)
        if isinstance(answer, BrokerAway):
            raise answer
        return answer

    assert await connection.patiently(ask) == "here"
    # Clients of earlier tests may still say something of their own.
    assert ["cannot reach Kafka; trying on until the time is over"] == [said for said in caplog.messages if "trying on" in said]
