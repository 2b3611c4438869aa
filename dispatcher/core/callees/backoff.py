"""Exponential backoff with full jitter."""

from __future__ import annotations


def delay_s(failures: int, chance: float, base_s: float, max_s: float) -> float:
    """Seconds to wait after `failures` (1 or more) failed attempts.

    `chance` is uniform in [0, 1): the delay is uniform between 0 and `base_s` doubled per failure, at most `max_s` ("full jitter" in
    Marc Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015).
    """
    # The exponent is bounded before the power is taken: 2.0 ** 2000 overflows.
    ceiling = min(max_s, base_s * 2.0 ** min(failures - 1, 60))
    return chance * ceiling
