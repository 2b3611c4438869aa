"""What a call has cost, as far as its end tells."""

from __future__ import annotations

from decimal import Decimal

from dispatcher.core.messages.call import Answered, CallResult, NotSent
from dispatcher.core.messages.usage import Usage

# Answers of who stands before the callee, and does not know what that has done, or is still doing: 408 and 504 (RFC 9110: no answer in
# time), 502 (no whole one), and Cloudflare's words for the same (520 Unknown, 522 and 524 Timed out).
_BETWEEN = frozenset({408, 502, 504, 520, 522, 524})


def cost_of_call(result: CallResult, used: Usage | None) -> Decimal | None:
    """What a call that ended so has cost; None where nobody knows.

    An answer says it by its usage, if its price is known. Who answers with an error and without usage charges nothing. A success
    without usage, a call without a whole answer, and a gateway that has got none, may have cost anything.
    """
    if used is not None:
        return used.cost
    if isinstance(result, NotSent):
        return Decimal(0)
    is_told = isinstance(result, Answered) and not 200 <= result.status < 300 and result.status not in _BETWEEN
    return Decimal(0) if is_told else None
