"""What a cluster does to workers: it loses a leader or a coordinator, stands still, has no room, refuses to write, is restarted.

In all of it nothing is lost, doubled or out of order, nobody needs a restart, and no call is made again because it could not be published:
where a worker keeps its partitions, each request is called once.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatcher import Call, Dispatcher
from dispatcher.adapters.kafka.offsets import ask_edges, offset_of
from tests.chaos.cluster import Cluster
from tests.e2e import operator
from tests.e2e.history import assert_guarantees, epochs_of, judged_stage
from tests.e2e.stage import Replies, Stage, Worker, assert_all_is_well, ids, is_stopped, stage
from tests.topics import SettingsFactory
from tests.waiting import eventually, let_pass

pytestmark = [pytest.mark.faults, pytest.mark.soak, pytest.mark.timeout(600)]

PARTITIONS = 4
KEYS = 40
LATENCY_MS = 30
REQUESTS = 2000
# Of how much is answered by then one sees that work goes on.
ENOUGH = 200
WITHIN_S = 120
# Longer than a request to Kafka may go unanswered (10 s), than a session and than a transaction.
LONG_S = 14
PATIENCE_S = 5
# Calls begin until the first answer has waited for `transaction_timeout_s` (`Room.unpublished_s`). A loaded machine may be as late again.
STARTED_S = 2 * PATIENCE_S
SLOT_TAKEN = 3
IN_KEYS: dict[str, Any] = {"ordering": "key"}
AT_LEAST_ONCE: dict[str, Any] = {"publishing": "at_least_once"}
CLASSIC: dict[str, Any] = {"protocol": "cooperative"}

HARMS: dict[str, Callable[[Cluster, int], None]] = {
    "killed": Cluster.kill,
    "frozen": Cluster.freeze,
    "stopped": Cluster.stop,
    "full": Cluster.fill,
}
VICTIMS: dict[str, Callable[[Cluster, Stage, Worker], int]] = {
    "leader": lambda nodes, on, _: nodes.leader(on.settings.topics.replies, 0),
    "group_coordinator": lambda nodes, on, _: nodes.coordinator(on.settings.worker.group),
    "transaction_coordinator": lambda nodes, on, worker: nodes.coordinator(_transactional_id(on, worker), "transaction"),
}


def _cases() -> list[object]:
    cases: list[tuple[str, str, dict[str, Any]]]
    cases = [(victim, harm, {}) for victim in VICTIMS for harm in ("killed", "frozen")]
    cases += [("leader", "stopped", {}), ("leader", "full", {}), ("group_coordinator", "killed", CLASSIC)]
    cases += [("transaction_coordinator", "killed", IN_KEYS), ("leader", "frozen", IN_KEYS)]
    cases += [("leader", "killed", AT_LEAST_ONCE), ("group_coordinator", "frozen", AT_LEAST_ONCE)]
    return [pytest.param(*case, id="-".join([*case[:2], *case[2].values()])) for case in cases]


@pytest.mark.parametrize(("victim", "harm", "worker"), _cases())
def test_a_node_that_fails_costs_no_call(
    nodes: Cluster, settings: SettingsFactory, tmp_path: Path, victim: str, harm: str, worker: dict[str, Any]
) -> None:
    """The others take over what it led or coordinated, the worker follows them, and its partitions stay its own."""
    with _stage(settings, tmp_path, worker) as set_up:
        replies = set_up.replies()
        running = set_up.worker().ready()
        names = _submit(set_up, REQUESTS)
        replies.await_count(ENOUGH)
        own = epochs_of(running)
        number = VICTIMS[victim](nodes, set_up, running)
        HARMS[harm](nodes, number)
        eventually(lambda: number not in nodes.alive(), what="the node is away")
        replies.read()
        began = time.monotonic()
        print(f"{victim} {harm}: replies in every partition after {_seconds_to_replies(replies, began, running):.1f} s")
        let_pass(LONG_S, "it was away for long", since=began)
        nodes.mend()
        names += _submit(set_up, KEYS, "later")
        _assert_well(set_up, replies, names, running)
        if keeps_without_its_coordinator(set_up):
            assert own == epochs_of(running)
            assert len(names) == set_up.witness()["calls"]


@pytest.mark.parametrize("worker", [{}, IN_KEYS | CLASSIC, AT_LEAST_ONCE], ids=["strict", "key-classic", "at_least_once"])
def test_a_rolling_restart_of_the_cluster_costs_no_call(
    nodes: Cluster, settings: SettingsFactory, tmp_path: Path, worker: dict[str, Any]
) -> None:
    """Node after node is stopped in order and started again, as for an upgrade: two workers keep what they have."""
    with _stage(settings, tmp_path, worker) as set_up:
        replies = set_up.replies()
        running = [set_up.worker().ready() for _ in range(2)]
        eventually(lambda: [PARTITIONS // 2] * 2 == [len(one.live()) for one in running], what="each has its share")
        own = [epochs_of(one) for one in running]
        names: list[str] = []
        for number in nodes.numbers:
            names += _submit(set_up, REQUESTS // 4, f"round{number}")
            nodes.stop(number)
            nodes.start(number)
            eventually(nodes.is_whole, WITHIN_S, "the cluster is whole")
        _assert_well(set_up, replies, names, *running)
        assert own == [epochs_of(one) for one in running]
        assert len(names) == set_up.witness()["calls"]


def _freeze_all(nodes: Cluster) -> None:
    for number in nodes.numbers:
        nodes.freeze(number)


def _kill_two(nodes: Cluster) -> None:
    for number in (1, 2):
        nodes.kill(number)


@pytest.mark.parametrize(
    ("harm", "worker"),
    [
        pytest.param(_freeze_all, {}, id="frozen-strict"),
        pytest.param(_freeze_all, IN_KEYS, id="frozen-key"),
        pytest.param(_freeze_all, AT_LEAST_ONCE, id="frozen-at_least_once"),
        pytest.param(_kill_two, {}, id="two_killed-strict"),
    ],
)
def test_a_cluster_that_is_away_is_waited_for(
    nodes: Cluster, settings: SettingsFactory, tmp_path: Path, harm: Callable[[Cluster], None], worker: dict[str, Any]
) -> None:
    """All nodes stand still, or too few are left to write: the worker lives, and goes on when they are back.

    It makes calls until an answer has waited for as long as a transaction may take, and then starts nothing more that it cannot publish.
    """
    worker = worker | {"transaction_timeout_s": PATIENCE_S}
    with _stage(settings, tmp_path, worker) as set_up:
        replies = set_up.replies()
        running = set_up.worker().ready()
        names = _submit(set_up, REQUESTS)
        replies.await_count(ENOUGH)
        harm(nodes)
        began = time.monotonic()
        let_pass(PATIENCE_S + LONG_S, "it was away for long", since=began)
        late = [call["t_s"] - began for call in set_up.calls() if call["t_s"] > began]
        print(f"{len(late)} calls begun meanwhile, the last after {max(late, default=0):.1f} s")
        _assert_lives(set_up, running)
        nodes.mend()
        names += _submit(set_up, KEYS, "later")
        _assert_well(set_up, replies, names, running)
        assert max(late, default=0) < STARTED_S, f"it started {len(late)} calls that it could not publish"


@pytest.mark.parametrize(
    ("topic", "worker"),
    [
        pytest.param("replies", {}, id="replies-strict"),
        pytest.param("replies", IN_KEYS, id="replies-key"),
        pytest.param("__consumer_offsets", {}, id="offsets-strict"),
        pytest.param("__consumer_offsets", AT_LEAST_ONCE, id="offsets-at_least_once"),
        pytest.param("__transaction_state", {}, id="transactions-strict"),
    ],
)
def test_what_kafka_refuses_to_write_is_written_later(
    nodes: Cluster, settings: SettingsFactory, tmp_path: Path, topic: str, worker: dict[str, Any]
) -> None:
    """Too few copies for replies, commits or transactions, for longer than a transaction may last: then it is done, without a new call."""
    worker = worker | {"transaction_timeout_s": PATIENCE_S}
    with _stage(settings, tmp_path, worker) as set_up:
        replies = set_up.replies()
        running = set_up.worker().ready()
        names = _submit(set_up, REQUESTS)
        replies.await_count(ENOUGH)
        refused = set_up.settings.topics.replies if topic == "replies" else topic
        operator.configure(set_up.settings, refused, {"min.insync.replicas": "3"})
        try:
            nodes.kill(2)
            let_pass(PATIENCE_S + LONG_S, "it was refused for long")
            print(_failures(running))
            _assert_lives(set_up, running)
            nodes.mend()
        finally:
            operator.configure(set_up.settings, refused, {"min.insync.replicas": "2"})
        names += _submit(set_up, KEYS, "later")
        _assert_well(set_up, replies, names, running)


def test_a_transaction_that_kafka_ended_is_made_again_without_a_call(nodes: Cluster, settings: SettingsFactory, tmp_path: Path) -> None:
    """The worker stands still inside one for longer than it may last, and keeps its partitions: fenced, it publishes the same outcomes."""
    patient = {"properties": {"session.timeout.ms": "60000", "heartbeat.interval.ms": "1000"}}
    with _stage(settings, tmp_path, CLASSIC | {"transaction_timeout_s": 1}, kafka=patient) as set_up:
        replies = set_up.replies()
        names = _submit(set_up, REQUESTS // 2)
        frozen = set_up.worker(fault=("freeze_after_offsets", 8))
        eventually(lambda: is_stopped(frozen), what="the worker stands still inside a transaction")
        let_pass(LONG_S, "the transaction has timed out, and Kafka looks for such")
        eventually(lambda: _nothing_is_open(set_up), WITHIN_S, "Kafka has ended it")
        frozen.signal(signal.SIGCONT)
        _assert_well(set_up, replies, names, frozen)
        assert PARTITIONS == len(epochs_of(frozen))
        assert len(names) == set_up.witness()["calls"]
        assert _failures(frozen)


def test_an_heir_gets_on_though_the_coordinator_died_with_the_worker(nodes: Cluster, settings: SettingsFactory, tmp_path: Path) -> None:
    """A worker is killed inside a transaction, and so is the node that knows of it: another one ends that, and nothing stays hidden."""
    with _stage(settings, tmp_path, {}) as set_up:
        replies = set_up.replies()
        doomed, heir = set_up.worker(fault=("freeze_after_offsets", 8)), set_up.worker()
        eventually(lambda: doomed.live() and heir.live(), what="both have partitions")
        names = _submit(set_up, REQUESTS)
        eventually(lambda: is_stopped(doomed), what="the worker stands still inside a transaction")
        coordinator = nodes.coordinator(_transactional_id(set_up, doomed), "transaction")
        doomed.signal(signal.SIGKILL)
        nodes.kill(coordinator)
        doomed.wait()
        killed = time.monotonic()
        eventually(lambda: heir.live() == set(range(PARTITIONS)), what="the heir has all partitions")
        print(f"killed: replies in every partition after {_seconds_to_replies(replies, killed):.1f} s")
        nodes.mend()
        _await_all(replies, names)
        assert_all_is_well(set_up, names, replies.records)
        assert_guarantees(set_up, doomed, heir, withheld=[heir])


@pytest.mark.parametrize("harm", ["killed", "frozen"])
def test_a_worker_that_starts_while_a_node_is_missed_joins_as_the_others_do(
    nodes: Cluster, settings: SettingsFactory, tmp_path: Path, harm: str
) -> None:
    """Kafka lists a node that went a moment ago, and it is the first to be asked: its silence does not mean a classic group."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        HARMS[harm](nodes, 1)
        running = set_up.worker().ready()
        asked_for = set_up.settings.worker.protocol
        assert ["consumer" if asked_for == "auto" else asked_for] == [event["protocol"] for event in running.events("started")]


@pytest.mark.parametrize("harm", ["killed", "frozen"])
async def test_an_asker_hears_its_reply_from_the_next_leader(nodes: Cluster, settings: SettingsFactory, tmp_path: Path, harm: str) -> None:
    """The node that leads the partition of the reply goes away while the call runs."""
    with stage(settings, tmp_path, partitions=1) as set_up:
        set_up.worker().ready()
        call = Call.http("sample", "POST", "/echo?latency_ms=3000", json={"n": 1})
        async with Dispatcher(set_up.settings) as client:
            receipt = await client.submit(call, key="doc:1")
            HARMS[harm](nodes, nodes.leader(set_up.settings.topics.replies, 0))
            assert {"n": 1} == (await client.wait(receipt, timeout=WITHIN_S)).json()
            assert {"n": 1} == (await client.ask(call, key="doc:1", timeout=WITHIN_S)).json()
        if keeps_without_its_coordinator(set_up):
            assert 2 == set_up.witness()["calls"]


def keeps_without_its_coordinator(set_up: Stage) -> bool:
    """Whether members wait for a coordinator that is away: those of a classic group count the session themselves, and take it for lost."""
    return set_up.settings.worker.protocol in {"auto", "consumer"}


def _stage(settings: SettingsFactory, folder: Path, worker: dict[str, Any], **sections: Any) -> Any:
    """Set a stage that makes as many calls a second whatever is a lane."""
    latency_ms = LATENCY_MS * KEYS / PARTITIONS if worker.get("ordering") == "key" else LATENCY_MS
    return judged_stage(settings, folder, latency_ms=latency_ms, partitions=PARTITIONS, worker=worker, **sections)


def _submit(set_up: Stage, count: int, prefix: str = "r") -> list[str]:
    return set_up.submit([f"doc:{n % KEYS}" for n in range(count)], prefix=prefix)


def _transactional_id(set_up: Stage, worker: Worker) -> str:
    return f"{set_up.settings.worker.group}/{set_up.settings.topics.prefix}-{worker.name}"


def _nothing_is_open(set_up: Stage) -> bool:
    """Whether no transaction holds replies back, nor positions."""
    cluster = operator.connected(set_up.settings)
    names = (set_up.settings.topics.replies, "__consumer_offsets")
    places = [(name, number) for name in names for number in cluster.list_topics(name, WITHIN_S).topics[name].partitions]
    stable, ends = (
        {place: offset_of(told.result()) for place, told in ask_edges(cluster, places, "latest", WITHIN_S, committed=committed).items()}
        for committed in (True, False)
    )
    return stable == ends


def _read(replies: Replies) -> list[tuple[Any, float]]:
    replies.read()
    return replies.timed()


def _failures(worker: Worker) -> set[str]:
    """Name what publications failed with."""
    return {event["error_type"] for event in worker.events("publish_failed")}


def _seconds_to_replies(replies: Replies, since: float, *workers: Worker) -> float:
    """Wait until every partition has had a reply since then, or one of these workers is gone, and give how long that took."""

    def heard() -> bool:
        return {r.partition for r, at in _read(replies) if at > since} == set(range(PARTITIONS))

    eventually(lambda: heard() or _gone(workers), WITHIN_S, "replies everywhere")
    return time.monotonic() - since


def _await_all(replies: Replies, names: list[str]) -> None:
    """Wait until everybody has a reply; some may have two."""
    eventually(lambda: set(names) <= set(ids(replies.read())), WITHIN_S, "a reply for every request")


def _assert_well(set_up: Stage, replies: Replies, names: list[str], *workers: Worker) -> None:
    """Everybody has a reply, all guarantees hold, and every worker has outlived it and is ready.

    But for a member of a classic group: a coordinator that stood still may have fenced it by its own join, and it is started again.
    """
    workers = (*workers, *_started_again(set_up, replies, names, workers))
    _await_all(replies, names)
    assert_all_is_well(set_up, names, replies.records, duplicates=set_up.settings.worker.publishing == "at_least_once")
    assert_guarantees(set_up, *workers, withheld=workers)
    for worker in workers:
        if worker.popen.poll() is None:
            worker.ready()


def _assert_lives(set_up: Stage, worker: Worker) -> None:
    """It stands, or was fenced by itself, as above."""
    assert (_gone((worker,)) and not keeps_without_its_coordinator(set_up)) or worker.get("/livez").is_success


def _started_again(set_up: Stage, replies: Replies, names: list[str], workers: tuple[Worker, ...]) -> list[Worker]:
    """Start one for each that was fenced by itself; nobody is where the group is no classic one."""
    eventually(lambda: set(names) <= set(ids(replies.read())) or any(_gone(workers)), WITHIN_S, "a reply for every request, or an end")
    for worker in _gone(workers):
        assert not keeps_without_its_coordinator(set_up), worker.text()
        assert SLOT_TAKEN == worker.wait(), worker.text()
        assert "two joins of this one" in worker.text()
    return [set_up.worker() for _ in _gone(workers)]


def _gone(workers: tuple[Worker, ...]) -> list[Worker]:
    return [worker for worker in workers if worker.popen.poll() is not None]
