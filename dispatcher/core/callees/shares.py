"""What is ours of limits that several workers share: claims in one log, each good for as long as a lease.

Every worker tells in its record of the workers topic (`Stakes`) what it claims of each quantity, and reads what all tell. What it does with
that is for `divide` to say; that nobody uses too much rests on four rules alone, and on the order of the log, which is one for all:

1. **Less at once, and then told.** What a worker claims is never less than what it uses from then on; calls that are open count.
2. **More when it is read back.** Something new may be used once our own record is read in the log, if together with the last claims of all
   others before it there it fits into the limit. So of two who claim the same, one comes first.
3. **Only under the lease.** A worker uses nothing later than `lease_s` after it made the last of its records that it has read back. One
   whose lease had ended then, claims as if it had had nothing.
4. **The dead are counted.** A claim is counted until its worker was silent for its lease and as long as its calls linger (`lingers_s`: of
   calls at once the longest call, of others one window), by our clock, before we made the record that we claim with.

Never too much: let u and v use what together is too much at some moment, and let p, with which u got it, stand behind q, with which v did.
When u read p back, it had read the last of v's records before p, which claims what v uses (1); so either it fitted (2), or u had counted v
as dead. Then v was silent for its lease before p was made (4), and when it read its next record, behind p, its lease had ended: it got what
it uses there, or later (3). But q stands before p.
Clocks may differ by 1 % (`MARGIN`), and whoever stands still after his last look at the lease, before his call leaves, is not held by it.
For windows the same holds of each moment in them: what is gained counts as used for one window, as far as others had used it in the window
before they told (`spent`); who is dead has used nothing in the last window (4).

Nobody waits for good: whoever wants something tells it; while it lacks it, `divide` gives it a part in every other's plan, and those who
have more give it up, at once or with the end of their calls.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dispatcher.core.callees.division import Want, divide
from dispatcher.core.callees.stakes import Stake, Stakes

LEASE_S = 5.0
# How often it is told that we live; four records may be lost before the lease ends.
BEAT_S = 1.0
# Nothing more is told while a record is on its way, for at most so long.
PATIENCE_S = 1.0
# Clocks may run at rates that differ by 1 %: twice that, for what is between two readings of one.
MARGIN = 1.02
# What a dead worker has told is taken out of the topic when it has not counted for so long.
LEFT_S = 60.0
# For so long somebody may lack something in his turn.
GRACE_S = 2.0
# Longer ago is as long ago.
SINCE_MAX_S = 86_400.0
# Of what was told and not read back yet; of what is older the lease has ended.
MADE_MAX = 64


class Quantity(NamedTuple):
    """Something that is shared: `total` of it; see `Stake.lingers_s`, and `divide` for `turn_s`."""

    total: int
    lingers_s: float
    turn_s: float


class Use(NamedTuple):
    """What we could use of a quantity, `least` of which is of use; what is open now, and what was used in this window."""

    wanted: int
    least: int = 1
    open: int = 0
    spent: int = 0


class Part(NamedTuple):
    """What we may use, and how much of that others have `spent` in this window."""

    amount: int
    spent: int = 0


@dataclass(slots=True)
class _Other:
    """What another worker told last, and when we read it."""

    stakes: Stakes
    read_at: float
    is_over: bool = False  # nothing was left of it, by somebody else's clock

    def is_alive(self, now: float) -> bool:
        """Whether its lease may last."""
        return now < self.read_at + self.stakes.lease_s * MARGIN

    def claim(self, name: str, at: float) -> int:
        """What it may use, or have in use."""
        stake = self.stakes.of.get(name)
        if stake is None:
            return 0
        return stake.claim if at < self.read_at + (self.stakes.lease_s + stake.lingers_s) * MARGIN else 0

    def burden(self, name: str, at: float, now: float) -> int:
        """What may count of it in the window that is now."""
        stake = self.stakes.of.get(name)
        spent = 0 if stake is None or now >= self.read_at + stake.lingers_s * MARGIN else stake.spent
        return max(self.claim(name, at), spent)

    def lasts_s(self) -> float:
        """How long it may count."""
        return (self.stakes.lease_s + max((stake.lingers_s for stake in self.stakes.of.values()), default=0.0)) * MARGIN


class _Made(NamedTuple):
    """A record of ours that we have not read back."""

    number: int
    at: float
    claims: Mapping[str, int]


class Shares:
    """Owned by who owns the limits. `who`: the name of this process; no other has it, at any time. Times are monotonic seconds."""

    def __init__(self, who: str, quantities: Mapping[str, Quantity]) -> None:
        self.who = who
        self.quantities = quantities
        self.lease_until = -math.inf
        self._others: dict[str, _Other] = {}
        self._made: deque[_Made] = deque(maxlen=MADE_MAX)
        self._told: dict[str, Stake] = {}
        self._told_at = -math.inf
        self._number = 0
        self._read = 0  # the number of our last record that was read back
        self._held = dict.fromkeys(quantities, 0)
        self._aims = dict.fromkeys(quantities, 0)
        self._has, self._since = True, -math.inf  # whether we have what is of use of all that we want, and since when
        self._lacks_since: float | None = None  # since when not, before that counts

    @property
    def others(self) -> int:
        """How many are known, dead ones that still count among them."""
        return len(self._others)

    def part(self, name: str, now: float) -> int:
        """What we may use now."""
        if now >= self.lease_until:
            return 0
        return min(self._held[name], self._aims[name], *(made.claims[name] for made in self._made))

    # --- what others tell -----------------------------------------------------------------------------------------------------------

    def read(self, told: Stakes | str, now: float) -> dict[str, int]:
        """Take in a record, in the order of the log. Where it is ours: how much of what is gained others have spent, by quantity."""
        if isinstance(told, str):
            if (other := self._others.get(told)) is not None:
                other.is_over = True
        elif told.who == self.who:
            return self._read_back(told, now)
        else:
            known = self._others.get(told.who)
            if known is None or known.stakes.number < told.number:
                self._others[told.who] = _Other(told, now)
        return {}

    def _read_back(self, told: Stakes, now: float) -> dict[str, int]:
        """What we have told stands in the log, behind all that was read before."""
        made = next((made for made in self._made if made.number == told.number), None)
        if told.number <= self._read or made is None:
            return {}
        self._read = told.number
        self._made = deque((later for later in self._made if later.number > told.number), MADE_MAX)
        is_ours_still = now < self.lease_until
        self.lease_until = max(self.lease_until, made.at + LEASE_S)
        spent: dict[str, int] = {}
        for name, claim in made.claims.items():
            base = self._held[name] if is_ours_still else 0
            total, others = self.quantities[name].total, self._others.values()
            room = total - sum(other.claim(name, made.at) for other in others)
            held = self._held[name] = max(min(base, claim), min(claim, room), 0)
            clean = total - sum(other.burden(name, made.at, now) for other in others)
            spent[name] = max(0, held - max(min(base, claim), clean))
        return spent

    # --- what we do -----------------------------------------------------------------------------------------------------------------

    def aim(self, uses: Mapping[str, Use], now: float) -> None:
        """Find what should be ours: what is less counts at once."""
        for name in self.quantities:
            self._aims[name] = self._aim(name, uses[name], now)
        wanted = {name: use for name, use in uses.items() if use.wanted}
        has = all(self.part(name, now) >= use.least for name, use in wanted.items())
        if has or not wanted:
            self._lacks_since = None
            if not self._has or not wanted:
                self._has, self._since = True, now
            return
        lacks_since = self._lacks_since = now if self._lacks_since is None else self._lacks_since
        # Who has his turn keeps it for a moment, whatever the next of his calls needs beside what the last one did.
        turn_s = max(self.quantities[name].turn_s for name in wanted)
        if self._has and (self._since_s(now) >= turn_s or now >= lacks_since + GRACE_S):
            self._has, self._since = False, lacks_since

    def _aim(self, name: str, use: Use, now: float) -> int:
        """Our part by the plan; what is more than that is kept as long as nobody is short of it."""
        quantity = self.quantities[name]
        alive = {who: other.stakes for who, other in self._others.items() if other.is_alive(now) and name in other.stakes.of}
        left = quantity.total - sum(other.claim(name, now) for who, other in self._others.items() if who not in alive)
        if not alive:
            return max(0, left)
        wants = {who: Want(told.of[name].wanted, told.of[name].least, told.has, told.since_s) for who, told in alive.items()}
        wants[self.who] = Want(_rounded(use.wanted, quantity.total), use.least, self._has, self._since_s(now))
        plan = divide(max(0, left), wants, quantity.turn_s)
        ours, held = plan[self.who], self._held[name] if now < self.lease_until else 0
        if ours >= held:
            return ours
        stakes = {who: told.of[name] for who, told in alive.items()}
        short = sum(max(0, plan[who] - stake.claim) for who, stake in stakes.items() if _is_in_need(stake, plan[who]))
        free = left - held - sum(stake.claim for stake in stakes.values())
        return max(ours, held - max(0, short - free))

    def tell(self, uses: Mapping[str, Use], now: float) -> Stakes | None:
        """What is to be told now, behind `aim`; None where nothing is: it has been, or is on its way."""
        if self._made and now < self._made[-1].at + PATIENCE_S:
            return None
        stakes = {name: self._stake(name, uses[name], now) for name in self.quantities}
        if now < self._told_at + BEAT_S and not any(self._is_news(name, stake) for name, stake in stakes.items()):
            return None
        return self._make(stakes, now)

    def leave(self, uses: Mapping[str, Use], now: float) -> Stakes:
        """The last that is told: nothing is used any more but by calls that are open."""
        self._aims = dict.fromkeys(self.quantities, 0)
        return self._make({name: self._stake(name, use._replace(wanted=0), now) for name, use in uses.items()}, now)

    def over(self, now: float) -> Iterable[str]:
        """Whose records may be taken out of the topic, by us: they are dead, and have not counted for a while."""
        gone = [who for who, other in self._others.items() if now >= other.read_at + other.lasts_s()]
        for who in gone:
            if self._others[who].is_over:
                del self._others[who]
        is_first = all(self.who < who for who, other in self._others.items() if other.is_alive(now))
        for who in gone if is_first and now < self.lease_until else ():
            if who in self._others and now >= self._others[who].read_at + self._others[who].lasts_s() + LEFT_S:
                self._others[who].is_over = True
                yield who

    def _make(self, stakes: Mapping[str, Stake], now: float) -> Stakes:
        self._number += 1
        self._made.append(_Made(self._number, now, {name: stake.claim for name, stake in stakes.items()}))
        self._told, self._told_at = dict(stakes), now
        return Stakes(self.who, self._number, LEASE_S, self._has, self._since_s(now), self._told)

    def _since_s(self, now: float) -> float:
        return min(now - self._since, SINCE_MAX_S)

    def _stake(self, name: str, use: Use, now: float) -> Stake:
        quantity, aim = self.quantities[name], self._aims[name]
        held = self._held[name] if now < self.lease_until else 0
        room = quantity.total - sum(other.claim(name, now) for other in self._others.values())
        claim = max(0, min(aim, max(held, room)), use.open)
        return Stake(claim, _rounded(use.wanted, quantity.total), use.least, use.spent, quantity.lingers_s)

    def _is_news(self, name: str, stake: Stake) -> bool:
        """Whether it cannot wait: we claim something else, or lack what we have not told that we want."""
        told = self._told.get(name)
        if told is None or told.claim != stake.claim:
            return True
        is_short = stake.claim < self.quantities[name].total and stake.wanted > stake.claim
        return is_short and (stake.wanted > told.wanted or stake.least != told.least)


def _is_in_need(stake: Stake, part: int) -> bool:
    """Whether it lacks what it wants, or has little beside what is its part."""
    return stake.wanted > stake.claim or 2 * stake.claim < part


def _rounded(wanted: int, total: int) -> int:
    """About so much, and no less: what is wanted changes with every call.

    >>> [_rounded(wanted, 100) for wanted in (0, 1, 3, 5, 9, 17, 1000)]
    [0, 1, 3, 5, 12, 24, 100]
    """
    step = 1 << max(0, wanted.bit_length() - 2 - (wanted.bit_length() < 4))
    return min(total, -(-wanted // step) * step)
