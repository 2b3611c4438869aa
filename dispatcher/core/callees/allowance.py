"""What an answer says of the limits of its callee: how much is left of requests and tokens, and when that is over.

    x-ratelimit-remaining-<dimension>        with x-ratelimit-reset-<dimension> (OpenAI, Azure, Groq, OpenRouter; also without `x-`)
    anthropic-ratelimit-<dimension>-remaining   with …-reset

Dimensions are requests and tokens; none means requests. What is left of input or output tokens alone says nothing of their sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from dispatcher.core.callees.hints import limits_in
from dispatcher.core.callees.meter import REQUESTS, TOKENS
from dispatcher.core.messages.call import HeaderPairs

_MEANT = {"": REQUESTS, REQUESTS: REQUESTS, TOKENS: TOKENS}


@dataclass(frozen=True, slots=True)
class Allowance:
    """So much is `left`, for `reset_s` seconds from now; None where it is not said for how long."""

    left: float
    reset_s: float | None


def allowances(headers: HeaderPairs, wall: float) -> dict[str, Allowance]:
    """What is left, by dimension; where more than one limit is told of, the one of which least is left. `wall`: now, since 1970."""
    resets, left, most = limits_in(headers, wall)
    found: dict[str, Allowance] = {}
    for (provider, name), amount in left.items():
        dimension = _MEANT.get(name)
        if dimension is None or (dimension in found and found[dimension].left <= amount):
            continue
        told = min(amount, most.get((provider, name), amount))
        found[dimension] = Allowance(max(0.0, told), resets.get((provider, name)))
    return found
