"""Faults planted into what is kept of the tries of requests, and into what must not be done twice."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from dispatcher.core.instant import Instant
from dispatcher.core.lanes.lane import Lane
from dispatcher.core.lanes.lane_queue import Waiting
from dispatcher.core.lanes.outcome import Outcome
from dispatcher.core.lanes.partition import Partition
from dispatcher.core.lanes.passage import Passage
from dispatcher.core.lanes.steps import Intend, Step
from dispatcher.worker.engine import Engine
from tests.sim.planted import BY_KEY, DEATHS, ONCE, Planted


def _called_before_the_intent_stands(patch: pytest.MonkeyPatch) -> None:
    await_ = Engine._await

    def at_once(self: Engine, partition: Partition, lane: Lane, step: Step) -> None:
        await_(self, partition, lane, step)
        if isinstance(step, Intend):
            lane.noted(step.note)
            self._loop.call_soon(self.advance, partition, lane)

    patch.setattr(Engine, "_await", at_once)


def _intent_unread(patch: pytest.MonkeyPatch) -> None:
    recall = Waiting.recall

    def as_if_undone(self: Waiting, known: Any, instant: Instant) -> bool:
        recall(self, known, instant)
        return False

    patch.setattr(Waiting, "recall", as_if_undone)


def _ambiguous_tried_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("dispatcher.core.callees.verdict._is_undone", lambda _: True)


def _tries_unread(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waiting, "recall", lambda *_: False)


def _tries_known_for_ever(patch: pytest.MonkeyPatch) -> None:
    settle = Partition._settle

    def leave(self: Partition, outcome: Outcome, now: float) -> Outcome:
        self._noted.clear()
        return settle(self, outcome, now)

    patch.setattr(Partition, "_settle", leave)


def _probe_kept_by_who_is_not_called(patch: pytest.MonkeyPatch) -> None:
    cut_off = Passage.cut_off

    def only_after_calls(self: Passage[Any], now: float) -> str | None:
        return cut_off(self, now) if sys._getframe(1).f_code.co_name not in {"_withdrawn", "_forget"} else None

    patch.setattr(Passage, "cut_off", only_after_calls)


TRIES = [
    Planted("called before the intent stands", _called_before_the_intent_stands, "AtMostOnce", ONCE),
    Planted("intent unread", _intent_unread, "AtMostOnce", ONCE),
    Planted("ambiguous tried again", _ambiguous_tried_again, "AtMostOnce", ONCE),
    Planted("tries unread", _tries_unread, "Budget", ONCE, DEATHS),
    Planted("tries known for ever", _tries_known_for_ever, "NothingLeft", ONCE),
    Planted("probe kept by who is not called", _probe_kept_by_who_is_not_called, "NothingStuck", ONCE + BY_KEY),
]
