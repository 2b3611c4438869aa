"""The exchange: what owners of partitions say to each other of budgets that partitions share, as it comes and as it is due.

What others have said comes with the control topic. What is to be said by the partitions of this worker goes out as their outcomes, with
their positions: whoever has lost one says nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from dispatcher.core.internal.rights import Board
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.ledger import Ledger
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.messages.record import Record
from dispatcher.settings import Settings
from dispatcher.worker.clock import Clock

# Money that a call did not cost, and a day that begins, are seen by then.
TICK_S = 0.25


class Driver(Protocol):
    """Who moves lanes and publishes: the engine."""

    partitions: dict[int, Partition]

    def publish(self, *outcomes: Outcome) -> None: ...
    def advance(self, partition: Partition, lane: Lane) -> None: ...


class Exchange:
    """Owned by the engine, on its event loop. Does nothing where no budget is shared."""

    def __init__(self, driver: Driver, settings: Settings, topic_id_text: str, clock: Clock) -> None:
        self._driver = driver
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._is_used = any(budget.is_shared for budget in settings.budgets.values())
        self._board = Board(topic_id_text)
        self._is_ticking = False

    def came(self, partition: Partition) -> None:
        """A partition is new here. Those of one number have one ledger: what a key has spent in one class it has spent in all."""
        siblings = (one for one in self._driver.partitions.values() if one.owner.partition == partition.owner.partition)
        if (sibling := next((one for one in siblings if one is not partition), None)) is not None:
            partition.ledger = sibling.ledger
            return
        if self._is_used:
            partition.ledger.join(self._board)
            if not self._is_ticking:
                self._is_ticking = True
                self._loop.call_later(TICK_S, self._tick)

    def heard(self, records: Iterable[Record]) -> None:
        """Records of the control topic, in order."""
        if self._is_used and [name for record in records if (name := self._board.apply(record)) is not None]:
            self._trade()

    def _tick(self) -> None:
        self._trade()
        self._loop.call_later(TICK_S, self._tick)

    def _trade(self) -> None:
        books: dict[Ledger, list[Partition]] = {}
        for partition in self._driver.partitions.values():
            if partition.is_restored and not partition.closed:
                books.setdefault(partition.ledger, []).append(partition)
        for ledger, partitions in books.items():
            # Who waits for money that has come takes it before it is offered to others.
            self._go_on(ledger, partitions)
            instant = self._clock.now()
            if messages := ledger.trade(instant.wall):
                self._driver.publish(partitions[0].write(messages, instant.mono))
            self._go_on(ledger, partitions)

    def _go_on(self, ledger: Ledger, partitions: list[Partition]) -> None:
        for key in dict.fromkeys(ledger.payable(self._clock.now().wall)):
            for partition in partitions:
                if (lane := partition.lane_of(key)) is not None:
                    self._driver.advance(partition, lane)
