"""What went wrong with others' Kafka consumers, as worlds: each in the three group protocols, and always without a broken promise.

The names say the symptom that others had; the letters are the groups of failures (commits, ownership, transactions).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.guarantees.events import CallStarted, Event, LetterVisible, Removed
from tests.sim.callee import Manners
from tests.sim.plan import CALM, Fault, Plan, Write, WriteKind, staged
from tests.sim.world import World, run

SEEDS = 4
PROTOCOLS = ("consumer", "cooperative", "eager")


def steady(count: int, *, partitions: int = 2, every_s: float = 0.15, first_s: float = 0.0) -> tuple[Write, ...]:
    """Requests one after another, over all partitions in turn."""
    return tuple(Write(first_s + every_s * n, n % partitions, "request") for n in range(count))


STEADY = steady(40)
KINDS: tuple[WriteKind, ...] = ("request", "aborted", "compacted", "committed", "aborted") * 4
HOLES = tuple(Write(0.3 * n, 0, kind, 0.2, 2) for n, kind in enumerate(KINDS))
SLOW = Manners(fails=0.0, slow=1.0, latency_s=0.5, slow_s=3.0)
FAILING = Manners(fails=0.7, slow=0.1, latency_s=0.05)
HANGING = Manners(fails=0.0, slow=0.0, hangs=0.2, latency_s=0.05)
BROKEN = Manners(fails=1.0, slow=0.0, latency_s=0.05)
ONCE, TWICE = {"publishing": "exactly_once"}, {"publishing": "at_least_once"}
KEYED, TIGHT = {"ordering": "key"}, {"lane_buffer_max_records": 2}
# Every fifth is no request at all; and more than a small buffer takes at once.
SPOILT = tuple(replace(write, kind="malformed") if n % 5 == 1 else write for n, write in enumerate(STEADY))
DENSE = steady(80, every_s=0.02)
# Members come, and go in turn; who goes comes back a little later.
STORM = tuple(Fault(1 + 0.7 * n, "join" if n < 3 else "terminate", n % 3 + 10 * (n % 2), 1) for n in range(16))
# While it lasts, and more than a buffer takes when it is over: whoever is left paused then stays so.
STORMY = (*steady(80, partitions=12, every_s=0.1), *steady(96, partitions=12, every_s=0.02, first_s=14.0))
# Members that come one by one and go one by one: partitions are taken from the others a few at a time.
VISITS = tuple(Fault(1.0 + 2 * n, "join" if n < 3 else "terminate", n % 3 if n < 3 else 10 + n % 3, 1) for n in range(6))


# Thrown out again and again, as if it had not been heard of; killed, and its publisher stopped, in the middle of things.
EXPIRIES = tuple(Fault(1.0 + 1.1 * n, "expire", 0, 1) for n in range(6))
KILLS = tuple(Fault(1.0 + 2.7 * n, "kill", 0, 1) for n in range(5))
STALLS = tuple(Fault(1.0 + 6 * n, "stall_publisher", 0, 3) for n in range(5))


@dataclass(frozen=True, slots=True)
class Failure:
    """What others had, and the world that provokes it. `meets` must have happened in one of the seeds, else it provokes nothing.

    What it must have met are names of what workers log, of errors, and: `called_again`, a request that was called under a later epoch
    too; `flush_expired`, a flush that ran out of time. A row of the table that rests on worlds alone needs one that meets something.
    """

    name: str
    faults: tuple[Fault, ...] = ()
    writes: tuple[Write, ...] = STEADY
    workers: int = 1
    manners: Manners = CALM
    fixed: tuple[tuple[str, Any], ...] = ()
    reply_max_bytes: int = 1 << 30
    partitions: int | None = None
    meets: tuple[str, ...] = ()
    seeds: int = SEEDS

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    def plan(self, seed: int, protocol: str) -> Plan:
        plan = staged(
            seed, self.writes, self.faults, workers=self.workers, manners=self.manners, **dict(self.fixed) | {"protocol": protocol}
        )
        broker = plan.broker if self.partitions is None else replace(plan.broker, partitions=self.partitions)
        return replace(plan, broker=broker, reply_max_bytes=self.reply_max_bytes)


def fixed(**settings: Any) -> tuple[tuple[str, Any], ...]:
    """Settings of the worker, as a plan takes them."""
    return tuple(settings.items())


FAILURES = (
    # A. What is committed.
    Failure("A1 offsets have holes", writes=HOLES),
    Failure("A1 offsets have holes for a new owner", (Fault(2.5, "kill", 0, 1),), HOLES, workers=2),
    Failure("A3 the position polled is committed at close", (Fault(1.0, "terminate", 0, 1),), manners=SLOW, workers=2, meets=("revoked",)),
    Failure("A3 the position polled is committed at revoke", (Fault(1.0, "join", 0, 1),), manners=SLOW, meets=("revoked",)),
    Failure("A4 a position beyond the end after idle rebalances", STORM, writes=STEADY[:1], workers=3, meets=("revoked",)),
    Failure(
        "A5 an offset comes back while its old call runs",
        (Fault(1.5, "expire", 0, 1), Fault(4.5, "expire", 0, 1)),
        manners=SLOW,
        meets=("lost",),
    ),
    Failure("A9 a slow partition loses what a fast one commits", (Fault(3.0, "kill", 0, 1),), manners=SLOW, meets=("called_again",)),
    Failure(
        "A11 a refused commit is never made again",
        (Fault(1.5, "refuse", 0, 3),),
        steady(12, first_s=1.0),
        fixed=fixed(**TWICE),
        meets=("commit_failed",),
    ),
    Failure(
        "A11 a refused commit is never made again in transactions",
        (Fault(1.5, "refuse", 0, 18),),
        steady(12, first_s=1.0),
        meets=("send_offsets_failed",),
    ),
    Failure(
        "A13b a failed reply is committed over",
        (Fault(2.0, "terminate", 0, 1),),
        manners=FAILING,
        reply_max_bytes=2000,
        meets=("MSG_SIZE_TOO_LARGE",),
        seeds=8,
    ),
    Failure("A13 nothing commits until more traffic", writes=(Write(1.0, 0, "request", 0.0, 3),)),
    # B. Whose a partition is.
    Failure(
        "B14 stuck after a storm of rebalances",
        STORM,
        STORMY,
        3,
        HANGING,
        fixed(lane_buffer_max_records=2),
        partitions=12,
        meets=("drain_expired",),
    ),
    Failure(
        "B14 stuck after a storm of rebalances at least once",
        STORM,
        STORMY,
        3,
        SLOW,
        fixed(**TWICE, drain_s=6.0, lane_buffer_max_records=2),
        partitions=12,
        meets=("revoked",),
    ),
    Failure(
        "B15 the same key twice after revoke and return",
        (Fault(1.0, "join", 0, 1), Fault(3.0, "terminate", 10, 1), Fault(5.0, "join", 0, 1), Fault(7.0, "terminate", 10, 1)),
        manners=SLOW,
        fixed=fixed(drain_s=0.1),
        meets=("drain_expired",),
    ),
    Failure("B15 the same key twice after loss and return", EXPIRIES, manners=SLOW, meets=("lost",)),
    Failure("B15 a loss while calls run", (Fault(1.0, "expire", 0, 1),), manners=SLOW, workers=2, meets=("lost",)),
    Failure(
        "B19 a stale position after coming back",
        (Fault(1.0, "freeze", 0, 9), Fault(12.0, "expire", 1, 1)),
        workers=2,
        meets=("lost",),
    ),
    Failure("B20 a session that ended in a freeze", (Fault(1.0, "freeze", 0, 18),), workers=2, meets=("lost",)),
    Failure("B21 commits in a rebalance", STORM, workers=2, fixed=fixed(commit_interval_ms=0, **TWICE), meets=("revoked",)),
    Failure("B22 partial revocations one after another", VISITS, steady(120, partitions=6, every_s=0.1), partitions=6, meets=("revoked",)),
    Failure(
        "B23 full buffers in a rebalance", STORM[:6], workers=2, manners=SLOW, fixed=fixed(lane_buffer_max_records=2), meets=("revoked",)
    ),
    Failure(
        "B24 a slow committer and a revocation",
        (Fault(1.5, "slow", 0, 8), Fault(2.0, "join", 0, 1)),
        fixed=fixed(**TWICE),
        meets=("commit_failed",),
        seeds=8,
    ),
    Failure(
        "B27 SIGTERM in a rebalance",
        (Fault(1.0, "join", 0, 1), Fault(1.0, "freeze", 1, 7), Fault(1.5, "terminate", 0, 1)),
        workers=2,
        manners=HANGING,
        meets=("revoked", "drain_expired"),
    ),
    Failure(
        "B27b close in a storm",
        (*STORM, Fault(6.0, "terminate", 0, 1)),
        workers=3,
        manners=HANGING,
        meets=("revoked", "drain_expired"),
    ),
    Failure(
        "B28b calls that outlive a revocation",
        (Fault(1.0, "join", 0, 1),),
        manners=SLOW,
        fixed=fixed(drain_s=0.1),
        meets=("drain_expired",),
    ),
    Failure("B28d a coordinator that is away ends a worker", (Fault(1.0, "away", 0, 18),), meets=("lost",)),
    Failure(
        "B28d a coordinator that is away ends a worker at least once", (Fault(1.0, "away", 0, 18),), fixed=fixed(**TWICE), meets=("lost",)
    ),
    # C and D, as far as they are about order and loss.
    Failure(
        "C30 paused for ever after coming back",
        STORM[:6],
        manners=SLOW,
        workers=2,
        fixed=fixed(lane_buffer_max_records=2),
        meets=("revoked",),
    ),
    Failure(
        "C30 paused for ever after coming back with a lane for each key",
        STORM[:6],
        manners=SLOW,
        workers=2,
        fixed=fixed(lane_buffer_max_records=2, ordering="key"),
        meets=("revoked",),
    ),
    Failure(
        "C32 what ends late for another assignment stops what is kept",
        VISITS,
        steady(120, partitions=6, every_s=0.1),
        2,
        SLOW,
        fixed(lane_buffer_max_records=3, ordering="key", drain_s=0.1),
        partitions=6,
        meets=("revoked", "drain_expired"),
    ),
    # Nobody is killed or thrown out, and a call is over long before its drain: what the next owner calls again was waiting for a retry.
    Failure("C31 a rebalance while a retry waits", STORM[:6], manners=FAILING, workers=2, meets=("revoked", "called_again")),
    Failure("D39 a request that always fails", manners=BROKEN, meets=("retry", "dead")),
    Failure("D39 a key whose requests always fail, among others", manners=BROKEN, fixed=fixed(**KEYED), meets=("retry", "dead")),
    Failure("D47 one bad record fails its batch", writes=SPOILT),
    Failure("D50 retries and successes in a small buffer", (), DENSE, manners=FAILING, fixed=fixed(**TIGHT), meets=("retry", "settled")),
    Failure(
        "D50 retries and successes end out of order in a small buffer",
        (),
        DENSE,
        manners=FAILING,
        fixed=fixed(**TIGHT, **KEYED),
        meets=("retry", "settled"),
    ),
    Failure("D51 a call that raises", manners=FAILING, meets=("bug",)),
    Failure("D51b bad records between slow ones, and a kill", KILLS, SPOILT, manners=SLOW, fixed=fixed(**KEYED), meets=("called_again",)),
    Failure(
        "D51b bad records between slow ones, and a kill at least once",
        KILLS,
        SPOILT,
        manners=SLOW,
        fixed=fixed(**KEYED, **TWICE),
        meets=("called_again",),
    ),
    # E. Transactions.
    Failure(
        "E52 lost after being fenced",
        (Fault(1.0, "freeze", 0, 18), Fault(2.0, "join", 0, 1), Fault(21.0, "stall_publisher", 0, 18)),
        steady(200),
        fixed=fixed(transaction_timeout_s=1.0, commit_interval_ms=0),
        meets=("_FENCED",),
    ),
    Failure(
        "E52 lost after a restart under the same name",
        KILLS,
        steady(120, every_s=0.1),
        fixed=fixed(commit_interval_ms=0),
        meets=("called_again",),
    ),
    Failure("E53 one reply that is too large", manners=FAILING, reply_max_bytes=2000, meets=("MSG_SIZE_TOO_LARGE",)),
    Failure(
        "E54 a transaction that outlives its timeout",
        STALLS,
        steady(200),
        fixed=fixed(transaction_timeout_s=1.0, commit_interval_ms=0),
        meets=("_FENCED",),
    ),
    Failure(
        "E54 a process that outlives its transaction",
        (Fault(1.0, "freeze", 0, 18),),
        workers=2,
        fixed=fixed(transaction_timeout_s=1.0, commit_interval_ms=200),
        meets=("UNKNOWN_MEMBER_ID",),
    ),
    Failure(
        "E55 rebalances between produce and commit",
        (Fault(0.5, "slow", 0, 18), *STORM),
        workers=3,
        manners=SLOW,
        fixed=fixed(commit_interval_ms=0, drain_s=0.1),
        meets=("drain_expired",),
    ),
    Failure(
        "E57 a commit whose end nobody knows",
        (Fault(1.0, "lose", 0, 18), Fault(2.0, "slow", 0, 30)),
        steady(100, every_s=0.3),
        fixed=fixed(transaction_timeout_s=10.0, commit_interval_ms=0),
        meets=("commit_failed", "_TIMED_OUT"),
    ),
    Failure(
        "E58 a flush that times out",
        (Fault(1.0, "slow", 0, 60),),
        steady(120, every_s=0.5),
        fixed=fixed(**TWICE, commit_interval_ms=0),
        meets=("flush_expired",),
    ),
)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_what_others_had_breaks_no_promise(failure: Failure, protocol: str) -> None:
    """The world that provokes it ends with every guarantee kept, and what was to be provoked was met."""
    tally: Counter[str] = Counter()
    for seed in range(failure.seeds):
        result = run(failure.plan(seed, protocol))
        assert [] == result.findings, f"seed {seed}"
        tally += result.tally
    assert [] == [name for name in failure.meets if not tally[name]], "the world provokes nothing"


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_that_is_cut_is_no_failure(protocol: str, ordering: str) -> None:
    """D45: every call would succeed, and many are cut or lost with their partitions: none spends an attempt, none ends in a dead letter."""
    tally: Counter[str] = Counter()
    attempts: set[int] = set()
    for seed in range(SEEDS):
        plan = staged(
            seed, steady(80, every_s=0.1), (*STORM[:8], *EXPIRIES), manners=SLOW, protocol=protocol, ordering=ordering, drain_s=0.1
        )
        world = World(plan)
        events = heard(world)
        result = world.run()
        assert [] == result.findings
        tally += result.tally
        attempts |= {event.attempt for event in events if isinstance(event, CallStarted)}
        assert not [event for event in events if isinstance(event, LetterVisible)]
    assert {1} == attempts
    assert tally["drain_expired"]
    assert tally["lost"]
    assert tally["called_again"]


@pytest.mark.parametrize("ending", ["kill", "terminate"])
@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_is_finished_is_not_called_again(seed: int, publishing: str, ending: Any) -> None:
    """A10, A12: one request, answered; the worker is killed or ends in a quiet time; its successor calls nothing."""
    world = World(staged(seed, (Write(1.0, 0, "request"),), (Fault(5.0, ending, 0, 1),), publishing=publishing))
    events = heard(world)
    assert [] == world.run().findings
    assert 1 == sum(isinstance(event, CallStarted) for event in events)


@pytest.mark.parametrize("text", ["hello", "x" * 4096, "AAAA"])
def test_another_tools_metadata_is_ignored(text: str) -> None:
    """A6, A7: whatever stands beside a committed position, the partition is executed."""
    world = World(staged(1, STEADY))
    world.cluster.positions.commit({0: (0, text), 1: (0, text)})
    assert [] == world.run().findings


def trimmed(on_gap: str, protocol: str, **settings: Any) -> World:
    """Requests in two partitions, and one of them loses two before anybody has read them."""
    world = World(staged(1, (*STEADY, Write(0.0, 0, "request", 0.0, 3)), workers=0, on_gap=on_gap, protocol=protocol, **settings))
    world.schedule.after(0.5, setattr, world.cluster.request_log(0), "start", 2)
    world.schedule.after(0.5, world.tell, Removed(0, 2))
    world.schedule.after(1.0, world.start, 0)
    world.schedule.after(8.0, world.start, 1)
    return world


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_that_retention_removed_stop_their_partition_and_are_not_skipped(protocol: str) -> None:
    """G67: the committed position is not in the log any more; no worker guesses where to go on, and none commits. Others go on."""
    world = trimmed("stop", protocol)
    found = world.run().findings
    assert (0, world.cluster.request_log(1).end) == (world.cluster.positions.position(0), world.cluster.positions.position(1))
    assert world.tally["gap"]
    assert {"NothingLost: (0", "NothingStuck: partition 0: the position is 0"} == {finding.partition(",")[0] for finding in found}


@pytest.mark.parametrize("publishing", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_it_may_a_worker_goes_on_behind_what_retention_removed(protocol: str, ordering: str, publishing: str) -> None:
    """G67: what is there is executed, and what was lost is counted."""
    world = trimmed("continue", protocol, ordering=ordering, publishing=publishing)
    assert [] == world.run().findings
    assert 1 == world.tally["gap_passed"]


def heard(world: World) -> list[Event]:
    """Everything that happens from now on."""
    events: list[Event] = []

    class Ear:
        def see(self, event: Event) -> None:
            events.append(event)

        def findings(self) -> list[str]:
            return []

    world.judges.append(Ear())
    return events
