"""One worker's connection to Kafka is harmed while another's is not, and heals.

The tests' own clients and the other worker go to the broker directly: what is judged is the worker behind the proxy, and that its
trouble is nobody else's.
"""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher.errors import BrokerError
from tests.e2e.history import assert_guarantees, epochs_of, judged_stage
from tests.e2e.proxy import Proxy
from tests.e2e.stage import Replies, Stage, Worker, assert_all_is_well, ids
from tests.topics import GroupProtocol, SettingsFactory
from tests.waiting import eventually, let_pass

pytestmark = [pytest.mark.broker, pytest.mark.faults]
SOAK = (pytest.mark.soak,)

PARTITIONS = 2
LATENCY_MS = 20
KEYS = 80
SESSION_S = 6  # on our own brokers
# How long a worker goes on without being able to publish (`transaction_timeout_s`): less than by default, since a test waits for it.
PATIENCE_S = 5
# Work for every partition beyond that, so that a worker that is cut off holds more than it may begin.
MORE_S = 6
# A worker with work that has begun no call for so long, where one takes 20 ms, has stopped.
QUIET_S = 3


@pytest.fixture
def factory(beside: str, prefix: str) -> SettingsFactory:
    """Make settings for the broker itself."""
    return SettingsFactory(beside, prefix)


HARMS: dict[str, Callable[[Proxy], None]] = {
    "cut": Proxy.cut,
    "half_open": Proxy.half_open,
    "answers_lost": lambda way: way.swallow("answers"),
    "requests_lost": lambda way: way.swallow("requests"),
    # A request and its answer take longer than a session, and less than the client's patience (10 s).
    "too_late": lambda way: way.delay(4),
}
# What the others show is shown by this one as well, or by the chaos run, which cuts, delays and half-opens; `make faults` runs all.
ALWAYS = ("cut", "exactly_once")


def _cases() -> list[object]:
    cases: list[tuple[str, dict[str, Any]]]
    cases = [(harm, {"publishing": publishing}) for harm in HARMS for publishing in ("exactly_once", "at_least_once")]
    cases += [("half_open", {"protocol": "cooperative"}), ("half_open", {"protocol": "eager"}), ("cut", {"transaction_timeout_s": 10})]
    cases += [(harm, {"ordering": "key"}) for harm in HARMS]
    return [
        pytest.param(harm, worker, id=f"{harm}-{value}", marks=() if (harm, value) == ALWAYS else SOAK)
        for harm, worker in cases
        for value in worker.values()
    ]


@pytest.mark.long
@pytest.mark.parametrize(("harm", "worker"), _cases())
def test_a_worker_cut_off_from_kafka_stops_and_comes_back(
    factory: SettingsFactory, way: Proxy, tmp_path: Path, harm: str, worker: dict[str, Any]
) -> None:
    """For longer than the session timeout: another takes over; cut off, it stops by itself with a full buffer; healed, it takes part again.

    All guarantees hold. Calls are repeated in the partitions alone that it lost.
    """
    worker = {"transaction_timeout_s": PATIENCE_S} | worker
    requests = int(PARTITIONS * (worker["transaction_timeout_s"] + MORE_S) * 1000 / LATENCY_MS)
    # As many calls a second, whatever is a lane.
    latency_ms = LATENCY_MS * KEYS / PARTITIONS if worker.get("ordering") == "key" else LATENCY_MS
    with judged_stage(factory, tmp_path, latency_ms=latency_ms, partitions=PARTITIONS, worker=worker) as set_up:
        replies = set_up.replies()
        harmed, healthy = _pair(set_up, way)
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(requests)])
        replies.await_count(40)
        own, mine = epochs_of(harmed), harmed.live()
        HARMS[harm](way)
        began = time.monotonic()
        let_pass(SESSION_S, "the session timeout has passed", since=began)
        eventually(lambda: healthy.live() == set(range(PARTITIONS)), what="the healthy worker has taken over")
        eventually(Quiet(harmed).long_enough, what="the worker that is cut off begins no call")
        _print_stop(set_up, own, began)
        ends = set_up.positions()[1]
        assert {} == {n: ends[n] for n in mine if _last_offset(set_up, own, n) >= ends[n] - 1}, "it made every call that its buffer held"
        assert harmed.get("/livez").is_success
        way.heal()
        healed = time.monotonic()
        eventually(lambda: set_up.members() == 2 and harmed.live() and healthy.live(), what="both take part again")
        print(f"takes part again {time.monotonic() - healed:.1f} s after the line was whole")
        harmed.ready()
        names += set_up.submit([f"doc:{n % KEYS}" for n in range(KEYS)], prefix="later")
        _assert_well(set_up, replies, names, harmed, healthy)
        assert _repeated(set_up) <= mine


@pytest.mark.soak
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_lone_worker_cut_off_goes_on_by_itself(factory: SettingsFactory, way: Proxy, tmp_path: Path, publishing: str) -> None:
    """Thrown out of the group, with nobody to take over: once the line is whole it joins again and does the rest, without a restart."""
    worker = {"transaction_timeout_s": PATIENCE_S, "publishing": publishing}
    with judged_stage(factory, tmp_path, latency_ms=LATENCY_MS, partitions=PARTITIONS, worker=worker) as set_up:
        replies = set_up.replies()
        harmed = set_up.worker(broker=way.address).ready()
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(800)])
        replies.await_count(40)
        way.cut()
        eventually(lambda: set_up.members() == 0, what="the group has thrown it out")
        eventually(Quiet(harmed).long_enough, what="it begins no call")
        assert harmed.get("/livez").is_success
        way.heal()
        _assert_well(set_up, replies, names, harmed)
        harmed.ready()


@pytest.mark.soak
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_sigterm_ends_a_worker_that_is_cut_off(factory: SettingsFactory, way: Proxy, tmp_path: Path, publishing: str) -> None:
    """It cannot publish what it has: after the grace it ends all the same, and says so. What is left, the next owner does.

    Exit 0 where it could leave in order, without what was not published, or its group (a classic member counts its session itself) had it
    no longer; else 3.
    """
    worker = {"transaction_timeout_s": PATIENCE_S, "publishing": publishing, "drain_s": 2}
    with judged_stage(factory, tmp_path, latency_ms=LATENCY_MS, partitions=PARTITIONS, worker=worker) as set_up:
        replies = set_up.replies()
        harmed = set_up.worker(broker=way.address)
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(400)])
        replies.await_count(20)
        way.cut()
        began = time.monotonic()
        harmed.signal(signal.SIGTERM)
        code = harmed.wait()
        print(f"exit {code} {time.monotonic() - began:.1f} s after SIGTERM")
        says = {"died"} if code else {"drain_expired", "lost"} if GroupProtocol.is_classic() else {"drain_expired"}
        assert any(harmed.events(event) for event in says), harmed.text()[-2000:]
        assert code in {0, BrokerError.exit_code}
        heir = set_up.worker()
        _await_all(replies, names)
        _assert_guarantees(set_up, replies, names, harmed, heir)
        assert heir.popen.poll() is None


@pytest.mark.soak
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
def test_a_slow_line_costs_no_partition(factory: SettingsFactory, way: Proxy, tmp_path: Path, publishing: str) -> None:
    """Each answer takes 0.6 s, for longer than a session: slower, and that is all. Nothing changes hands, no call is repeated."""
    with judged_stage(factory, tmp_path, latency_ms=LATENCY_MS, partitions=PARTITIONS, worker={"publishing": publishing}) as set_up:
        replies = set_up.replies()
        harmed, healthy = _pair(set_up, way)
        own = epochs_of(harmed)
        names = set_up.submit([f"doc:{n % KEYS}" for n in range(800)])
        replies.await_count(40)
        way.delay(0.3)
        let_pass(2 * SESSION_S, "two session timeouts have passed")
        names += set_up.submit([f"doc:{n % KEYS}" for n in range(KEYS)], prefix="later")
        _assert_well(set_up, replies, names, harmed, healthy)
        assert own == epochs_of(harmed)
        assert set() == _repeated(set_up)


@pytest.mark.parametrize("publishing", ["exactly_once", pytest.param("at_least_once", marks=SOAK)])
def test_connections_that_break_cost_no_partition(factory: SettingsFactory, way: Proxy, tmp_path: Path, publishing: str) -> None:
    """All connections of a worker are reset while it works: they are made anew. Nothing changes hands or is repeated."""
    with judged_stage(factory, tmp_path, latency_ms=LATENCY_MS, partitions=PARTITIONS, worker={"publishing": publishing}) as set_up:
        replies = set_up.replies()
        harmed = set_up.worker(broker=way.address)
        eventually(lambda: harmed.live() == set(range(PARTITIONS)), what="the worker has all partitions")
        own = epochs_of(harmed)
        names: list[str] = []
        for round_ in range(2):
            names += set_up.submit([f"doc:{n % KEYS}" for n in range(100)], prefix=f"round{round_}")
            replies.await_count(len(names) - 60)
            way.cut()
            way.heal()
        _assert_well(set_up, replies, names, harmed)
        assert own == epochs_of(harmed)
        assert set() == _repeated(set_up)


def _pair(set_up: Stage, way: Proxy) -> tuple[Worker, Worker]:
    """Start a worker behind the proxy and one before it; each has partitions."""
    harmed, healthy = set_up.worker(broker=way.address), set_up.worker()
    eventually(lambda: harmed.live() and healthy.live() and len(harmed.live() | healthy.live()) == PARTITIONS, what="both have partitions")
    return harmed, healthy


def _assert_well(set_up: Stage, replies: Replies, names: list[str], harmed: Worker, *others: Worker) -> None:
    """Everybody has a reply, all guarantees hold, and every worker has outlived it."""
    _await_all(replies, names)
    _assert_guarantees(set_up, replies, names, harmed, *others)
    assert {None} == {worker.popen.poll() for worker in (harmed, *others)}


def _await_all(replies: Replies, names: list[str]) -> None:
    """Wait until everybody has a reply; some may have two."""
    eventually(lambda: set(names) <= set(ids(replies.read())), 90, "a reply for every request")


def _assert_guarantees(set_up: Stage, replies: Replies, names: list[str], harmed: Worker, *others: Worker) -> None:
    assert_all_is_well(set_up, names, replies.records, duplicates=set_up.settings.worker.publishing == "at_least_once")
    assert_guarantees(set_up, harmed, *others, withheld=[harmed])


class Quiet:
    """Tells how long a worker has begun no call, by its metrics."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._seen: list[str] = []
        self._since = time.monotonic()

    def long_enough(self) -> bool:
        """Look, and say whether it has been quiet for `QUIET_S`."""
        page = self._worker.get("/metrics").text
        seen = [line for line in page.splitlines() if line.startswith("dispatcher_call_duration_seconds_count")]
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since > QUIET_S


def _last_offset(set_up: Stage, own: set[tuple[int, int]], partition: int) -> int:
    offsets: list[int] = [call["offset"] for call in set_up.calls(partition=partition) if (partition, call["epoch"]) in own]
    return max(offsets)


def _print_stop(set_up: Stage, own: set[tuple[int, int]], began: float) -> None:
    late = [call["t_s"] - began for call in set_up.calls() if (call["partition"], call["epoch"]) in own and call["t_s"] > began]
    print(f"{len(late)} calls begun while cut off, the last after {max(late, default=0):.1f} s; overlaps: {set_up.witness()['overlaps']}")


def _repeated(set_up: Stage) -> set[int]:
    """Name the partitions in which a request was called more than once."""
    seen = Counter((call["partition"], call["offset"]) for call in set_up.calls())
    return {partition for (partition, _), count in seen.items() if count > 1}
