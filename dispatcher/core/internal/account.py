"""What a lane key has spent of its budget in one period, as one record of the state topic: it outlives the worker that spent it.

A credential, and an agent, has such an account in each partition that its requests stand in: what it has spent there.

    key       `budget/<topic id>/<partition>/<hash of the lane key, the alias or the agent's name>`; where there are classes, and with
              them several topics, `classes` in place of an id
    value     JSON: the period (a number of days), what is settled, what is reserved for calls that have not ended; of what partitions
              share, what was given to others (`rights` says to whom); and the later period that it was of, if a clock stepped back

The last record of a key counts, so that there is one for each key, and a tombstone ends it once its period is over.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from hashlib import blake2b
from typing import Any, Final, Literal

import orjson

from dispatcher.core.messages.record import Message, Record
from dispatcher.core.messages.usage import read_usd, usd_text

Scope = Literal["key", "credential", "agent"]
# Whose money it is.
KEY: Final = "key"
CREDENTIAL: Final = "credential"
AGENT: Final = "agent"
_VERSION = 1
_DIGEST_BYTES = 12
_KEY = re.compile(r"budget/([A-Za-z0-9_-]{1,64})/(0|[1-9][0-9]{0,9})/([0-9a-f]{24})")


@dataclass(frozen=True, slots=True)
class Account:
    """That of this `name`: what `period` has cost, and what is set aside for calls in flight. US dollars.

    `was`: the later day that it was of before a clock said an earlier one, 0 for none: whichever of the two was wrong.
    """

    name: str
    period: int
    settled: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    given: Decimal = Decimal(0)
    was: int = 0

    @property
    def last(self) -> int:
        """The latest day that it was of."""
        return max(self.period, self.was)

    @property
    def spent(self) -> Decimal:
        """All that is not to be spent again: a call that may have been made counts with what was set aside for it."""
        return self.settled + self.reserved

    def message(self, topic: str, topic_id_text: str, partition: int) -> Message:
        """The record to write to the state `topic`, into the partition that the key belongs to."""
        facts: dict[str, Any] = {
            "v": _VERSION,
            "period": self.period,
            "settled": usd_text(self.settled),
            "reserved": usd_text(self.reserved),
        }
        if self.given:
            facts["given"] = usd_text(self.given)
        if self.was > self.period:
            facts["was"] = self.was
        return Message(topic, partition, _key(topic_id_text, partition, self.name), orjson.dumps(facts), ())


def account_name(of: bytes, scope: Scope = KEY) -> str:
    """The name of the account of a lane key, an alias or an agent: a hash, as no key may be longer than a record's key takes."""
    return blake2b(of, digest_size=_DIGEST_BYTES, person=b"" if scope == KEY else scope.encode()).hexdigest()


def together(accounts: Sequence[Account]) -> Account:
    """What accounts of one name, one at least, of several partitions come to: of the latest day that one of them is of."""
    period = max(one.period for one in accounts)
    latest, nothing = [one for one in accounts if one.period == period], Decimal(0)
    settled, reserved = (sum((getattr(one, of) for one in latest), nothing) for of in ("settled", "reserved"))
    return replace(latest[0], settled=settled, reserved=reserved)


def closed(topic: str, topic_id_text: str, partition: int, name: str) -> Message:
    """The tombstone of an account whose period is over."""
    return Message(topic, partition, _key(topic_id_text, partition, name), None, ())


def _name_in(record: Record, topic_id_text: str) -> str | None:
    """Whose account a record of the state topic is; None where it is none of this topic id."""
    match = _KEY.fullmatch(record.key.decode("latin-1")) if record.key is not None else None
    if match is None or (match[1], int(match[2])) != (topic_id_text, record.partition):
        return None
    return match[3]


def read_account(record: Record, topic_id_text: str) -> Account | None:
    """The account in a record; None for a tombstone, and for what is foreign or corrupt."""
    name = _name_in(record, topic_id_text)
    if name is None or record.value is None:
        return None
    try:
        facts = orjson.loads(record.value)
        if facts["v"] != _VERSION or type(facts["period"]) is not int or type(was := facts.get("was", 0)) is not int:
            return None
        settled, reserved, given = read_usd(facts["settled"]), read_usd(facts["reserved"]), read_usd(facts.get("given", "0"))
    except (ValueError, KeyError, TypeError):
        return None
    if settled is None or reserved is None or given is None or min(settled, reserved, given) < 0:
        return None
    return Account(name, facts["period"], settled, reserved, given, was)


def fold(accounts: dict[str, Account], record: Record, topic_id_text: str) -> bool:
    """Take in one record of the state topic more: the last one of a name counts. Returns whether it is of an account of this topic id.

    A corrupt one, which is not ours, takes nothing back of what is known to be spent.
    """
    name = _name_in(record, topic_id_text)
    if name is None:
        return False
    account = read_account(record, topic_id_text)
    if account is not None:
        accounts[name] = account
    elif record.value is None:
        accounts.pop(name, None)
    return True


def _key(topic_id_text: str, partition: int, name: str) -> bytes:
    return f"budget/{topic_id_text}/{partition}/{name}".encode()
