"""Asking: one request is sent, and its reply is waited for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from dispatcher.client.connection import Connection, patiently
from dispatcher.client.listener import Watch
from dispatcher.client.reply import Reply
from dispatcher.client.sender import UNKNOWN_HINT, Outgoing
from dispatcher.client.serving import refuse_own_lane
from dispatcher.client.waiting import Waiting, hearing, next_reply
from dispatcher.core.messages.partitioner import partition_for
from dispatcher.core.messages.submission import Receipt, Submission
from dispatcher.core.operations.sought import sought
from dispatcher.errors import AskTimeout, DispatcherError, ReplyGone, SubmitUnknown


class Asking:
    """One ask, and how far it has come: what can be said when its time is over."""

    def __init__(self, connection: Connection, request_id: str) -> None:
        self._connection = connection
        self._request_id = request_id
        self._outgoing: Outgoing | None = None
        self._receipt: Receipt | None = None
        self.early: Reply | None = None  # heard before it is known where the request stands: most likely ours

    async def answered(self, submission: Submission) -> Reply:
        """Listen, send, and wait for the acknowledgement and for the reply, whichever order they come in.

        The request is let go of once it is sent. Errors: as long as it was not handed over, whatever says that nothing was sent; afterwards
        as `Submitter` has them, and with the acknowledgement AskTimeout or ReplyGone.
        """
        connection = self._connection
        listener = connection.listener
        topic = submission.topic or connection.topics.requests
        partition, watch = await patiently(partial(self._listen, topic, submission.key or b""))
        first = hearing(watch, None)
        try:
            self._outgoing, acknowledged = connection.send(submission)
            del submission
            return await self._heard(watch, first, acknowledged, partition)
        finally:
            first.cancel()
            listener.release(watch)
            if self._outgoing is not None:
                self._outgoing.withdraw()

    async def _listen(self, topic: str, key: bytes) -> tuple[int, Watch]:
        """Listen where the reply will come, and tell the request's partition."""
        connection = self._connection
        partition = partition_for(key, await connection.count(topic))
        refuse_own_lane(topic, partition, key=key, siblings=connection.request_topics)
        return partition, await connection.listener.watch(self._request_id, [await connection.reply_place(partition)])

    def late(self, timeout_s: float) -> DispatcherError:
        """Say what is known of an ask whose time is over."""
        if self._receipt is not None:
            text, hint = (
                f"no reply to request {self._request_id} within {timeout_s:g} s",
                "it will be answered: wait for it with its receipt",
            )
            topic = self._connection.reply_topic
            if topic is not None:
                hint += f"; workers whose topics.reply_topics lacks {topic} answer in {self._connection.topics.replies}"
            return AskTimeout(text, hint, receipt=self._receipt)
        if self._outgoing is not None and not self._outgoing.withdraw():
            return unknown(self._request_id)
        return self._connection.unsent(timeout_s)

    async def _heard(self, watch: Watch, first: asyncio.Task[Reply], acknowledged: asyncio.Future[Receipt], partition: int) -> Reply:
        """Wait for a request that is on its way. What is heard is ours once the acknowledgement says where the request stands."""
        both: set[asyncio.Future[Any]] = {acknowledged, first}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        deaf = first.exception() if first.done() else None
        if deaf is not None and self._outgoing is not None and self._outgoing.withdraw():
            raise deaf
        if first.done() and deaf is None:
            self.early = first.result()
            await asyncio.wait({acknowledged})
            if acknowledged.exception() is not None:
                return self.early
        receipt = self._receipt = self._connection.receipt(await acknowledged)
        self._outgoing = self.early = None
        first.cancel()
        try:
            if receipt.partition != partition:
                # The request topic has grown under us: the reply stands elsewhere, perhaps already.
                self._connection.forget_counts()
                return await Waiting(self._connection, sought(receipt, (receipt.topic,))).found()
            # From what was heard first on: now it is known whose it is.
            return await next_reply(watch, (receipt.topic, receipt.partition, receipt.offset))
        except ReplyGone:
            raise
        except DispatcherError as error:
            raise AskTimeout(
                f"request {self._request_id} is in its topic, and its reply cannot be waited for: {error.message}",
                "it will be answered: wait for it with its receipt",
                receipt=receipt,
            ) from error


def unknown(request_id: str) -> SubmitUnknown:
    """Say that nobody knows whether a request is in its topic."""
    return SubmitUnknown(f"no acknowledgement for request {request_id} in time", UNKNOWN_HINT, request_id=request_id)
