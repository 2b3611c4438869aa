"""Lanes as operators see and hold them: listing, describing, pausing, resuming, and skipping a request.

What is wanted is written to the control topic and read back from it; where a worker has the partition, it is waited for until that one
says that it has read it. Nothing here joins the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from dispatcher.adapters.kafka.admin import Cluster, TopicFacts, connect, facts_of
from dispatcher.adapters.kafka.group import headways, owners
from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader, no_topic
from dispatcher.client import control
from dispatcher.client.budgets import balances
from dispatcher.client.lane_queue import LaneQueue, Turn
from dispatcher.client.standing import stands
from dispatcher.core.internal.budget import Budgets
from dispatcher.core.internal.control import HALTED, PAUSED, RUNNING, SKIP, Command, Kind, Target, message, read_command
from dispatcher.core.internal.lane_report import WorkerReport, decode
from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.glance import header
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import KEY_MAX_BYTES
from dispatcher.core.operations.balance import Balance
from dispatcher.core.operations.lane_board import Edges, Facts, LaneRow, in_force, lane_report, lane_row, slot_of
from dispatcher.core.operations.positions import START, Anchor, Position, Span
from dispatcher.core.operations.standing import NotFound, Terminal
from dispatcher.core.progress.headway import Headway
from dispatcher.errors import BrokerError, CallFailed, ConfigError
from dispatcher.settings import Settings

# Of what workers tell, the last records: a hundred workers tell as much in twenty seconds, of lanes and of limits that they share.
REPORTS_READ = 3000


@dataclass(frozen=True, slots=True)
class Effect:
    """What a command did. `command`: the one that is in force now, None where the target runs.

    Unless `changed` it was so before, and nothing was written; or what was to end has given way to `command`, which is in force. `offset`
    in the control topic; `owner`: the slot of the worker that has the partition, None where none has it; `confirmed_by`: the slot that has
    read the command, or has done what it says. `around`: the command that holds a lane's whole partition.
    """

    target: Target
    partition: int
    changed: bool
    command: Command | None
    offset: int | None = None
    owner: str | None = None
    confirmed_by: str | None = None
    around: Command | None = None


@dataclass(frozen=True, slots=True)
class Description:
    """One lane, or with `key` None a whole partition.

    `queued` counts its requests that have not ended, what is parked included; `is_exact`: that is all of them. `head`: the position of
    the first one, `head_id` its id. `parked`: the first of those that were moved aside. `balance`: what its key has left of its budget,
    `shared` what the credential that it names (`apikey:…`) has, in all partitions.
    """

    row: LaneRow
    owner: str | None
    queued: int
    is_exact: bool
    parked: int
    head: str | None
    head_id: str | None
    first_parked: Entry | None
    balance: Balance | None = None
    shared: Balance | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """What a skip would do. `target` None: nothing, and `why` says it.

    A halted key is let go on (`target` is the key): the request that failed has its dead letter. Else `target` is a request; `behind`
    counts those of its key that come after it.
    """

    target: Target | None
    partition: int
    key: bytes | None
    why: str = ""
    request_id: str | None = None
    parked: bool = False
    behind: int = 0
    command: Command | None = None


class Lanes:
    """Questions and commands about lanes, one at a time. Each blocks.

    `timeout_s` bounds each contact with Kafka, and the wait for a worker.
    Errors: ConfigError for a key, partition or topic that there cannot be or is not, BrokerError.
    """

    def __init__(self, settings: Settings, *, timeout_s: float | None = None) -> None:
        self._settings = settings
        self._timeout_s = timeout_s or TIMEOUT_S

    def facts(self) -> Facts:
        """Everything that the board of lanes is made of."""
        cluster, known = self._known()
        requests = known[self._settings.topics.requests]
        with LogReader(self._settings, requests.name, self._timeout_s) as reader:
            edges = {number: Edges(extent.first, extent.end) for number, extent in reader.extents(Span(START)).items()}
        found = headways(cluster, self._settings, edges, requests.topic_id)
        commands = in_force(control.desired(self._settings, self._timeout_s).targets())
        return Facts(edges, found, owners(cluster, self._settings), self._reports(known), commands)

    def describe(self, target: Target) -> Description:
        """Look at one lane, or at one partition."""
        partition, key = self._place(target)
        facts = self.facts()
        cluster, known = self._known()
        requests = known[self._settings.topics.requests]
        queue = LaneQueue(self._settings, cluster, requests, partition, key, facts.headways[partition])
        count, is_exact = queue.count()
        head = next(queue.turns(), None)
        client_id = facts.owners.get(partition)
        told = None if key is None else lane_report(facts, partition, key)
        place = None if head is None else self._position_id(requests, partition, head.offset)
        return Description(
            lane_row(facts, partition, None if key is None else target.name, told),
            None if client_id is None else slot_of(client_id),
            count,
            is_exact,
            len(queue.parked),
            place,
            None if head is None else self._request_id(partition, head) or place,
            next(iter(queue.parked.values()), None),
            *self._balances(partition, key),
        )

    def _balances(self, partition: int, key: bytes | None) -> tuple[Balance | None, Balance | None]:
        """What a key has left, and the credential that it names."""
        if key is None:
            return None, None
        alias = key.removeprefix(b"apikey:").decode("utf-8", "replace") if key.startswith(b"apikey:") else None
        is_shared = Budgets(self._settings.budgets).of_credential(alias) is not None
        found = balances(self._settings, None if is_shared else (partition,), timeout_s=self._timeout_s)
        return found.of(key), None if alias is None else found.of_credential(alias)

    def pause(self, target: Target, reason: str = "") -> Effect:
        """Hold a lane or a partition: what is being called ends, and nothing else of it starts. What is held already stays as it is."""
        return self._want(target, PAUSED, reason, lambda current: current is not None)

    def resume(self, target: Target, reason: str = "") -> Effect:
        """Let a paused or halted lane, or a paused partition, go on."""
        return self._want(target, RUNNING, reason, lambda current: current is None)

    def plan_skip(self, key: bytes) -> Skip:
        """Say what a skip in this lane would do."""
        target = Target(Kind.KEY, _text(key))
        partition, _ = self._place(target)
        current = control.desired(self._settings, self._timeout_s)
        command = next((one for one in current.targets() if one.target == str(target)), None)
        cluster, known = self._known()
        requests = known[self._settings.topics.requests]
        headway = self._headway(cluster, requests, partition)
        turns = LaneQueue(self._settings, cluster, requests, partition, key, headway)
        if command is not None and command.state == HALTED:
            return Skip(target, partition, key, behind=turns.count()[0], command=command)
        head = next(turns.turns(), None)
        if head is None:
            return Skip(None, partition, key, "no request of this key is waiting")
        place = self._position_id(requests, partition, head.offset)
        wanted = Target(Kind.REQUEST, place)
        name = self._request_id(partition, head) or place
        behind = max(0, turns.count()[0] - 1)
        return Skip(wanted, partition, key, "", name, head.entry is not None, behind, current.end_of(place))

    def plan_skip_request(self, request_id: str) -> Skip:
        """Say what skipping one request would do; by its id, or its position. CallFailed where there is none."""
        found = stands(self._settings, request_id, timeout_s=self._timeout_s)
        if isinstance(found.standing, NotFound):
            hint = "retention may have removed it, or it is of another cluster"
            raise CallFailed(f"there is no request {request_id[:200]!a}", hint)
        request = found.request
        if request is None or isinstance(found.standing, Terminal):
            status = found.standing.status if isinstance(found.standing, Terminal) else None
            return Skip(None, -1 if request is None else request.partition, None, f"the request has ended: {status or 'settled'}")
        cluster, known = self._known()
        requests = known[self._settings.topics.requests]
        headway = self._headway(cluster, requests, request.partition)
        turns = LaneQueue(self._settings, cluster, requests, request.partition, request.key, headway)
        place = position_id(request, requests.topic_id_text)
        behind = sum(1 for turn in turns.turns() if turn.offset > request.offset)
        current = control.desired(self._settings, self._timeout_s).end_of(place)
        name = header(request, "ce_id") or place
        return Skip(Target(Kind.REQUEST, place), request.partition, request.key, "", name, request.offset in turns.parked, behind, current)

    def skip(self, plan: Skip, reason: str = "") -> Effect:
        """Do what a plan says, and wait for the effect: the end of the request, or the lane going on."""
        target = plan.target
        assert target is not None
        if target.kind is Kind.KEY:
            # Only the halt that was shown: a later one is of another request.
            wanted = None if plan.command is None else plan.command.id
            return self._want(target, RUNNING, reason, lambda current: current is None or current.id != wanted)
        return self._want(target, SKIP, reason, lambda current: current is not None, partition=plan.partition, key=plan.key)

    def _want(
        self,
        target: Target,
        state: str,
        reason: str,
        is_so: Callable[[Command | None], bool],
        *,
        partition: int | None = None,
        key: bytes | None = None,
    ) -> Effect:
        """Write a command unless it is so already; wait for the worker that has the partition."""
        number = self._place(target)[0] if partition is None else partition
        current, around = self._in_force(target), None
        if target.kind is not Kind.PARTITION:
            around = self._in_force(Target(Kind.PARTITION, str(number)))
        cluster, _ = self._known()
        client_id = owners(cluster, self._settings).get(number)
        owner = None if client_id is None else slot_of(client_id)
        if is_so(current):
            return Effect(target, number, changed=False, command=current, owner=owner, around=around)
        # What was found is what ends: a halt that comes before this is written is of another request.
        ends = current.id if current is not None and state == RUNNING else ""
        made = control.command(str(target), state, reason, ends=ends, key=key)
        offset = self._write(made)
        found = self._in_force(target, beyond=offset)
        if state == RUNNING and found is not None and found.state != RUNNING:
            # Compaction keeps the last record of a target, which may be the one that ended nothing.
            self._write(found)
            return Effect(target, number, changed=False, command=found, owner=owner, around=around)
        effect = Effect(target, number, True, found, offset, owner, around=around)  # noqa: FBT003 - it changed something
        if owner is None:
            return effect
        if state == SKIP:
            return replace(effect, confirmed_by=owner if self._skipped(target, offset) else None)
        return replace(effect, confirmed_by=self._heard(number, offset))

    def _write(self, command: Command) -> int:
        return control.write(self._settings, message(command, self._settings.topics.control), self._timeout_s)

    def _in_force(self, target: Target, *, beyond: int = -1) -> Command | None:
        """The command of a target that the control topic holds now, or behind the record at an offset."""
        found = control.desired(self._settings, self._timeout_s, beyond=beyond).targets()
        return next((one for one in found if one.target == str(target)), None)

    def _heard(self, partition: int, offset: int) -> str | None:
        """Wait until the worker that has a partition says that it has read the control topic beyond `offset`; its slot, None without."""
        with control.following(self._settings, self._settings.topics.workers, _RECENT, self._timeout_s) as told:
            try:
                for record in told:
                    report = decode(record.value)
                    if report is not None and report.control > offset and any(each.partition == partition for each in report.partitions):
                        return report.slot
            except (BrokerError, ConfigError):
                return None  # It is written; that nobody can be heard is all that is known.
        return None

    def _skipped(self, target: Target, offset: int) -> bool:
        """Wait until a worker ends what a skip names: it takes the command away together with the reply."""
        with control.following(self._settings, self._settings.topics.control, control.at(offset + 1), self._timeout_s) as commands:
            try:
                found = (read_command(record) for record in commands)
                return any(one is not None and one.target == str(target) and one.state == RUNNING for one in found)
            except BrokerError:
                return False  # As above.

    def _known(self) -> tuple[Cluster, dict[str, TopicFacts]]:
        """Reach the cluster, and see that the topics are there."""
        topics = self._settings.topics
        cluster = connect(self._settings, self._timeout_s)
        known = facts_of(cluster, [topics.requests, topics.control, topics.workers])
        for name in (topics.requests, topics.control):
            if name not in known:
                raise no_topic(name)
        return cluster, known

    def _place(self, target: Target) -> tuple[int, bytes | None]:
        """The partition of a key or of a partition's target, and the key."""
        count = self._known()[1][self._settings.topics.requests].partitions
        if target.kind is Kind.KEY:
            return partition_for(target.name.encode(), count), target.name.encode()
        if int(target.name) >= count:
            raise ConfigError(f"topic {self._settings.topics.requests} has no partition {target.name}", f"it has 0 to {count - 1}")
        return int(target.name), None

    def _headway(self, cluster: Cluster, requests: TopicFacts, partition: int) -> Headway:
        return headways(cluster, self._settings, (partition,), requests.topic_id)[partition]

    def _position_id(self, requests: TopicFacts, partition: int, offset: int) -> str:
        return position_id(Record(requests.name, partition, offset, None, None), requests.topic_id_text)

    def _request_id(self, partition: int, turn: Turn) -> str | None:
        """The id that a request was given; None where it has none, or where its record is not in the log any more."""
        record = turn.record
        if record is None:
            with LogReader(self._settings, self._settings.topics.requests, self._timeout_s) as reader:
                extent = reader.extents(Span(START), (partition,))[partition]
            if extent.first <= turn.offset < extent.end:
                with LogReader(self._settings, self._settings.topics.requests, self._timeout_s) as reader:
                    record = next(reader.read_ranges({partition: (turn.offset, turn.offset + 1)}), None)
        return None if record is None else header(record, "ce_id")

    def _reports(self, known: Iterable[str]) -> dict[str, WorkerReport]:
        """The last report of each slot, of those that are recent."""
        if self._settings.topics.workers not in known:
            return {}
        found: dict[str, WorkerReport] = {}
        kind = self._settings.topics.kind
        with LogReader(self._settings, self._settings.topics.workers, self._timeout_s) as reader:
            for record in reader.read(Span(_RECENT), until_end=True):
                slot, report = (record.key or b"").decode("utf-8", "replace"), decode(record.value)
                if report is None:
                    found.pop(slot, None)
                else:
                    found[slot] = replace(report, partitions=tuple(one for one in report.partitions if one.kind == kind))
        return found


_RECENT = Position(Anchor.END, REPORTS_READ)


def lane(key: str) -> Target:
    """The target that a lane is, by its key. ConfigError for what can be no lane's key."""
    return Target(Kind.KEY, _text(key.encode("utf-8", "surrogateescape")))


def partition(number: int) -> Target:
    """The target that a partition is."""
    return Target(Kind.PARTITION, str(number))


def _text(key: bytes) -> str:
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigError("the key is not UTF-8", "no lane has such a key: its requests are refused") from None
    if not key or len(key) > KEY_MAX_BYTES:
        raise ConfigError(f"the key has {len(key)} bytes", f"lane keys have 1 to {KEY_MAX_BYTES}")
    return text
