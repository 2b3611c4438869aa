"""What a simulated consumer returns, and how it reads one partition."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError

from dispatcher.core.messages.record import Record
from dispatcher.core.progress.strand import number_of
from tests.sim.cluster import REQUESTS
from tests.sim.faults import plain


@dataclass(frozen=True, slots=True)
class Fetched:
    """A message: a record, or (`code`) an event of its partition."""

    at: int  # strand
    place: int  # offset
    record: Record | None
    code: int = 0
    version: int = 0
    of: str = REQUESTS

    def topic(self) -> str:
        return self.of

    def partition(self) -> int:
        return number_of(self.at)

    def offset(self) -> int:
        return self.place

    def error(self) -> KafkaError | None:
        return plain(self.code) if self.code else None

    def key(self) -> bytes | None:
        assert self.record is not None
        return self.record.key

    def value(self) -> bytes | None:
        assert self.record is not None
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        assert self.record is not None
        return list(self.record.headers or ())

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, 1795946400000


@dataclass(slots=True)
class Fetching:
    """How one assigned partition is read. A higher `version` makes everything that was fetched before void."""

    position: int  # of the application: what was returned so far
    version: int
    ahead: int = 0  # fetched and not returned
    next: int = 0  # what to fetch next
    asking: bool = False
    asked: int = 0  # number of the fetch under way: only its answer counts
    told_end: int = -1
    is_refused: bool = False  # the log does not hold what was to be read: given up until it is assigned anew
