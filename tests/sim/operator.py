"""Whoever pauses, resumes and skips in a simulated world: writes commands to the control topic, and lets everything go in the end."""

from __future__ import annotations

from random import Random

from dispatcher.core import control
from dispatcher.core.envelope import position_id
from tests.sim.cluster import CONTROL, TOPIC_ID_TEXT, Cluster
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
        key = control.key_target(keys_of(order.partition, cluster.setup.partitions)[order.key])
        match order.kind:
            case "pause_key" | "pause_partition":
                target = key if order.kind == "pause_key" else control.partition_target(order.partition)
                self.write(target, control.PAUSED)
                cluster.schedule.after(order.seconds, self.write, target, control.RUNNING)
            case "resume_key":
                self.write(key, control.RUNNING)
            case "skip":
                self._skip(order.partition)

    def let_go(self) -> None:
        """From now on resume whatever is held, again and again: callees may still fail, and halt a key."""
        for target in sorted(self._cluster.held):
            if not target.startswith(control.Kind.REQUEST.value):
                self.write(target, control.RUNNING)
        self._cluster.schedule.after(RESUME_S, self.let_go)

    def write(self, target: str, state: str) -> None:
        """Write a command."""
        self._number += 1
        message = control.message(control.Command(f"c{self._number}", target, state, "2026-11-29T10:00:00Z", "an operator"), CONTROL)
        log = self._cluster.logs[CONTROL, 0]
        self._cluster.published(log, log.append(message), message)

    def _skip(self, partition: int) -> None:
        """Skip a request that is not settled, as far as the position says."""
        log = self._cluster.request_log(partition)
        position = max(self._cluster.positions.position(partition), log.start)
        waiting = [offset for offset in range(position, log.end) if log.entries[offset].state == "there"]
        if waiting:
            name = position_id(log.record(self._chance.choice(waiting)), TOPIC_ID_TEXT)
            self.write(control.request_target(name), control.SKIP)
