"""What will happen in a world, drawn from its seed: how it is set up, what is written, which faults come when. Data, so that it shrinks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any, Literal

from dispatcher.adapters.kafka.clients import GroupProtocol
from dispatcher.core.internal.parked import OVERHEAD_MAX_BYTES
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.progress.strand import strand_of
from dispatcher.settings import BudgetSettings, ClassSettings, LimitSettings, ModelSettings, Settings
from tests.guarantees.budgets import AGENT_CENTS, CALL_CENTS, DAY_CENTS
from tests.guarantees.call_times import FLOOR_S
from tests.sim.callee import MODEL, Manners
from tests.sim.cluster import Broker
from tests.sim.process import WALL

WriteKind = Literal["request", "malformed", "aborted", "committed", "compacted", "halting", "dated", "again"]
OrderKind = Literal["pause_key", "pause_partition", "resume_key", "skip", "cancel"]
FaultKind = Literal[
    "kill",
    "freeze",
    "terminate",
    "join",
    "expire",
    "away",
    "refuse",
    "lose",
    "slow",
    "stall_poller",
    "stall_publisher",
    "stall_loop",
    "stall_restorer",
    "trim",
    "compact",
]
FAULTS: tuple[FaultKind, ...] = (
    *("kill", "freeze", "terminate", "join", "expire", "away", "refuse", "lose", "slow", "stall_poller", "stall_publisher", "stall_loop"),
    *("stall_restorer", "trim", "compact"),
)
ORDERS: tuple[OrderKind, ...] = ("pause_key", "pause_partition", "resume_key", "skip", "cancel", "cancel")
# What a request may cost that says nothing else.
ATTEMPTS_MAX = 3
# The name of the limit of worlds that have one.
LIMIT = "sample"
# The names of the budgets of worlds that have one, of keys and of agents; and how long after all that is planned a new day begins for those
# whose requests wait for it.
BUDGET, SHARED, LEFT_S = "all", "shared", 5.0
# Calls that all succeed, soon.
CALM = Manners(fails=0.0, slow=0.0, latency_s=0.05)


@dataclass(frozen=True, slots=True)
class Write:
    """Something written to a request partition; `aborted` and `committed` are `count` records whose marker comes `seconds` later.

    `dated` ones have a deadline `seconds` later, or before: it has passed then. `again`: what stands there already is sent once more
    under its id, or something else is. `agent` asks; None leaves that to the world.
    """

    at: float
    partition: int
    kind: WriteKind
    seconds: float = 0.0
    count: int = 1
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that happens to worker number `worker`, or to the cluster, for `seconds`."""

    at: float
    kind: FaultKind
    worker: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Order:
    """What somebody wants of a partition, of one of its keys (by number), or of a request that waits there; a pause is for `seconds`."""

    at: float
    kind: OrderKind
    partition: int
    key: int
    seconds: float


# A topic for parked requests that takes the short ones, and few of those that say more than where they go.
SMALL_BYTES = OVERHEAD_MAX_BYTES + 210


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole world before it runs. `starts`: when each worker begins. `room`: fields of `Room` that are not as the settings say.

    `hot`: the share of requests that one key of each partition has before the others. `outages`: when the callee is down, and for how long.
    `once`: the share of requests that must not be called twice. `agents`: who asks, each as often as the others; none where nobody says so.
    `priorities`: which ones requests have, each as often as the others; none where they say nothing.
    """

    seed: int
    broker: Broker
    settings: Settings
    manners: Manners
    starts: tuple[float, ...]
    writes: tuple[Write, ...]
    faults: tuple[Fault, ...]
    reply_max_bytes: int
    orders: tuple[Order, ...] = ()
    room: tuple[tuple[str, float], ...] = ()
    hot: float = 0.0
    outages: tuple[tuple[float, float], ...] = ()
    once: float = 0.0
    agents: tuple[str, ...] = ()
    priorities: tuple[int, ...] = ()

    @property
    def over_at(self) -> float:
        """When all that is planned has happened."""
        ends = [one.at + one.seconds for some in (self.writes, self.faults, self.orders) for one in some]
        return max([*self.starts, *ends, *map(sum, self.outages)])

    @property
    def midnight(self) -> float:
        """When a new day begins for budgets; never, where there are none."""
        budget = next(iter(self.settings.budgets.values()), None)
        return math.inf if budget is None else budget.day_starts_at_h * 3600 - WALL % 86_400

    @property
    def waits_for_midnight(self) -> bool:
        """Whether requests whose key or agent has spent its budget wait for a new day."""
        return any(budget.when_spent == "wait" for budget in self.settings.budgets.values())


def draw(seed: int, **fixed: Any) -> Plan:
    """Draw the plan of a seed; `fixed` overrides settings of `[worker]`, `protocol` and `publishing` among them.

    `classes`: those of requests, with a share of each that is drawn; worlds that say nothing have none.
    `shared`: whether agents have budgets that partitions share; they do in a few worlds where it is left out. `budgets`: whether all that
    publish exactly once have one of keys or of agents; worlds with classes have none else, and others a few.
    """
    chance, classes = Random(seed), fixed.pop("classes", ())
    told_shared, told_budgets = fixed.pop("shared", None), fixed.pop("budgets", False)
    if classes:
        fixed["protocol"] = fixed.get("protocol", Random(f"protocol {seed}").choice(("consumer", "eager")))
    partitions = chance.randint(2, 4)
    protocols: tuple[GroupProtocol, ...] = ("consumer", "consumer", "cooperative", "eager")
    drawn = chance.choice(protocols)
    protocol = fixed.pop("protocol", drawn)
    broker = Broker(partitions, protocol, session_s=6.0, sweep_s=chance.choice((2.0, 10.0)), classes=tuple(classes))
    span_s = chance.uniform(3, 12)
    settings = _settings(chance, fixed)
    by_key = settings.worker.ordering == "key"
    starts = tuple(chance.uniform(0, 1.5) for _ in range(chance.randint(1, 3)))
    writes = tuple(_write(chance, partitions, span_s) for _ in range(chance.randint(8, 50 if by_key else 35)))
    faults = tuple(_fault(chance, len(starts), span_s) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4, 6))))
    manners = Manners(
        fails=chance.choice((0, 0.1, 0.5)),
        slow=chance.choice((0, 0.05, 0.2)),
        hangs=chance.choice((0, 0, 0, 0.05)),
        latency_s=chance.choice((0.02, 0.1, 0.4)),
        long_hints=chance.choice((0, 0.1, 0.5)) if by_key else 0.0,
    )
    large = 2000 if chance.random() < 0.2 else 1 << 30
    orders = tuple(_order(chance, partitions, span_s) for _ in range(chance.choice((0, 0, 0, 1, 2, 4))))
    room, hot = _room(chance) if by_key else (), chance.choice((0.0, 0.0, 0.6))
    if by_key and (most := Random(-2 - seed).choice((0, 0, SMALL_BYTES, SMALL_BYTES + 40))):
        room = (*room, ("parked_max_bytes", most))
    settings = _timed(settings, is_adaptive=chance.random() < 0.3)
    settings = with_breaker(settings, chance.choice((0, 2, 5)), chance.choice((0.5, 2.0, 8.0)))
    is_down = settings.upstreams["sample"].has_breaker and chance.random() < 0.5
    outages = ((chance.uniform(0, span_s), chance.choice((1.0, 5.0, 15.0))),) if is_down else ()
    # Of a chance of its own: worlds of before stay as they were.
    once = Random(-1 - seed).choice((0.0, 0.3, 1.0)) if settings.worker.publishing == "exactly_once" else 0.0
    settings = with_limit(settings, _limit(Random(f"limits of {seed}")))
    settings, agents = _shared(settings, Random(f"agents {seed}"), fixed)
    priorities = Random(f"priorities {seed}").choice(((), (), (0, 4, 9)))
    plan = Plan(
        *(seed, broker, settings, manners, starts, tuple(sorted(writes, key=lambda w: w.at)), faults, large),
        *(orders, room, hot, outages, once, agents, priorities),
    )
    if classes:
        plan = _classed(plan, Random(f"classes of {seed}"))
        settings = plan.settings
    chance = Random(f"budgets of {seed}")
    if settings.worker.publishing == "at_least_once" or (classes and not told_budgets):
        return plan
    has_budget = chance.random() <= (0.6 if told_budgets else 0.3)
    is_shared = told_shared if told_shared is not None else Random(f"shared budgets of {seed}").random() < 0.1
    is_shared = is_shared or (told_budgets and not has_budget)
    if not (has_budget or is_shared):
        return plan
    waits = chance.random() < 0.4
    midnight = plan.over_at + LEFT_S if waits else chance.choice((chance.uniform(0, span_s), 3600.0))
    return replace(plan, settings=with_budgets(settings, midnight, waits=waits, of_keys=has_budget, shared=is_shared))


def _classed(plan: Plan, chance: Random) -> Plan:
    """The plan with classes: what is written is spread over their topics, and each has some share."""
    names = plan.broker.classes
    of = {name: ClassSettings(weight=chance.choice((1, 2, 3)), concurrency=chance.choice((None, None, 1, 2))) for name in names}

    def spread(partition: int) -> int:
        return strand_of(chance.randrange(len(names)), partition)

    writes = tuple(replace(write, partition=spread(write.partition)) for write in plan.writes)
    orders = tuple(replace(order, partition=spread(order.partition)) for order in plan.orders)
    return replace(plan, settings=plan.settings.model_copy(update={"classes": of}), writes=writes, orders=orders)


def staged(
    seed: int,
    writes: tuple[Write, ...],
    faults: tuple[Fault, ...] = (),
    *,
    workers: int = 1,
    manners: Manners = CALM,
    outages: tuple[tuple[float, float], ...] = (),
    breaker: tuple[int, float] = (0, 30.0),
    limit: LimitSettings | None = None,
    **fixed: Any,
) -> Plan:
    """Give a plan of which everything that matters is told; the seed still decides when exactly things happen.

    `breaker`: after how many failures it opens, 0 for never, and for how long. `limit`: that of its upstream.
    """
    plan = draw(
        seed, **{"publishing": "exactly_once", "ordering": "partition", "drain_s": 3.0, "inflight_max": 1000, "fairness": "fifo"} | fixed
    )
    starts = tuple(0.1 * number for number in range(workers))
    told: dict[str, Any] = {
        "settings": with_limit(with_breaker(_timed(plan.settings, is_adaptive=False), *breaker), limit).model_copy(update={"budgets": {}}),
        "starts": starts,
        "writes": writes,
        "faults": faults,
        "manners": manners,
        "outages": outages,
    }
    return replace(plan, **told, reply_max_bytes=1 << 30, orders=(), room=(), hot=0.0, once=0.0, agents=(), priorities=())


def _settings(chance: Random, fixed: dict[str, Any]) -> Settings:
    worker = {
        "group": "sim",
        "slot": "w",
        "publishing": "exactly_once" if chance.random() < 0.7 else "at_least_once",
        "drain_s": chance.choice((0.5, 3.0, 6.0)),
        "transaction_timeout_s": chance.choice((1.0, 3.0, 10.0)),
        "commit_interval_ms": chance.choice((0, 20, 200)),
        "lane_buffer_max_records": chance.choice((2, 5, 4000)),
        "inflight_max": chance.choice((1, 2, 1000)),
        "wait_max_s": chance.choice((3.0, 600.0)),
        **_by_key(chance, fixed),
        **fixed,
    }
    return settings_of(tuple(sorted(worker.items())))


def _shared(settings: Settings, chance: Random, fixed: dict[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """Let the agents of a lane share it, in a fifth of the worlds; most of the requests are one agent's. Others have none."""
    fairness = fixed.get("fairness", chance.choice(("agent", "fifo", "fifo", "fifo", "fifo")))
    if fairness == "fifo":
        return settings, ()
    worker = settings.worker.model_copy(update={"fairness": "agent"})
    return settings.model_copy(update={"worker": worker}), chance.choice((("", "a"), ("a", "a", "a", "b"), ("", "a", "b")))


def _timed(settings: Settings, *, is_adaptive: bool) -> Settings:
    """Let the time of calls be fitted to what calls take, or not."""
    sample = settings.upstreams["sample"].model_copy(update={"adaptive_timeout": is_adaptive, "timeout_floor_s": FLOOR_S})
    return settings.model_copy(update={"upstreams": {"sample": sample}})


def _by_key(chance: Random, fixed: dict[str, Any]) -> dict[str, Any]:
    """Draw what matters where a key is a lane."""
    ordering = fixed.get("ordering", chance.choice(("partition", "key")))
    if ordering != "key":
        return {"ordering": ordering}
    return {
        "ordering": "key",
        "partition_inflight_max": chance.choice((1, 2, 1000)),
        "lane_buffer_max_records": chance.choice((2, 5, 12, 4000)),
        "buffer_max_records": chance.choice((8, 100_000)),
        "parked_max_records": chance.choice((2, 100_000)),
        "halted_max_records": chance.choice((1, 3, 1000)),
        "on_gap": chance.choice(("stop", "continue")),
    }


def _room(chance: Random) -> tuple[tuple[str, float], ...]:
    """Draw bounds that a few dozen requests meet."""
    room = {
        "ranges": chance.choice((2, 4, 1000)),
        "map_bytes": chance.choice((28, 60, 2957)),
        "distance": chance.choice((3, 10_000)),
        "park_s": chance.choice((0.1, 1.0)),
        "queue_s": chance.choice((0.5, 30.0)),
        "queue_share": chance.choice((8, 64)),
    }
    return tuple(room.items())


def _order(chance: Random, partitions: int, span_s: float) -> Order:
    kind = chance.choice(ORDERS)
    return Order(chance.uniform(0, span_s + 2), kind, chance.randrange(partitions), chance.randrange(3), chance.choice((0.3, 2.0, 8.0)))


def with_breaker(settings: Settings, failures: int, open_s: float) -> Settings:
    """Give settings with this circuit breaker."""
    of = settings.upstreams["sample"].model_copy(update={"breaker_failures": failures, "breaker_open_s": open_s})
    return settings.model_copy(update={"upstreams": {"sample": of}})


def with_limit(settings: Settings, limit: LimitSettings | None) -> Settings:
    """Give settings with this limit alone."""
    return settings.model_copy(update={"limits": {} if limit is None else {LIMIT: limit}})


def _limit(chance: Random) -> LimitSettings | None:
    """Draw how much the callee takes of each worker; in most worlds anything."""
    if chance.random() < 0.6:
        return None
    requests, window_s = chance.choice((None, 2, 4)), chance.choice((0.3, 2.0))
    concurrency = chance.choice((1, 2)) if requests is None else chance.choice((None, 1, 3))
    counting = chance.choice(("window", "window", "bucket"))
    margin_s = chance.choice((0.0, 0.1))
    per_window = {} if requests is None else {"requests": requests, "window_s": window_s}
    given = {"upstream": "sample", "concurrency": concurrency, "counting": counting, "margin_s": margin_s, **per_window}
    return LimitSettings.model_validate(given)


def with_budgets(settings: Settings, midnight: float, *, waits: bool, of_keys: bool = True, shared: bool = False) -> Settings:
    """Give settings with a budget for each key, or agent, whose day begins at `midnight`, seconds of the world; and a model that costs.

    `shared`: for each agent; those that do not say who they are are one.
    """
    told = {
        "reserve_usd": Decimal(CALL_CENTS) / 100,
        "when_spent": "wait" if waits else "refuse",
        "day_starts_at_h": (WALL % 86_400 + midnight) / 3600,
    }
    budgets = {}
    if of_keys:
        budgets[BUDGET] = BudgetSettings.model_validate({"keys": ("*",), "usd_per_day": Decimal(DAY_CENTS) / 100, **told})
    if shared:
        budgets[SHARED] = BudgetSettings.model_validate({"agents": ("*",), "usd_per_day": Decimal(AGENT_CENTS) / 100, **told})
    models = {MODEL: ModelSettings(usd_per_million=Decimal(1))}
    return settings.model_copy(update={"budgets": budgets, "models": models})


@cache
def settings_of(worker: tuple[tuple[str, Any], ...]) -> Settings:
    """Make the settings of a worker's table; the rest is the same in every world."""
    upstream = {"base_url": "http://127.0.0.1:1", "attempts_max": ATTEMPTS_MAX, "backoff_base_s": 0.2, "backoff_max_s": 1.0}
    return Settings.model_validate({"topics": {"prefix": "sim"}, "worker": dict(worker), "upstreams": {"sample": upstream}})


def _write(chance: Random, partitions: int, span_s: float) -> Write:
    kinds: tuple[WriteKind, ...] = ("request", "again", "malformed", "aborted", "committed", "compacted", "halting", "dated")
    kind = chance.choices(kinds, (55, 10, 4, 6, 6, 4, 5, 10))[0]
    count = chance.randint(1, 3)
    at, partition = chance.uniform(0, span_s), chance.randrange(partitions)
    seconds = chance.choice((-1.0, 0.1, 0.5, 2.0, 10.0)) if kind == "dated" else chance.expovariate(2)
    return Write(at, partition, kind, seconds, count)


def _fault(chance: Random, workers: int, span_s: float) -> Fault:
    return Fault(
        chance.uniform(0.5, span_s + 2), chance.choice(FAULTS), chance.randrange(workers), chance.choice((0.3, 1.0, 3.0, 7.0, 18.0))
    )


@cache
def keys_of(partition: int, partitions: int) -> tuple[bytes, ...]:
    """Give three keys that belong to a partition."""
    found = (key for n in range(10_000) if partition_for(key := b"doc:%d" % n, partitions) == partition)
    return next(found), next(found), next(found)
