"""The limits of a worker that shares them with others: what is ours of each is lent to the gate, as `Shares` finds it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dispatcher.core.callees.gate import Crowd
from dispatcher.core.callees.limit import Limit
from dispatcher.core.callees.limiter import may_meet
from dispatcher.core.callees.meter import CONCURRENCY, TOKENS
from dispatcher.core.callees.shares import Quantity, Shares, Use
from dispatcher.core.callees.stakes import Stakes
from dispatcher.settings import LimitSettings, UpstreamSettings

# Where there is not enough for all that want some: each has his for two windows, of which the first may be empty, and some seconds.
TURN_WINDOWS, TURN_S = 2, 3.0
NOBODY = Crowd()
# Between two calls of a lane nobody may wait, while it is written how the first has ended: so long the share is not given up for that.
REMEMBERED_S = 0.5


class Lending:
    """Owned by the engine, as the gate is. `longest_s`: how long a call under a limit may last, by the limit's name.

    Nothing is lent before all that others have told has been read (`Shares.read`), and the first that we told.
    """

    def __init__(self, who: str, limits: Mapping[str, Limit], longest_s: Mapping[str, float]) -> None:
        self._places: dict[str, tuple[Limit, str]] = {}
        quantities: dict[str, Quantity] = {}
        for name, limit in limits.items():
            limit.lend(-math.inf, -math.inf)
            turn_s = TURN_WINDOWS * (limit.of.window_s or 0.0) + TURN_S
            for dimension, total, counts_s in limit.quantities():
                lingers_s = longest_s[name] + limit.of.slack_s if dimension == CONCURRENCY else counts_s
                quantities[f"{name}/{dimension}"] = Quantity(total, lingers_s, turn_s)
                self._places[f"{name}/{dimension}"] = limit, dimension
        self._waited: dict[Limit, tuple[float, Crowd]] = {}  # who waited last for a limit: one call of theirs, and until when that counts
        self._lent: dict[str, int] = dict.fromkeys(quantities, -1)
        self.shares = Shares(who, quantities)

    def read(self, told: Stakes | str, now: float) -> bool:
        """Take in a record of the log, each in its order; whether more may be ours now."""
        spent = self.shares.read(told, now)
        for name, amount in spent.items():
            limit, dimension = self._places[name]
            limit.lend(self.shares.lease_until, now)
            self._lent[name] = self.shares.part(name, now)
            limit.grant(dimension, self._lent[name], now, amount)
        return bool(spent)

    def look(self, crowds: Mapping[Limit, Crowd], now: float) -> tuple[bool, Stakes | None]:
        """See what should be ours, as so many wait: what is less is taken from the gate at once.

        Whether anything is more, and what is to be told, if anything is.
        """
        uses = self._uses(crowds, now)
        self.shares.aim(uses, now)
        return self._lend(now), self.shares.tell(uses, now)

    def leave(self, now: float) -> Stakes:
        """The last that is told: nothing begins any more, and what others had of us is theirs."""
        for limit, _ in self._places.values():
            limit.lend(-math.inf, now)
        self._lent = dict.fromkeys(self._lent, 0)
        return self.shares.leave(self._uses({}, now), now)

    def ours(self) -> dict[tuple[str, str], int]:
        """What is lent now, by limit and quantity."""
        return {(limit, dimension): max(0, lent) for name, lent in self._lent.items() for limit, _, dimension in [name.rpartition("/")]}

    def _lend(self, now: float) -> bool:
        has_grown = False
        for name, (limit, dimension) in self._places.items():
            part = self.shares.part(name, now)
            if part != self._lent[name]:
                has_grown = has_grown or part > self._lent[name]
                self._lent[name] = part
                limit.grant(dimension, part, now)
        return has_grown

    def _uses(self, crowds: Mapping[Limit, Crowd], now: float) -> dict[str, Use]:
        """What we could use: what is in use, or was used in this window, and what waits."""
        uses: dict[str, Use] = {}
        for limit, crowd in crowds.items():
            self._waited[limit] = now + REMEMBERED_S, Crowd(1, crowd.first_tokens, crowd.first_tokens)
        self._waited = {limit: waited for limit, waited in self._waited.items() if now < waited[0]}
        for name, (limit, dimension) in self._places.items():
            crowd = crowds.get(limit) or self._waited.get(limit, (now, NOBODY))[1]
            used, total = limit.used(dimension, now), self.shares.quantities[name].total
            if dimension == CONCURRENCY:
                uses[name] = Use(used + crowd.calls, open=used)
            elif dimension == TOKENS:
                # What is held is for calls that could not be made otherwise, and would be let through again and again.
                least = min(total, max(1, crowd.first_tokens, limit.held(dimension)))
                uses[name] = Use(used + crowd.tokens, least=least, spent=used)
            else:
                uses[name] = Use(used + crowd.calls, spent=used)
        return uses


def longest_calls_s(limits: Mapping[str, LimitSettings], upstreams: Mapping[str, UpstreamSettings]) -> dict[str, float]:
    """How long a call under each limit may last: as long as the most patient upstream that it may be to."""
    return {
        name: max((of.call_timeout_s for upstream, of in upstreams.items() if may_meet(limit, upstream, of)), default=0.0)
        for name, limit in limits.items()
    }
