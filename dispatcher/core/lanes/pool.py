"""One partition's part of a budget that partitions share: what its owner may spend of it, what he gives to others, and when all is spent.

A counter with bounds, kept without anybody in the middle (escrow): the rights of all partitions to a pool add up to the budget. A part may
only be spent, or given away; what is given counts for nobody until its giver's word is committed, and then for whom it was given to. So
whoever is slow, dead or reads old news, what all have spent, set aside and not used yet is never more than the budget.

Who lacks rights says so, and all others answer: with half of what they have, with all of it where that is little, or with the
word that nothing is left with them, nor set aside, so that nothing can come back. Whose request has waited longest goes first: to it all
others give what they have, also what they keep for requests of their own. Else all might stand there with too little for a call, or each
with what another one lacks, where a call needs the money of several pools.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Decimal
from enum import Enum
from itertools import islice

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.budget import Budget
from dispatcher.core.internal.rights import NOTHING, UNIT, Board, Rights, share

# A request that lacked rights and has not asked for so long waits no more. Longer than its lane waits before it asks again.
WANT_S = 15.0
# Who does not answer for so long has nothing: nobody has its partition, or it stands. Longer than most calls take.
ANSWER_MAX_S = 120.0
# Then calls are refused for so long, before all are asked once more.
AGAIN_S = 60.0
_HALF = Decimal("0.5")

# Where a request stands, of those that one ledger is about: its topic and offset.
Spot = tuple[str, int]


class Answer(Enum):
    """What a pool says to who wants to make a call."""

    PAYS = "pays"
    LACKS = "lacks"  # for now: others are asked, or calls in flight may cost less than is set aside for them
    SPENT = "spent"


@dataclass(slots=True)
class _Waiting:
    """A request that waits for money, of this pool or another one: of that lane `key`, since when, and when it asked last."""

    key: bytes | None
    since: float
    asked: float


class Pool:
    """Owned by one Ledger. What is spent and set aside stands in the `Account` of that name, which the ledger keeps.

    `period`: the day of which all this is. Times are seconds since 1970, money is in US dollars.
    """

    __slots__ = (
        *("_board", "_dry_since", "_given_up", "_partition", "_partitions", "_version", "_waiting", "_wanted_at"),
        *("budget", "mine", "name", "written"),
    )

    def __init__(self, name: str, budget: Budget, partition: int, partitions: int, board: Board) -> None:
        self.name = name
        self.budget = budget
        self._partition = partition
        self._partitions = partitions
        self._board = board
        # What a former owner has said; what is read of this partition from here on is what is said below. Who wanted then asks anew.
        known = board.of(name, partition)
        self.mine = replace(known or Rights(name, partition, budget.name, 0), since=None)
        self.written = known
        self._waiting: dict[Spot, _Waiting] = {}  # the longest first
        self._given_up: list[bytes | None] = []  # lanes of those that will not be paid for, and have not heard of it
        self._wanted_at = -math.inf  # when it was said that rights are wanted
        self._dry_since: float | None = None
        self._version = -1

    @property
    def period(self) -> int:
        """See above."""
        return self.mine.period

    def begin(self, period: int) -> None:
        """It is this day. What was given in one that was begun by a clock that was wrong is gone all the same."""
        if period == self.mine.period:
            return
        given = self.mine.given if period < self.mine.period else {}
        self.mine = Rights(self.name, self._partition, self.budget.name, period, given, wants=self.mine.wants)
        self._dry_since = None
        self._version = -1

    def left(self, account: Account) -> Decimal:
        """What may be spent or given away: less than 0 where a call has cost more than its reserve."""
        self._read()
        rights = share(self.budget.of.usd_per_day, self._partition, self._partitions)
        # Where the topic that says to whom it went was lost, the account says still how much it was.
        given = max(account.given, sum(self.mine.given.values(), NOTHING))
        return rights + sum(self.mine.got.values(), NOTHING) - given - account.spent

    def ask(self, account: Account, wall: float) -> Answer:
        """Whether a call may begin."""
        if self.left(account) >= self.budget.of.reserve_usd:
            return Answer.PAYS
        return Answer.SPENT if self._is_dry(wall) else Answer.LACKS

    def wait(self, spot: Spot, key: bytes | None, since: float, wall: float) -> None:
        """This request waits, since then, until this pool pays for a call and all others that it needs do: what it takes is kept for it."""
        self._waiting.setdefault(spot, _Waiting(key, since, wall)).asked = wall

    @property
    def is_waited_for(self) -> bool:
        """Whether a request waits for it, or has not heard yet that it waits for nothing."""
        return bool(self._waiting or self._given_up)

    def leave(self, spot: Spot) -> None:
        """This request waits no more: its call begins, or it has ended."""
        self._waiting.pop(spot, None)

    def payable(self, account: Account) -> list[bytes | None]:
        """The lane keys of requests that are to ask again now: for so many there is money, or for them there will be none."""
        most = max(0, int(self.left(account) // self.budget.of.reserve_usd)) if self._waiting else 0
        told, self._given_up = self._given_up, []
        return [*told, *(waiting.key for waiting in islice(self._waiting.values(), most))]

    def until(self, wall: float) -> float:
        """When to ask again where it is spent: when the next day begins, or where somebody did not answer, soon."""
        begins = self.budget.begin(self.mine.period + 1)
        return begins if self._dry_since is None or math.isinf(self._dry_since) else min(begins, max(wall, self._dry_since + AGAIN_S))

    def trade(self, account: Account, wall: float) -> tuple[Rights | None, Account]:
        """What is to be said to others now, None where they know all; and what is left then. Both are to be committed together.

        It counts here from now on, and elsewhere once it is committed.
        """
        left = before_all = self.left(account)
        self._want(account, left, wall)
        given, answers = dict(self.mine.given), {}
        for other in self._board.wants(self.name):
            if other.partition == self._partition or other.period != self.mine.period:
                continue
            before, got = given.get(other.partition, NOTHING), other.got.get(self._partition, NOTHING)
            if got == before and (gift := self._gift(account, left, other)) > 0:
                given[other.partition] = before + gift
                left -= gift
            if left <= 0 and not account.reserved and not self._goes_before(other):
                answers[other.partition] = other.wants
        known = max(account.given, sum(self.mine.given.values(), NOTHING))
        self.mine = replace(self.mine, given=given, answers=answers)
        return self._said(), account if left == before_all else replace(account, given=known + before_all - left)

    def _goes_before(self, other: Rights) -> bool:
        """Whether a request waits here, and for longer than those of the other partition."""
        first = next(iter(self._waiting.values()), None)
        return first is not None and other.since is not None and (first.since, self._partition) < (other.since, other.partition)

    def _gift(self, account: Account, left: Decimal, other: Rights) -> Decimal:
        """What is given to who wants: half of it; where that would leave nothing to speak of all, unless a call may follow those here."""
        reserve = self.budget.of.reserve_usd
        spare = left - reserve if self._goes_before(other) else left
        if spare >= 2 * reserve:
            return (spare * _HALF).quantize(UNIT, ROUND_FLOOR) or spare
        return spare if spare > 0 and (left < reserve or not account.reserved) else NOTHING

    def _want(self, account: Account, left: Decimal, wall: float) -> None:
        """Want rights, go on wanting them, or want none any more."""
        while self._waiting and not 0 <= wall - next(iter(self._waiting.values())).asked < WANT_S:
            del self._waiting[next(iter(self._waiting))]
        first = next(iter(self._waiting.values()), None)
        is_short = first is not None and left < self.budget.of.reserve_usd and not self._is_dry(wall)
        wants, since = self.mine.wants, self.mine.since
        if first is None or not is_short:
            since = None
        elif since is None:
            wants, since, self._wanted_at = wants + 1, first.since, wall
        elif (is_spent := self._is_spent(account)) or not 0 <= wall - self._wanted_at < ANSWER_MAX_S:
            self._dry_since, since = math.inf if is_spent else wall, None
            self._given_up = [waiting.key for waiting in self._waiting.values()]
            self._waiting.clear()
        else:
            since = first.since
        self.mine = replace(self.mine, wants=wants, since=since)

    def _is_dry(self, wall: float) -> bool:
        return self._dry_since is not None and (math.isinf(self._dry_since) or 0 <= wall - self._dry_since < AGAIN_S)

    def _is_spent(self, account: Account) -> bool:
        """Whether nobody has anything left, nor anything that might come back, and nothing is on its way to anybody.

        All read what is committed in one order, and who has said that nothing is left can get something only by what is said later.
        """
        if account.reserved:
            return False
        told = {**self._board.all(self.name), self._partition: self.mine}
        for number in range(self._partitions):
            of = told.get(number)
            if of is None or of.period != self.mine.period:
                return False
            if number != self._partition and of.answers.get(self._partition) != self.mine.wants:
                return False
        return all(told[n].got.get(giver, NOTHING) == amount for giver in told for n, amount in told[giver].given.items() if n in told)

    def _read(self) -> None:
        """Take in what others have given: what is committed counts."""
        version = self._board.version(self.name)
        if version == self._version:
            return
        self._version = version
        got = dict(self.mine.got)
        for other in self._board.all(self.name).values():
            if other.partition != self._partition and other.period == self.mine.period and self._partition in other.given:
                got[other.partition] = max(got.get(other.partition, NOTHING), other.given[self._partition])
        self.mine = replace(self.mine, got=got)

    def _said(self) -> Rights | None:
        """What is to be written, where it is of use to anybody."""
        mine, known = self.mine, self.written
        is_new = known is None or known.period != mine.period
        before = Rights(self.name, self._partition, self.budget.name, mine.period, wants=mine.wants) if known is None or is_new else known
        answers = any(before.answers.get(n) != number for n, number in mine.answers.items())
        wants = (mine.wants, mine.since) != (before.wants, before.since) or (known is not None and known.since is not None and is_new)
        matters = mine.since is not None or any(one.partition != self._partition for one in self._board.wants(self.name))
        changed = mine.given != before.given or wants or answers
        if not changed and not (matters and mine.got != before.got):
            return None
        self.written = mine
        return mine
