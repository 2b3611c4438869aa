"""Finding out where a request stands: the request, what the group has committed, its reply, whether it is parked, its dead letter.

In this order: what is written later is looked for later, so that what ends meanwhile is seen as ended. A parked request ends with its
reply and the tombstone of its entry in one transaction: where no entry is found, the reply is looked for once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from dispatcher.adapters.kafka.admin import Cluster, TopicFacts, connect, facts_of
from dispatcher.adapters.kafka.group import headways, owned
from dispatcher.adapters.kafka.log import TIMEOUT_S, LogReader, no_topic
from dispatcher.client import control, parked, search
from dispatcher.client.search import Query, Search
from dispatcher.core.internal.parked import Entry
from dispatcher.core.messages.envelope import position_id, read_envelope
from dispatcher.core.messages.glance import error_header, header
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.reply import ReplyBody
from dispatcher.core.messages.status import Status
from dispatcher.core.messages.submission import Receipt
from dispatcher.core.operations.positions import END, START, Anchor, Position, Span
from dispatcher.core.operations.sought import SKEW_MS, Sought, sought
from dispatcher.core.operations.standing import Facts, Place, Standing, standing
from dispatcher.core.progress.headway import Headway
from dispatcher.settings import Settings

# Up to so many offsets the records before a request are counted; beyond that their number is the difference of the offsets.
COUNTED_MAX = 10_000

Extents = dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Found:
    """Where a request stands, and the records that say so. `searched`: by topic and partition, from which offset up to which.

    `by_key`: lanes are keys, as the settings say, and the request's place is counted in the lane of its key.
    """

    standing: Standing
    request: Record | None
    reply: Record | None
    dead_letter: Record | None
    searched: dict[str, Extents]
    by_key: bool = False


@dataclass(frozen=True, slots=True)
class _Queue:
    """What is before a request in its lane, as `Facts` has it. `is_near`: to the group's position; `held`: why the lane stands."""

    before: int = 0
    is_exact: bool = True
    is_near: bool = True
    held: str = ""


def stands(settings: Settings, request: Receipt | str, *, timeout_s: float | None = None) -> Found:
    """Find out where a request stands, by its receipt, its id or its position. Nothing is written, no group is joined.

    An id that tells its time is looked for from then on first. Of several records of one id the first one counts. Errors as `LogReader`
    has them.
    """
    wanted = sought(request, settings.request_topics)
    views = settings.meant
    if wanted.request is not None and (of := settings.view_of(wanted.request[0])) is not None:
        views = (of,)
    return _Lookup(views[0], wanted, timeout_s or TIMEOUT_S, views).found()


@dataclass(slots=True)
class _Lookup:
    """One question, while it is being answered. `settings`: as the class of the request has them, out of `views`, once it is found."""

    settings: Settings
    wanted: Sought
    timeout_s: float
    views: tuple[Settings, ...]
    searched: dict[str, Extents] = field(default_factory=dict)

    def found(self) -> Found:
        cluster = connect(self.settings, self.timeout_s)
        known = self._known(cluster)
        request = self._request(known)
        headway, is_owned = self._reached(cluster, request, known)
        settled = request is not None and headway.is_settled(request.offset)
        reply = self._reply(request, known, is_settled=settled)
        entries: dict[int, Entry] = {}
        if request is not None and reply is None and (settled or self.by_key):
            topic_id = known[self.settings.topics.requests].topic_id_text
            entries = parked.index(self.settings, cluster, (request.partition,), topic_id).get(request.partition, {})
        entry = entries.get(request.offset) if request is not None and settled else None
        if settled and reply is None and entry is None:
            reply = self._reply(request, known, is_settled=True)
        status = None if reply is None else header(reply, "dispatcher-status")
        letter = None
        if status == Status.DEAD.value or (reply is None and entry is None and (request is None or settled)):
            letter = self._letter(request)
        queue = _Queue()
        if request is not None and reply is None and letter is None and (entry is not None or not settled):
            queue = replace(self._queue(request, headway, entries), held=self._held(cluster, request))
        facts = Facts(
            _place(request),
            headway,
            is_owned,
            queue.before,
            queue.is_exact,
            _place(reply),
            status,
            _reason(reply, letter),
            _place(letter),
            entry,
            queue.is_near,
            queue.held,
        )
        return Found(standing(facts), request, reply, letter, self.searched, self.by_key)

    @property
    def by_key(self) -> bool:
        """Whether each key has a lane of its own."""
        return self.settings.worker.ordering == "key"

    def _known(self, cluster: Cluster) -> dict[str, TopicFacts]:
        """Describe the topics; those that must be there are."""
        topics, requests = self.settings.topics, [view.topics.requests for view in self.views]
        known = facts_of(cluster, [*requests, topics.replies, *topics.reply_topics, topics.dead_letters])
        for name in (*requests, topics.replies, topics.dead_letters):
            if name not in known:
                raise no_topic(name)
        return known

    def _request(self, known: dict[str, TopicFacts]) -> Record | None:
        """Find the request, and be about its class from then on."""
        wanted = self.wanted
        if wanted.request is None:
            for view in self.views:
                found = self._first(view.topics.requests, wanted.since_ms, None, wanted.name, whole=True)
                if found is not None:
                    self.settings = view
                    return found
            return None
        (topic, partition, offset), facts = wanted.request, known[self.settings.topics.requests]
        if topic != facts.name or partition >= facts.partitions:
            return None
        span = Span(Position(Anchor.OFFSET, offset), Position(Anchor.OFFSET, offset + 1))
        there = next(self._read(topic, Query(span, (partition,), until_end=True)), None)
        # A receipt's id may be one that its request was given; a topic of this name may have been made anew since.
        names = set() if there is None else {header(there, "ce_id"), position_id(there, facts.topic_id_text)}
        return there if wanted.is_place or wanted.name in names else None

    def _reached(self, cluster: Cluster, request: Record | None, known: dict[str, TopicFacts]) -> tuple[Headway, bool]:
        """Tell how far the group has come in the request's partition, and whether a worker has it."""
        if request is None:
            return Headway(), False
        number, topic_id = request.partition, known[request.topic].topic_id
        return headways(cluster, self.settings, [number], topic_id)[number], number in owned(cluster, self.settings)

    def _queue(self, request: Record, headway: Headway, entries: Mapping[int, Entry]) -> _Queue:
        """Count what is unsettled before a request: in its partition, or of its key where that is a lane of its own."""
        aside = [entry for entry in entries.values() if entry.offset < request.offset and headway.is_settled(entry.offset)]
        moved = sum(1 for entry in aside if entry.key == request.key or not self.by_key)
        number = request.partition
        with LogReader(self.settings, request.topic, self.timeout_s) as reader:
            first = reader.extents(Span(START), (number,))[number].first
        start = max(first, headway.position or 0)
        if request.offset - start > COUNTED_MAX:
            return _Queue(request.offset - start + moved, is_exact=False)
        waiting = of_lane = 0
        with LogReader(self.settings, request.topic, self.timeout_s) as reader:
            for record in reader.read_ranges({number: (start, request.offset)}) if start < request.offset else ():
                if not headway.is_settled(record.offset):
                    waiting += 1
                    of_lane += record.key == request.key or not self.by_key
        return _Queue(of_lane + moved, is_near=waiting < self.settings.worker.lane_buffer_max_records)

    def _held(self, cluster: Cluster, request: Record) -> str:
        """Say whether the request's lane, or its partition, is to start nothing: `paused`, `halted`, or empty."""
        if self.settings.topics.control not in facts_of(cluster, [self.settings.topics.control]):
            return ""
        return control.desired(self.settings, self.timeout_s).why_held(request.key if self.by_key else None, request.partition)

    def _reply(self, request: Record | None, known: dict[str, TopicFacts], *, is_settled: bool) -> Record | None:
        """Find the reply: where the request wants it, or, without the request, anywhere."""
        topics = self.settings.topics
        places = {name: known[name].partitions for name in (topics.replies, *topics.reply_topics) if name in known}
        if request is None:
            found = (self._first(name, self.wanted.since_ms, None, self.wanted.name, whole=True) for name in places)
            return next((reply for reply in found if reply is not None), None)
        topic_id = known[topics.requests].topic_id_text
        envelope, _ = read_envelope(request, topic_id, topics.replies, places)
        since_ms = None if request.timestamp_ms is None else request.timestamp_ms - SKEW_MS
        where, name = (envelope.reply_partition,), position_id(request, topic_id)
        return self._first(envelope.reply_topic, since_ms, where, name, whole=is_settled)

    def _letter(self, request: Record | None) -> Record | None:
        """Find the dead letter."""
        if request is None:
            return self._first(self.settings.topics.dead_letters, self.wanted.since_ms, None, self.wanted.name, whole=True)
        since_ms = None if request.timestamp_ms is None else request.timestamp_ms - SKEW_MS
        offset = str(request.offset)
        for span in _spans(since_ms, whole=True):
            for letter in self._read(self.settings.topics.dead_letters, Query(span, (request.partition,), until_end=True)):
                if error_header(letter, "offset") == offset and error_header(letter, "topic") == request.topic:
                    return letter
        return None

    def _first(self, topic: str, since_ms: int | None, partitions: tuple[int, ...] | None, name: str, *, whole: bool) -> Record | None:
        """Find the first record of a name from a time on, and then, for the `whole` topic, before it: clocks may differ."""
        for span in _spans(since_ms, whole=whole):
            found = next(self._read(topic, Query(span, partitions, until_end=True, request_id=name)), None)
            if found is not None:
                return found
        return None

    def _read(self, topic: str, query: Query) -> Iterator[Record]:
        """Read what a query asks for, and remember what was looked at."""
        with self._search(topic, query) as opened:
            try:
                yield from opened
            finally:
                extents = self.searched.setdefault(topic, {})
                for number, (start, stop) in opened.searched.items():
                    low, high = extents.get(number, (start, stop))
                    extents[number] = min(low, start), max(high, stop)

    def _search(self, topic: str, query: Query) -> Search:
        view = self.settings.view_of(topic)
        if view is not None:
            return search.requests(view, query, timeout_s=self.timeout_s)
        if topic == self.settings.topics.dead_letters:
            return search.dead_letters(self.settings, query, timeout_s=self.timeout_s)
        return search.replies(self.settings, query, topic=topic, timeout_s=self.timeout_s)


def _spans(since_ms: int | None, *, whole: bool) -> list[Span]:
    """Where to look: from a time on, then what is before it."""
    if since_ms is None:
        return [Span(START, END)]
    since = Position(Anchor.TIME, max(0, since_ms))
    return [Span(since, END), Span(START, since)] if whole else [Span(since, END)]


def _place(record: Record | None) -> Place | None:
    return None if record is None else (record.topic, record.partition, record.offset)


def _reason(reply: Record | None, letter: Record | None) -> str | None:
    """Why it was given up or cut, as the reply or else the dead letter says."""
    if reply is None:
        return None if letter is None else error_header(letter, "reason")
    try:
        return ReplyBody.model_validate_json(reply.value or b"").reason
    except ValidationError:
        return None
