"""The client for programs: `Dispatcher` (asyncio). `SyncDispatcher` in `sync.py` has the same names without `await`."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dispatcher.adapters import config as configuration
from dispatcher.client import search
from dispatcher.client.asking import Asking, unknown
from dispatcher.client.call import AfterFailure, Call, Repeat, Request, reply_to
from dispatcher.client.cancelling import Cancelling
from dispatcher.client.classes import as_class
from dispatcher.client.connection import Connection
from dispatcher.client.feed import Feed
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.client.serving import refuse_own_lane
from dispatcher.client.shared import Turns
from dispatcher.client.submitter import OPEN_MAX, stamp
from dispatcher.client.waiting import Waiting
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.submission import Receipt, Submission
from dispatcher.core.operations.positions import parse_span
from dispatcher.core.operations.sought import sought
from dispatcher.errors import ConfigError, DispatcherError, WaitTimeout
from dispatcher.settings import Settings

T = TypeVar("T")

# Asks and waits that are open at once; more wait for their turn, within their own time.
ASKS_MAX = 1000
# A request without an acknowledgement for so long has an unknown end: an election of a leader takes seconds.
ACK_TIMEOUT_S = 30.0
# Lookups at once of requests that are to be cancelled: each has a connection to every broker.
LOOKUPS_MAX = 8
# A cancel is heard within moments where a worker has the lane and has read up to the request.
CANCEL_TIMEOUT_S = 30.0
# How long after that librdkafka may take to say so.
ACK_GRACE_S = 5.0
# A lane may be busy with one call for a minute, and an ask is mostly made by somebody who waits for it.
ASK_TIMEOUT_S = 120.0


class Dispatcher:
    """Sends requests and waits for their replies. Belongs to the event loop that entered it; an async context manager.

    Settings are those given, else they are loaded as the command line loads them: environment > `config` (TOML) > default;
    `bootstrap_servers` goes before all. `reply_topic` (one of the workers' `topics.reply_topics`) and `reply_partition` send the replies
    of `ask` and `submit` where only this tenant may read. `asks_max`: asks and waits that are open at once, the others wait for their
    turn. `ack_timeout_s`: how long Kafka may take to acknowledge a request. `class_`: where there are classes that of a request
    that does not say it, and of an id that is looked for; a receipt or a position says it itself.

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
        class_: str | None = None,
    ) -> None:
        if asks_max < 1 or not ack_timeout_s > 0:
            raise ConfigError("asks_max is at least 1, and ack_timeout_s more than 0")
        self._settings = as_class(settings_of(settings, config, bootstrap_servers), class_)
        self._reply_topic = reply_topic
        self._reply_to = reply_to(reply_topic, reply_partition)
        self._turns = Turns(asks_max)
        self._asks_max = asks_max
        self._lookups = Turns(LOOKUPS_MAX)
        self._connection = Connection(self._settings, reply_topic, reply_partition, ack_timeout_s)
        self._ack_timeout_s = ack_timeout_s
        self._feeds: weakref.WeakSet[Feed[Any]] = weakref.WeakSet()

    async def __aenter__(self) -> Self:
        """Be ready. That Kafka cannot be reached is told by what needs it first."""
        self._connection.open()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything; what is still open ends with an error. May be repeated. A copy in a forked process has nothing to close."""
        if self._connection.was_forked:
            return
        self._connection.refuse_elsewhere()
        async with AsyncExitStack() as parts:  # the last one first, and each whatever becomes of the others
            for feed in list(self._feeds):
                parts.push_async_callback(feed.aclose)
            parts.push_async_callback(self._connection.close)
            parts.callback(self._turns.close)
            parts.callback(self._lookups.close)

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
        after_failure: AfterFailure | None = None,
        repeat: Repeat | None = None,
        priority: int | None = None,
        agent: str | None = None,
        class_: str | None = None,
    ) -> Receipt:
        """Put a request into the lane of `key` and return its receipt once Kafka has it; arguments as in `Request`.

        Submits that are begun one after another stand in that order. `SubmitUnknown`: no acknowledgement came; submitting the same again
        under the id that it carries is safe: within the workers' dedup window (an hour) it is executed once, and both are answered.
        """
        options = (request_id, deadline, credential, timeout_s, attempts_max, metadata, after_failure, repeat, priority, agent, class_)
        request = Request(call, key, *options)
        submission = self._written(request)
        _ = self._connection.listener
        partitions = await self._connection.count(submission.topic or self._settings.topics.requests)
        if self._connection.reply_partition is not None:
            await self._connection.reply_place(partition_for(submission.key or b"", partitions))
        outgoing, acknowledged = self._connection.send(submission)
        within_s = self._ack_timeout_s + ACK_GRACE_S
        try:
            # librdkafka itself gives up after ack_timeout_s; this is for one that does not.
            async with asyncio.timeout(within_s):
                return self._connection.receipt(await acknowledged)
        except TimeoutError:
            if outgoing.withdraw():
                raise self._connection.unsent(within_s) from None
            raise unknown(submission.request_id or "") from None
        finally:
            outgoing.withdraw()

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
        after_failure: AfterFailure | None = None,
        repeat: Repeat | None = None,
        priority: int | None = None,
        agent: str | None = None,
        class_: str | None = None,
    ) -> Reply:
        """Submit a request and return its reply, whatever its status, within `timeout` seconds.

        When they have passed: `AskTimeout` (carries the receipt; the request is executed all the same), `SubmitUnknown` (as `submit`), or
        `BrokerError` (Kafka is away) and `WaitTimeout`, where nothing was sent. `AskTimeout` and `SubmitUnknown` also where, once sent,
        its reply cannot be heard: a right is missing, the client is closed. A task that is cancelled leaves nothing but the request.
        """
        options = (request_id, deadline, credential, timeout_s, attempts_max, metadata, after_failure, repeat, priority, agent, class_)
        request = Request(call, key, *options)
        work = self._ask(request, timeout)
        del call, metadata, options, request  # a thousand open asks keep a thousand ids, not a thousand bodies
        return await work

    async def wait(self, receipt: Receipt | str, *, timeout: float | None = None) -> Reply:  # noqa: ASYNC109 - as in `ask`
        """Return the reply to a request that somebody submitted: by its receipt, its id, or its position `topic/partition/offset[@id]`.

        A receipt is the best: it names one partition and a time. An id is looked for in all partitions, byte for byte, a UUIDv7 from ten
        minutes before it was made. `ReplyGone` where the request is settled and its reply is not there any more; after `timeout` seconds
        `WaitTimeout`, or `BrokerError` where Kafka was known to be out of reach all the time; without a timeout that is told after 15 s.
        """
        wanted = sought(receipt, self._settings.request_topics)
        if wanted.request is not None:
            key = receipt.key if isinstance(receipt, Receipt) else None
            refuse_own_lane(*wanted.request, key=key, siblings=self._connection.request_topics)
        _ = self._connection.listener
        waiting, has_turn = Waiting(self._connection, wanted), False
        try:
            async with asyncio.timeout(timeout), self._turns.turn():
                has_turn = True
                return await waiting.found(is_patient=timeout is not None)
        except TimeoutError:
            trouble = self._connection.trouble() if has_turn and not waiting.listens else None
            late = WaitTimeout(f"no reply to request {wanted.name} within {timeout:g} s", "wait again, or look where it stands")
            raise trouble or late from None

    async def cancel(
        self,
        receipt: Receipt | str,
        *,
        reason: str = "",
        timeout: float = CANCEL_TIMEOUT_S,  # noqa: ASYNC109 - as in `ask`
    ) -> Reply:
        """Have a request ended, by its receipt, its id or its position, and return its reply: `cancelled`, or else it had ended so before.

        What is queued, waits or is parked ends without a further call. A call that runs is cut off, and its reply says so (`error.kind` is
        `cancelled_in_call`): the callee may have done it. Asked twice it is cancelled once. `CallFailed` where there is no such request,
        `ReplyGone` as in `wait`. After `timeout` seconds `WaitTimeout`: where the command was written by then it stands until a worker
        reads up to the request. To cancel takes the right to write to `<prefix>.control`.
        """
        wanted = sought(receipt, self._settings.request_topics)
        _ = self._connection.listener
        cancelling = Cancelling(self._connection, self._settings, wanted, reason, self._lookups)
        try:
            async with asyncio.timeout(timeout), self._turns.turn():
                return await cancelling.ended()
        except TimeoutError:
            raise cancelling.late(timeout) from None

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

    def _written(self, request: Request) -> Submission:
        return request.submission(stamp(request_id=request.request_id, settings=self._settings), self._reply_to)

    async def _ask(self, request: Request, timeout: float) -> Reply:  # noqa: ASYNC109 - as in `ask`
        submission = self._written(request)
        del request
        _ = self._connection.listener
        asking, has_turn = Asking(self._connection, submission.request_id or ""), False
        try:
            async with asyncio.timeout(timeout), self._turns.turn():
                has_turn = True
                work = asking.answered(submission)
                del submission
                return await work
        except TimeoutError:
            if not has_turn:
                raise WaitTimeout(
                    f"nothing was sent within {timeout:g} s: {self._asks_max} others of this client were open", "raise asks_max"
                ) from None
            if asking.early is not None:
                return asking.early
            raise asking.late(timeout) from None

    def _feed(self, feed: Feed[T]) -> Feed[T]:
        _ = self._connection.listener
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
