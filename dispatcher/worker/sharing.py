"""The limits that this worker shares with others, in time: what they tell is taken in, what is ours is lent to the gate, and told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from dispatcher.core.callees.gate import Gate
from dispatcher.core.callees.lending import Lending, longest_calls_s
from dispatcher.core.internal.stakes_record import ending, message, read
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.messages.record import Message, Record
from dispatcher.settings import Settings
from dispatcher.worker.admission import Admission
from dispatcher.worker.clock import Clock
from dispatcher.worker.protocols import Observer

# How often it is looked at what is wanted: somebody who waits for a share waits for as long, on the average half of it.
LOOK_S = 0.1
# Of so few others each record is heeded at once; of more (a hundred tell as often in a second, and a plan of theirs takes a millisecond)
# with the next look.
SMALL = 16


class Sharing:
    """Owned by the engine, on its event loop. `who`: this process, as no other is ever called; `put` takes what is to be told."""

    def __init__(
        self,
        who: str,
        settings: Settings,
        gate: Gate[Lane],
        admission: Admission,
        put: Callable[[Message], None],
        observer: Observer,
        clock: Clock,
    ) -> None:
        self._topic = settings.topics.workers
        self._gate = gate
        self._admission = admission
        self._put = put
        self._observer = observer
        self._shown: dict[tuple[str, str], int] = {}
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._lending = Lending(who, gate.limits, longest_calls_s(settings.limits, settings.upstreams))
        self._is_current = False
        self._has_left = False

    def told(self, records: Iterable[Record]) -> None:
        """Records of the workers topic, in order; the first are all that stand there."""
        now, is_ours = self._clock.now().mono, False
        for record in records:
            if (what := read(record)) is not None:
                is_ours = self._lending.read(what, now) or is_ours
        if not self._is_current:
            self._is_current = True
            self._look_again()
        elif is_ours or self._lending.shares.others <= SMALL:
            self._look()
        if is_ours:
            self._admission.look_at_all()
        self._show()

    def leave(self) -> Message:
        """Nothing begins any more under these limits: the last that is told."""
        self._has_left = True
        last = self._lending.leave(self._clock.now().mono)
        self._show()
        return message(last, self._topic)

    def _look_again(self) -> None:
        if not self._has_left:
            self._look()
            self._loop.call_later(LOOK_S, self._look_again)

    def _look(self) -> None:
        if self._has_left:
            return
        now = self._clock.now().mono
        has_grown, stakes = self._lending.look(self._gate.waiting(), now)
        if has_grown:
            self._admission.look_at_all()
        if stakes is not None:
            self._put(message(stakes, self._topic))
        self._show()
        for who in self._lending.shares.over(now):
            self._put(ending(who, self._topic))

    def _show(self) -> None:
        """Tell what is ours where that has changed."""
        shown, self._shown = self._shown, self._lending.ours()
        for (limit, quantity), amount in self._shown.items():
            if shown.get((limit, quantity)) != amount:
                self._observer.lent(limit, quantity, amount)
