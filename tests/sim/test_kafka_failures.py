"""What went wrong with others' Kafka consumers, as worlds: each in the three group protocols, and always without a broken promise.

The names say the symptom that others had; the letters are the groups of failures (commits, ownership, transactions).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from tests.guarantees.events import CallStarted, Event
from tests.sim.callee import Manners
from tests.sim.plan import CALM, Fault, Plan, Write, WriteKind, staged
from tests.sim.world import World, run

SEEDS = 4
STEADY = tuple(Write(0.15 * n, n % 2, "request") for n in range(40))
KINDS: tuple[WriteKind, ...] = ("request", "aborted", "compacted", "committed", "aborted") * 4
HOLES = tuple(Write(0.3 * n, 0, kind, 0.2, 2) for n, kind in enumerate(KINDS))
SLOW = Manners(fails=0.0, slow=1.0, latency_s=0.5, slow_s=3.0)
FAILING = Manners(fails=0.7, slow=0.1, latency_s=0.05)
ONCE, TWICE = {"publishing": "exactly_once"}, {"publishing": "at_least_once"}
STORM = tuple(Fault(1 + 0.7 * n, "join" if n % 3 else "terminate", n % 4, 1) for n in range(16))


@dataclass(frozen=True, slots=True)
class Failure:
    """What others had, and the world that provokes it."""

    name: str
    faults: tuple[Fault, ...] = ()
    writes: tuple[Write, ...] = STEADY
    workers: int = 1
    manners: Manners = CALM
    fixed: tuple[tuple[str, Any], ...] = ()
    reply_max_bytes: int = 1 << 30

    def __str__(self) -> str:
        return self.name.replace(" ", "_")

    def plan(self, seed: int, protocol: str) -> Plan:
        plan = staged(
            seed, self.writes, self.faults, workers=self.workers, manners=self.manners, **dict(self.fixed) | {"protocol": protocol}
        )
        return replace(plan, reply_max_bytes=self.reply_max_bytes)


def fixed(**settings: Any) -> tuple[tuple[str, Any], ...]:
    """Settings of the worker, as a plan takes them."""
    return tuple(settings.items())


FAILURES = (
    # A. What is committed.
    Failure("A1 offsets have holes", writes=HOLES),
    Failure("A1 offsets have holes for a new owner", (Fault(2.5, "kill", 0, 1),), HOLES, workers=2),
    Failure("A3 the position polled is committed at close", (Fault(1.0, "terminate", 0, 1),), manners=SLOW, workers=2),
    Failure("A3 the position polled is committed at revoke", (Fault(1.0, "join", 0, 1),), manners=SLOW),
    Failure("A4 a position beyond the end after idle rebalances", STORM, writes=STEADY[:1], workers=3),
    Failure("A5 an offset comes back while its old call runs", (Fault(1.5, "expire", 0, 1), Fault(4.5, "expire", 0, 1)), manners=SLOW),
    Failure("A9 a slow partition loses what a fast one commits", (Fault(3.0, "kill", 0, 1),), manners=SLOW),
    Failure("A11 a refused commit is never made again", (Fault(1.5, "refuse", 0, 3),), STEADY[:8], fixed=fixed(**TWICE)),
    Failure("A11 a refused commit is never made again in transactions", (Fault(1.5, "refuse", 0, 3),), STEADY[:8]),
    Failure("A13b a failed reply is committed over", (Fault(2.0, "terminate", 0, 1),), manners=FAILING, reply_max_bytes=2000),
    Failure("A13 nothing commits until more traffic", writes=(Write(1.0, 0, "request", 0.0, 3),)),
    # B. Whose a partition is.
    Failure("B14 stuck after a storm of rebalances", STORM, workers=3),
    Failure("B15 the same key twice after revoke and return", (Fault(1.0, "join", 0, 1), Fault(2.0, "terminate", 10, 1)), manners=SLOW),
    Failure("B16 a loss while calls run", (Fault(1.0, "expire", 0, 1),), manners=SLOW, workers=2),
    Failure("B18 records of a partition that was revoked in the batch", STORM, writes=STEADY, workers=2, fixed=fixed(drain_s=0.5)),
    Failure("B19 a stale position after coming back", (Fault(1.0, "freeze", 0, 9), Fault(12.0, "expire", 1, 1)), workers=2),
    Failure("B20 a session that ended in a freeze", (Fault(1.0, "freeze", 0, 18),), workers=2),
    Failure("B21 commits in a rebalance", STORM, workers=2, fixed=fixed(commit_interval_ms=0, **TWICE)),
    Failure("B23 full buffers in a rebalance", STORM[:6], workers=2, manners=SLOW, fixed=fixed(lane_buffer_max_records=2)),
    Failure("B24 a slow committer and a revocation", (Fault(1.5, "slow", 0, 3), Fault(2.0, "join", 0, 1)), fixed=fixed(**TWICE)),
    Failure("B27 SIGTERM in a rebalance", (Fault(1.0, "join", 0, 1), Fault(1.0, "freeze", 1, 7), Fault(1.5, "terminate", 0, 1)), workers=2),
    Failure("B27b close in a storm", (*STORM, Fault(6.0, "terminate", 0, 1)), workers=3, manners=SLOW),
    Failure("B28b calls that outlive a revocation", (Fault(1.0, "join", 0, 1),), manners=SLOW, fixed=fixed(drain_s=0.5)),
    Failure("B28d a coordinator that is away ends a worker", (Fault(1.0, "away", 0, 18),)),
    Failure("B28d a coordinator that is away ends a worker at least once", (Fault(1.0, "away", 0, 18),), fixed=fixed(**TWICE)),
    # C and D, as far as they are about order and loss.
    Failure("C30 paused for ever after coming back", STORM[:6], manners=SLOW, workers=2, fixed=fixed(lane_buffer_max_records=2)),
    Failure("C31 a rebalance while a retry waits", STORM[:6], manners=FAILING, workers=2),
    Failure(
        "D47 one bad record fails its batch", writes=tuple(replace(w, kind="malformed") if i % 5 == 1 else w for i, w in enumerate(STEADY))
    ),
    # E. Transactions.
    Failure("E52 lost after being fenced", (Fault(1.0, "freeze", 0, 18), Fault(2.0, "join", 0, 1))),
    Failure("E52 lost after a restart under the same name", (Fault(1.0, "kill", 0, 1), Fault(3.0, "kill", 0, 1))),
    Failure("E53 one reply that is too large", manners=FAILING, reply_max_bytes=2000),
    Failure("E54 a transaction that outlives its timeout", (Fault(1.0, "stall_publisher", 0, 18),), fixed=fixed(transaction_timeout_s=1.0)),
    Failure(
        "E54 a process that outlives its transaction", (Fault(1.0, "freeze", 0, 18),), workers=2, fixed=fixed(transaction_timeout_s=1.0)
    ),
    Failure("E55 rebalances between produce and commit", STORM, workers=3, fixed=fixed(commit_interval_ms=0)),
    Failure("E57 a commit whose end nobody knows", (Fault(1.0, "lose", 0, 7), Fault(2.0, "slow", 0, 3))),
    Failure("E58 a flush that times out", (Fault(1.0, "away", 0, 7), Fault(9.0, "lose", 0, 3)), fixed=fixed(**TWICE)),
)


@pytest.mark.parametrize("protocol", ["consumer", "cooperative", "eager"])
@pytest.mark.parametrize("failure", FAILURES, ids=str)
def test_what_others_had_breaks_no_promise(failure: Failure, protocol: str) -> None:
    """The world that provokes it ends with every guarantee kept."""
    for seed in range(SEEDS):
        assert [] == run(failure.plan(seed, protocol)).findings, f"seed {seed}"


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


def test_records_that_retention_removed_end_the_worker_and_are_not_skipped() -> None:
    """G67: the committed position is not in the log any more; no worker guesses where to go on, and none commits."""
    world = World(staged(1, (Write(0.0, 0, "request", 0.0, 3),), workers=0))
    world.schedule.after(0.5, setattr, world.cluster.request_log(0), "start", 2)
    world.schedule.after(1.0, world.start, 0)
    with pytest.raises(Exception, match="not in the log"):
        world.run()
    assert 0 == world.cluster.positions.position(0)


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
