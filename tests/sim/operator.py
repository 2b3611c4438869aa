"""Whoever pauses, resumes, skips and cancels in a simulated world, by the control topic, and lets all go in the end."""

from __future__ import annotations

from random import Random

from dispatcher.core.internal import control
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.progress.strand import number_of, source_of
from tests.sim.cluster import CONTROL, Cluster
from tests.sim.plan import Order, keys_of

# In the end, how long until somebody resumes what is held.
RESUME_S = 3.0


class Operator:
    """One for a world."""

    def __init__(self, cluster: Cluster, chance: Random) -> None:
        self._cluster = cluster
        self._chance = chance
        self._number = 0

    def give(self, order: Order) -> None:
        """Do what is planned; what is paused is resumed after its time."""
        cluster = self._cluster
        key = control.key_target(keys_of(number_of(order.partition), cluster.setup.partitions)[order.key])
        match order.kind:
            case "pause_key" | "pause_partition":
                target = key if order.kind == "pause_key" else control.partition_target(number_of(order.partition))
                self.write(target, control.PAUSED)
                cluster.schedule.after(order.seconds, self.write, target, control.RUNNING)
            case "resume_key":
                self.write(key, control.RUNNING)
            case "skip" | "cancel":
                self._end(order.partition, control.SKIP if order.kind == "skip" else control.CANCEL)

    def let_go(self) -> None:
        """From now on resume whatever is held, again and again: callees may still fail, and halt a key."""
        for target in sorted(self._cluster.held):
            if not target.startswith(control.Kind.REQUEST.value):
                self.write(target, control.RUNNING)
        self._cluster.schedule.after(RESUME_S, self.let_go)

    def write(self, target: str, state: str, key: str = "") -> None:
        """Write a command."""
        self._number += 1
        command = control.Command(f"c{self._number}", target, state, "2026-11-29T10:00:00Z", "an operator", key=key)
        message = control.message(command, CONTROL)
        log = self._cluster.logs[CONTROL, 0]
        self._cluster.published(log, log.append(message), message)

    def _end(self, partition: int, state: str) -> None:
        """Have a request ended that is not settled, as far as the position says: the first one, which may be in a call, or any."""
        log = self._cluster.request_log(partition)
        position = max(self._cluster.positions.position(partition), log.start)
        waiting = [offset for offset in range(position, log.end) if log.entries[offset].state == "there"]
        if waiting:
            record = log.record(waiting[0] if self._chance.random() < 0.5 else self._chance.choice(waiting))
            # A program says whose it is, somebody who writes by hand may not.
            key = (record.key or b"").decode() if self._chance.random() < 0.8 else ""
            topic_id = self._cluster.requests.ids[source_of(partition)]
            self.write(control.request_target(position_id(record, topic_id)), state, key)
