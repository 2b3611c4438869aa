"""The Python client on a real broker, with a worker and an upstream as processes."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import AsyncIterator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.cimpl import NewTopic

from dispatcher import (
    AskTimeout,
    Call,
    ConfigError,
    Dispatcher,
    DispatcherError,
    OwnLane,
    Receipt,
    ReplyGone,
    Request,
    Settings,
    SyncDispatcher,
    WaitTimeout,
    serving,
)
from dispatcher.adapters.kafka import clients
from dispatcher.client.lookback import SEARCHES_MAX
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.submission import Submission
from tests.e2e.stage import Process, Stage, kill, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually, eventually_async

WITHIN_S = 60
ECHO = Call.http("sample", "POST", "/echo", json={"n": 1})


@pytest.fixture(scope="module")
def on(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Set a stage with one worker, for all tests that do not mind each other: they have their own ids."""
    factory = SettingsFactory(kafka, f"t-{uuid.uuid4().hex[:12]}")
    with stage(factory, tmp_path_factory.mktemp("stage"), partitions=3) as made:
        made.worker().ready()
        yield made
    factory.clean()


@pytest.fixture
def alone(settings: SettingsFactory, tmp_path: Path) -> Iterator[Stage]:
    """Set a stage with one worker for one test."""
    with stage(settings, tmp_path, partitions=3) as made:
        made.worker().ready()
        yield made


@pytest.fixture
async def client(on: Stage) -> AsyncIterator[Dispatcher]:
    """Give an open client."""
    async with Dispatcher(on.settings) as made:
        yield made


def key_of(partition: int, count: int = 3) -> str:
    """Find a key of a partition."""
    return next(key for key in (f"doc:{n}" for n in range(1000)) if partition_for(key.encode(), count) == partition)


def groups_of(settings: Settings) -> set[str]:
    """Name the broker's groups."""
    admin = clients.admin(settings)  # by name: one that is collected takes its answers with it
    return {group.group_id for group in admin.list_consumer_groups(request_timeout=30).result(30).valid}


def asker(on: Stage, name: str, asks: int, *mode: str) -> Process:
    """Start a process that asks."""
    path = on.folder / "settings.json"
    path.write_text(json.dumps(on.settings.model_dump(mode="json", include={"kafka", "topics"})))
    return Process(name, ["-m", "tests.e2e.asker", str(path), name, str(asks), *mode], on.folder)


def replies_of(process: Process) -> list[dict[str, Any]]:
    """Give what an asker printed of its replies, once it has ended well."""
    assert process.wait(240) == 0, process.text()
    return [line for line in map(json.loads, process.text().splitlines()) if "asked" in line]


@pytest.mark.parametrize(("processes", "asks"), [(3, 30), pytest.param(20, 50, marks=pytest.mark.soak)])
def test_many_processes_get_their_own_replies(on: Stage, processes: int, asks: int) -> None:
    """Row 12: all replies are one's own, no group is created, and no topic."""
    askers = [asker(on, f"asker{number}", asks) for number in range(processes)]
    try:
        for number, process in enumerate(askers):
            found = replies_of(process)
            assert {(f"asker{number}", n) for n in range(asks)} == {(each["got"]["asker"], each["got"]["number"]) for each in found}
            assert all(each["ok"] and each["got"] == each["asked"] == each["metadata"] for each in found)
    finally:
        for process in askers:
            process.close()
    ours = {name for name in groups_of(on.settings) if name.startswith(on.settings.topics.prefix) or "dispatcher" in name}
    assert ours == {on.settings.worker.group}
    topics = {name for name in clients.admin(on.settings).list_topics(timeout=30).topics if name.startswith(on.settings.topics.prefix)}
    names = ("requests", "replies", "dlq", "parked", "journal", "state", "control", "workers")
    assert topics == {f"{on.settings.topics.prefix}.{name}" for name in names}


@pytest.mark.parametrize(("processes", "asks"), [(2, 10), pytest.param(4, 50, marks=pytest.mark.soak)])
def test_a_cold_client_s_first_ask_loses_nothing(on: Stage, processes: int, asks: int) -> None:
    """Row 13: each ask is the first of its client, with an upstream that answers at once; none waits for a reply that it missed."""
    askers = [asker(on, f"cold{number}", asks, "cold") for number in range(processes)]
    try:
        for process in askers:
            assert list(range(asks)) == [each["got"]["number"] for each in replies_of(process)]
    finally:
        for process in askers:
            process.close()


def test_an_asker_that_was_killed_has_its_reply_waited_for(on: Stage) -> None:
    """SIGKILL while another process waits for its reply: a new client waits with the id, or with a receipt that was kept as JSON."""
    with SyncDispatcher(on.settings) as client:
        slow = Call.http("sample", "POST", "/echo?latency_ms=3000", json={"n": 2})
        kept = json.dumps(client.submit(slow, key="doc:0").as_json())
    ends = sum(on.positions()[1].values())
    killed = asker(on, "killed", 1)
    try:
        eventually(lambda: sum(on.positions()[1].values()) > ends, WITHIN_S, "its request stands in the lane")
        kill(killed)
        assert "asked" not in killed.text()
    finally:
        killed.close()
    with SyncDispatcher(on.settings) as client:
        assert client.wait("killed-0", timeout=WITHIN_S).metadata == {"asker": "killed", "number": 0}
        assert client.wait(Receipt.from_json(json.loads(kept)), timeout=WITHIN_S).json() == {"n": 2}


async def test_an_ask_tells_all_that_became_of_it(client: Dispatcher) -> None:
    """Status, body as it was written, metadata, place; a failure is a reply too."""
    call = Call.http("sample", "POST", "/echo", content=b'{"n": 1.10}', headers={"content-type": "application/json"})
    reply = await client.ask(call, key="doc:1", request_id="mine", metadata=[1], timeout=WITHIN_S)
    assert (reply.ok, reply.request_id, reply.content, reply.metadata, reply.attempts) == (True, "mine", b'{"n": 1.10}', [1], 1)
    assert reply.partition == partition_for(b"doc:1", 3)
    refused = await client.ask(Call("nobody"), key="doc:1", timeout=WITHIN_S)
    assert (refused.ok, refused.status, refused.reason) == (False, "dead", "unknown_upstream")
    failed = await client.ask(Call.http("sample", "GET", "/status/404"), key="doc:1", timeout=WITHIN_S)
    assert failed.http is not None
    assert (failed.status, failed.http.status) == ("error", 404)


async def test_a_reply_is_waited_for_by_receipt_id_or_position(client: Dispatcher) -> None:
    """Before it is there and afterwards; an id that we made, one of somebody else, and a place with its topic's id or without."""
    slow = Call.http("sample", "POST", "/echo?latency_ms=300", json={})
    for name in (None, "order/77"):
        receipt = await client.submit(slow, key="doc:1", request_id=name)
        place = f"{receipt.topic}/{receipt.partition}/{receipt.offset}"
        early = await client.wait(receipt, timeout=WITHIN_S)
        for known in (receipt, receipt.request_id, place):
            assert (await client.wait(known, timeout=WITHIN_S)).offset == early.offset


async def test_what_looks_like_a_position_may_be_an_id(client: Dispatcher) -> None:
    """Of whatever partition the request is. Only in the request topic is it a position, and there its partition must exist: exit 2."""
    receipt = await client.submit(ECHO, key=key_of(1))
    for name in ("order/2/7", "order/0/7"):
        receipt = await client.submit(ECHO, key=key_of(1), request_id=name)
        assert (await client.wait(name, timeout=WITHIN_S)).source == (receipt.topic, receipt.partition, receipt.offset)
    with pytest.raises(WaitTimeout):
        await client.wait("nope/0/0", timeout=1)
    for unknown in (f"{receipt.topic}/99/0", replace(receipt, partition=99)):
        with pytest.raises(ConfigError, match="has no partition 99"):
            await client.wait(unknown, timeout=WITHIN_S)


async def test_a_position_is_of_one_topic(client: Dispatcher) -> None:
    """With another topic's id it is another request, and a request that is called like one keeps its own reply."""
    receipt = await client.submit(ECHO, key=key_of(2))
    place = f"{receipt.topic}/{receipt.partition}/{receipt.offset}"
    reply = await client.wait(place, timeout=WITHIN_S)
    assert reply.source == (receipt.topic, receipt.partition, receipt.offset)
    with pytest.raises((WaitTimeout, ReplyGone)):
        await client.wait(f"{place}@AAAAAAAA", timeout=1)
    asked = await client.ask(ECHO, key=key_of(2), request_id=place, timeout=WITHIN_S)
    assert asked.source != reply.source
    assert [each.source async for each in client.replies("start", follow=False, request_id=place)] == [reply.source]
    assert [each async for each in client.replies("start", follow=False, request_id=f"{place}@AAAAAAAA")] == []


async def test_what_others_write_under_an_id_is_passed_over(client: Dispatcher, on: Stage, caplog: pytest.LogCaptureFixture) -> None:
    """A tombstone, no JSON, and the reply to another request of that id: an open ask and a later wait get the true reply behind them."""
    slow = Call.http("sample", "POST", "/echo?latency_ms=2000", json={"n": 4})
    asked = asyncio.create_task(client.ask(slow, key=key_of(0), request_id="contested", timeout=WITHIN_S))
    await eventually_async(lambda: on.calls(id="contested"), WITHIN_S, "the call is made")
    other = [("ce_causationid", b"contested"), ("dispatcher-duration-ms", b"1"), ("dispatcher-request-topic", b"other")]
    other += [("dispatcher-request-partition", b"0"), ("dispatcher-request-offset", b"1")]
    producer = clients.producer(on.settings)
    for value in (None, b"{nope", b'{"status": "ok", "attempts": 1}'):
        producer.produce(on.settings.topics.replies, value, b"k", partition=0, headers=list(other))
    assert producer.flush(WITHIN_S) == 0
    with caplog.at_level("WARNING", "dispatcher.client"):
        reply = await asked
        assert reply.json() == {"n": 4}
        receipt = Receipt("contested", *reply.source, reply.key, "2026-11-29T10:00:00Z")
        assert (await client.wait(receipt, timeout=WITHIN_S)).offset == reply.offset
    assert "is not a reply" in caplog.text
    assert "is the reply to other/0/1" in caplog.text


async def test_a_wait_does_not_trust_clocks(client: Dispatcher, on: Stage) -> None:
    """A receipt of a machine whose clock is an hour ahead: the group's position says that the request is settled, and it is found."""
    receipt = await client.submit(ECHO, key="doc:1")
    reply = await client.wait(receipt, timeout=WITHIN_S)
    ahead = replace(receipt, time="2100-01-01T00:00:00.000Z")
    assert (await client.wait(ahead, timeout=WITHIN_S)).offset == reply.offset


async def test_a_reply_that_retention_took_is_told(alone: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, and not a wait for ever; exit 1. A request that nobody knows is waited for to the end: exit 4."""
    monkeypatch.setattr("dispatcher.client.waiting.SETTLE_S", 0.5)
    async with Dispatcher(alone.settings) as client:
        reply = await client.ask(ECHO, key="doc:1", request_id="taken", timeout=WITHIN_S)
        receipt = await client.submit(ECHO, key="doc:1")
        await client.wait(receipt, timeout=WITHIN_S)
        admin = clients.admin(alone.settings)  # by name: one that is collected takes its answers with it
        end = TopicPartition(reply.topic, reply.partition, -1)
        admin.delete_records([end])[end].result(30)
        with pytest.raises(ReplyGone, match=r"is not in .* any more") as gone:
            await client.wait(receipt, timeout=WITHIN_S)
        with pytest.raises(WaitTimeout, match="no reply to request taken") as late:
            await client.wait("taken", timeout=1)
    assert (gone.value.exit_code, late.value.exit_code) == (1, 4)


async def test_many_submits_keep_their_order(client: Dispatcher) -> None:
    """From a cold client on, and so do errors: one item that cannot be sent is told in its place and holds up nobody."""

    async def requests() -> AsyncIterator[Request]:
        for number in range(300):
            yield Request(Call("sample", path="no path" if number == 7 else "/echo"), "many:1", request_id=f"r-{number}")

    outcomes = [outcome async for outcome in client.submit_many(requests())]
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, ConfigError)] == [7]
    receipts = [outcome for outcome in outcomes if isinstance(outcome, Receipt)]
    assert [receipt.request_id for receipt in receipts] == [f"r-{number}" for number in range(300) if number != 7]
    assert sorted(receipt.offset for receipt in receipts) == [receipt.offset for receipt in receipts]
    answered = [reply.request_id async for reply in client.replies("start", end="end", key="many:1")]
    assert answered == [receipt.request_id for receipt in receipts][: len(answered)]


async def test_what_stands_there_can_be_read(alone: Stage) -> None:
    """Replies by key and time, dead letters by reason, to the end or as they come."""
    async with Dispatcher(alone.settings) as client:
        following = client.replies(key="doc:2")
        waiting = asyncio.create_task(anext(following))
        for key in ("doc:1", "doc:2"):
            await client.ask(Call("nobody"), key=key, timeout=WITHIN_S)
            await client.ask(ECHO, key=key, timeout=WITHIN_S)
        statuses = [(reply.key, reply.status.value) async for reply in client.replies("@-1h", follow=False, key="doc:2")]
        assert statuses == [(b"doc:2", "dead"), (b"doc:2", "ok")]
        letters = [(letter.key, letter.reason) async for letter in client.dead_letters(reason="unknown_upstream")]
        assert sorted(letters) == [(b"doc:1", "unknown_upstream"), (b"doc:2", "unknown_upstream")]
        assert [letter async for letter in client.dead_letters(reason="malformed")] == []
        # Whether the reader was at the end before these replies is not known: it has seen one of them, or sees one of the next.
        while not waiting.done():
            await client.ask(ECHO, key="doc:2", timeout=WITHIN_S)
        assert (await waiting).key == b"doc:2"


async def test_private_replies(settings: SettingsFactory, tmp_path: Path, prefix: str) -> None:
    """A tenant's own reply topic and partition: its replies go there, and its receipts say so to whoever waits."""
    private = f"{prefix}.tenant"
    with stage(settings, tmp_path, partitions=3, topics={"reply_topics": [private]}) as made:
        admin = clients.admin(made.settings)
        admin.create_topics([NewTopic(private, num_partitions=2, replication_factor=1)])[private].result(30)
        made.worker().ready()
        async with Dispatcher(made.settings, reply_topic=private, reply_partition=1) as tenant, Dispatcher(made.settings) as other:
            reply = await tenant.ask(ECHO, key=key_of(2), timeout=WITHIN_S)
            assert (reply.topic, reply.partition) == (private, 1)
            receipt = Receipt.from_json(json.loads(json.dumps((await tenant.submit(ECHO, key="doc:1")).as_json())))
            assert (receipt.reply_topic, receipt.reply_partition) == (private, 1)
            assert (await other.wait(receipt, timeout=WITHIN_S)).topic == private
            assert (await tenant.wait(receipt.request_id, timeout=WITHIN_S)).topic == private
            assert [reply.topic async for reply in tenant.replies("start", follow=False)] == [private] * 2
        admin.delete_topics([private])[private].result(30)


async def test_one_s_own_lane_is_refused_at_once(client: Dispatcher, on: Stage) -> None:
    """While a call of a lane is answered, nobody may wait in it; other lanes, and sending alone, are fine."""
    call = {"Dispatcher-Topic": on.settings.topics.requests, "Dispatcher-Partition": "1", "Dispatcher-Offset": "0"}
    with serving(call):
        with pytest.raises(OwnLane):
            await client.ask(ECHO, key=key_of(1), timeout=WITHIN_S)
        assert (await client.ask(ECHO, key=key_of(2), timeout=WITHIN_S)).ok
        receipt = await client.submit(ECHO, key=key_of(1))
        with pytest.raises(OwnLane):
            await client.wait(receipt)
    assert (await client.wait(receipt, timeout=WITHIN_S)).ok


async def test_an_ask_that_was_given_up_leaves_nothing_behind(client: Dispatcher, on: Stage) -> None:
    """Cancelled before it begins or while it waits: nothing is kept, and the request is answered all the same."""
    slow = Call.http("sample", "POST", "/echo?latency_ms=400", json={})
    tasks = [asyncio.create_task(client.ask(slow, key="doc:1", request_id=f"given-up-{n}", timeout=WITHIN_S)) for n in range(3)]
    tasks[0].cancel()  # before its first step
    await eventually_async(lambda: on.calls(id="given-up-1"), WITHIN_S, "a call")
    for task in tasks:
        task.cancel()
    assert [type(found) for found in await asyncio.gather(*tasks, return_exceptions=True)] == [asyncio.CancelledError] * 3
    listener = client._connection.listener
    assert [reading.watches for reading in listener._readings.values()] == [set()]
    await eventually_async(lambda: not listener._poller._awaited, WITHIN_S, "nothing is waited for")
    assert client._turns._free == client._asks_max
    for name in ("given-up-1", "given-up-2"):
        assert (await client.wait(name, timeout=WITHIN_S)).ok


async def test_an_ask_that_was_given_up_while_it_looks_up_leaves_nothing_behind(on: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cancelled or timed out before the end of the replies is known, or before the acknowledgement: the next ask is as any other."""
    async with Dispatcher(on.settings) as client:
        connection = client._connection
        looks, known, ends = asyncio.Event(), asyncio.Event(), connection._inquiry.ends

        async def slow(places: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
            looks.set()
            await known.wait()
            return await ends(places)

        monkeypatch.setattr(connection._inquiry, "ends", slow)
        given_up = asyncio.create_task(client.ask(ECHO, key="doc:1", timeout=WITHIN_S))
        await asyncio.wait_for(looks.wait(), WITHIN_S)
        with pytest.raises(WaitTimeout, match=r"nothing was sent within 0\.2 s") as late:
            await client.ask(ECHO, key="doc:1", timeout=0.2)
        assert late.value.exit_code == 4
        given_up.cancel()
        await asyncio.wait({given_up})
        known.set()
        assert (await client.ask(ECHO, key="doc:1", timeout=WITHIN_S)).ok
        send = connection.send

        def sent(submission: Submission) -> Any:
            given_up.cancel()
            return send(submission)

        with monkeypatch.context() as patch:
            patch.setattr(connection, "send", sent)
            given_up = asyncio.create_task(client.ask(ECHO, key="doc:1", timeout=WITHIN_S))
            await asyncio.wait({given_up})
        assert given_up.cancelled()
        assert (await client.ask(ECHO, key="doc:1", timeout=WITHIN_S)).ok
        await eventually_async(lambda: not connection.listener._poller._awaited, WITHIN_S, "nothing is waited for")
        assert [reading.watches for reading in connection.listener._readings.values()] == [set()]
        assert client._turns._free == client._asks_max


async def test_a_client_that_is_closed_tells_where_the_request_stands(on: Stage) -> None:
    """An ask that was acknowledged ends with its receipt, for whoever waits next."""
    slow = Call.http("sample", "POST", "/echo?latency_ms=2000", json={"n": 3})
    async with Dispatcher(on.settings) as client:
        before = sum(on.positions()[1].values())
        asked = asyncio.create_task(client.ask(slow, key="doc:1", request_id="orphan", timeout=WITHIN_S))
        await eventually_async(lambda: sum(on.positions()[1].values()) > before, WITHIN_S, "its request stands in the lane")
    with pytest.raises(AskTimeout, match="is in its topic") as closed:
        await asked
    async with Dispatcher(on.settings) as client:
        assert (await client.wait(closed.value.receipt, timeout=WITHIN_S)).json() == {"n": 3}


async def test_many_wait_at_once_with_few_connections(on: Stage) -> None:
    """Forty replies that stand there are found by eight searches at a time; no thread and no file stays open."""
    async with Dispatcher(on.settings) as client:
        receipts = [
            outcome
            async for outcome in client.submit_many(Request(ECHO, f"doc:{n}", request_id=f"many-{n}") for n in range(40))
            if isinstance(outcome, Receipt)
        ]
        for receipt in receipts:
            await client.wait(receipt, timeout=WITHIN_S)
        waiting = [asyncio.create_task(client.wait(receipt, timeout=2 * WITHIN_S)) for receipt in receipts]
        most = 0
        while not all(task.done() for task in waiting):
            most = max(most, [thread.name for thread in threading.enumerate()].count("dispatcher-feed"))
            await asyncio.wait(waiting, timeout=0.02)
        assert [task.result().request_id for task in waiting] == [f"many-{n}" for n in range(40)]
        assert most <= SEARCHES_MAX
        await eventually_async(lambda: "dispatcher-feed" not in {thread.name for thread in threading.enumerate()})


async def test_a_partition_that_does_not_exist_is_named(on: Stage) -> None:
    """As a matter of arguments, before anything is sent: exit 2. In a receipt, too."""
    replies = on.settings.topics.replies
    async with Dispatcher(on.settings, reply_partition=99) as client:
        for work in (client.ask(ECHO, key="doc:1", timeout=WITHIN_S), client.submit(ECHO, key="doc:1"), client.wait("x", timeout=WITHIN_S)):
            with pytest.raises(ConfigError, match=f"topic {replies} has no partition 99"):
                await work
    async with Dispatcher(on.settings) as client:
        receipt = replace(await client.submit(ECHO, key="doc:1"), reply_partition=99)
        with pytest.raises(ConfigError, match=f"topic {replies} has no partition 99"):
            await client.wait(receipt, timeout=WITHIN_S)
        with pytest.raises(WaitTimeout, match="nothing was sent within 0 s"):
            await client.ask(ECHO, key="doc:1", timeout=0)


def test_the_synchronous_twin(alone: Stage) -> None:
    """The same, from several threads at once; the lane that is served travels with the caller; the loop ends with the client."""
    with SyncDispatcher(alone.settings) as client:
        with ThreadPoolExecutor(8) as pool:
            asked = [
                pool.submit(client.ask, Call.http("sample", "POST", "/echo", json=n), key=f"doc:{n}", timeout=WITHIN_S) for n in range(40)
            ]
            assert [future.result().json() for future in asked] == list(range(40))
        with serving({"Dispatcher-Partition": "1", "Dispatcher-Offset": "0"}), pytest.raises(OwnLane):
            client.ask(ECHO, key=key_of(1), timeout=WITHIN_S)
        outcomes = list(client.submit_many(Request(ECHO, "doc:1", request_id=f"r-{n}") for n in range(50)))
        assert [outcome.request_id for outcome in outcomes if isinstance(outcome, Receipt)] == [f"r-{n}" for n in range(50)]
        assert client.wait(outcomes[-1] if isinstance(outcomes[-1], Receipt) else "", timeout=WITHIN_S).ok
        assert len(list(client.replies("start", follow=False))) == 90
        assert list(client.dead_letters()) == []
        waiting = ThreadPoolExecutor(1).submit(client.wait, "never")
        eventually(lambda: client._client._turns._free < client._client._asks_max, WITHIN_S, "it waits")
    with pytest.raises(DispatcherError, match=r"closed|not open"):
        waiting.result(WITHIN_S)
    eventually(lambda: not {t.name for t in threading.enumerate()} & {"dispatcher-loop", "dispatcher-listener", "dispatcher-sender"})
