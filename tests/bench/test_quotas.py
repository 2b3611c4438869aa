"""What the measurement of quotas says of what a callee has seen."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.quotas import CALL_MS, NOBODYS_S, PER_S, is_kept, judged


def seen(per_s: int, refused: int = 0) -> list[dict[str, Any]]:
    """What a callee tells of so many calls in each of 20 seconds, the last of which it refuses."""
    events = list[dict[str, Any]]()
    for n in range(20 * per_s):
        status, at = 429 if n >= 20 * per_s - refused else 200, n / per_s
        events += [{"event": "start", "call": n, "t_s": at}, {"event": "end", "call": n, "t_s": at + CALL_MS / 1000, "status": status}]
    return events


@pytest.mark.parametrize(
    ("workers", "events", "refused", "used", "kept"),
    [
        (1, seen(PER_S), 0, 1.0, True),
        (1, seen(PER_S, 1), 1, 0.999, False),
        (1, seen(48), 0, 0.96, False),
        (3, seen(48), 0, 0.96, True),
        (3, seen(47), 0, 0.94, False),
    ],
)
def test_who_is_refused_and_what_is_left_unused_is_seen(
    workers: int, events: list[dict[str, Any]], refused: int, used: float, *, kept: bool
) -> None:
    """Several workers leave a little more of it, and none of them is refused either."""
    figures = judged(events, 20.0) | {"workers": workers}
    assert (refused, used, kept) == (figures["answers_429"], figures["used_share"], is_kept(figures))


def test_of_the_seconds_behind_a_kill_nothing_counts() -> None:
    """What the killed worker had is nobody's then."""
    events = [event for event in seen(PER_S) if not 10.0 <= event["t_s"] < 9.0 + NOBODYS_S]
    assert judged(events, 20.0)["used_share"] < 0.8
    assert pytest.approx(1.0, abs=0.02) == judged(events, 20.0, 10.0)["used_share"]
