"""Doing a step again while its fate is unknown or the broker is away, and showing meanwhile that the thread lives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dispatcher.adapters.kafka.sink import Failed
from dispatcher.core.lanes.outcome import Owner
from dispatcher.errors import BrokerError
from dispatcher.worker.clock import Clock
from dispatcher.worker.letters import Snapshot

# Between tries against a broker that is away or busy: doubled from the first to the last.
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 1.0
# A client that failed for good is made anew. So often, over so long, without anything going through: making another one mends nothing.
RENEWALS_MAX, RENEWALS_S = 10, 60.0


class Observer(Protocol):
    """Hears about publications that did not go through."""

    def publish_failed(self, what: str, name: str) -> None: ...


class Abandoned(Exception):
    """The worker is ending at once; what is not published is left to the next owner."""


class OwnersDied(Exception):
    """Assignments that a step was done for have ended meanwhile."""


class Insistence:
    """Owned by the publisher's thread. `tick` is read by others; `is_abandoned` is set by them to end everything at once."""

    def __init__(self, snapshot: Callable[[], Snapshot], observer: Observer, clock: Clock) -> None:
        self.snapshot = snapshot
        self.observer = observer
        self.clock = clock
        self.tick_at = clock.now().mono
        self.is_abandoned = False
        self._pause_s = PAUSE_FIRST_S
        self._renewals = 0
        self._renewed_first = 0.0

    def tick(self) -> None:
        """Show that this thread lives. Raises Abandoned."""
        self.tick_at = self.clock.now().mono
        if self.is_abandoned:
            raise Abandoned

    def insist(self, what: str, step: Callable[[], object], owners: frozenset[Owner] = frozenset()) -> None:
        """Do `step`, again and again while it may be done again. Raises Failed for anything else, OwnersDied if one of `owners` ends."""
        while True:
            self.tick()
            try:
                step()
            except Failed as failed:
                if failed.then != "again":
                    raise
                self.observer.publish_failed(what, failed.name)
                if not owners <= self.snapshot().live:
                    raise OwnersDied from None
                self.back_off()
            else:
                return

    def insist_on(self, what: str, step: Callable[[], object]) -> None:
        """Do `step` until it is done, whatever it fails with. Raises BrokerError where going on is senseless."""
        while True:
            try:
                self.insist(what, step)
            except Failed as failed:
                self.observer.publish_failed(what, failed.name)
                stop_if_senseless(failed)
                self.back_off()
            else:
                return

    def back_off(self) -> None:
        """Let some time pass, each time more."""
        self.tick()
        self.clock.pause(self._pause_s)
        self._pause_s = min(PAUSE_MAX_S, self._pause_s * 2)

    def renew(self, name: str) -> None:
        """A client failed for good, with the error `name`, and another one is about to be made; each time a little later.

        Raises BrokerError where that goes on: a worker that calls and can publish nothing must not look alive.
        """
        now = self.clock.now().mono
        self._renewals += 1
        if self._renewals == 1:
            self._renewed_first = now
            return
        if self._renewals > RENEWALS_MAX and now - self._renewed_first > RENEWALS_S:
            hint = "see the log above; started again it goes on where it stood"
            raise BrokerError(f"Kafka's client fails for good again and again, and nothing is published: {name}", hint)
        self.back_off()

    def ease(self) -> None:
        """Something went through: begin with short pauses again."""
        self._pause_s = PAUSE_FIRST_S
        self._renewals = 0


def stop_if_senseless(failed: Failed) -> None:
    """Raise BrokerError for a failure that no repetition mends."""
    if failed.then == "stop":
        raise BrokerError(f"Kafka refuses to let this worker publish: {failed.name}", _hint(failed.name))


def _hint(name: str) -> str:
    if name == "INVALID_TRANSACTION_TIMEOUT":
        return "lower worker.transaction_timeout_s: the broker's transaction.max.timeout.ms is less"
    return "see `dispatcher config show` and the ACLs"
