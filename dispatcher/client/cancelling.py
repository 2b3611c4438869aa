"""Cancelling: a request is looked up, the command is written, and the request's end is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from dispatcher.client import control, search
from dispatcher.client.connection import Connection
from dispatcher.client.feed import Feed
from dispatcher.client.reply import Reply
from dispatcher.client.search import Query
from dispatcher.client.sender import Outgoing
from dispatcher.client.shared import Turns
from dispatcher.client.waiting import Waiting
from dispatcher.core.internal.control import CANCEL, Command, message, request_target
from dispatcher.core.messages.envelope import position_id, read_envelope
from dispatcher.core.messages.glance import header
from dispatcher.core.messages.record import Record
from dispatcher.core.messages.submission import Submission
from dispatcher.core.operations.positions import END, START, Anchor, Position, Span
from dispatcher.core.operations.sought import SKEW_MS, Sought
from dispatcher.errors import CallFailed, DispatcherError, SubmitUnknown, WaitTimeout
from dispatcher.settings import Settings


class Cancelling:
    """One cancel, and how far it has come: what can be said when its time is over. `turns`: lookups at once, of all who cancel."""

    def __init__(self, connection: Connection, settings: Settings, wanted: Sought, reason: str, turns: Turns) -> None:
        self._connection = connection
        self._settings = settings
        self._wanted = wanted
        self._reason = reason
        self._turns = turns
        self._outgoing: Outgoing | None = None
        self._is_written = False

    async def ended(self) -> Reply:
        """Write the command, unless the request has ended; its reply, whatever that says.

        Errors: CallFailed where there is no such request, ReplyGone where it has ended and its reply is not there any more, BrokerError.
        """
        async with self._turns.turn():
            found = await self._request()
        if found is None:
            hint = "retention may have removed it, or it is of another cluster"
            raise CallFailed(f"there is no request {self._wanted.name[:200]!a}", hint)
        request, topic_id = found
        if not await self._connection.lookback.is_settled(request.topic, request.partition, request.offset):
            await self._write(request, topic_id)
        return await Waiting(self._connection, await self._answered(request, topic_id)).found()

    def late(self, timeout_s: float) -> DispatcherError:
        """Say what is known of a cancel whose time is over."""
        name = self._wanted.name
        if self._is_written:
            hint = f"whoever has its lane does so once it has read up to it; `dispatcher show {name}` says where it stands"
            return WaitTimeout(f"the cancel of request {name} stands written, and it has not ended within {timeout_s:g} s", hint)
        if self._outgoing is not None and not self._outgoing.withdraw():
            return _unknown(name)
        return self._connection.trouble() or WaitTimeout(f"nothing was written within {timeout_s:g} s", "give it more time")

    async def _request(self) -> tuple[Record, str] | None:
        """Find the request's record: at its place, if that is the one that is meant, or by its id, and its topic's id.

        The first of several counts.
        """
        wanted = self._wanted
        if wanted.request is None:
            for view in self._settings.meant:
                topic_id = await self._connection.topic_id(view.topics.requests)
                for span in _spans(wanted.since_ms):
                    if (found := await _first(view, Query(span, until_end=True, request_id=wanted.name))) is not None:
                        return found, topic_id
            return None
        topic, partition, offset = wanted.request
        if (of := self._settings.view_of(topic)) is None:
            return None
        topic_id = await self._connection.topic_id(topic)
        span = Span(Position(Anchor.OFFSET, offset), Position(Anchor.OFFSET, offset + 1))
        there = await _first(of, Query(span, (await self._connection.existing(topic, partition),), until_end=True))
        # A receipt's id may be one that its request was given; a topic of this name may have been made anew since.
        names = set() if there is None else {header(there, "ce_id"), position_id(there, topic_id)}
        return None if there is None or not (wanted.is_place or wanted.name in names) else (there, topic_id)

    async def _write(self, request: Record, topic_id: str) -> None:
        """Write the command; a second one of its kind is as good as the first. WaitTimeout where it may stand there."""
        target = request_target(position_id(request, topic_id))
        submission = _submission(control.command(target, CANCEL, self._reason, key=request.key), self._settings.topics.control)
        self._outgoing, acknowledged = self._connection.send(submission)
        try:
            await acknowledged
        except SubmitUnknown:
            raise _unknown(self._wanted.name) from None
        finally:
            self._outgoing.withdraw()
        self._is_written = True

    async def _answered(self, request: Record, topic_id: str) -> Sought:
        """Where its reply will be: as the request asks for, if that can be."""
        topics = self._connection.topics
        places = {topics.replies: await self._connection.count(topics.replies)}
        listed = {*topics.reply_topics, self._connection.reply_topic}
        for name in {header(request, "kafka_replyTopic"), header(request, "reply_to")} & listed:
            if name is not None:
                places[name] = await self._connection.count(name)
        envelope, _ = read_envelope(request, topic_id, topics.replies, places)
        since_ms = None if request.timestamp_ms is None else request.timestamp_ms - SKEW_MS
        place = request.topic, request.partition, request.offset
        return replace(
            self._wanted,
            name=envelope.position_id,
            request=place,
            since_ms=since_ms,
            reply_topic=envelope.reply_topic,
            reply_partition=envelope.reply_partition,
            is_place=False,
        )


async def _first(view: Settings, query: Query) -> Record | None:
    async with Feed(partial(search.requests, view, query), lambda record: record) as feed:
        return await anext(feed, None)


def _submission(command: Command, topic: str) -> Submission:
    """A command as a client writes it: after the requests that it has handed over before."""
    written = message(command, topic)
    return Submission(written.key, written.value, written.headers, command.target, topic)


def _spans(since_ms: int | None) -> Iterator[Span]:
    """Where to look: from a time on, then what is before it, since clocks may differ."""
    since = START if since_ms is None else Position(Anchor.TIME, max(0, since_ms))
    yield Span(since, END)
    if since_ms is not None:
        yield Span(START, since)


def _unknown(name: str) -> WaitTimeout:
    return WaitTimeout(f"the cancel of request {name} may stand written: no acknowledgement came", "ask again, it does no harm twice")
