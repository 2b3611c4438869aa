"""Owners of partitions that share a budget, what they have committed, and how they go on."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from decimal import Decimal

from dispatcher.core.internal.account import Account
from dispatcher.core.internal.budget import DAY_S, Budget
from dispatcher.core.internal.rights import Board, Rights
from dispatcher.core.lanes.pool import Answer, Pool
from dispatcher.core.messages.record import Record
from dispatcher.settings import BudgetSettings
from tests.specimens import TOPIC_ID, WALL

NAME = "0123456789abcdef01234567"
RESERVE, NOTHING = Decimal("0.3"), Decimal(0)
TODAY = int(WALL // DAY_S)


def budget(usd: str = "2") -> Budget:
    """So much a day, of which a call takes up to 30 cents."""
    return Budget("shared", BudgetSettings(keys=("*",), usd_per_day=Decimal(usd), reserve_usd=RESERVE))


class Log:
    """What is committed: rights as records of the control topic, and accounts, the last one of each partition."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.accounts: dict[int, Account] = {}

    def write(self, partition: int, account: Account, rights: Rights | None) -> None:
        """Commit a transaction."""
        self.accounts[partition] = account
        if rights is not None:
            message = rights.message("dispatcher.control", TOPIC_ID)
            self.records.append(Record(message.topic, 0, len(self.records), message.key, message.value, message.headers))


@dataclass(slots=True)
class Owner:
    """Whoever has a partition: what has to be committed of it stands in `pending`, in order, with the calls that begin then."""

    log: Log
    budget: Budget
    partition: int
    partitions: int
    board: Board = field(default_factory=lambda: Board(TOPIC_ID))
    read: int = 0
    pending: deque[tuple[Account, Rights | None, int]] = field(default_factory=deque)
    calling: int = 0
    since: dict[int, float] = field(default_factory=dict)
    account: Account = field(init=False)
    pool: Pool = field(init=False)

    def __post_init__(self) -> None:
        """Take the partition over: what stands in the topics is read to their ends, and what was set aside is spent."""
        self.hear(len(self.log.records))
        self.pool = Pool(NAME, self.budget, self.partition, self.partitions, self.board)
        known = self.log.accounts.get(self.partition, Account(NAME, self.pool.period))
        known = known if known.period >= self.pool.period else Account(NAME, self.pool.period)
        self.account = replace(known, settled=known.spent, reserved=NOTHING)

    def hear(self, count: int, *, again: int = 0) -> bool:
        """Read on, and before that what was read before once more; whether there was anything."""
        first, self.read = max(0, self.read - again), min(len(self.log.records), self.read + count)
        for record in self.log.records[first : self.read]:
            self.board.apply(record)
        return first < self.read

    def at(self, wall: float) -> Account:
        """What is spent on the day that it is here."""
        account = self.budget.current(self.account, NAME, wall)
        if account.period != self.account.period:
            self.account = account
        self.pool.begin(self.account.period)
        return self.account

    def ask(self, wall: float, offset: int = 5) -> Answer:
        """Set a call's reserve aside, if it may begin; it does once that is committed."""
        answer = self.pool.ask(self.at(wall), wall)
        if answer is Answer.LACKS:
            since = self.since.setdefault(offset, wall)
            self.pool.wait(("requests", offset), b"doc:%d" % offset, since, wall)
        else:
            self.leave(offset)
        if answer is Answer.PAYS:
            self.account = replace(self.account, reserved=self.account.reserved + RESERVE)
            self.pending.append((self.account, None, 1))
        return answer

    def leave(self, offset: int) -> None:
        """A request waits no more."""
        self.since.pop(offset, None)
        self.pool.leave(("requests", offset))

    def trade(self, wall: float) -> bool:
        """Say what others have to know; whether there was anything."""
        rights, self.account = self.pool.trade(self.at(wall), wall)
        if rights is not None:
            self.pending.append((self.account, rights, 0))
        return rights is not None

    def end(self, cost: Decimal) -> None:
        """A call has cost so much."""
        self.account = replace(self.account, settled=self.account.settled + cost, reserved=self.account.reserved - RESERVE)
        self.pending.append((self.account, None, 0))

    def commit(self) -> int:
        """Commit what is to be committed next; how many calls begin."""
        if not self.pending:
            return 0
        account, rights, calls = self.pending.popleft()
        self.log.write(self.partition, account, rights)
        self.calling += calls
        return calls


@dataclass(slots=True)
class Worlds:
    """All owners of a request topic's partitions."""

    usd: str = "2"
    partitions: int = 3
    log: Log = field(default_factory=Log)
    owners: list[Owner] = field(init=False)

    def __post_init__(self) -> None:
        """Nobody has spent anything."""
        self.owners = [self.owner(n) for n in range(self.partitions)]

    def owner(self, partition: int) -> Owner:
        """Give a new owner of a partition."""
        return Owner(self.log, budget(self.usd), partition, self.partitions)

    def settle(self, wall: float, *, but: int = -1) -> None:
        """Everybody but one reads all and says all, until nobody has anything to say."""
        others = [one for one in self.owners if one.partition != but]
        for _ in range(50 * self.partitions):
            known = len(self.log.records)
            for one in others:
                one.trade(wall)
                while one.pending:
                    one.commit()
            news = [one.hear(len(self.log.records)) for one in others]
            if not any(news) and known == len(self.log.records):
                return
        raise AssertionError("they never come to an end")

    def call(self, partition: int, cost: str, wall: float = WALL) -> bool | None:
        """Make a call that costs so much; None where it is not known yet whether it may be made."""
        owner = self.owners[partition]
        answer = owner.ask(wall)
        if answer is Answer.PAYS:
            owner.commit()
            owner.end(Decimal(cost))
            owner.commit()
        return {Answer.PAYS: True, Answer.SPENT: False}.get(answer)

    def calls(self, partition: int, cost: str, wall: float = WALL) -> int:
        """Make calls until nothing is left; how many."""
        made = 0
        for _ in range(200):
            may = self.call(partition, cost, wall)
            if may is None:
                self.settle(wall)
            elif not may:
                return made
            made += may is True
        raise AssertionError("it is never spent")

    @property
    def left(self) -> Decimal:
        """What nobody has spent."""
        return Decimal(self.usd) - sum((one.account.spent for one in self.owners), NOTHING)
