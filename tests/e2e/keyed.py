"""What a stage with a lane for each key is given to do beside its usual load, and the operator who lets it go on.

Keys that wait as long as their callee says, and are parked; one that a failure halts; one that is paused, and a request of it that is
skipped. The operator writes commands and waits for nobody: a worker may be about to die.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer

from dispatcher.adapters.kafka import clients
from dispatcher.adapters.kafka.admin import connect, facts_of
from dispatcher.core.internal.control import HALTED, PAUSED, RUNNING, SKIP, Command, Desired, message, request_target
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.glance import request_id
from dispatcher.core.messages.record import Record
from tests.e2e.history import whole
from tests.e2e.stage import Stage, header
from tests.waiting import eventually

# A partition that holds so little parks what waits.
WORKER: dict[str, Any] = {"ordering": "key", "lane_buffer_max_records": 40}
WAITING, HALTS, HELD = ("doc:waiting-1", "doc:waiting-2", "doc:waiting-3"), "doc:halts", "doc:held"
SKIPPED = "held-1"
WAIT_S = 4
BEHIND = 8


class Operator:
    """Whose hand is on the lanes of a stage. Where lanes are partitions it does nothing."""

    def __init__(self, set_up: Stage) -> None:
        self._set_up = set_up
        self._is_on = set_up.settings.worker.ordering == "key"
        self._producer: Producer = clients.producer(set_up.settings)

    def hold(self) -> list[str]:
        """Pause a key, and submit further load; names the requests, all of which end once they were let go."""
        if not self._is_on:
            return []
        self._want(f"key:{HELD}", PAUSED)
        names = []
        for key in WAITING:
            names += self._set_up.submit([key], f"/echo?fault=429&retry_after={WAIT_S}&times=1", prefix=f"{key[4:]}-first")
            names += self._set_up.submit([key] * BEHIND, prefix=f"{key[4:]}-behind")
        names += self._set_up.submit([HALTS], "/fault/500", prefix="halting", attempts_max=1, after_failure="halt_key")
        names += self._set_up.submit([HALTS] * BEHIND, prefix="halted")
        return names + self._set_up.submit([HELD] * BEHIND, prefix="held")

    def await_parked(self) -> None:
        """Wait until somebody has parked something for good: who froze or died inside that very transaction has not."""
        if self._is_on:
            eventually(self._was_parked, 60, "requests are parked")

    def let_go(self) -> None:
        """Skip a request of the key that is held, and let the key go on."""
        if self._is_on:
            topics = self._set_up.settings.topics
            topic_id = facts_of(connect(self._set_up.settings, 30), [topics.requests])[topics.requests].topic_id_text
            (skipped,) = [record for record in whole(self._set_up.settings, topics.requests) if request_id(record) == SKIPPED]
            self._want(request_target(position_id(skipped, topic_id)), SKIP)
            self._want(f"key:{HELD}", RUNNING)

    def look(self) -> bool:
        """Let go on what a failure has halted by now."""
        if self._is_on:
            desired = Desired()
            for record in whole(self._set_up.settings, self._set_up.settings.topics.control):
                desired.apply(record)
            for command in desired.targets():
                if command.state == HALTED:
                    self._want(command.target, RUNNING)
        return True

    def assert_done(self, replies: Iterable[Record]) -> None:
        """What was to end in a way of its own has; requests were parked, and none is any more.

        But for what a worker that was frozen parks, at least once, when it thaws: the next owner ends that.
        """
        if not self._is_on:
            return
        ends = {header(record, "ce_causationid"): header(record, "dispatcher-status") for record in replies}
        assert {"dead": 1, "cancelled": 1, "ok": len(ends) - 2} == Counter(ends.values())
        assert ("dead", "cancelled") == (ends["halting-0"], ends[SKIPPED])
        assert not self._set_up.calls(id=SKIPPED)
        assert self._was_parked(), "nothing was parked"

        def left() -> set[bytes | None]:
            return {key for key, value in {record.key: record.value for record in self._parked()}.items() if value is not None}

        if self._set_up.settings.worker.publishing == "exactly_once":
            eventually(lambda: not left(), what="nothing is parked any more")

    def _was_parked(self) -> bool:
        return any(record.value is not None for record in self._parked())

    def _parked(self) -> list[Record]:
        return whole(self._set_up.settings, self._set_up.settings.topics.parked)

    def _want(self, target: str, state: str) -> None:
        command = Command(uuid.uuid4().hex, target, state, "2026-11-29T10:00:00Z", "a test")
        wanted = message(command, self._set_up.settings.topics.control)
        self._producer.produce(wanted.topic, wanted.value, wanted.key, partition=0, headers=list(wanted.headers))
        assert 0 == self._producer.flush(30)
