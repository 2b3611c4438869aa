"""Faults planted into what is remembered of requests that ended: each would let one id be executed twice, or answered wrongly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from dispatcher.adapters.kafka.sink import Sink
from dispatcher.core.internal.journal import Ahead, Asked, Coming, Conflict, Journal, Known
from dispatcher.core.lanes.outcome import Owner
from dispatcher.core.messages.record import Message
from dispatcher.core.messages.recorded import Recorded
from dispatcher.worker.journal_log import JournalLog
from dispatcher.worker.letters import Recall
from dispatcher.worker.whole import Steps
from tests.sim.cluster import JOURNAL
from tests.sim.plan import Fault
from tests.sim.planted import Planted, written_outside_the_transaction
from tests.sim.worker import SimulatedSink

Found = Known | Coming | Ahead | Conflict | None


def _not_known_before_it_is_published(patch: pytest.MonkeyPatch) -> None:
    find = Journal.find

    def published(self: Journal, asked: Asked, now: float, *rest: Any) -> Found:
        found = find(self, asked, now, *rest)
        return None if isinstance(found, Coming) else found

    patch.setattr(Journal, "find", published)


def _forgotten_at_takeover(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: JournalLog, owners: Mapping[int, Owner], restored: Callable[[Owner, Journal | None], None]) -> Steps:
        for owner in list(owners.values()):
            restored(owner, self._journal())
        yield False

    patch.setattr(JournalLog, "restore", nothing)


def _whatever_it_asks_for(patch: pytest.MonkeyPatch) -> None:
    find = Journal.find

    def by_name(self: Journal, asked: Asked, now: float, *rest: Any) -> Found:
        for fingerprint in [row[16:32] for row in self._rows.values()]:
            if isinstance(found := find(self, replace(asked, fingerprint=fingerprint), now, *rest), Known):
                return found
        return find(self, asked, now, *rest)

    patch.setattr(Journal, "find", by_name)


def _reply_without_the_journal(patch: pytest.MonkeyPatch) -> None:
    produce = Sink.produce

    def without(self: SimulatedSink, messages: list[Message]) -> None:
        produce(self, [message for message in messages if message.topic != JOURNAL or self._process.chance.random() < 0.9])

    patch.setattr(SimulatedSink, "produce", without)


def _next_best_reply(patch: pytest.MonkeyPatch) -> None:
    recall = JournalLog.recall

    def nearby(self: JournalLog, recalls: list[Recall], recalled: Callable[[Recall, Recorded | None], None]) -> Steps:
        wrong = [replace(one, known=replace(one.known, offset=max(0, one.known.offset - 1))) for one in recalls]
        back = dict(zip(wrong, recalls, strict=True))
        yield from recall(self, wrong, lambda one, recorded: recalled(back[one], recorded))

    patch.setattr(JournalLog, "recall", nearby)


ONCE = (("publishing", "exactly_once"),)
DEATHS = tuple(Fault(1.0 + n, "kill", n % 2, 1) for n in range(8))
DUPLICATES = (
    Planted("duplicate of what is not published called", _not_known_before_it_is_published, "Duplicates"),
    Planted("journal forgotten at takeover", _forgotten_at_takeover, "Duplicates", (), DEATHS),
    Planted("duplicate whatever it asks for", _whatever_it_asks_for, "Duplicates"),
    Planted("journal outside the transaction", partial(written_outside_the_transaction, topic=JOURNAL), "Duplicates", ONCE, DEATHS),
    Planted("reply without the journal", _reply_without_the_journal, "Duplicates"),
    Planted("the next best reply recalled", _next_best_reply, "Duplicates"),
)
