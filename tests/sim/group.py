"""The group coordinator in its two forms: KIP-848, where the broker moves partitions one by one, and classic generations.

A commit is checked for a live member and its epoch, never for ownership: that is Kafka's behaviour, and what the worker has to live with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from confluent_kafka import KafkaError

from dispatcher.core.progress.strand import number_of, strand_of
from tests.sim.faults import Refused, abortable, plain
from tests.sim.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Told:
    """What a member hears: its epoch and the partitions that it shall have, or to join again."""

    epoch: int
    partitions: frozenset[int] | None = None
    rejoin: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """What a group shares among its members: the partitions of so many topics. Those of one number go to one member (range)."""

    partitions: int
    topics: int = 1

    def strands(self, numbers: Iterable[int]) -> frozenset[int]:
        """All partitions that have these numbers."""
        return frozenset(strand_of(source, n) for n in numbers for source in range(self.topics))


@dataclass(slots=True)
class Member:
    """As the coordinator knows it."""

    name: str
    worker: str
    heard: float
    epoch: int = 0
    given: frozenset[int] = frozenset()
    target: frozenset[int] = frozenset()
    since: dict[int, int] = field(default_factory=dict)  # KIP-848: partition it was given -> its epoch then
    owned: frozenset[int] = frozenset()
    joined: bool = False
    answer: Callable[[Told | None], None] | None = None  # to a join that waits; None: you are no member


class Group(Protocol):
    """What a client and the transaction coordinator need."""

    def join(self, name: str, worker: str, epoch: int, owned: frozenset[int], answer: Callable[[Told | None], None]) -> None: ...
    def beat(self, name: str, epoch: int, owned: frozenset[int] | None) -> Told: ...
    def leave(self, name: str) -> None: ...
    def expire(self, worker: str) -> None: ...
    def check(self, name: str, epoch: int, partitions: frozenset[int], *, transactional: bool) -> dict[int, KafkaError]: ...


@dataclass(slots=True)
class Membership:
    """Who is in, since when they were heard of, and who should have what. `lost(worker)` hears of members that are thrown out."""

    schedule: Schedule
    chance: Random
    shared: Shared
    session_s: float
    lost: Callable[[str], None]
    changed: Callable[[], None]
    members: dict[str, Member] = field(default_factory=dict)

    def known(self, name: str) -> Member:
        """Give the member, which has just been heard. Raises Refused."""
        member = self.members.get(name)
        if member is None:
            raise Refused(plain(KafkaError.UNKNOWN_MEMBER_ID))
        member.heard = self.schedule.now
        return member

    def add(self, name: str, worker: str) -> Member:
        """Take in a member, unless it is in."""
        if name not in self.members:
            self.members[name] = Member(name, worker, self.schedule.now)
            self.schedule.after(self.session_s, self._watch, name)
        return self.known(name)

    def remove(self, name: str, *, asked: bool) -> None:
        """Let it go."""
        member = self.members.pop(name, None)
        if member is not None:
            if not asked:
                self.lost(member.worker)
            if member.answer is not None:
                member.answer(None)
            self.changed()

    def spread(self) -> None:
        """Decide who shall have what: everybody about as much, sometimes as little moved as possible, sometimes anew."""
        names = list(self.members)
        if not names:
            return
        order = list(range(self.shared.partitions))
        shares: dict[str, set[int]] = {name: set() for name in names}
        most = -(-self.shared.partitions // len(names))
        if self.chance.random() < 0.7:
            for name in names:
                kept = sorted({number_of(n) for n in self.members[name].given} & set(order))[:most]
                shares[name].update(kept)
                order = [n for n in order if n not in kept]
        else:
            self.chance.shuffle(names)
        for n in order:
            least = min(names, key=lambda name: len(shares[name]))
            shares[least].add(n)
        for name, share in shares.items():
            self.members[name].target = self.shared.strands(share)

    def _watch(self, name: str) -> None:
        member = self.members.get(name)
        if member is None:
            return
        # A classic member that waits for the others to join is waited for, whether it is heard or not.
        left_s = self.session_s if member.answer is not None else member.heard + self.session_s - self.schedule.now
        if left_s > 0:
            self.schedule.after(left_s, self._watch, name)
        else:
            self.remove(name, asked=False)


def is_nobody(membership: Membership, name: str, epoch: int, *, transactional: bool) -> bool:
    """Say whether a commit is taken unchecked: from outside while there are no members, and transactional ones that name no member.

    Older producers could not name one.
    """
    return epoch < 0 and (not membership.members or (transactional and not name))


class ConsumerGroup:
    """KIP-848: `group.protocol=consumer`."""

    def __init__(self, schedule: Schedule, chance: Random, shared: Shared, session_s: float, lost: Callable[[str], None]) -> None:
        self.membership = Membership(schedule, chance, shared, session_s, lost, self._changed)
        self._epoch = 1

    def join(self, name: str, worker: str, epoch: int, owned: frozenset[int], answer: Callable[[Told | None], None]) -> None:
        """Come in; the answer is that of a first heartbeat."""
        del epoch
        fresh = name not in self.membership.members
        self.membership.add(name, worker)
        if fresh:
            self._changed()
        answer(self.beat(name, 0, owned))

    def beat(self, name: str, epoch: int, owned: frozenset[int] | None) -> Told:
        """Hear a member; tell it what it shall have. What others still hold is not given; what it holds too much must be given back first.

        `owned` None: the same as before, since a callback of the client runs.
        """
        del epoch
        member = self.membership.known(name)
        keep, surplus = member.given & member.target, member.given - member.target
        if surplus and owned is not None and self.membership.shared.topics > 1:
            member.given -= surplus - owned
            surplus &= owned
        if surplus and (owned is None or owned & surplus):
            return Told(member.epoch, keep | self._later(surplus))
        others = [other.given for other in self.membership.members.values() if other is not member]
        free = member.target - frozenset().union(*others)
        if self.membership.shared.topics > 1 and self.membership.chance.random() < 0.3:
            # Nobody promises that what belongs together comes together.
            free = frozenset(n for n in sorted(free) if n in keep or self.membership.chance.random() < 0.5)
        member.given = keep | free
        member.epoch = self._epoch
        member.since = {n: member.since.get(n, member.epoch) for n in member.given}
        return Told(member.epoch, member.given)

    def _later(self, surplus: frozenset[int]) -> frozenset[int]:
        """What of it may be given back later: nobody promises that what belongs together goes together."""
        chance = self.membership.chance
        if self.membership.shared.topics == 1 or chance.random() < 0.5:
            return frozenset()
        return frozenset(n for n in sorted(surplus) if chance.random() < 0.5)

    def leave(self, name: str) -> None:
        """Go."""
        self.membership.remove(name, asked=True)

    def expire(self, worker: str) -> None:
        """Throw out the worker's member as if it had not been heard of."""
        for name in [member.name for member in self.membership.members.values() if member.worker == worker]:
            self.membership.remove(name, asked=False)

    def check(self, name: str, epoch: int, partitions: frozenset[int], *, transactional: bool) -> dict[int, KafkaError]:
        """May this member commit? Gives the partitions for which its epoch is too old. Raises Refused.

        With its present epoch it may for any partition; with an older one for those that it has had since then (Kafka 4.4).
        """
        if is_nobody(self.membership, name, epoch, transactional=transactional):
            return {}
        member = self.membership.members.get(name)
        if member is None:
            raise Refused(abortable(KafkaError.UNKNOWN_MEMBER_ID) if transactional else plain(KafkaError.UNKNOWN_MEMBER_ID))
        # The transactional request knows no such error as a stale epoch: Kafka maps it.
        code = KafkaError.ILLEGAL_GENERATION if transactional else KafkaError.STALE_MEMBER_EPOCH
        if epoch > member.epoch:
            raise Refused(abortable(code) if transactional else plain(code))
        if epoch == member.epoch:
            return {}
        return {n: plain(code) for n in partitions if member.since.get(n, epoch + 1) > epoch}

    def _changed(self) -> None:
        self._epoch += 1
        self.membership.spread()


# How long members of a new generation wait for their assignments: at most.
ASSIGN_S = 0.05


class ClassicGroup:
    """Generations: everybody joins anew whenever something changes. `cooperative` members keep what they have meanwhile."""

    def __init__(
        self, schedule: Schedule, chance: Random, shared: Shared, session_s: float, lost: Callable[[str], None], *, cooperative: bool
    ) -> None:
        self.membership = Membership(schedule, chance, shared, session_s, lost, self._changed)
        self._schedule = schedule
        self._chance = chance
        self._cooperative = cooperative
        self._generation = 0
        self._preparing = False
        self._is_completing = False

    def join(self, name: str, worker: str, epoch: int, owned: frozenset[int], answer: Callable[[Told | None], None]) -> None:
        """Ask for the next generation; answered when everybody has."""
        member = self.membership.known(name) if epoch else self.membership.add(name, worker)
        member.joined, member.owned, member.answer = True, owned, answer
        if not self._preparing:
            self._preparing = True
            for other in self.membership.members.values():
                other.joined = other is member
        self._complete()

    def beat(self, name: str, epoch: int, owned: frozenset[int] | None) -> Told:
        """Hear a member; tell it to join again where that is due."""
        del owned
        member = self.membership.known(name)
        if epoch and epoch != member.epoch:
            raise Refused(plain(KafkaError.ILLEGAL_GENERATION))
        return Told(epoch, rejoin=self._preparing and not member.joined)

    def leave(self, name: str) -> None:
        """Go."""
        self.membership.remove(name, asked=True)

    def expire(self, worker: str) -> None:
        """Throw out the worker's member as if it had not been heard of."""
        for name in [member.name for member in self.membership.members.values() if member.worker == worker]:
            self.membership.remove(name, asked=False)

    def check(self, name: str, epoch: int, partitions: frozenset[int], *, transactional: bool) -> dict[int, KafkaError]:
        """May this member commit? If so for any partition. Raises Refused."""
        del partitions
        if is_nobody(self.membership, name, epoch, transactional=transactional):
            return {}
        flagged = abortable if transactional else plain
        if name not in self.membership.members:
            raise Refused(flagged(KafkaError.UNKNOWN_MEMBER_ID))
        if epoch != self._generation:
            raise Refused(flagged(KafkaError.ILLEGAL_GENERATION))
        if not transactional and self._is_completing and not self._preparing:
            raise Refused(plain(KafkaError.REBALANCE_IN_PROGRESS))
        return {}

    def _changed(self) -> None:
        """Somebody went."""
        if not self._preparing:
            self._preparing = True
            for member in self.membership.members.values():
                member.joined = False
        self._complete()

    def _complete(self) -> None:
        members = self.membership.members
        if not members or not all(member.joined for member in members.values()):
            return
        self._preparing = False
        self._generation += 1
        self.membership.spread()
        # All know their generation, and wait for the assignment that one of them makes.
        self._is_completing = True
        assign_s = self._chance.uniform(0, ASSIGN_S)
        for member in list(members.values()):
            share = member.target
            if self._cooperative:
                share -= frozenset().union(*(other.owned for other in members.values() if other is not member))
            member.given, member.epoch, member.heard = share, self._generation, self._schedule.now
            answer, member.answer = member.answer, None
            if answer is not None:
                answer(Told(self._generation))
                self._schedule.after(assign_s, self._assign, member, self._generation, answer)

    def _assign(self, member: Member, generation: int, answer: Callable[[Told | None], None]) -> None:
        """Tell a member its share, unless the next generation is on its way."""
        if member.name not in self.membership.members:
            answer(None)
        elif self._preparing or generation != self._generation:
            answer(Told(generation, rejoin=True))
        else:
            self._is_completing = False
            answer(Told(generation, member.given))
