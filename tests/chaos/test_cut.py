"""Three minutes of `make chaos`: workers, brokers, ways and the upstream fail, and nothing comes of it."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from tests.chaos.__main__ import SEEDS, run
from tests.chaos.drive import PER_S

MINUTES = 3


@pytest.mark.broker
@pytest.mark.faults
@pytest.mark.long
@pytest.mark.timeout(900)
def test_three_minutes_of_chaos_break_nothing(tmp_path: Path) -> None:
    """Nothing is lost, answered twice, out of order, stuck, or called again for no reason, and what killed workers had goes on in time.

    With strict lanes and a lane for each key at once. The seed is another one each time, and printed.
    """
    report = run(secrets.randbelow(SEEDS), MINUTES, tmp_path)
    assert [] == report.failures, report.verdict()
    for judgement in report.judgements:
        assert judgement.requests > PER_S[judgement.label] * MINUTES * 60 / 2, "there was a load"
    assert report.faults["worker kills"] >= 5
    for kind in ("worker freezes", "kill broker"):
        assert report.faults[kind] >= 1
