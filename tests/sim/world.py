"""A simulated world: runs a plan, lets everything settle, and has it judged."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import orjson

from dispatcher.core.callees.lending import TURN_S
from dispatcher.core.callees.pace import RAMP_S
from dispatcher.core.callees.shares import LEASE_S, MARGIN
from dispatcher.core.instant import Instant
from dispatcher.core.lanes.room import room_of
from dispatcher.core.messages.record import Record
from dispatcher.core.progress.strand import number_of
from dispatcher.settings import LimitSettings, Settings
from tests.guarantees.budgets import DayBudget, SharedBudget
from tests.guarantees.events import (
    CallEnded,
    CallStarted,
    CameBack,
    Crashed,
    Ended,
    Event,
    Halted,
    Parked,
    Removed,
    ReplyVisible,
    Submitted,
    Unparked,
    Unreadable,
    WentDown,
)
from tests.guarantees.judges import findings, judges
from tests.guarantees.limits import WithinLimits
from tests.sim.callee import Callee
from tests.sim.cluster import Cluster, request_record
from tests.sim.logs import Log, Writes
from tests.sim.operator import Operator
from tests.sim.plan import ATTEMPTS_MAX, BUDGET, LIMIT, SHARED, Fault, Order, Plan, Write, keys_of
from tests.sim.process import WALL
from tests.sim.schedule import Schedule
from tests.sim.worker import Worker

# What the promise allows beside session timeout, transaction timeout and sweep: joins, back-offs, slow answers, one call of a request.
SETTLING_S, CALL_S = 40.0, 1.5
# What it takes to find out that nobody has anything left of a budget that partitions share: some words back and forth.
EXCHANGE_S = 30.0
# Where callees say that a request shall wait long, and somebody has to resume a key behind it.
LONG_HINT_S = 65.0
# A world that is done runs on for so long, since what comes late must do no harm.
AFTER_S = 3.0
CHECK_STEPS = 64
# What is sent again is one of the last so many.
AGAIN_MAX = 6
# What a handover may take beside drain and commit budget: one client call that it was in the middle of.
HANDOVER_SLACK_S = 6.0


@dataclass(slots=True)
class Result:
    """What became of a world."""

    findings: list[str]
    tally: Counter[str]
    lasted_s: float
    steps: int
    trace: list[str] = field(default_factory=list)


VALUES = {
    "request": b'{"upstream":"sample"}',
    "other": b'{"upstream":"sample","path":"/other"}',
    "malformed": b"{",
    "halting": b'{"upstream":"sample","after_failure":"halt_key","attempts_max":1}',
}


# Faults of the cluster that last, and how it keeps until when.
LASTING = {"away": "away_until", "refuse": "refusing_until", "lose": "losing_until", "slow": "slow_until"}


class World:
    """Built from a plan; `traced` keeps everything that happens, for a person to read."""

    def __init__(self, plan: Plan, *, traced: bool = False) -> None:
        self._plan = plan
        self._chance = Random(plan.seed + 1)
        self.schedule = Schedule(self._chance)
        self.trace: list[str] | None = [] if traced else None
        self.tally: Counter[str] = Counter()
        bounds: dict[str, Any] = dict(plan.room)
        self.room = replace(room_of(plan.settings), **bounds)
        worker = plan.settings.worker
        handover_s = worker.drain_s + worker.commit_budget_s + HANDOVER_SLACK_S
        how = {"ordering": worker.ordering, "fairness": worker.fairness}
        self.tally["shared"] += worker.fairness == "agent"
        self.judges = judges(worker.publishing, handover_s, **how, is_tight=self.room.ranges < 1000 or self.room.map_bytes < 2000)
        if (limit := plan.settings.limits.get(LIMIT)) is not None:
            kind, window_s = limit.counting, limit.window_s or 1.0
            judge = WithinLimits(requests=limit.requests, window_s=window_s, concurrency=limit.concurrency, is_bucket=kind == "bucket")
            judge.is_shared = True
            self.judges.append(judge)
        for name, of in ((BUDGET, DayBudget), (SHARED, SharedBudget)):
            if name in plan.settings.budgets:
                self.judges.append(of(plan.midnight, _standing_until(plan)))
        self._errors: list[str] = []
        self._calls: dict[int, str] = {}  # open ones, and whose they are
        self._epochs: dict[tuple[int, int], int] = {}  # under which a request was called first
        self._once: set[tuple[int, int]] = set()  # requests that must not be called twice
        self._drawing = Random(plan.seed + 2)  # of them
        self._asking = Random(plan.seed + 3)  # of agents and priorities
        self._agents: dict[tuple[int, int], str] = {}
        self._single: set[tuple[int, int]] = set()  # requests that may cost one attempt
        self._halting: set[tuple[int, int]] = set()  # requests whose failure halts their key
        self._parked: set[tuple[int, int]] = set()
        self._submissions: defaultdict[int, list[Submitted]] = defaultdict(list)
        self.cluster = Cluster(self.schedule, self._chance, plan.broker, self.tell)
        self.cluster.reply_max_bytes = plan.reply_max_bytes
        self.operator = Operator(self.cluster, self._chance)
        self.callee = Callee(plan.manners, self.tell, self.cluster.key_of, self.cluster.strand)
        self.callee.is_guarded = plan.settings.upstreams["sample"].has_breaker
        self.callee.prices = Random(plan.seed + 3) if plan.settings.budgets else None
        # Else what waits for the new day might wait for the one after.
        self.callee.free_from = plan.midnight if plan.waits_for_midnight else math.inf
        self.workers: dict[int, Worker] = {}
        self._incarnations: Counter[int] = Counter()
        self._quiet = False
        self._written = 0

    def tell(self, event: Event) -> None:
        """Something happened: all guarantees see it."""
        if self.trace is not None:
            self.trace.append(f"{self.schedule.now:9.3f} {event}")
        match event:
            case CallStarted(call=call, worker=worker):
                self._calls[call] = worker
                self.tally["called_again"] += self._epochs.setdefault((event.partition, event.offset), event.epoch) < event.epoch
            case CallEnded(call):
                self._calls.pop(call, None)
            case Crashed(worker):
                self._calls = {call: name for call, name in self._calls.items() if name != worker}
            case Parked(partition, offset):
                self._parked.add((partition, offset))
                self.tally["parked"] += 1
            case Unparked(partition, offset):
                self._parked.discard((partition, offset))
            case _:
                pass
        for judge in self.judges:
            judge.see(event)
        if isinstance(event, ReplyVisible) and event.dead and _has_failed(event) and (event.partition, event.offset) in self._halting:
            self.tally["halted"] += 1
            self.tell(Halted(event.partition, event.offset, self.cluster.key_of(event.partition, event.offset)))

    def run(self) -> Result:
        """Run it to its end."""
        plan, schedule = self._plan, self.schedule
        for number, at in enumerate(plan.starts):
            schedule.after(at, self.start, number)
        for write in plan.writes:
            schedule.after(write.at, self._write, write)
        for fault in plan.faults:
            schedule.after(fault.at, self._happen, fault)
        for order in plan.orders:
            schedule.after(order.at, self._order, order)
        for at, lasts_s in plan.outages:
            schedule.after(at, self._go_down)
            schedule.after(at + lasts_s, self._come_back)
        schedule.run(plan.over_at)
        self._end_faults()
        worker = plan.settings.worker
        bound_s = plan.broker.session_s + worker.transaction_timeout_s + plan.broker.sweep_s + worker.drain_s
        bound_s += plan.manners.hang_s if plan.manners.hangs else 0
        bound_s += LONG_HINT_S if plan.manners.long_hints else 0
        bound_s += EXCHANGE_S if SHARED in plan.settings.budgets else 0
        bound_s += max(0.0, plan.midnight - plan.over_at) if plan.waits_for_midnight else 0
        bound_s += plan.settings.upstreams["sample"].breaker_open_s + RAMP_S
        limit = plan.settings.limits.get(LIMIT)
        bound_s += 0.0 if limit is None else _shares_s(limit, plan.settings.upstreams["sample"].call_timeout_s)
        call_s = CALL_S + (0.0 if limit is None else TURN_S + 4 * (limit.window_s or 0.0))
        schedule.run(schedule.now + bound_s + SETTLING_S + self._written * call_s, self._is_settled)
        schedule.run(schedule.now + AFTER_S)
        # Lost workers may still be about to find out: they are given the time, and what they leave open with it.
        schedule.run(schedule.now + bound_s, self._is_quiet)
        for (topic, n), log in self.cluster.logs.items():
            if log.stable_end < log.end:
                self.tell(Unreadable(log.name))
            if (topic, n) == self.cluster.place(log.partition):
                self.tell(Ended(log.partition, log.end))
        for one in list(self.workers.values()):
            one.process.kill()
        return Result(self._errors + findings(self.judges), self.tally, schedule.now, schedule.steps, self.trace or [])

    # --- workers --------------------------------------------------------------------------------------------------------------------

    def start(self, number: int) -> None:
        """Start worker `number`, unless it runs."""
        if number in self.workers:
            return
        self._incarnations[number] += 1
        settings = _with_slot(self._plan.settings, f"w{number}")
        name = f"w{number}.{self._incarnations[number]}"
        if self.trace is not None:
            self.trace.append(f"{self.schedule.now:9.3f} {name} starts")
        chance = Random(self._chance.random())
        self.workers[number] = Worker(self.cluster, self.callee, settings, name, chance, self.tally, self.trace, self._ended, self.room)

    def _ended(self, worker: Worker, error: BaseException | None) -> None:
        number = next((n for n, one in self.workers.items() if one is worker), None)
        if number is None:  # killed while it ended
            return
        del self.workers[number]
        if error is not None:
            self._errors.append(f"{worker.process.name} ended with {type(error).__name__}: {error}")
            raise error
        self._restart(number)

    def _restart(self, number: int) -> None:
        self.schedule.after(self._chance.uniform(0.2, 5), self.start, number)

    # --- what is planned ------------------------------------------------------------------------------------------------------------

    def _write(self, write: Write) -> None:
        log = self.cluster.request_log(write.partition)
        if write.kind in {"request", "malformed", "halting", "dated", "again"}:
            for _ in range(write.count):
                self._submit(log, write)
        elif write.kind == "compacted":
            log.append(None, "compacted")
        else:
            writes = Writes()
            offsets = [log.append(self._record(log, write), writes=writes) for _ in range(write.count)]
            self.schedule.after(write.seconds, self._mark, log, writes, offsets, write.kind == "committed")

    def _mark(self, log: Log, writes: Writes, offsets: list[int], commit: bool) -> None:  # noqa: FBT001 - an action of the schedule
        log.mark(writes, commit=commit)
        for offset in offsets if commit else ():
            self._submitted(log, offset)

    def _submit(self, log: Log, write: Write) -> None:
        known = self._submissions[log.partition]
        if write.kind == "again" and known:
            before = self._chance.choice(known[-AGAIN_MAX:])
            return self._repeat(log, before)
        deadline = self.schedule.now + write.seconds if write.kind == "dated" else math.inf
        return self._submitted(log, log.append(self._record(log, write)), deadline)

    def _repeat(self, log: Log, before: Submitted) -> None:
        """The same request once more, as its client does that heard nothing; or another one under its id."""
        original = log.record(before.offset)
        value = original.value if self._chance.random() < 0.8 else VALUES["other"]
        if value == original.value and self._plan.agents and self._asking.random() < 0.5:
            self._repeat_by_another(log, before, value or b"")
            return
        if (log.partition, before.offset) in self._halting and value == original.value:
            self._halting.add((log.partition, log.end))
        if value == original.value and before.agent:
            self._agents[log.partition, log.end] = before.agent
        deadline = before.deadline if value == original.value else math.inf
        self.tally["again" if value == original.value else "conflicting"] += 1
        self._submitted(log, log.append(replace(original, offset=log.end, value=value)), deadline)

    def _repeat_by_another(self, log: Log, before: Submitted, value: bytes) -> None:
        """The same request once more, of an agent that may be another one."""
        agent = self._asking.choice(self._plan.agents)
        self._agents[log.partition, log.end] = "" if value == VALUES["malformed"] else agent
        if (log.partition, before.offset) in self._halting:
            self._halting.add((log.partition, log.end))
        if value != VALUES["malformed"]:
            value = orjson.dumps({name: content for name, content in orjson.loads(value).items() if name != "agent"})
            value = value[:-1] + (b',"agent":"%s"}' % agent.encode() if agent else b"}")
        self.tally["again"] += 1
        self._submitted(log, log.append(replace(log.record(before.offset), offset=log.end, value=value)), before.deadline)

    def _submitted(self, log: Log, offset: int, deadline: float = math.inf) -> None:
        self._written += 1
        record, place = log.record(offset), (log.partition, offset)
        (_, name), *_ = record.headers or (("", b""),)
        asks = "other" if (record.value or b"").startswith(VALUES["other"][:-1]) else ""
        key, most = self.cluster.key_of(*place), 1 if place in self._single else ATTEMPTS_MAX
        name_text = (name or b"").decode()
        submitted = Submitted(
            *place, key, deadline, name_text, asks, once=place in self._once, attempts_max=most, agent=self._agents.get(place, "")
        )
        self._submissions[log.partition].append(submitted)
        self.tell(submitted)

    def _record(self, log: Log, write: Write) -> Record:
        keys = keys_of(number_of(log.partition), self._plan.broker.partitions)
        key = keys[0] if self._plan.hot and self._chance.random() < self._plan.hot else self._chance.choice(keys)
        if write.kind == "halting":
            self._halting.add((log.partition, log.end))
            self._single.add((log.partition, log.end))
        value = VALUES.get(write.kind, VALUES["request"])
        if write.kind == "dated":
            # A millisecond is what the text can say: up to one later than its event.
            text = Instant(0, WALL + self.schedule.now).rfc3339(write.seconds)
            after = self._chance.choice(("continue", "halt_key"))
            value = orjson.dumps({"upstream": "sample", "deadline": text, "after_failure": after})
            if after == "halt_key":
                self._halting.add((log.partition, log.end))
        if self._drawing.random() < self._plan.once and value != VALUES["malformed"]:
            self._once.add((log.partition, log.end))
            value = value[:-1] + b',"repeat":"never"}'
        value = self._asked(log, value, write.agent)
        topic, number = self.cluster.place(log.partition)
        return request_record(number, log.end, key, value, f"r-{log.partition}-{log.end}", topic)

    def _asked(self, log: Log, value: bytes, agent: str | None) -> bytes:
        """The value with who asks, and how urgent it is, where that is of interest in this world."""
        if value == VALUES["malformed"]:
            return value
        if agent is None and self._plan.agents:
            agent = self._asking.choice(self._plan.agents)
        if agent:
            self._agents[log.partition, log.end] = agent
            value = value[:-1] + b',"agent":"%s"}' % agent.encode()
        if self._plan.priorities:
            value = value[:-1] + b',"priority":%d}' % self._asking.choice(self._plan.priorities)
        return value

    def _order(self, order: Order) -> None:
        self.tally[order.kind] += 1
        if self.trace is not None:
            self.trace.append(f"{self.schedule.now:9.3f} {order}")
        self.operator.give(order)

    def _happen(self, fault: Fault) -> None:
        self.tally[fault.kind] += 1
        if self.trace is not None:
            self.trace.append(f"{self.schedule.now:9.3f} FAULT {fault}")
        until = self.schedule.now + fault.seconds
        match fault.kind:
            case "away" | "refuse" | "lose" | "slow":
                setattr(self.cluster, LASTING[fault.kind], until)
            case "trim":
                for n in self.cluster.strands:
                    self._trim(n)
            case "compact":
                self.cluster.compact()
            case "join":
                self.start(10 + fault.worker)
            case _:
                if (worker := self.workers.get(fault.worker)) is not None:
                    self._strike(worker, fault, until)

    def _go_down(self) -> None:
        upstream = self._plan.settings.upstreams["sample"]
        self.tally["outage"] += 1
        self.callee.down = True
        self.tell(WentDown(upstream.breaker_failures, upstream.breaker_open_s))

    def _come_back(self) -> None:
        self.callee.down = False
        self.tell(CameBack())

    def _trim(self, partition: int) -> None:
        """Remove what is committed; where that may be lost some more, if there is more."""
        log = self.cluster.request_log(partition)
        start = self.cluster.positions.position(partition)
        if self._plan.settings.worker.on_gap == "continue":
            start = max(log.start, min(log.stable_end, start + self._chance.choice((0, 0, 2, 5))))
            self.tell(Removed(partition, start))
        log.start = max(start, log.start)

    def _strike(self, worker: Worker, fault: Fault, until: float) -> None:
        process = worker.process
        match fault.kind:
            case "kill":
                worker.kill()
                del self.workers[fault.worker]
                self._restart(fault.worker)
            case "freeze":
                process.freeze()
                self.schedule.after(fault.seconds, process.thaw)
            case "terminate":
                worker.terminate()
            case "expire":
                self.cluster.group.expire(process.name)
            case _:
                process.stall(fault.kind.removeprefix("stall_"), until)

    def _end_faults(self) -> None:
        self.callee.quiet = True
        self.operator.let_go()
        cluster = self.cluster
        cluster.away_until = cluster.refusing_until = cluster.losing_until = cluster.slow_until = 0.0
        if self.trace is not None:
            self.trace.append(f"{self.schedule.now:9.3f} the faults are over")

    def _is_quiet(self) -> bool:
        return not self._calls and all(log.stable_end == log.end for log in self.cluster.logs.values())

    def _is_settled(self) -> bool:
        if self.schedule.steps % CHECK_STEPS or self._parked or self.cluster.held:
            return False
        return all(
            log.stable_end == log.end
            and (place != self.cluster.place(log.partition) or self.cluster.positions.position(log.partition) == log.end)
            for place, log in self.cluster.logs.items()
        )


def _has_failed(reply: ReplyVisible) -> bool:
    """Whether a dead request could be executed, and was not refused for what it is."""
    return reply.called or "budget_exhausted" in reply.says


def _shares_s(limit: LimitSettings, call_s: float) -> float:
    """How long what a dead worker had of a limit may be nobody's."""
    return (LEASE_S + (limit.window_s or 0.0) + (call_s if limit.concurrency is not None else 0.0) + limit.slack_s) * MARGIN


def _standing_until(plan: Plan) -> float:
    """Until when somebody may stand still who did so at midnight."""
    still = [fault for fault in plan.faults if fault.kind.startswith(("freeze", "stall"))]
    return max((fault.at + fault.seconds for fault in still if fault.at <= plan.midnight <= fault.at + fault.seconds), default=0.0)


def _with_slot(settings: Settings, slot: str) -> Settings:
    return settings.model_copy(update={"worker": settings.worker.model_copy(update={"slot": slot})})


def run(plan: Plan, *, traced: bool = False) -> Result:
    """Run one world. What the product raises where it must not is a finding."""
    world = World(plan, traced=traced)
    try:
        return world.run()
    except Exception as error:  # noqa: BLE001 - judged, whatever it is
        for worker in list(world.workers.values()):
            worker.process.kill()
        finding = f"raised: {type(error).__name__}: {error}"
        return Result([finding], world.tally, world.schedule.now, world.schedule.steps, world.trace or [])
