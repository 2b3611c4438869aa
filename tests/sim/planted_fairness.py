"""Faults planted into lanes that their agents share."""

from __future__ import annotations

import pytest

from dispatcher.core.lanes.fairness import FairQueue
from dispatcher.core.lanes.originals import Originals
from tests.sim.planted import DEATHS, Planted


def _first_come_first_served(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FairQueue, "next", lambda self: min((flow.offsets[0] for flow in self._flows.values() if flow.offsets), default=None))


def _newest_of_an_agent_first(patch: pytest.MonkeyPatch) -> None:
    def newest(self: FairQueue) -> int | None:
        first = self._first()
        return None if first is None else self._flows[first[2]].offsets[-1]

    patch.setattr(FairQueue, "next", newest)


def _originals_only_before_their_duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Originals, "has_ended", lambda *_: False)


FAIR = (("fairness", "agent"),)
FAIRNESS = [
    Planted("first come first served", _first_come_first_served, "FairTurns", FAIR),
    Planted("newest of an agent first", _newest_of_an_agent_first, "Order", FAIR),
    Planted("originals only before their duplicates", _originals_only_before_their_duplicates, "Duplicates", FAIR, DEATHS),
]
