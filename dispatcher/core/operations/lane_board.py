"""The lanes of a group as whoever belongs to no worker sees them. Facts in, rows out.

The facts: what is wanted, what is committed, what workers tell. Only the first two are certain. What a worker tells is some seconds old,
and where no worker has a partition nobody tells anything: those columns are None then, never 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dispatcher.core.internal.control import HALTED, PAUSED, Command, Kind, parse_target, partition_target
from dispatcher.core.internal.lane_report import LaneReport, PartitionReport, WorkerReport
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record_json import Shown, shown
from dispatcher.core.progress.headway import Headway

# What clients call themselves (`client.id`), before their slot.
CLIENT_PREFIX = "dispatcher-"


@dataclass(frozen=True, slots=True)
class Edges:
    """Where the log of a partition begins and ends now."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found. `owners`: by partition the `client.id` of the member that has it; `reports`: the last one of each slot.

    `commands` are those in force, by target.
    """

    edges: Mapping[int, Edges]
    headways: Mapping[int, Headway]
    owners: Mapping[int, str]
    reports: Mapping[str, WorkerReport]
    commands: Mapping[str, Command]

    def command(self, target: str) -> Command | None:
        """What is wanted of a target; None where it runs."""
        return self.commands.get(target)


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. `lag` counts offsets that are not settled, and the marks of transactions have some too. `why` it stands, or empty."""

    partition: int
    owner: str | None
    position: int | None
    lag: int
    held: int | None
    in_flight: int | None
    parked: int | None
    paused_keys: int
    halted_keys: int
    why: str


@dataclass(frozen=True, slots=True)
class LaneRow:
    """One lane that is worth looking at.

    `state`: halted, paused, waiting, calling or queued; `why` it waits and `until` (seconds since 1970) when. `command` is the one that
    holds it; a call may be in hand all the same, and ends. The rest as in `LaneReport`, None where no worker tells of it.
    """

    key: Shown
    partition: int
    state: str
    why: str
    until: float | None
    queued: int | None
    parked: int | None
    head: str | None
    offset: int | None
    attempts: int | None
    waited_s: float | None
    calling: bool | None
    command: Command | None


def slot_of(client_id: str) -> str:
    """The slot of a worker by the name that it gives Kafka, unless its settings give it another."""
    return client_id.removeprefix(CLIENT_PREFIX)


def report_of(facts: Facts, partition: int) -> tuple[str, PartitionReport] | None:
    """What the partition's owner tells of it, and its slot; None where nobody has it, or nobody has told yet."""
    client_id = facts.owners.get(partition)
    if client_id is None:
        return None
    told = {slot: each for slot, report in facts.reports.items() for each in report.partitions if each.partition == partition}
    if (slot := slot_of(client_id)) in told:
        return slot, told[slot]
    # It calls itself something else: the last one to get the partition is the one that has it.
    latest = max(told, key=lambda slot: told[slot].epoch, default=None)
    return None if latest is None else (latest, told[latest])


def partition_rows(facts: Facts) -> list[PartitionRow]:
    """A row for each partition."""
    count = len(facts.edges)
    states: dict[int, Counter[str]] = {partition: Counter() for partition in facts.edges}
    for command in facts.commands.values():
        target = parse_target(command.target)
        if target is not None and target.kind is Kind.KEY and count:
            states[partition_for(target.name.encode(), count)][command.state] += 1
    return [_partition_row(facts, partition, states[partition]) for partition in sorted(facts.edges)]


def _partition_row(facts: Facts, partition: int, states: Counter[str]) -> PartitionRow:
    told = report_of(facts, partition)
    report = None if told is None else told[1]
    client_id = facts.owners.get(partition)
    owner = None if client_id is None else slot_of(client_id) if told is None else told[0]
    return PartitionRow(
        partition,
        owner,
        facts.headways[partition].position,
        lag(facts.edges[partition], facts.headways[partition]),
        None if report is None else report.held,
        None if report is None else report.in_flight,
        None if report is None else report.parked,
        states[PAUSED],
        states[HALTED],
        _why(facts, partition, owner, report),
    )


def _why(facts: Facts, partition: int, owner: str | None, report: PartitionReport | None) -> str:
    """Why a partition stands."""
    command = facts.command(partition_target(partition))
    if command is not None:
        return command.state
    if owner is None:
        return "no_worker"
    return "" if report is None else report.why


def lag(edges: Edges, headway: Headway) -> int:
    """How many offsets are not settled."""
    start = max(edges.first, headway.position or 0)
    return max(0, edges.end - start - sum(stop - begin for begin, stop in headway.settled))


def lane_rows(facts: Facts) -> list[LaneRow]:
    """A row for each key that somebody holds, and for the others that workers tell of; by partition, in their order."""
    told: dict[tuple[int, str], LaneReport] = {}
    held: dict[tuple[int, str], None] = {}
    count = len(facts.edges)
    for command in facts.commands.values():
        target = parse_target(command.target)
        if target is not None and target.kind is Kind.KEY and count:
            held[partition_for(target.name.encode(), count), target.name] = None
    others: list[LaneRow] = []
    for partition in facts.edges:
        found = report_of(facts, partition)
        for lane in () if found is None else found[1].notable:
            if isinstance(lane.key, str):
                told[partition, lane.key] = lane
            else:
                others.append(lane_row(facts, partition, lane.key, lane))
    named = [lane_row(facts, partition, key, told.get((partition, key))) for partition, key in {**held, **dict.fromkeys(told)}]
    return sorted([*named, *others], key=lambda row: row.partition)


def lane_row(facts: Facts, partition: int, key: Shown, lane: LaneReport | None) -> LaneRow:
    """The row of one lane; `lane` is what its worker tells of it, if it does."""
    command = _holder(facts, partition, key)
    until = None
    if command is not None:
        state, why = command.state, command.state
    elif lane is None or not lane.why:
        state, why = "calling" if lane is not None and lane.calling else "queued", ""
    else:
        state, why, until = "waiting", lane.why, lane.until
    if lane is None:
        return LaneRow(key, partition, state, why, until, None, None, None, None, None, None, None, command)
    return LaneRow(
        key,
        partition,
        state,
        why,
        until,
        lane.queued,
        lane.parked,
        lane.head,
        lane.offset,
        lane.attempts,
        lane.waited_s,
        lane.calling,
        command,
    )


def _holder(facts: Facts, partition: int, key: Shown) -> Command | None:
    """The command that holds a key: its own, or its partition's."""
    own = facts.command(f"{Kind.KEY.value}:{key}") if isinstance(key, str) else None
    return own or facts.command(partition_target(partition))


def in_force(commands: Iterable[Command]) -> dict[str, Command]:
    """Commands by their targets."""
    return {command.target: command for command in commands}


def lane_report(facts: Facts, partition: int, key: bytes) -> LaneReport | None:
    """What a worker tells of one lane; None where it does not, since there are worse ones or it is empty."""
    found, name = report_of(facts, partition), shown(key)
    return None if found is None else next((lane for lane in found[1].notable if lane.key == name), None)
