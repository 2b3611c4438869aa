"""A group's run that nobody played: written down by hand, as topics, callee and logs would tell it, for the judge to read."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from dispatcher.core.messages.dead_letter import DeadLetter
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.status import Reason
from tests.chaos import judgement
from tests.chaos.drive import Group, Scenery
from tests.chaos.judgement import Judgement
from tests.chaos.plan import draw
from tests.chaos.replies import Place, place_of
from tests.chaos.scene import Fate, Finding, Trouble
from tests.e2e import history
from tests.e2e.history import Commit
from tests.topics import SettingsFactory

PARTITIONS = 2


@dataclass(eq=False)
class Worker:
    """One worker's log: `told` are its lines."""

    name: str
    told: list[dict[str, Any]] = field(default_factory=list)

    def events(self, name: str) -> list[dict[str, Any]]:
        return [line for line in self.told if line["event"] == name]


class Paper:
    """What is written down. Times are seconds after the run began.

    `calls` and `replies` are by place, in the order in which they happened: tests strike out, change and add before `judged` reads it.
    """

    def __init__(self, ordering: str) -> None:
        self.settings = SettingsFactory("nowhere:1", "paper")(partitions=PARTITIONS, init=False, worker={"ordering": ordering})
        self.wall = time.time() - time.monotonic()
        self.began = float(int(time.time()) - 1000)
        self.requests: dict[Place, Record] = {}
        self.calls: list[dict[str, Any]] = []
        self.replies: list[Record] = []
        self.letters: list[Record] = []
        self.commits: list[Commit] = []
        self.workers: dict[str, Worker] = {}
        self.fates: dict[str, Fate] = {}
        self.findings: list[Finding] = []
        self.acknowledged: set[str] = set()
        self.troubles: list[Trouble] = []
        self.until = 60.0
        self._ends: dict[int, int] = defaultdict(int)

    def say(self, worker: str, at: float, event: str, **fields: Any) -> None:
        """Write a line of a worker's log."""
        self.fates.setdefault(worker, Fate(worker))
        ts = datetime.fromtimestamp(self.began + at, UTC).isoformat()
        self.workers.setdefault(worker, Worker(worker)).told.append({"ts": ts, "event": event, **fields})

    def live(self, worker: str, at: float, partition: int, epoch: int) -> None:
        self.say(worker, at - 0.1, "assigned", partitions=[partition])
        self.say(worker, at, "live", partition=partition, epoch=epoch)

    def ask(self, at: float, partition: int, key: str) -> Place:
        """Submit a request, which is acknowledged."""
        offset, number = self._ends[partition], len(self.requests)
        self._ends[partition] += 1
        value = orjson.dumps({"upstream": "sample", "path": f"/echo?key={key}", "body": {"n": number}})
        headers = (("ce_id", f"r-{number}".encode()),)
        topic = self.settings.topics.requests
        self.requests[partition, offset] = Record(topic, partition, offset, key.encode(), value, headers, self._ms(at))
        self.acknowledged.add(f"r-{number}")
        return partition, offset

    def call(
        self, at: float, of: Place, epoch: int, *, took: float = 1.0, status: int | None = 200, outcome: str = "answered", attempt: int = 1
    ) -> dict[str, Any]:
        """Let the callee see a call."""
        start = self.began - self.wall + at
        call = {
            "call": len(self.calls),
            "id": self.id(of),
            "partition": of[0],
            "offset": of[1],
            "epoch": epoch,
            "attempt": attempt,
            "t_s": start,
            "end_s": start + took,
            "outcome": outcome,
            "status": status,
        }
        self.calls.append(call)
        return call

    def fail(self, worker: str, at: float, of: Place, epoch: int, *statuses: int) -> None:
        """Let calls fail, half a second each, one a second."""
        for number, status in enumerate(statuses):
            self.call(at + number, of, epoch, took=0.5, status=status, attempt=number + 1)
            outcome = "dead" if number == 3 else "retry"
            fields = {"partition": of[0], "offset": of[1], "attempt": number + 1, "outcome": outcome, "duration_ms": 500}
            self.say(worker, at + number + 0.5, "call_ended", **fields)

    def reply(self, at: float, of: Place, status: str = "ok", http: int = 200, **changed: Any) -> None:
        """Publish a reply, and commit past its request where it is the next one."""
        request = self.requests[of]
        body = orjson.loads(request.value or b"")["body"] if status == "ok" else {}
        value = {"status": status, "attempts": 1, "http": {"status": http, "body": body}} | changed.pop("value", {})
        headers = {
            "ce_causationid": self.id(of),
            "dispatcher-status": status,
            "dispatcher-attempt": "1",
            "dispatcher-request-partition": str(of[0]),
            "dispatcher-request-offset": str(of[1]),
        } | changed
        offset = sum(reply.partition == of[0] for reply in self.replies)
        made = tuple((name, text.encode()) for name, text in headers.items())
        topic = self.settings.topics.replies
        self.replies.append(Record(topic, of[0], offset, request.key, orjson.dumps(value), made, self._ms(at)))

    def letter(self, at: float, of: Place) -> None:
        """Publish a dead letter."""
        topic = self.settings.topics.dead_letters
        of_it = DeadLetter(self.requests[of], topic, of[0], "paper", Reason.ATTEMPTS_EXHAUSTED, "given up", "call", "http", 4, 500)
        message = of_it.letter()
        offset = len(self.letters)
        self.letters.append(Record(topic, of[0], offset, message.key, message.value, message.headers, self._ms(at)))

    def commit(self, at: float, partition: int, position: int, epoch: int) -> None:
        self.commits.append(Commit(self._ms(at) / 1000, partition, position, epoch))

    def strike(self, of: Place, what: str) -> None:
        """Take out the calls or the replies of a request, as if there had been none."""
        if what == "calls":
            self.calls = [call for call in self.calls if (call["partition"], call["offset"]) != of]
        else:
            self.replies = [reply for reply in self.replies if place_of(reply) != of]

    def change(self, of: Place, **fields: Any) -> None:
        """Let the last call of a request have been another one."""
        call = next(call for call in reversed(self.calls) if (call["partition"], call["offset"]) == of)
        call |= fields

    def kill(self, worker: str, at: float) -> None:
        self.fates[worker].killed_at = self.began + at

    def id(self, of: Place) -> str:
        return next(content.decode() for name, content in self.requests[of].headers or () if name == "ce_id" and content is not None)

    def judged(self, patch: pytest.MonkeyPatch) -> Judgement:
        """Let the judge read it."""
        topics = {
            self.settings.topics.requests: list(self.requests.values()),
            self.settings.topics.replies: self.replies,
            self.settings.topics.dead_letters: self.letters,
            self.settings.topics.journal: [self._noted(reply) for reply in self.replies],
        }
        for reader in (history, judgement):
            patch.setattr(reader, "whole", lambda _settings, topic: topics.get(topic, []))
        patch.setattr(judgement, "commits", lambda _settings: self.commits)
        stage = SimpleNamespace(settings=self.settings, calls=lambda: self.calls, positions=lambda: ({}, self._ends))
        crew = SimpleNamespace(stage=stage, workers=self.workers, fates=self.fates, findings=self.findings)
        seen = [(reply, (reply.timestamp_ms or 0) / 1000 + 0.1 - self.wall) for reply in self.replies]
        load = SimpleNamespace(acknowledged=self.acknowledged, unknown=set())
        group = SimpleNamespace(label="paper", crew=crew, replies=SimpleNamespace(timed=lambda: seen), load=load)
        return judgement.judge(cast("Group", group), Scenery(draw(1, 3), {}, troubles=self.troubles, until=self.began + self.until))

    def _noted(self, reply: Record) -> Record:
        """What the journal says of the end that a reply tells."""
        partition, offset = place_of(reply)
        return Record(self.settings.topics.journal, partition, 0, reply.key, orjson.dumps({"offset": offset}), (), reply.timestamp_ms)

    def _ms(self, at: float) -> int:
        return round((self.began + at) * 1000)
