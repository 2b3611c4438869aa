"""What a chaos run did to the requests of one group: the guarantees' judges on its history, and why calls were repeated or overlapped."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dispatcher.core.callees.breaker import State
from tests.chaos.drive import Group, Scenery
from tests.chaos.load import CALL_TIMEOUT_S, PATIENCE
from tests.chaos.ownership import Assignment, Moved, assigned, given, lost
from tests.chaos.replies import Books, Failed, Place, made_at, place_of
from tests.chaos.scene import Call, Cause, Finding, Scene, overlaps, repeats
from tests.chaos.standstill import STILL_MAX_S, Standstill, Waiting, longest
from tests.chaos.takeover import Served, Takeover, takeovers
from tests.e2e.history import Life, at_of, commits, history, lives_of, whole
from tests.e2e.stage import Worker, header
from tests.guarantees.judges import judged

# Which figure a judge's finding counts for; those of all others are `other`. What the judge of overlaps sees is counted by its cause.
FIGURES = {"NothingLost": "lost", "OneOutcome": "duplicated", "Order": "out of order", "OneAtATime": "overlaps", "NothingStuck": "stuck"}
# A timer may be early by its resolution, and what is rounded by as much.
CLOCK_SHARE = 0.01
# What a worker logs of its circuit breaker; and how far apart the lines of one moment may be.
TURNS = tuple(f"breaker_{state.text}" for state in State)
TURN_LATE_S = 0.5
PLACES = (
    re.compile(r"\((\d+), (\d+)\)"),
    re.compile(r"partition (\d+).*?offset (\d+)"),
    re.compile(r"partition (\d+).*?(?:to|before) (\d+)"),
)


@dataclass
class Judgement:
    """The figures of one group. `requests` are those that Kafka holds; `calls` those that the callee saw."""

    label: str
    requests: int = 0
    replies: int = 0
    letters: int = 0
    calls: list[Call] = field(default_factory=list, repr=False)
    unacknowledged: int = 0
    overlaps: Counter[Cause] = field(default_factory=Counter)
    repeats: Counter[Cause] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)  # from submission to the sight of the reply
    stuck_keys: list[str] = field(default_factory=list)
    standstills: list[Standstill] = field(default_factory=list)  # the longest one of each lane

    def count(self, what: str) -> int:
        return sum(finding.what == what for finding in self.findings)


def judge(group: Group, scenery: Scenery) -> Judgement:
    """Judge one group, now that all has ended."""
    evidence = _Evidence(group)
    made = Judgement(group.label, len(evidence.requests), len(evidence.replies), len(evidence.letters), evidence.calls)
    assert group.load is not None
    made.unacknowledged = len(group.load.unknown)
    made.findings += _missing(group.load.acknowledged, evidence)
    made.findings += [*group.crew.findings, *evidence.judged(group), *_given_twice(evidence.lives)]
    scene = Scene(group.crew.fates.values(), scenery.troubles, evidence.given, evidence.lost)
    made.findings += _side_by_side(made, evidence, scene)
    made.findings += _again(made, evidence, scene)
    made.findings += _past_their_grace(group, scene)
    made.findings += evidence.misreported()
    killed = {name: fate.killed_at for name, fate in group.crew.fates.items() if fate.killed_at is not None}
    served = list(evidence.served())
    made.takeovers = takeovers(killed, evidence.assigned, served)
    made.standstills = longest(evidence.waited(scenery.until), evidence.calls, CALL_TIMEOUT_S)
    made.findings += _still(made.standstills)
    made.waits_s = [one.seen - one.submitted for one in served if one.seen < math.inf]
    made.stuck_keys = sorted({evidence.key(place) for place in evidence.requests if place not in evidence.replied})
    return made


class _Evidence:
    """What the topics, the callee and the workers' logs tell of a group."""

    def __init__(self, group: Group) -> None:
        settings = group.crew.stage.settings
        self.by_key = settings.worker.ordering == "key"
        self.requests = {(record.partition, record.offset): record for record in whole(settings, settings.topics.requests)}
        self.replies = group.replies.timed()
        self.replied: dict[Place, float] = {}
        for record, seen in self.replies:
            self.replied.setdefault(place_of(record), seen)
        self.letters = whole(settings, settings.topics.dead_letters)
        self.lives = lives_of(group.crew.workers.values())
        self.assigned = _assigned(group, self.lives)
        self.given = given(_named_lives(self.lives), _moved(group, "assigned"))
        # What was handed over too late, when the group had given it to somebody else, was lost too.
        self.lost = lost(_named_lives(self.lives), _moved(group, "lost", "handed_over"))
        self.handed = frozenset((one.partition, one.epoch) for one in self.assigned if one.is_handed)
        # Calls that their workers say have failed, and whether they were to be made again.
        self.failed: dict[Failed, bool] = {
            (name, event["partition"], event["offset"], event["attempt"]): event["outcome"] == "retry" and not _is_hasty(event)
            for name, worker in group.crew.workers.items()
            for event in worker.events("call_ended")
            if event["outcome"] in {"retry", "dead"}
        }
        self.spared = {spared for name, worker in group.crew.workers.items() for spared in _spared(name, worker)}
        self.wall = time.time() - time.monotonic()
        self.calls = self._calls(group)

    def key(self, place: Place) -> str:
        return (self.requests[place].key or b"").decode()

    def id(self, place: Place) -> str:
        return header(self.requests[place], "ce_id") if place in self.requests else ""

    def judged(self, group: Group) -> list[Finding]:
        """Give what the guarantees' judges find, each with the first request that it names, and when that was called last."""
        stage, last = group.crew.stage, {(call.partition, call.offset): call.start for call in self.calls}
        worker = stage.settings.worker
        events = list(history(stage, group.crew.workers.values(), (), commits(stage.settings)))
        found = []
        for sentence in judged(worker.publishing, events, ordering=worker.ordering, fairness=worker.fairness):
            place = _named(sentence)
            found.append(Finding(FIGURES.get(sentence.partition(":")[0], "other"), last.get(place, 0.0), self.id(place), sentence))
        return found

    def misreported(self) -> Iterator[Finding]:
        """Give replies and letters that say something else than what the calls came to."""
        books = Books(self.requests, self.calls, self.failed.keys() - self.spared, PATIENCE["attempts_max"])
        return books.findings([record for record, _ in self.replies], self.letters)

    def served(self) -> Iterable[Served]:
        """Tell of each request when it was served."""
        completed: dict[Place, float] = {}
        for call in self.calls:
            if call.end is not None and call.outcome == "answered" and call.is_final:
                completed.setdefault((call.partition, call.offset), call.end)
        made = {place_of(record): made_at(record) for record, _ in self.replies}
        for place, record in self.requests.items():
            seen = self.replied[place] + self.wall if place in self.replied else math.inf
            yield Served(place[0], made_at(record), completed.get(place, math.inf), made.get(place, math.inf), seen)

    def waited(self, until: float) -> Iterable[Waiting]:
        """Tell of each request how long it waited for its reply, at most until `until`."""
        for place, record in self.requests.items():
            seen = self.replied[place] + self.wall if place in self.replied else until
            yield Waiting(self.lane(place), made_at(record), seen)

    def lane(self, place: Place) -> str:
        return f"{place[0]}/{self.key(place)}" if self.by_key else str(place[0])

    def _calls(self, group: Group) -> list[Call]:
        owners = {(partition, epoch): worker.name for _, partition, epoch, worker in self.lives}
        calls = []
        for seen in group.crew.stage.calls():
            partition, offset, epoch = seen["partition"], seen["offset"], seen["epoch"]
            lane = self.lane((partition, offset))
            end = None if "end_s" not in seen else self.wall + seen["end_s"]
            ended = (end, seen.get("outcome", ""), seen.get("status"))
            start, worker = self.wall + seen["t_s"], owners[partition, epoch]
            named = worker, partition, offset, seen["attempt"]
            failed = self.failed.get(named, False), named in self.spared
            calls.append(Call(seen["id"], partition, offset, epoch, seen["attempt"], lane, worker, start, *ended, *failed))
        return calls


def _spared(name: str, worker: Worker) -> Iterator[Failed]:
    """Tell of failures that cost no attempt, being of an outage: the circuit breaker turned while they were in flight, or by them."""
    turns = [at_of(event) for turn in TURNS for event in worker.events(turn)]
    for event in worker.events("call_ended"):
        if event.get("why") == "breaker":
            ended = at_of(event)
            began = ended - event["duration_ms"] / 1000
            if any(began - TURN_LATE_S <= at <= ended + TURN_LATE_S for at in turns):
                yield name, event["partition"], event["offset"], event["attempt"]


def _is_hasty(event: Mapping[str, Any]) -> bool:
    """Whether a worker cut its call off before its time was over; by its own clock, since the callee may hear of a call late."""
    return event.get("error_type") == "timeout" and event["duration_ms"] < CALL_TIMEOUT_S * 1000 * (1 - CLOCK_SHARE)


def _assigned(group: Group, lives: list[Life]) -> list[Assignment]:
    return assigned(_named_lives(lives), _moved(group, "handed_over"), _moved(group, "lost"))


def _named_lives(lives: list[Life]) -> list[tuple[float, int, int, str]]:
    return [(since, partition, epoch, worker.name) for since, partition, epoch, worker in lives]


def _moved(group: Group, *how: str) -> dict[str, list[Moved]]:
    """Give when which partitions came to each worker, or went (`how`: events of its log)."""
    return {
        name: [(at_of(event), event["partitions"]) for each in how for event in worker.events(each)]
        for name, worker in group.crew.workers.items()
    }


def _missing(acknowledged: set[str], evidence: _Evidence) -> list[Finding]:
    """What Kafka acknowledged and does not hold, and what it holds twice."""
    held = Counter(evidence.id(place) for place in evidence.requests)
    lost = [Finding("lost", 0.0, name, "was acknowledged, and is not in the topic") for name in sorted(acknowledged - held.keys())]
    return lost + [Finding("other", 0.0, name, f"stands {count} times in the topic") for name, count in held.items() if count > 1]


def _given_twice(lives: Iterable[Life]) -> list[Finding]:
    """A callee tells owners apart by their epochs: no two have one, and the log of commits would be read on by whoever has the same."""
    count = Counter((partition, epoch) for _, partition, epoch, _ in lives)
    return [
        Finding("other", 0.0, "", f"epoch {epoch} of partition {n} was given {times} times")
        for (n, epoch), times in count.items()
        if times > 1
    ]


def _still(standstills: Iterable[Standstill]) -> list[Finding]:
    texts = ((one, f"lane {one.lane} made no call for {one.lasted_s:.1f} s, and something waited in it") for one in standstills)
    return [Finding("stuck", one.since, "", text) for one, text in texts if one.lasted_s > STILL_MAX_S]


def _side_by_side(made: Judgement, evidence: _Evidence, scene: Scene) -> list[Finding]:
    found = []
    for call, other, cause in overlaps(evidence.calls, scene, evidence.handed):
        made.overlaps[cause] += 1
        if cause == "unexplained":
            text = f"{_told(call)} started while {_told(other)} from {other.start:.3f} was in flight, for no reason"
            found.append(Finding("overlaps", call.start, call.request_id, text))
    return found


def _again(made: Judgement, evidence: _Evidence, scene: Scene) -> list[Finding]:
    found = []
    for call, cause in repeats(evidence.calls, scene, evidence.handed, PATIENCE["attempts_max"]):
        made.repeats[cause] += 1
        if cause == "unexplained":
            found.append(Finding("repeats", call.start, call.request_id, f"{_told(call)} was called again for no reason"))
    return found


def _past_their_grace(group: Group, scene: Scene) -> Iterator[Finding]:
    """Calls end in less time than a hand-over has: what was not done by then was held up by something, or it is repeated for no reason.

    A worker that cannot go on takes no time for it.
    """
    for name, worker in group.crew.workers.items():
        for event in worker.events("drain_expired"):
            at, grace_s = at_of(event), event["drain_s"]
            if grace_s > CALL_TIMEOUT_S and scene.delay(name, at - grace_s, at) == "unexplained":
                yield Finding("other", at, "", f"{name} gave up {event['partitions']} after its grace of {grace_s:g} s, for no reason")


def _told(call: Call) -> str:
    return f"partition {call.partition}, offset {call.offset} ({call.worker}, epoch {call.epoch}, attempt {call.attempt}, {call.outcome})"


def _named(sentence: str) -> Place:
    """Find the request that a judge's sentence names first; (-1, -1) where it names none.

    >>> _named("NothingLost: (3, 41) has no reply"), _named("Order: partition 2, key doc:1: offset 5 started after offset 7 in epoch 1")
    ((3, 41), (2, 5))
    >>> _named("Order: partition 2: the reply to 9 stands before the one to 8"), _named("nothing")
    ((2, 9), (-1, -1))
    """
    for pattern in PLACES:
        if (found := pattern.search(sentence)) is not None:
            return int(found[1]), int(found[2])
    return -1, -1


def explained(counted: Mapping[Cause, int]) -> int:
    """Count what has a reason."""
    return sum(count for cause, count in counted.items() if cause != "unexplained")
