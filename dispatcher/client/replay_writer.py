"""The writing side of a replay: groups of requests, each in one transaction under the replay's own transactional id."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dispatcher.adapters.kafka.faults import Complaints
from dispatcher.adapters.kafka.transaction import Transaction
from dispatcher.core.messages import record
from dispatcher.core.operations.replay import Selection
from dispatcher.core.operations.replay_plan import Plan
from dispatcher.core.rate import Pace
from dispatcher.settings import Settings

# Short enough that a Ctrl-C is felt at once; between two looks or attempts.
PAUSE_S = 0.1


@dataclass(slots=True)
class Work:
    """One execution of a plan, over all its attempts. `is_counted`: what is left is as much as planned."""

    plan: Plan
    selection: Selection
    pace: Pace
    told: Callable[[int], None]
    written: int = 0
    is_counted: bool = False
    complaints: Complaints = field(default_factory=Complaints)


class ReplayWriter(Transaction):
    """Writes groups of requests, each in one transaction. A context manager: made once per attempt, left with nothing open."""

    def __init__(self, settings: Settings, work: Work, timeout_s: float) -> None:
        self._work = work
        work.complaints = Complaints(settings)
        super().__init__(settings, f"{settings.worker.group}-replay-{work.plan.replay_id}", work.complaints, timeout_s)

    def write(self, group: Iterable[record.Message]) -> int:
        """Write some requests when their time has come; gives how many. KafkaException where it is not known whether they are there."""
        messages = list(group)
        if not messages:
            return 0
        while (wait_s := self._work.pace.wait_s(time.monotonic())) > 0:
            time.sleep(min(wait_s, PAUSE_S))
        for message in messages:
            self.add(message)
        self.commit()
        self._work.written += len(messages)
        self._work.pace.went(len(messages), time.monotonic())
        return len(messages)
