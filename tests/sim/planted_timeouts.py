"""Faults planted into the time that calls have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dispatcher.core.lanes.adaptive_timeout import AdaptiveTimeouts
from dispatcher.core.lanes.steps import Start
from tests.sim.planted import Planted


def _fitted_again_and_again(patch: pytest.MonkeyPatch) -> None:
    fitted = AdaptiveTimeouts.fitted

    def each(self: AdaptiveTimeouts, start: Start) -> Start:
        return replace(fitted(self, replace(start, attempt=1)), attempt=start.attempt)

    patch.setattr(AdaptiveTimeouts, "fitted", each)


def _no_floor(patch: pytest.MonkeyPatch) -> None:
    fitted = AdaptiveTimeouts.fitted

    def nearly_nothing(self: AdaptiveTimeouts, start: Start) -> Start:
        start = fitted(self, start)
        return replace(start, call=replace(start.call, timeout_s=0.1)) if start.is_fitted else start

    patch.setattr(AdaptiveTimeouts, "fitted", nearly_nothing)


TIMEOUTS = [
    Planted("second calls have no more time than first ones", _fitted_again_and_again, "EnoughTime"),
    Planted("no floor under the time of a call", _no_floor, "EnoughTime"),
]
