"""A slot: one worker has it, keeps its partitions over a crash or a restart, and gives them to the others when it ends for good."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from dispatcher.adapters.kafka.admin import connect
from dispatcher.adapters.kafka.group import owners
from dispatcher.core.operations.lane_board import slot_of
from tests.e2e.stage import Process, Stage, Worker, assert_all_is_well, kill, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually

CANNOT = 3
PROTOCOLS = ["consumer", "cooperative", "eager"]


def _words(ended: Process) -> str:
    """Wait for its end; give its last words, a sentence and a hint."""
    assert ended.wait() == CANNOT, ended.text()
    assert "Traceback" not in ended.text()
    words = [line for line in ended.text().splitlines() if not line.startswith("{")]
    assert ["error", "hint"] == [line.partition(":")[0] for line in words], words
    return "\n".join(words)


def _owned(set_up: Stage) -> dict[str, set[int]]:
    """Name the partitions of each slot, as the group tells; those of a worker that is gone too, as long as the group waits for it."""
    found: dict[str, set[int]] = {}
    for partition, client_id in owners(connect(set_up.settings, 30), set_up.settings).items():
        found.setdefault(slot_of(client_id), set()).add(partition)
    return found


def _pair(set_up: Stage, protocol: str, **worker: Any) -> tuple[Worker, Worker]:
    """Start two workers that share the partitions."""
    pair = set_up.worker(slot="a", protocol=protocol, **worker).ready(), set_up.worker(slot="b", protocol=protocol, **worker).ready()
    eventually(lambda: [2, 2] == [len(one.live()) for one in pair] == [len(part) for part in _owned(set_up).values()], what="each has two")
    return pair


def _moves(worker: Worker) -> int:
    return sum(len(worker.events(event)) for event in ("assigned", "revoked", "lost", "handed_over"))


LEAVE, KEEP = {"on_stop": "leave"}, {"on_stop": "keep"}


@pytest.mark.parametrize(
    ("protocol", "worker"),
    [
        pytest.param("consumer", LEAVE, marks=pytest.mark.soak),
        ("cooperative", LEAVE),
        pytest.param("eager", LEAVE, marks=pytest.mark.soak),
        pytest.param("consumer", KEEP, marks=pytest.mark.soak),
        pytest.param("consumer", {"publishing": "at_least_once"}, marks=pytest.mark.soak),
        pytest.param("cooperative", {"publishing": "at_least_once"}, marks=pytest.mark.soak),
    ],
)
def test_of_two_workers_of_one_slot_one_ends(settings: SettingsFactory, tmp_path: Path, protocol: str, worker: dict[str, str]) -> None:
    """It says what is wrong and exits with 3; the other one answers everything once.

    That its `/readyz` is red until it has ended is seen where the end can be held up (`worker/test_process.py`): here it is too short.
    A classic group gives the newer one the place. Under KIP-848 the older one looks, or their producers fence each other; where it keeps
    its place, the newer one is refused until it gives up, and never ready.
    """
    with stage(settings, tmp_path, latency_ms=5, partitions=2, worker=worker | {"protocol": protocol}) as set_up:
        replies = set_up.replies()
        names = set_up.submit([f"doc:{n}" for n in range(100)])
        first = set_up.worker(slot="same").ready()
        replies.await_count(10)
        second = set_up.worker(slot="same")
        names += set_up.submit([f"doc:{n}" for n in range(100)], prefix="second")
        answers = _health_until_one_ends(first, second)
        ended, other = (second, first) if second.popen.poll() is not None else (first, second)
        words = _words(ended)
        assert "another worker has the slot 'same'" in words
        assert "its own worker.slot" in words
        if worker == KEEP:
            assert ended is second
            assert httpx.codes.OK not in answers
        elif protocol != "consumer":
            assert ended is first
            assert [event for event in ended.events("kafka_client") if "nstance" in event["message"]], "the log says why"
        replies.await_count(len(names))
        assert_all_is_well(set_up, names, replies.records, duplicates="publishing" in worker)
        assert httpx.codes.OK == other.ready().get("/readyz").status_code
        other.signal(signal.SIGTERM)
        assert 0 == other.wait()


def test_of_two_idle_workers_of_one_slot_one_ends(settings: SettingsFactory, tmp_path: Path) -> None:
    """Nothing is published, so that no producer meets the other's: the one that was there before looks, and goes.

    Where the second came before the first had looked, they are there before each other: one of them goes, once no predecessor can be left.
    """
    with stage(settings, tmp_path, partitions=2, worker={"protocol": "consumer"}) as set_up:
        both = [set_up.worker(slot="same").ready() for _ in range(2)]
        (gone,) = eventually(lambda: [one for one in both if one.popen.poll() is not None], 120, "one of the two has ended")
        (left,) = (one for one in both if one is not gone)
        assert "another worker has the slot 'same'" in _words(gone)
        replies, names = set_up.replies(), set_up.submit(["doc:1"])
        replies.await_count(1)
        assert_all_is_well(set_up, names, replies.records)
        assert left.popen.poll() is None


def _health_until_one_ends(first: Worker, second: Worker) -> set[int]:
    """Ask the second one whether it is ready, again and again until one of the two has ended; give what it answered."""
    found: set[int] = set()

    def ask() -> bool:
        if first.popen.poll() is not None or second.popen.poll() is not None:
            return True
        with suppress(httpx.TransportError):  # It ends just now.
            found.add(second.get("/readyz").status_code)
        return False

    second.url()
    eventually(ask, what="one of the two has ended")
    return found


@pytest.mark.soak
@pytest.mark.faults
@pytest.mark.parametrize(("protocol", "on_stop"), [*((protocol, "leave") for protocol in PROTOCOLS), ("consumer", "keep")])
def test_who_comes_back_after_a_crash_goes_on(settings: SettingsFactory, tmp_path: Path, protocol: str, on_stop: str) -> None:
    """The same slot, started again at once: everything is answered once, and classic groups move nothing of the other worker's.

    KIP-848 gives a place that is kept back only when the session of the dead one has run out: the new one waits for it.
    """
    with stage(settings, tmp_path, latency_ms=20, partitions=4) as set_up:
        replies = set_up.replies()
        first, other = _pair(set_up, protocol, on_stop=on_stop)
        theirs, moves = first.live(), _moves(other)
        names = set_up.submit([f"doc:{n}" for n in range(400)])
        replies.await_count(40)
        kill(first)
        again = set_up.worker(slot="a", protocol=protocol, on_stop=on_stop)
        replies.await_count(len(names))
        again.ready()
        if protocol != "consumer":
            assert (theirs, moves) == (again.live(), _moves(other))
        assert_all_is_well(set_up, names, replies.records)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_that_ends_leaves_its_partitions_to_the_others(settings: SettingsFactory, tmp_path: Path, protocol: str) -> None:
    """SIGTERM, with 0 to come back: when the process has ended nothing is kept for it, though its name is known to the group."""
    with stage(settings, tmp_path, partitions=4) as set_up:
        first, other = _pair(set_up, protocol)
        first.signal(signal.SIGTERM)
        assert 0 == first.wait()
        assert "a" not in _owned(set_up)
        eventually(lambda: other.live() == {0, 1, 2, 3}, what="the other one has all")
        idle = set_up.worker(slot="a", protocol=protocol).ready()
        eventually(lambda: len(idle.live()) == 2, what="it comes back")


@pytest.mark.soak
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_worker_may_keep_its_partitions_for_a_restart(settings: SettingsFactory, tmp_path: Path, protocol: str) -> None:
    """`on_stop = "keep"`: stopped in order and started again, it has the partitions that it had, and the other one notices nothing."""
    with stage(settings, tmp_path, latency_ms=5, partitions=4) as set_up:
        replies = set_up.replies()
        first, other = _pair(set_up, protocol, on_stop="keep")
        theirs, moves = first.live(), _moves(other)
        names = set_up.submit([f"doc:{n}" for n in range(200)])
        replies.await_count(20)
        first.signal(signal.SIGTERM)
        again = set_up.worker(slot="a", protocol=protocol, on_stop="keep")
        assert 0 == first.wait()
        replies.await_count(len(names))
        assert (theirs, moves) == (again.ready().live(), _moves(other))
        assert_all_is_well(set_up, names, replies.records)
        assert {"same_epoch": 0, "other_epoch": 0} == set_up.witness()["repeated"], "a stop in order repeats nothing"
