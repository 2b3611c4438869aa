"""Whether replies and dead letters of a chaos run say what the calls of their requests came to. Pure. Times: seconds since 1970."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import orjson

from dispatcher.core.messages.record import Record
from dispatcher.core.messages.status import Status
from tests.chaos.scene import Call, Finding
from tests.e2e.stage import header

Place = tuple[int, int]  # partition and offset of a request
Failed = tuple[str, int, int, int]  # worker, partition, offset and attempt of a call

# The callee's clock is set beside that of records once, at the end: meanwhile one may have run away from the other.
CLOCKS_S = 2.0
LETTER = "__dispatcher.errors."


def place_of(reply: Record) -> Place:
    """Give the place of the request that a reply is of."""
    return int(header(reply, "dispatcher-request-partition")), int(header(reply, "dispatcher-request-offset"))


def place_of_letter(letter: Record) -> Place:
    """Give the place of the request that a dead letter is of."""
    return int(header(letter, f"{LETTER}partition")), int(header(letter, f"{LETTER}offset"))


class Books:
    """Compares what a group said with what its callee saw.

    `failed`: which calls their workers say have failed and cost an attempt; not all of them have reached the callee. `attempts_max`: that
    many make one dead.
    """

    def __init__(self, requests: Mapping[Place, Record], calls: Collection[Call], failed: Collection[Failed], attempts_max: int) -> None:
        self._requests = requests
        self._failed = failed
        self._attempts_max = attempts_max
        self._calls: dict[Place, list[Call]] = defaultdict(list)
        for call in calls:
            self._calls[call.partition, call.offset].append(call)
        self._unsent = Counter(one[1:3] for one in set(failed) - set(map(_named, calls)))

    def findings(self, replies: Collection[Record], letters: Iterable[Record]) -> Iterator[Finding]:
        """Give what is wrong with calls, replies and letters, one after another."""
        for where, calls in self._calls.items():
            asked = self._name(where)
            for call in calls:
                if call.request_id != asked:
                    yield Finding("replies", call.start, asked, f"{where} was called as request {call.request_id}")
        for reply in replies:
            where = place_of(reply)
            for text in self._wrong(reply, where):
                yield Finding("replies", made_at(reply), self._name(where), f"the reply to {where} {text}")
        dead = {place_of(reply) for reply in replies if header(reply, "dispatcher-status") == Status.DEAD}
        for letter in letters:
            where = place_of_letter(letter)
            request = self._requests.get(where)
            if request is None or (letter.key, letter.value) != (request.key, request.value):
                yield Finding("replies", made_at(letter), self._name(where), f"the letter of {where} does not hold its request")
            if where not in dead:
                yield Finding("replies", made_at(letter), self._name(where), f"{where} has a letter, and no reply that says so")

    def _name(self, where: Place) -> str:
        return header(self._requests[where], "ce_id") if where in self._requests else ""

    def _wrong(self, reply: Record, where: Place) -> Iterator[str]:
        request = self._requests.get(where)
        if request is None:
            yield "answers what is not in the topic"
            return
        if (header(reply, "ce_causationid"), reply.key) != (self._name(where), request.key):
            yield f"bears the id {header(reply, 'ce_causationid')} and the key {reply.key!r}"
        body = orjson.loads(reply.value or b"{}")
        status = header(reply, "dispatcher-status")
        if body.get("status") != status:
            yield f"is {status} in its headers and {body.get('status')} in its value"
        if body.get("duplicate") or body.get("attempts", 0) < 1:
            yield "was not called for, though nobody sent it twice"
        if status == Status.DEAD:
            yield from self._wrongly_dead(where)
        elif status in {Status.OK, Status.ERROR}:
            yield from self._wrongly_answered(reply, where, status, body.get("http") or {}, request)
        else:
            yield f"is {status}, which nothing in a run asks for"

    def _wrongly_dead(self, where: Place) -> Iterator[str]:
        """Given up after as many failures as the policy has; what was answered in vain, since its worker stood still, is one."""
        spending = [call for call in self._calls[where] if not (call.is_hinted or call.is_spared)]
        seen = sum(not call.is_final or _named(call) in self._failed for call in spending)
        if (failed := seen + self._unsent[where]) < self._attempts_max:
            yield f"is dead after {failed} calls that failed, of {self._attempts_max}"

    def _wrongly_answered(self, reply: Record, where: Place, status: str, http: Mapping[str, Any], request: Record) -> Iterator[str]:
        said = http.get("status")
        if (status == Status.OK) != (isinstance(said, int) and 200 <= said < 300):
            yield f"is {status} with HTTP status {said}"
        answered = [call for call in self._calls[where] if call.is_final and call.status == said]
        if not any(call.end is not None and call.end <= made_at(reply) + CLOCKS_S for call in answered):
            yield f"is {status} with HTTP status {said}, and no call of it was answered so by then"
        # Our callee gives back what it is sent.
        sent = orjson.loads(request.value or b"{}").get("body")
        if status == Status.OK and http.get("body") != sent:
            yield f"holds {http.get('body')}, and the request {sent}"


def _named(call: Call) -> Failed:
    return call.worker, call.partition, call.offset, call.attempt


def made_at(record: Record) -> float:
    """Give the time that a record bears."""
    return (record.timestamp_ms or 0) / 1000
