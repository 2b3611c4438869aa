"""What owners of partitions say to each other of money that their partitions share: one record of the control topic for each of them.

A pool is what a credential, or an agent, may spend in a day, wherever its requests stand. Each partition has rights to a part of it, and
its owner spends within those. Rights change hands by what their giver writes here, in a transaction that also sends its partition's
position: whoever lost the partition cannot write it any more, and nobody uses what he has not read here.

    key       `rights:<topic id>/<partition>/<name of the pool's accounts>`
    value     JSON: the budget and the period (a number of days); to each other partition what was `given`, from each what was `got` (both
              since the period began: they only grow, so that what is read twice counts once); how often rights were wanted (`wants`),
              and since when they are (`since`, null: they are not); and `answers`: whose want (by its number) found nothing left here,
              nor anything that might come back

The last record of a key counts, and everybody reads them in one order. Money is in US dollars, as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import ROUND_FLOOR, Decimal

import orjson

from dispatcher.core.bounds import is_count, is_time
from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.usage import read_usd, usd_text

_VERSION = 1
_KEY = re.compile(r"rights:([A-Za-z0-9_-]{1,64})/(0|[1-9][0-9]{0,9})/([0-9a-f]{24})")
_PARTITION = re.compile(r"0|[1-9][0-9]{0,9}")
# Parts of a pool are whole multiples of this.
UNIT = Decimal("0.000001")
NOTHING = Decimal(0)
# More than any budget has (`settings.Usd`).
_USD_MAX = Decimal(1_000_000)
_Amounts = Mapping[int, Decimal]


@dataclass(frozen=True, slots=True)
class Rights:
    """Those of one partition in the pool `name`, as its owner tells of them; amounts by the other partition's number."""

    name: str
    partition: int
    budget: str
    period: int
    given: _Amounts = field(default_factory=dict)
    got: _Amounts = field(default_factory=dict)
    wants: int = 0
    since: float | None = None
    answers: Mapping[int, int] = field(default_factory=dict)

    def message(self, topic: str, topic_id_text: str) -> Message:
        """The record to write to the control `topic`."""
        facts = {
            "v": _VERSION,
            "budget": self.budget,
            "period": self.period,
            "given": {str(n): usd_text(amount) for n, amount in self.given.items()},
            "got": {str(n): usd_text(amount) for n, amount in self.got.items()},
            "wants": self.wants,
            "since": self.since,
            "answers": {str(n): number for n, number in self.answers.items()},
        }
        key = _key(topic_id_text, self.partition, self.name)
        return Message(topic, 0, key, orjson.dumps(facts), (("content-type", b"application/json"),))


def share(usd: Decimal, partition: int, partitions: int) -> Decimal:
    """What a partition may spend of a pool of so much before anything changes hands: all have the same, and the first has the rest."""
    part = (usd / partitions).quantize(UNIT, ROUND_FLOOR)
    return part + (usd - part * partitions if partition == 0 else NOTHING)


def closed(topic: str, topic_id_text: str, partition: int, name: str) -> Message:
    """The tombstone of rights whose period is over."""
    return Message(topic, 0, _key(topic_id_text, partition, name), None, ())


def read_rights(record: Record, topic_id_text: str) -> Rights | None:
    """The rights in a record of the control topic; None for a tombstone, and for what is foreign or corrupt."""
    place = place_of(record, topic_id_text)
    if place is None or record.value is None:
        return None
    try:
        facts = orjson.loads(record.value)
        budget, period, wants, since = facts["budget"], facts["period"], facts["wants"], facts["since"]
        if facts["v"] != _VERSION or not isinstance(budget, str) or type(period) is not int:
            return None
        given, got, answers = _amounts(facts["given"]), _amounts(facts["got"]), dict(facts["answers"])
        if not all(_PARTITION.fullmatch(n) and is_count(number) for n, number in answers.items()):
            return None
        if not is_count(wants) or not (since is None or is_time(since)):
            return None
    except (ValueError, KeyError, TypeError):
        return None
    if given is None or got is None:
        return None
    return Rights(place[1], place[0], budget, period, given, got, wants, since, {int(n): number for n, number in answers.items()})


def place_of(record: Record, topic_id_text: str) -> tuple[int, str] | None:
    """Whose rights a record of the control topic tells of: partition and name of the pool; None where it is none of this topic id."""
    if record.key is None or not record.key.startswith(b"rights:"):
        return None
    match = _KEY.fullmatch(record.key.decode("latin-1"))
    return None if match is None or match[1] != topic_id_text else (int(match[2]), match[3])


class Board:
    """What is committed of all pools, by the partitions whose owners have said it. Owned by the engine, read by its partitions' ledgers.

    `version` of a pool: another one whenever something of it has changed.
    """

    __slots__ = ("_rights", "_topic_id_text", "_version", "_versions", "_wanting")

    def __init__(self, topic_id_text: str) -> None:
        self._topic_id_text = topic_id_text
        self._rights: dict[str, dict[int, Rights]] = {}
        self._version = 0
        self._versions: dict[str, int] = {}
        self._wanting: dict[str, set[int]] = {}

    def apply(self, record: Record) -> str | None:
        """Take in a record of the control topic; the pool of which it tells, None where it tells of none."""
        place = place_of(record, self._topic_id_text)
        if place is None:
            return None
        partition, name = place
        told = read_rights(record, self._topic_id_text)
        self._version += 1
        self._versions[name] = self._version
        if told is not None:
            self._put(told)
        elif record.value is None:
            of = self._rights.get(name, {})
            of.pop(partition, None)
            self._open(name, partition, is_open=False)
            if not of:
                self._rights.pop(name, None)
                del self._versions[name]
        return name

    def of(self, name: str, partition: int) -> Rights | None:
        """What a partition's owner has said last of this pool."""
        return self._rights.get(name, {}).get(partition)

    def all(self, name: str) -> Mapping[int, Rights]:
        """What all have said of this pool, by partition."""
        return self._rights.get(name, {})

    def version(self, name: str) -> int:
        """See above."""
        return self._versions.get(name, 0)

    @property
    def wanted(self) -> Iterable[str]:
        """Pools of which somebody wants rights."""
        return self._wanting.keys()

    def wants(self, name: str) -> list[Rights]:
        """Who wants rights of this pool, the first to say so before others."""
        of = self._rights.get(name, {})
        found = [of[n] for n in self._wanting.get(name, ())]
        return sorted(found, key=turn)

    def told_by(self, partition: int) -> list[Rights]:
        """All that a partition's owners have said."""
        return [of[partition] for of in self._rights.values() if partition in of]

    def _put(self, told: Rights) -> None:
        of = self._rights.setdefault(told.name, {})
        before = of.get(told.partition)
        if before is not None and before.period == told.period:
            # It only grows: what is read once more takes nothing back.
            given = {n: max(before.given.get(n, NOTHING), told.given.get(n, NOTHING)) for n in before.given.keys() | told.given.keys()}
            told = replace(told, given=given)
        of[told.partition] = told
        self._open(told.name, told.partition, is_open=told.since is not None)

    def _open(self, name: str, partition: int, *, is_open: bool) -> None:
        if is_open:
            self._wanting.setdefault(name, set()).add(partition)
        elif name in self._wanting:
            self._wanting[name].discard(partition)
            if not self._wanting[name]:
                del self._wanting[name]


def turn(of: Rights) -> tuple[float, int]:
    """In which order those who want are given to: it is the same for everybody."""
    assert of.since is not None
    return of.since, of.partition


def _key(topic_id_text: str, partition: int, name: str) -> bytes:
    return f"rights:{topic_id_text}/{partition}/{name}".encode()


def _amounts(given: Mapping[str, str]) -> _Amounts | None:
    found: dict[int, Decimal] = {}
    for n, text in given.items():
        amount = read_usd(text)
        if not _PARTITION.fullmatch(n) or amount is None or not 0 <= amount <= _USD_MAX:
            return None
        found[int(n)] = amount
    return found
