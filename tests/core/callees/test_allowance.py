"""What answers say of limits, in the words of providers."""

from __future__ import annotations

import pytest

from dispatcher.core.callees.allowance import Allowance, allowances
from tests.specimens import WALL

OPENAI = (
    ("x-ratelimit-limit-requests", "60"),
    ("x-ratelimit-limit-tokens", "150000"),
    ("x-ratelimit-remaining-requests", "59"),
    ("x-ratelimit-remaining-tokens", "149984"),
    ("x-ratelimit-reset-requests", "1s"),
    ("x-ratelimit-reset-tokens", "6m0s"),
)
ANTHROPIC = (
    ("anthropic-ratelimit-requests-limit", "50"),
    ("anthropic-ratelimit-requests-remaining", "49"),
    ("anthropic-ratelimit-requests-reset", "2026-11-29T10:00:20Z"),
    ("anthropic-ratelimit-input-tokens-remaining", "12"),
    ("anthropic-ratelimit-tokens-remaining", "80000"),
    ("anthropic-ratelimit-unified-remaining", "1"),
)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        (OPENAI, {"requests": Allowance(59, 1.0), "tokens": Allowance(149_984, 360.0)}),
        (ANTHROPIC, {"requests": Allowance(49, 20.0), "tokens": Allowance(80_000, None)}),
        ((("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "30")), {"requests": Allowance(3, 30.0)}),
        ((("ratelimit-remaining", "0"), ("ratelimit-reset", "5")), {"requests": Allowance(0, 5.0)}),
        ((("x-ratelimit-remaining-requests", "-1"),), {"requests": Allowance(0, None)}),
        # Two limits: the one of which less is left.
        ((("x-ratelimit-remaining-requests", "9"), ("x-ratelimit-remaining", "4")), {"requests": Allowance(4, None)}),
        # More left than there is: there is so much.
        ((("x-ratelimit-remaining-requests", "90"), ("x-ratelimit-limit-requests", "50")), {"requests": Allowance(50, None)}),
        ((("x-ratelimit-remaining-images", "1"), ("x-ratelimit-remaining-requests", "many"), ("x-ratelimit-limit", "50")), {}),
        ((), {}),
    ],
)
def test_what_is_left_is_read_by_dimension(headers: tuple[tuple[str, str], ...], expected: dict[str, Allowance]) -> None:
    """Requests and tokens; neither input tokens nor what is of a subscription, nor what is no number."""
    assert expected == allowances(headers, WALL)


def test_a_reset_is_counted_from_the_answers_own_date() -> None:
    """Its clock is a minute behind ours, or ours was set meanwhile."""
    headers = (("date", "Sun, 29 Nov 2026 09:59:00 GMT"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "2026-11-29T09:59:30Z"))
    assert {"requests": Allowance(0, 30.0)} == allowances(headers, WALL)
