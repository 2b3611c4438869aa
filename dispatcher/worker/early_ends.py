"""Requests that end before their turn: those that somebody skips or cancels, and those whose deadline passes while they wait.

A command names a request by its position, and stands in the control topic until that request has ended: so there are never more of them
than requests that have not ended, and whoever takes a partition over knows them before its first call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Protocol

from dispatcher.core.internal.control import CANCEL, Command, Desired, request_target, tombstone
from dispatcher.core.lanes.ending import Cancelled, Early, Expired, Skipped
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.outcome import Outcome, Owner
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.steps import CutOff, Fetch
from dispatcher.core.messages.envelope import position_id
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.request import Decoder
from dispatcher.worker.clock import TURN_S, Clock
from dispatcher.worker.letters import Fetch as FetchParked

# Deadlines are wall clock, and timers are not: where somebody sets the clock, that is seen by then.
LOOK_S = 30.0


class Driver(Protocol):
    """Who moves lanes and publishes: the engine."""

    def settle(self, partition: Partition, outcome: Outcome, now: float) -> None: ...
    def publish(self, *outcomes: Outcome) -> None: ...
    def advance(self, partition: Partition, lane: Lane) -> None: ...
    def cancel(self, partition: Partition, lane: Lane) -> None: ...


class EarlyEnds:
    """Owned by the engine, on its event loop."""

    def __init__(self, driver: Driver, desired: Desired, decoders: Sequence[Decoder], restorer: SimpleQueue[object], clock: Clock) -> None:
        self._driver = driver
        self._desired = desired
        self._decoders = decoders
        self._restorer = restorer
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Owner, tuple[float, asyncio.TimerHandle]] = {}

    # --- not wanted any more --------------------------------------------------------------------------------------------------------

    def commanded(self, partition: Partition, names: Iterable[str]) -> None:
        """Somebody wants these requests ended: do it, where they are of this partition and have been read."""
        self._end_wanted(partition, names)

    def read_on(self, partition: Partition, known: int) -> None:
        """The log has been read on from `known`: end what somebody wants ended there, and what has expired."""
        self._end_wanted(partition, self._desired.to_end(partition.owner.partition, range(known, partition.progress.reached)))
        self.watch(partition)

    def restored(self, partition: Partition) -> None:
        """It is known what is parked: end what somebody wants ended, and what has expired.

        Here alone commands end that name a former topic of this name, also those of partitions that it had and this one does not have.
        """
        count = self._decoders[0].partitions
        for number in self._desired.ending_partitions:
            if number % count == partition.owner.partition:
                self._end_wanted(partition, self._desired.to_end(number), also_former=True)
        self.watch(partition)

    def _end_wanted(self, partition: Partition, names: Iterable[str], *, also_former: bool = False) -> None:
        """End those that are here; of a partition that is being given up the calls in hand are.

        Lanes go on once all are: the end of one lets no other begin that is not wanted either.
        """
        if not partition.is_restored:
            return
        lanes: dict[Lane, None] = {}
        decoder = self._decoders[partition.owner.source]
        for name in names:
            offset = decoder.offset_in(name, partition.owner.partition)
            command = self._desired.end_of(name)
            if command is None or offset is None or offset >= partition.progress.reached or (offset < 0 and not also_former):
                continue
            if (lane := _lane_with(partition, offset, command.key)) is not None:
                self._end(partition, lane, offset, _early(command))
                lanes[lane] = None
            elif not partition.closed and partition.progress.is_settled(offset):
                # It has ended, one way or the other: nothing is left to be wanted.
                ended = tombstone(request_target(name), self._decoders[0].settings.topics.control)
                self._driver.publish(partition.write((ended,), self._clock.now().mono))
        self._go_on(partition, lanes)

    def without_command(self, outcome: Outcome, record: Record) -> Outcome:
        """The outcome, with the end of a command that wanted just this."""
        name = position_id(record, self._decoders[outcome.owner.source].topic_id)
        if self._desired.end_of(name) is None:
            return outcome
        ended = tombstone(request_target(name), self._decoders[0].settings.topics.control)
        return replace(outcome, extra=(*outcome.extra, ended))

    # --- expired --------------------------------------------------------------------------------------------------------------------

    def watch(self, partition: Partition) -> None:
        """End what has expired, now and whenever the next deadline passes."""
        if not partition.is_restored or partition.closed or (first := partition.deadlines.next) is None:
            return
        known = self._timers.get(partition.owner)
        if known is not None:
            if known[0] <= first:
                return
            known[1].cancel()
        delay_s = min(max(0.0, first - self._clock.now().wall), LOOK_S)
        self._timers[partition.owner] = first, self._loop.call_later(delay_s, self._expire, partition)

    def forget(self, owner: Owner) -> None:
        """This assignment starts nothing more: what of it expires is its successor's."""
        if (known := self._timers.pop(owner, None)) is not None:
            known[1].cancel()

    def _expire(self, partition: Partition) -> None:
        self._timers.pop(partition.owner, None)
        instant = self._clock.now()
        end = instant.mono + TURN_S
        lanes: dict[Lane, None] = {}
        while instant.mono < end and (late := partition.deadlines.pop(instant.wall)) is not None:
            offset, key = late
            lane = partition.lane_of(key)
            if lane is not None and lane.holds(offset):
                self._end(partition, lane, offset, Expired())
                lanes[lane] = None
            instant = self._clock.now()
        self._go_on(partition, lanes)
        self.watch(partition)

    def _end(self, partition: Partition, lane: Lane, offset: int, early: Early) -> None:
        instant = self._clock.now()
        match lane.end(offset, early, instant):
            case Outcome() as outcome:
                self._driver.settle(partition, outcome, instant.mono)
            case Fetch(entries):
                self._restorer.put(FetchParked(partition.owner, entries))
            case CutOff():
                self._driver.cancel(partition, lane)
            case None:
                pass

    def _go_on(self, partition: Partition, lanes: Iterable[Lane]) -> None:
        for lane in lanes:
            self._driver.advance(partition, lane)


def _early(command: Command) -> Early:
    """What a command wants of a request, and what its reply says of that."""
    is_cancel = command.state == CANCEL
    reason = f"{'cancelled' if is_cancel else 'skipped'} by {command.by}" + (f": {command.reason}" if command.reason else "")
    return Cancelled(reason) if is_cancel else Skipped(reason)


def _lane_with(partition: Partition, offset: int, key: str) -> Lane | None:
    """The lane that has a request; all are looked through only where nobody said which one that is."""
    lanes = (partition.lane_of(key.encode()),) if key else partition.lanes.values()
    return next((lane for lane in lanes if lane is not None and lane.holds(offset)), None)
