"""Cancelling on a real broker: a request ends once, wherever it is, and a call that runs is cut off; also across a crash."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dispatcher import CallFailed, Dispatcher, Receipt, Reply, SyncDispatcher, WaitTimeout
from dispatcher.client import Query, control, requests
from dispatcher.client.lanes import Lanes, lane
from dispatcher.core.lanes.ending import CUT_OFF
from dispatcher.core.operations.positions import START, Span
from tests.e2e.conftest import Run
from tests.e2e.stage import Stage, by_request, header, kill, stage
from tests.e2e.test_parking import SLOW, park_a_key
from tests.topics import SettingsFactory
from tests.waiting import eventually

WITHIN_S = 60.0
KEY = {"ordering": "key", "report_interval_s": 0.2}
# Nobody answers: whatever ends soon was cut off.
HANGS = "/echo?fault=hang"


@pytest.fixture
def set_up(settings: SettingsFactory, tmp_path: Path) -> Iterator[Stage]:
    """One partition, lanes per key."""
    with stage(settings, tmp_path, partitions=1, worker=KEY) as made:
        yield made


@pytest.fixture
def client(set_up: Stage) -> Iterator[SyncDispatcher]:
    """Give an open client."""
    with SyncDispatcher(set_up.settings) as made:
        yield made


def cancel(client: SyncDispatcher, wanted: Receipt | str, reason: str = "not wanted") -> Reply:
    """Cancel a request and wait for its end."""
    return client.cancel(wanted, reason=reason, timeout=WITHIN_S)


def kinds(reply: Reply) -> tuple[str, int, str | None]:
    """Status, calls, and what kind of end it was."""
    return reply.status.value, reply.attempts, None if reply.error is None else reply.error.kind


def commands(set_up: Stage) -> list[str]:
    """What stands in the control topic."""
    return [command.target for command in control.desired(set_up.settings, WITHIN_S).targets()]


def called(set_up: Stage, name: str) -> bool:
    """Whether a call of this request has come to the upstream."""
    return bool(set_up.calls(id=name))


def test_a_cancelled_request_ends_wherever_it_is(set_up: Stage, client: SyncDispatcher, run: Run) -> None:
    """Behind another one, in its backoff, paused: without a further call. In a call that hangs: the upstream sees its client leave.

    Each once, by id, by receipt, by its place, and by the command; asked again it says the same. What has been answered stays so.
    """
    set_up.worker().ready()
    replies = set_up.replies()
    set_up.submit(["doc:hangs", "doc:hangs", "doc:hangs"], HANGS, prefix="h")
    set_up.submit(["doc:waits"], "/echo?fault=429&retry_after=500&times=1", prefix="w")
    Lanes(set_up.settings, timeout_s=WITHIN_S).pause(lane("doc:held"))
    set_up.submit(["doc:held", "doc:free"], prefix="r")
    assert "ok" == client.wait("r-1", timeout=WITHIN_S).status
    eventually(lambda: called(set_up, "h-0") and set_up.calls(id="w-0", status=429), WITHIN_S, "their calls")
    assert ("cancelled", 0, "cancelled") == kinds(cancel(client, "h-1"))
    assert ("cancelled", 1, "cancelled") == kinds(cancel(client, "w-0"))
    held = by_place(set_up, "r-0")
    assert ("cancelled", 0, "cancelled") == kinds(cancel(client, held))
    cut = cancel(client, "h-0", "too slow")
    assert ("cancelled", 1, CUT_OFF) == kinds(cut)
    assert cut.error is not None
    assert ": too slow; call number 1 was cut off" in cut.error.message
    eventually(lambda: "end_s" in set_up.calls(id="h-0")[0], WITHIN_S, "the upstream sees it")
    eventually(lambda: called(set_up, "h-2"), WITHIN_S, "the next one of the lane")
    assert (cut, "ok") == (cancel(client, "h-0"), cancel(client, "r-1").status)
    with pytest.raises(CallFailed, match="no request"):
        cancel(client, "nobody")
    config = set_up.folder / "worker1.json.toml"
    for name, code, said in (("h-2", 0, "is cancelled"), ("r-1", 5, "nothing was cancelled")):
        done = run("--config", str(config), "cancel", name)
        assert (code, True) == (done.returncode, said in done.stdout + done.stderr), done
    found = by_request(replies.await_count(6))
    assert {"h-0", "h-1", "h-2", "w-0", "r-0", "r-1"} == set(found)
    assert ["h-0", "h-2", "w-0", "r-1"] == sorted({call["id"] for call in set_up.calls()}, key=["h-0", "h-2", "w-0", "r-1"].index)
    eventually(lambda: commands(set_up) == ["key:doc:held"], WITHIN_S, "only the pause is left")


def by_place(set_up: Stage, name: str) -> str:
    """Name a request by where it stands."""
    with requests(set_up.settings, Query(Span(START), until_end=True, request_id=name)) as search:
        record = next(iter(search))
    return f"{record.topic}/{record.partition}/{record.offset}"


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["aiohttp", "httpx"])
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_strict_lane_goes_on_behind_what_was_cut_off(settings: SettingsFactory, tmp_path: Path, engine: str, publishing: str) -> None:
    """Twenty calls that hang, in one lane of a partition, each cut off: each has one reply, and the next one begins then. Both engines."""
    worker = {"ordering": "partition", "http_engine": engine, "publishing": publishing}
    with stage(settings, tmp_path, partitions=1, worker=worker) as set_up, SyncDispatcher(set_up.settings) as client:
        set_up.worker().ready()
        replies = set_up.replies()
        names = set_up.submit(["doc:1", "doc:2"] * 10, HANGS)
        for name in names:
            eventually(lambda name=name: called(set_up, name), WITHIN_S, f"the call of {name}")  # type: ignore[misc]
            assert ("cancelled", 1, CUT_OFF) == kinds(cancel(client, name))
        assert set(names) == set(by_request(replies.await_count(20)))
        assert names == [call["id"] for call in set_up.calls()]
        eventually(lambda: all("end_s" in call for call in set_up.calls()), WITHIN_S, "the upstream sees each of them end")
        assert not commands(set_up)


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_cancel_outlives_a_worker_that_is_killed(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """The worker is dead when it is written, twice over: whoever takes the lane over reads it first, and starts no call of those.

    One had been called, one was queued. One that nobody cancelled is called again, under the same id.
    """
    with stage(settings, tmp_path, partitions=1, worker={"ordering": ordering}) as set_up, SyncDispatcher(set_up.settings) as client:
        worker = set_up.worker().ready()
        replies, names = set_up.replies(), list[str]()
        for turn in range(2):
            sent = set_up.submit(["doc:a", "doc:a", "doc:b"], HANGS, prefix=f"h{turn}")
            names += sent
            eventually(lambda sent=sent: called(set_up, sent[0]), WITHIN_S, "the first call")  # type: ignore[misc]
            kill(worker)
            for name in sent[:2]:
                with pytest.raises(WaitTimeout, match="stands written"):
                    client.cancel(name, timeout=5)
            before = len(set_up.calls(id=sent[0]))
            worker = set_up.worker().ready()
            assert ["cancelled"] * 2 == [client.wait(name, timeout=WITHIN_S).status for name in sent[:2]]
            assert (before, 0) == (len(set_up.calls(id=sent[0])), len(set_up.calls(id=sent[1])))
            eventually(lambda sent=sent: called(set_up, sent[2]), WITHIN_S, "the other one is called")  # type: ignore[misc]
            assert "cancelled" == cancel(client, sent[2]).status
        assert set(names) == set(by_request(replies.await_count(len(names))))
        assert not commands(set_up)


@pytest.mark.soak
def test_a_parked_request_is_cancelled_where_it_is(settings: SettingsFactory, tmp_path: Path) -> None:
    """The one that waits for its next try and those behind it: out of memory and log, and answered at once; one is left and called."""
    worker = {"ordering": "key", "lane_buffer_max_records": 8, "commit_interval_ms": 0}
    with stage(settings, tmp_path, partitions=1, worker=worker) as set_up, SyncDispatcher(set_up.settings) as client:
        set_up.worker().ready()
        replies = set_up.replies()
        names = park_a_key(set_up, replies)
        for name in names[:5]:
            assert ("cancelled", int(name == names[0]), "cancelled") == kinds(cancel(client, name))
        assert Lanes(set_up.settings, timeout_s=WITHIN_S).resume(lane(SLOW)).changed
        assert "ok" == client.wait(names[5], timeout=WITHIN_S).status
        assert [names[0], names[5]] == [call["id"] for call in set_up.calls(key=SLOW)]
        assert set(names) == set(by_request(replies.await_count(len(names))))
        assert not commands(set_up)


@pytest.mark.soak
@pytest.mark.parametrize("ordering", ["key", "partition"])
async def test_what_has_not_been_read_is_cancelled_when_it_is(settings: SettingsFactory, tmp_path: Path, ordering: str) -> None:
    """Every other request of a backlog is cancelled, all at once, before there is a worker: none of them is called, the others in order."""
    worker = {"ordering": ordering, "lane_buffer_max_records": 8}
    with stage(settings, tmp_path, partitions=1, worker=worker) as set_up:
        names = set_up.submit(["doc:1", "doc:2"] * 60)
        unwanted = names[::3]
        async with Dispatcher(set_up.settings) as client:
            cancels = [client.cancel(name, timeout=WITHIN_S / 4) for name in unwanted]
            assert all(isinstance(one, WaitTimeout) for one in await asyncio.gather(*cancels, return_exceptions=True))
            left = len(commands(set_up))
            assert len(unwanted) == left
            set_up.worker().ready()
            replies = set_up.replies()
            found = by_request(replies.await_count(len(names)))
            expected = {name: "cancelled" if name in unwanted else "ok" for name in names}
            assert expected == {name: header(record, "dispatcher-status") for name, record in found.items()}
            for parity in (0, 1) if ordering == "key" else (0,):
                lane_of = [name for number, name in enumerate(names) if ordering == "partition" or number % 2 == parity]
                calls = [call["id"] for call in set_up.calls() if call["id"] in lane_of]
                assert [name for name in lane_of if name not in unwanted] == calls
            again = await asyncio.gather(*(client.cancel(name, timeout=WITHIN_S) for name in names[:10]))
            assert [expected[name] for name in names[:10]] == [reply.status for reply in again]
        eventually(lambda: not commands(set_up), WITHIN_S, "no command is left")


@pytest.mark.soak
def test_a_receipt_of_a_topic_that_was_made_anew_cancels_nobody(set_up: Stage, client: SyncDispatcher) -> None:
    """At its place another request stands: the receipt's id tells, and so does the topic's id in a position."""
    set_up.worker().ready()
    set_up.submit(["doc:1"], HANGS)
    eventually(lambda: called(set_up, "r-0"), WITHIN_S, "its call")
    place = by_place(set_up, "r-0")
    topic, number, offset = place.split("/")
    other = Receipt("r-9", topic, int(number), int(offset), b"doc:1", "2026-11-29T10:00:00.000Z")
    for wanted in (other, f"{place}@AbCdEfGh", Receipt.from_json(json.loads(json.dumps(other.as_json() | {"topic": "another"})))):
        with pytest.raises(CallFailed, match="no request"):
            cancel(client, wanted)
    assert not commands(set_up)
    assert "cancelled" == cancel(client, place).status
