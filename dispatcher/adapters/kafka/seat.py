"""A place in the group that has a name, the worker's slot (static membership): Kafka gives it to one member at a time.

What that brings differs by protocol, tried on Kafka 4.4 with librdkafka 2.16:

classic   who comes with the name of a member that has died, or lives, gets its partitions at once and without a rebalance; a member that
          lives is fenced, which it hears with its next heartbeat. Who joins anew while the coordinator stands still may be fenced by
          itself: the join that it gave up and the next one are both heard afterwards
KIP-848   as long as the session of a member lasts, another one of its name is refused (UNRELEASED_INSTANCE_ID), and librdkafka takes that
          for fatal: who comes back after a crash has to ask again, with a new client each time, until the session has run out

In all of them a member that closes keeps its partitions until its session runs out, for a restart in its place; with KIP-848 the group
counts as running as long. A classic one may leave instead (see `vacate`), a KIP-848 one cannot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError

from dispatcher.adapters.kafka.clients import LOG
from dispatcher.errors import BrokerError

# Leaving takes no answer of anybody: longer than this and the client does not do it.
VACATE_S = 5.0
POLL_S = 0.02
# Between two attempts to take a place that is not free yet.
AGAIN_S = 1.0

_HELD = {code: KafkaError(code).str() for code in (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID)}


@dataclass(slots=True)
class Seat:
    """The place called `slot`. Owned by the poller's thread, as the consumer that takes it; `made` makes another such consumer.

    `patience_s`: how long a predecessor may still hold it. `leaves`: whether the others get the partitions when its owner ends, which only
    classic groups allow.
    """

    slot: str
    made: Callable[[], Consumer]
    patience_s: float
    leaves: bool
    _until: float | None = field(default=None, init=False)  # monotonic seconds

    def is_awaited(self, error: KafkaError, *, is_taken: bool) -> bool:
        """Whether `error` says no more than that the place is not free yet. Raises BrokerError where another worker has it for good.

        `is_taken`: it was ours until now.
        """
        code = _holder(error)
        if code is None:
            return False
        now = time.monotonic()
        if self._until is None:
            self._until = now + self.patience_s
            LOG.warning("the slot %s is not free: another worker has it, or one that crashed has it still", self.slot)
        if code == KafkaError.UNRELEASED_INSTANCE_ID and now < self._until and not is_taken:
            return True
        hint = "give every worker its own worker.slot, or leave it out"
        if not is_taken:
            hint += "; if no other has it, Kafka stood still and has heard two joins of this one: start it again"
        raise BrokerError(f"another worker has the slot {self.slot!r}", hint) from None

    def taken(self) -> None:
        """It is ours: whoever holds it the next time is waited for anew."""
        self._until = None

    def vacate(self, consumer: Consumer) -> None:
        """Leave the group, so that the others get the partitions at once: whatever its name, a classic client that unsubscribes does.

        It calls the duties for what is assigned. What it has left by then is its member id.
        """
        consumer.unsubscribe()
        end = time.monotonic() + VACATE_S
        while consumer.memberid() and time.monotonic() < end:
            consumer.poll(POLL_S)


def _holder(error: KafkaError) -> int | None:
    """Give the code that tells of another one of our name; None for another error. A fatal one tells its cause by its text alone."""
    if error.code() in _HELD:
        return error.code()
    return next((code for code, text in _HELD.items() if error.code() == KafkaError._FATAL and text in error.str()), None)
