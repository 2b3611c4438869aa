"""The client for programs: `Dispatcher` (asyncio). `SyncDispatcher` in `sync.py` has the same names without `await`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatcher.adapters import config as configuration
from dispatcher.adapters.kafka.inquiry import Inquiry
from dispatcher.client import search
from dispatcher.client.backlog import Backlog
from dispatcher.client.call import Call, Request, reply_to
from dispatcher.client.feed import Feed
from dispatcher.client.listener import Listener
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.client.sender import UNKNOWN_HINT, Outcome, Parcel, Sender
from dispatcher.client.serving import refuse_own_lane
from dispatcher.client.shared import Shared, Turns
from dispatcher.client.submitter import OPEN_MAX, stamp
from dispatcher.core.partitioner import partition_for
from dispatcher.core.positions import parse_span
from dispatcher.core.record import Record
from dispatcher.core.sought import Sought, sought
from dispatcher.core.submission import Receipt, Submission
from dispatcher.errors import AskTimeout, ConfigError, DispatcherError, ReplyGone, SubmitUnknown, WaitTimeout
from dispatcher.settings import Settings

T = TypeVar("T")

# Asks and waits that are open at once; more wait for their turn, within their own time.
ASKS_MAX = 1000
# A request without an acknowledgement for so long has an unknown end: an election of a leader takes seconds.
ACK_TIMEOUT_S = 30.0
# How long after that librdkafka may take to say so.
ACK_GRACE_S = 5.0
# A lane may be busy with one call for a minute, and an ask is mostly made by somebody who waits for it.
ASK_TIMEOUT_S = 120.0
# A transaction's parts become visible one after another. A reply that is still not there so long after the position that was
# committed with it will not come.
SETTLE_S = 10.0


@dataclass(slots=True)
class _Progress:
    """How far an ask or a wait has come: what can be said when its time is over."""

    request_id: str
    has_turn: bool = False
    listens: bool = False
    parcel: Parcel | None = None
    receipt: Receipt | None = None


class Dispatcher:
    """Sends requests and waits for their replies. Belongs to the event loop that entered it; an async context manager.

    Settings are those given, else they are loaded as the command line loads them: environment > `config` (TOML) > default;
    `bootstrap_servers` goes before all. `reply_topic` (one of the workers' `topics.reply_topics`) and `reply_partition` send the replies
    of `ask` and `submit` where only this tenant may read. `asks_max`: asks and waits that are open at once, the others wait for their
    turn. `ack_timeout_s`: how long Kafka may take to acknowledge a request.

    Errors: `ConfigError` for what cannot be sent and topics that do not exist, `BrokerError` where Kafka is out of reach or refuses (then
    nothing was sent), `SubmitUnknown`, `AskTimeout`, `OwnLane`, `ReplyGone`.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        config: Path | str | None = None,
        bootstrap_servers: str | None = None,
        reply_topic: str | None = None,
        reply_partition: int | None = None,
        asks_max: int = ASKS_MAX,
        ack_timeout_s: float = ACK_TIMEOUT_S,
    ) -> None:
        self._settings = settings_of(settings, config, bootstrap_servers)
        self._reply_topic, self._reply_partition = reply_topic, reply_partition
        self._reply_to = reply_to(reply_topic, reply_partition)
        self._turns = Turns(asks_max)
        self._asks_max = asks_max
        self._inquiry = Inquiry(self._settings)
        self._sender = Sender(self._settings, ack_timeout_s)
        self._ack_timeout_s = ack_timeout_s
        self._listener: Listener | None = None
        self._counts: dict[str, Shared[int]] = {}  # partitions by topic
        self._feeds: weakref.WeakSet[Feed[Any]] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        """Be ready. That Kafka cannot be reached is told by what needs it first."""
        self._listener = Listener(self._settings, self._inquiry)
        self._sender.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything; what is still open ends with an error. May be repeated."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        for feed in list(self._feeds):
            await feed.aclose()
        self._turns.close()
        for count in list(self._counts.values()):
            count.cancel()
        await listener.close()
        await asyncio.to_thread(self._sender.close)
        self._inquiry.close()

    async def submit(
        self,
        call: Call,
        *,
        key: str,
        request_id: str | None = None,
        deadline: timedelta | datetime | None = None,
        credential: str | None = None,
        timeout_s: float | None = None,
        attempts_max: int | None = None,
        metadata: Any = None,  # noqa: ANN401 - any JSON
    ) -> Receipt:
        """Put a request into the lane of `key` and return its receipt once Kafka has it; arguments as in `Request`.

        Submits that are begun one after another stand in that order. `SubmitUnknown`: no acknowledgement came; submitted again under the
        id that it carries, the request may be executed twice, both times under the same `Idempotency-Key`.
        """
        submission = self._written(Request(call, key, request_id, deadline, credential, timeout_s, attempts_max, metadata))
        self._open()
        await self._count(self._settings.topics.requests)
        parcel, acknowledged = self._send(submission)
        try:
            # librdkafka itself gives up after ack_timeout_s; this is for one that does not.
            async with asyncio.timeout(self._ack_timeout_s + ACK_GRACE_S):
                outcome = await acknowledged
        except TimeoutError:
            raise self._unknown(submission.request_id or "") from None
        finally:
            parcel.withdraw()
        return self._receipt(outcome)

    async def submit_many(self, requests: Iterable[Request] | AsyncIterable[Request]) -> AsyncIterator[Receipt | DispatcherError]:
        """Submit requests in their order and yield, in that order, a receipt or the error for each; at most `OPEN_MAX` are open."""
        waiting: deque[asyncio.Task[Receipt]] = deque()
        try:
            async for request in _each(requests):
                waiting.append(asyncio.create_task(self.submit(request.call, **request.options)))
                while waiting and (len(waiting) >= OPEN_MAX or waiting[0].done()):
                    yield await _outcome(waiting.popleft())
            while waiting:
                yield await _outcome(waiting.popleft())
        finally:
            for task in waiting:
                task.cancel()

    async def ask(
        self,
        call: Call,
        *,
        key: str,
        timeout: float = ASK_TIMEOUT_S,  # noqa: ASYNC109 - SURFACE; it also decides what is known when it has passed
        request_id: str | None = None,
        deadline: timedelta | datetime | None = None,
        credential: str | None = None,
        timeout_s: float | None = None,
        attempts_max: int | None = None,
        metadata: Any = None,  # noqa: ANN401 - any JSON
    ) -> Reply:
        """Submit a request and return its reply, whatever its status, within `timeout` seconds.

        When they have passed: `AskTimeout` (carries the receipt; the request is executed all the same), `SubmitUnknown` (as `submit`), or
        `BrokerError` and `WaitTimeout`, where nothing was sent. A task that is cancelled leaves nothing behind but the request.
        """
        work = self._ask(Request(call, key, request_id, deadline, credential, timeout_s, attempts_max, metadata), timeout)
        del call, metadata  # a thousand open asks keep a thousand ids, not a thousand bodies
        return await work

    async def wait(self, receipt: Receipt | str, *, timeout: float | None = None) -> Reply:  # noqa: ASYNC109 - as in `ask`
        """Return the reply to a request that somebody submitted: by its receipt, its id, or its position `topic/partition/offset[@id]`.

        A receipt is the best: it names one partition and a time. An id is looked for in all partitions, a UUIDv7 from ten minutes before it
        was made. `ReplyGone` where the request is settled and its reply is not there any more; after `timeout` seconds `WaitTimeout`, or
        `BrokerError` where Kafka was out of reach all the time.
        """
        wanted = sought(receipt)
        if wanted.request is not None:
            refuse_own_lane(*wanted.request)
        progress = _Progress(wanted.name)
        try:
            async with asyncio.timeout(timeout), self._turns.turn():
                progress.has_turn = True
                return Reply.of(await self._found(wanted, progress))
        except TimeoutError:
            if progress.has_turn and not progress.listens:
                raise self._inquiry.unreachable() from None
            raise WaitTimeout(f"no reply to request {wanted.name} within {timeout:g} s", "wait again, or look where it stands") from None

    def replies(
        self,
        start: str = "end",
        *,
        end: str | None = None,
        follow: bool = True,
        key: str | None = None,
        request_id: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Feed[Reply]:
        """Read replies from a position (`start`, `end`, `@-1h`, an offset, …) on; without `follow` only up to the end that is there now.

        What is no reply is passed over, with a warning in the log `dispatcher.client`. Reading ends with BrokerError when Kafka has been
        away for some time; a position in a reply says where to go on. `aclose` (or the end of this client) ends it.
        """
        query = _query(start, end, partitions, key=key, request_id=request_id, follow=follow)
        return self._feed(Feed(partial(search.replies, self._settings, query, topic=self._reply_topic), Reply.of))

    def dead_letters(
        self,
        start: str = "start",
        *,
        end: str | None = None,
        follow: bool = False,
        key: str | None = None,
        request_id: str | None = None,
        reason: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> Feed[DeadLetter]:
        """Read dead letters, of one `reason` of the closed list where it is given; the rest as in `replies`."""
        query = _query(start, end, partitions, key=key, request_id=request_id, reason=reason, follow=follow)
        return self._feed(Feed(partial(search.dead_letters, self._settings, query), DeadLetter.of))

    # --- sending ------------------------------------------------------------------------------------------------------------------------

    def _written(self, request: Request) -> Submission:
        return request.submission(stamp(request_id=request.request_id), self._reply_to)

    def _send(self, submission: Submission) -> tuple[Parcel, asyncio.Future[Outcome]]:
        self._open()
        loop = asyncio.get_running_loop()
        acknowledged: asyncio.Future[Outcome] = loop.create_future()
        return self._sender.send(submission, partial(_tell, loop, acknowledged)), acknowledged

    def _receipt(self, outcome: Outcome) -> Receipt:
        if isinstance(outcome, DispatcherError):
            raise outcome
        return replace(outcome, reply_topic=self._reply_topic, reply_partition=self._reply_partition)

    def _unknown(self, request_id: str) -> SubmitUnknown:
        return SubmitUnknown(f"no acknowledgement for request {request_id} in time", UNKNOWN_HINT, request_id=request_id)

    # --- asking -------------------------------------------------------------------------------------------------------------------------

    async def _ask(self, request: Request, timeout: float) -> Reply:  # noqa: ASYNC109 - as in `ask`
        submission = self._written(request)
        del request
        progress = _Progress(submission.request_id or "")
        try:
            async with asyncio.timeout(timeout), self._turns.turn():
                progress.has_turn = True
                work = self._answered(submission, progress)
                del submission
                return await work
        except TimeoutError:
            raise self._late(progress, timeout) from None

    async def _answered(self, submission: Submission, progress: _Progress) -> Reply:
        """Listen, send, and wait for the acknowledgement and for the reply, whichever order they come in."""
        listener = self._open()
        topics = self._settings.topics
        partition = partition_for(submission.key or b"", await self._count(topics.requests))
        refuse_own_lane(topics.requests, partition)
        topic = self._reply_topic or topics.replies
        number = partition % await self._count(topic) if self._reply_partition is None else self._reply_partition
        watch = await listener.watch(progress.request_id, [(topic, number)])
        try:
            progress.parcel, acknowledged = self._send(submission)
            del submission
            first: set[asyncio.Future[Any]] = {acknowledged, watch.found}
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not watch.found.done():
                progress.receipt = self._receipt(acknowledged.result())
                progress.parcel = None
                if progress.receipt.partition != partition:
                    # The request topic has grown under us: the reply stands elsewhere, perhaps already.
                    self._counts.clear()
                    return Reply.of(await self._found(sought(progress.receipt), progress))
            return Reply.of(await watch.found)
        finally:
            listener.release(watch)
            if progress.parcel is not None:
                progress.parcel.withdraw()

    def _late(self, progress: _Progress, timeout_s: float) -> DispatcherError:
        """Say what is known of an ask whose time is over."""
        if progress.receipt is not None:
            text, hint = (
                f"no reply to request {progress.request_id} within {timeout_s:g} s",
                "it will be answered: wait for it with its receipt",
            )
            if self._reply_topic is not None:
                hint += f"; workers whose topics.reply_topics lacks {self._reply_topic} answer in {self._settings.topics.replies}"
            return AskTimeout(text, hint, receipt=progress.receipt)
        if progress.parcel is not None and not progress.parcel.withdraw():
            return self._unknown(progress.request_id)
        if not progress.has_turn:
            return WaitTimeout(
                f"nothing was sent within {timeout_s:g} s: {self._asks_max} others of this client were open", "raise asks_max"
            )
        return self._inquiry.unreachable()

    # --- waiting ------------------------------------------------------------------------------------------------------------------------

    async def _found(self, wanted: Sought, progress: _Progress) -> Record:
        """Listen from now on, and search what stands there already."""
        listener = self._open()
        topic, numbers = await self._where(wanted)
        watch = await listener.watch(wanted.name, [(topic, number) for number in numbers])
        progress.listens = True
        backlog = Backlog(self._settings, wanted, topic, numbers)
        searched = asyncio.create_task(backlog.search())
        first: set[asyncio.Future[Any]] = {watch.found, searched}
        try:
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
            if not watch.found.done():
                found = searched.result()
                if found is not None:
                    return found
                await asyncio.wait({watch.found}, timeout=SETTLE_S if backlog.settled else None)
            if not watch.found.done():
                raise ReplyGone(
                    f"request {wanted.name} was settled, and its reply is not in {topic} any more",
                    f"replies are kept for {self._settings.topics.reply_retention_days:g} days",
                )
            return watch.found.result()
        finally:
            listener.release(watch)
            searched.cancel()
            with contextlib.suppress(asyncio.CancelledError, DispatcherError):
                await searched

    async def _where(self, wanted: Sought) -> tuple[str, list[int]]:
        """Name the reply topic and the partitions in which a reply can be."""
        topic = wanted.reply_topic or (self._settings.topics.replies if wanted.request is not None else self._reply_topic)
        topic = topic or self._settings.topics.replies
        count = await self._count(topic)
        if wanted.reply_partition is not None:
            return topic, [wanted.reply_partition]
        if wanted.request is not None:
            return topic, [wanted.request[1] % count]
        return topic, list(range(count)) if self._reply_partition is None else [self._reply_partition]

    # --- all ----------------------------------------------------------------------------------------------------------------------------

    def _open(self) -> Listener:
        if self._listener is None:
            raise DispatcherError("this client is not open", "async with Dispatcher(...) as d: …")
        return self._listener

    async def _count(self, topic: str) -> int:
        """Count the partitions of a topic, asked for once."""
        asked = self._counts.get(topic)
        if asked is None:
            asked = self._counts[topic] = Shared(self._counted(topic))
        return await asked.result()

    async def _counted(self, topic: str) -> int:
        try:
            return (await self._inquiry.partitions([topic]))[topic]
        except BaseException:
            self._counts.pop(topic, None)
            raise

    def _feed(self, feed: Feed[T]) -> Feed[T]:
        self._open()
        self._feeds.add(feed)
        return feed


def _query(
    start: str,
    end: str | None,
    partitions: Sequence[int] | None,
    *,
    key: str | None,
    request_id: str | None,
    follow: bool,
    reason: str | None = None,
) -> search.Query:
    span = parse_span(start if end is None else f"{start}:{end}", datetime.now(UTC))
    numbers = None if partitions is None else tuple(partitions)
    return search.Query(span, numbers, until_end=not follow, key=key, request_id=request_id, reason=reason)


async def _each(requests: Iterable[Request] | AsyncIterable[Request]) -> AsyncIterator[Request]:
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            yield request
        return
    for request in requests:
        yield request
        await asyncio.sleep(0)  # others of this loop have their turn, and tasks that were made begin


async def _outcome(submitted: asyncio.Task[Receipt]) -> Receipt | DispatcherError:
    await asyncio.wait({submitted})
    try:
        return submitted.result()
    except DispatcherError as error:
        return error


def _tell(loop: asyncio.AbstractEventLoop, acknowledged: asyncio.Future[Outcome], outcome: Outcome) -> None:
    """Pass on how a request ended. Called in the sender's thread; the loop may be gone."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_fill, acknowledged, outcome)


def _fill(acknowledged: asyncio.Future[Outcome], outcome: Outcome) -> None:
    if not acknowledged.done():
        acknowledged.set_result(outcome)


def settings_of(settings: Settings | None, config: Path | str | None, bootstrap_servers: str | None) -> Settings:
    """Settle the settings of a client. Raises ConfigError."""
    if settings is None:
        flags = {} if bootstrap_servers is None else {"kafka.bootstrap_servers": bootstrap_servers}
        return configuration.load(file=None if config is None else Path(config), flags=flags, properties=(), environ=os.environ)
    if config is not None:
        raise ConfigError("give settings or config, not both")
    if bootstrap_servers is None:
        return settings
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"bootstrap_servers": bootstrap_servers})})
