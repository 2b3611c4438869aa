"""The Python client when Kafka is away, and when very much is open at once. The worker's own way to Kafka is not harmed."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from dispatcher import AskTimeout, BrokerError, Call, Dispatcher, DispatcherError, Settings, SubmitUnknown, SyncDispatcher, WaitTimeout
from dispatcher.adapters.kafka import clients
from dispatcher.adapters.local_broker import LocalBroker
from dispatcher.client.lookback import Looked
from dispatcher.core.operations.sought import Sought
from tests.e2e.proxy import Proxy
from tests.e2e.stage import Stage, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually_async

pytestmark = pytest.mark.faults

WITHIN_S = 60
# An ask that has its acknowledgement long before, on a busy machine too.
LATE_S = 15
ECHO = Call.http("sample", "POST", "/echo", json={"n": 1})
# Of 64 KiB each: far more than a client may hold on to.
BODY = b'"' + b"x" * 65_536 + b'"'
OPEN = 1000
HELD_MAX_BYTES = 24 * 1024 * 1024


@pytest.fixture
def on(beside: str, prefix: str, tmp_path: Path) -> Iterator[Stage]:
    """Set a stage on the broker itself, without a worker yet."""
    with stage(SettingsFactory(beside, prefix), tmp_path, partitions=2) as made:
        yield made


def through(way: Proxy, on: Stage) -> Settings:
    """Give settings by which a client comes through the proxy."""
    kafka = on.settings.kafka.model_copy(update={"bootstrap_servers": way.address})
    return on.settings.model_copy(update={"kafka": kafka})


async def test_a_client_ends_in_time_while_kafka_is_away_and_goes_on_by_itself(on: Stage, way: Proxy) -> None:
    """Row 3: exit 3 where nothing was sent, 4 where something may have been; an ask that was open gets its reply; then all is as before.

    A request whose acknowledgement was lost may be submitted again under its id.
    """
    second = Call.http("sample", "POST", "/echo", json={"n": 2})
    async with Dispatcher(through(way, on), ack_timeout_s=6) as warm, Dispatcher(through(way, on)) as cold:
        await warm.submit(ECHO, key="doc:1")
        open_ = asyncio.create_task(warm.ask(second, key="doc:1", timeout=4 * WITHIN_S))
        late = asyncio.create_task(warm.ask(second, key="doc:1", timeout=LATE_S))
        await eventually_async(lambda: sum(on.positions()[1].values()) == 3, WITHIN_S, "both stand there")
        await warm.submit(ECHO, key="doc:1")
        way.cut()
        for client, kind, code in ((warm, SubmitUnknown, 4), (cold, BrokerError, 3)):
            with pytest.raises(kind) as away:
                await client.ask(ECHO, key="doc:1", timeout=1)
            assert away.value.exit_code == code
        with pytest.raises(SubmitUnknown) as unknown:
            await warm.submit(ECHO, key="doc:1", request_id="unsure")
        assert (unknown.value.request_id, unknown.value.exit_code) == ("unsure", 4)
        with pytest.raises(BrokerError, match="cannot reach Kafka"):
            await cold.wait("unsure", timeout=1)
        with pytest.raises(AskTimeout) as missed:
            await late
        way.heal()
        on.worker().ready()  # no reply could come before
        assert (await open_).json() == {"n": 2}
        assert (await warm.wait(missed.value.receipt, timeout=WITHIN_S)).json() == {"n": 2}
        await warm.submit(ECHO, key="doc:1", request_id="unsure")
        assert (await cold.wait("unsure", timeout=WITHIN_S)).ok
        for client in (warm, cold):
            assert (await client.ask(ECHO, key="doc:1", timeout=WITHIN_S)).ok


async def test_who_has_time_waits_until_kafka_is_back(on: Stage, way: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka is away for longer than one question may take: an ask and a wait with time left go on, from a cold client and a warm one."""
    monkeypatch.setattr("dispatcher.client.search.TIMEOUT_S", 0.5)  # of one search
    on.worker().ready()
    async with Dispatcher(through(way, on)) as warm, Dispatcher(through(way, on)) as cold:
        receipt = await warm.submit(ECHO, key="doc:1")
        reply = await warm.wait(receipt, timeout=WITHIN_S)
        tries: list[str] = []
        for client, name in ((warm, "warm"), (cold, "cold")):
            _shorten(client, name, tries, monkeypatch)
        way.cut()
        waiting = [asyncio.create_task(client.wait(receipt, timeout=4 * WITHIN_S)) for client in (warm, cold)]
        waiting.append(asyncio.create_task(cold.ask(ECHO, key="doc:1", timeout=4 * WITHIN_S)))
        await eventually_async(lambda: min(tries.count("warm"), tries.count("cold")) > 2, WITHIN_S, "both have tried again")
        with pytest.raises(BrokerError, match="cannot reach Kafka"):
            await cold.wait(receipt)  # who has not said how long is told
        way.heal()
        found = await asyncio.gather(*waiting)
        assert [found[0].offset, found[1].offset, found[2].ok] == [reply.offset, reply.offset, True]


def _shorten(client: Dispatcher, name: str, tries: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each question of a client end soon, and note it."""
    connection = client._connection
    partitions, begin = connection._inquiry.partitions, connection.lookback.begin

    async def asked(names: Iterable[str]) -> dict[str, int]:
        tries.append(name)
        return await partitions(names)

    def begun(wanted: Sought, topic: str, numbers: list[int]) -> asyncio.Task[Looked]:
        tries.append(name)
        return begin(wanted, topic, numbers)

    monkeypatch.setattr(connection._inquiry, "_timeout_s", 0.5)
    monkeypatch.setattr(connection._inquiry, "partitions", asked)
    monkeypatch.setattr(connection.lookback, "begin", begun)


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("refused", BrokerError, ("cannot reach Kafka", "cannot reach Kafka")),
        ("silent", WaitTimeout, ("nothing was sent within 1 s", "no reply to request x within 1 s")),
    ],
)
def test_an_address_without_kafka_ends_in_time(
    way: Proxy, on: Stage, kind: str, error: type[DispatcherError], says: tuple[str, str]
) -> None:
    """When the time is over; nothing secret is told. Exit 3 where a port refuses; from one that accepts, and is only slow so far, 4."""
    if kind == "refused":
        way.cut()
    else:
        way.half_open()
    settings = through(way, on)
    given = settings.model_dump() | {"kafka": {"bootstrap_servers": way.address, "properties": {"sasl.password": "canary"}}}
    with SyncDispatcher(Settings.model_validate(given)) as client:
        with pytest.raises(error, match=says[0]) as asked:
            client.ask(ECHO, key="doc:1", timeout=1)
        with pytest.raises(error, match=says[1]) as waited:
            client.wait("x", timeout=1)
        assert "canary" not in f"{asked.value!s} {asked.value!r} {waited.value!s} {client!r}"


async def test_a_request_that_was_written_is_not_called_unwritten(on: Stage, way: Proxy) -> None:
    """Its acknowledgement was lost, and librdkafka would send it again when the client is closed: exit 4 and its id, not 3."""
    async with Dispatcher(through(way, on)) as client:
        await client.submit(ECHO, key="doc:1")
        way.swallow("answers")
        submitted = asyncio.create_task(client.submit(ECHO, key="doc:1", request_id="written"))
        await eventually_async(lambda: sum(on.positions()[1].values()) == 2, WITHIN_S, "it stands there")
        way.cut()
        await eventually_async(client._connection.trouble, WITHIN_S, "the connection is lost")
    with pytest.raises(SubmitUnknown) as unknown:
        await submitted
    assert (unknown.value.request_id, unknown.value.exit_code) == ("written", 4)


@pytest.mark.soak
async def test_a_client_outlives_the_broker(own_broker: LocalBroker, prefix: str, tmp_path: Path) -> None:
    """Killed and started again while replies are awaited: they come, and the next ask is as any other."""
    slow = Call.http("sample", "POST", "/echo?latency_ms=3000", json={"n": 3})
    with stage(SettingsFactory(str(own_broker.status().bootstrap), prefix), tmp_path, partitions=2) as on:
        on.worker().ready()
        async with Dispatcher(on.settings) as client:
            await client.ask(ECHO, key="doc:1", timeout=WITHIN_S)
            open_ = [asyncio.create_task(client.ask(slow, key=key, timeout=4 * WITHIN_S)) for key in ("doc:1", "doc:2", "doc:3")]
            await eventually_async(lambda: len(on.calls()) > 1, WITHIN_S, "a call is in hand")
            await asyncio.to_thread(own_broker.down, 0)
            await asyncio.to_thread(own_broker.up)
            assert [reply.json() for reply in await asyncio.gather(*open_)] == [{"n": 3}] * 3
            assert (await client.ask(ECHO, key="doc:1", timeout=WITHIN_S)).ok


async def test_a_thousand_open_asks_keep_a_thousand_ids(on: Stage) -> None:
    """64 MB of requests are open and answers to others go by: what is held is a fraction. One more waits for its turn."""
    async with Dispatcher(on.settings) as client:
        tracemalloc.start()
        tasks = [asyncio.create_task(_ask(client, number)) for number in range(OPEN)]
        try:
            await eventually_async(lambda: sum(on.positions()[1].values()) == OPEN, 2 * WITHIN_S, "all stand there")
            with pytest.raises(WaitTimeout, match="nothing was sent"):
                await client.ask(ECHO, key="doc:1", timeout=0.1)
            marks = [await client._connection.listener.watch(f"mark-{n}", [(on.settings.topics.replies, n)]) for n in range(2)]
            await asyncio.to_thread(_flood, on.settings)
            for mark in marks:
                await asyncio.wait_for(mark.found, 2 * WITHIN_S)  # all of the flood has been read
                client._connection.listener.release(mark)
            await eventually_async(lambda: tracemalloc.get_traced_memory()[0] < HELD_MAX_BYTES, WITHIN_S, "little is held")
        finally:
            tracemalloc.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(client: Dispatcher, number: int) -> None:
    call = Call.http("sample", "POST", "/echo", content=BODY[:-1] + b'%d"' % number, headers={"content-type": "application/json"})
    work = client.ask(call, key=f"doc:{number}", timeout=10 * WITHIN_S)
    del call
    await work


def _flood(settings: Settings) -> None:
    """Write replies that nobody here waits for, more than a client could hold; and one that is waited for at the end of each partition."""
    producer = clients.producer(settings)
    for number in range(OPEN):
        name = b"other-%d" % number
        producer.produce(settings.topics.replies, BODY, b"k", partition=number % 2, headers=[("ce_causationid", name)])
        producer.poll(0)
    for number in range(2):
        producer.produce(settings.topics.replies, b"{}", b"k", partition=number, headers=[("ce_causationid", b"mark-%d" % number)])
    assert producer.flush(WITHIN_S) == 0
