"""Reading what stands in the topics: replies, requests, dead letters, by position and by what they say.

A `Search` owns one groupless reader, belongs to one thread and is a context manager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader
from dispatcher.client.incarnation import short_topic_id
from dispatcher.core.messages.glance import dead_id, error_header, reply_names, request_id, same_request
from dispatcher.core.messages.record import Record
from dispatcher.core.operations.positions import END, Span
from dispatcher.core.operations.sought import position
from dispatcher.settings import Settings

FROM_NOW = Span(END)


@dataclass(frozen=True, slots=True)
class Query:
    """Which records of a topic: from where to where, in which partitions, of which key, request or dead-letter reason."""

    span: Span = FROM_NOW
    partitions: tuple[int, ...] | None = None
    until_end: bool = False  # stop at the end that is there at the start, else follow (or stop where the span does)
    key: str | None = None
    request_id: str | None = None
    reason: str | None = None


class Search:
    """Iterates over the records of a topic that a query asks for, as they are found. `searched` tells what was looked at so far."""

    def __init__(self, reader: LogReader, query: Query, is_named: Callable[[Record, str], bool]) -> None:
        self._reader = reader
        self._query = query
        self._is_named = is_named
        self._key = None if query.key is None else query.key.encode("utf-8", "surrogateescape")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._reader.close()

    def __iter__(self) -> Iterator[Record]:
        """Read the topic; each iteration begins anew. Errors as `LogReader` has them."""
        query = self._query
        return filter(self._wanted, self._reader.read(query.span, partitions=query.partitions, until_end=query.until_end))

    def stop(self) -> None:
        """End the iteration soon, from any thread."""
        self._reader.stop()

    @property
    def searched(self) -> dict[int, tuple[int, int]]:
        """What was looked at, by partition: the first offset, and the one behind the last."""
        return {number: (stretch.start, max(stretch.start, stretch.position)) for number, stretch in self._reader.stretches.items()}

    def _wanted(self, record: Record) -> bool:
        query = self._query
        if self._key is not None and record.key != self._key:
            return False
        if query.reason is not None and error_header(record, "reason") != query.reason:
            return False
        return query.request_id is None or self._is_named(record, query.request_id)


def replies(settings: Settings, query: Query, *, topic: str | None = None, timeout_s: float | None = None) -> Search:
    """Read terminal replies, of the usual topic unless another is named; `query.request_id` is the id or position of the request.

    A position without its topic's id is one in the request topic that is there now.
    """
    within_s, name = timeout_s or TIMEOUT_S, query.request_id
    if name is not None and "@" not in name and (place := position(name, settings.request_topics)) is not None:
        query = replace(query, request_id=f"{name}@{short_topic_id(settings, place[0], within_s)}")
    return Search(
        LogReader(settings, topic or settings.topics.replies, within_s), query, lambda record, wanted: wanted in reply_names(record)
    )


def requests(settings: Settings, query: Query, *, timeout_s: float | None = None) -> Search:
    """Read requests, of one class where there are some, whatever became of them; `query.request_id` as in `replies`."""
    within_s, name, topic = timeout_s or TIMEOUT_S, query.request_id, settings.topics.requests
    if name is not None and "@" in name and position(name, (topic,)) is not None:
        place, _, topic_id = name.rpartition("@")
        # Requests do not say their topic's id: they stand in the topic that is there now.
        query = replace(query, request_id=place) if topic_id == short_topic_id(settings, topic, within_s) else query
    reader = LogReader(settings, topic, within_s)
    return Search(reader, query, lambda record, wanted: request_id(record) in {wanted, name})


def dead_letters(settings: Settings, query: Query, *, timeout_s: float | None = None) -> Search:
    """Read dead letters; `query.request_id` is the id of the request, `query.reason` why it is there."""
    reader = LogReader(settings, settings.topics.dead_letters, timeout_s or TIMEOUT_S)
    return Search(reader, query, lambda record, wanted: same_request(wanted, dead_id(record)))
