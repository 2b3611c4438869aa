"""A worker as a user of pyrallel-consumer 1.0 writes it by its README and examples: read requests, call, reply; each key in order.

Runs in a virtualenv of its own and imports nothing of this project: only the library, aiohttp, orjson and confluent-kafka. Its settings
are the one argument, JSON. What it tells the judges stands in headers: of each call where the request stands and which process this is, of
each reply where its request stands; and its log tells, with the library's own sentence, which partitions it lost.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from threading import Event, Thread
from typing import Any

import aiohttp
import orjson
from confluent_kafka import KafkaError, Message, Producer
from pyrallel_consumer.config import AsyncConfig, ExecutionConfig, KafkaConfig, ParallelConsumerConfig  # type: ignore[import-not-found]
from pyrallel_consumer.consumer import PyrallelConsumer  # type: ignore[import-not-found]
from pyrallel_consumer.dto import ExecutionMode, OrderingMode, WorkItem  # type: ignore[import-not-found]

POLL_S = 0.1
# These are no answers: the library's own retry asks again.
RETRYABLE = frozenset({408, 429})
# A task may take as long as the call, and what librdkafka takes to give a reply up (300 s): no call is repeated since its reply is slow.
TASK_TIMEOUT_MS = 330_000


def configured(given: dict[str, Any]) -> KafkaConfig:
    """Give the library its settings: key or partition order, its own retry with our policy's figures, its dead letters."""
    execution = ExecutionConfig(
        mode=ExecutionMode.ASYNC,
        max_retries=given["attempts_max"],
        retry_backoff_ms=int(given["backoff_base_s"] * 1000),
        max_retry_backoff_ms=int(given["backoff_max_s"] * 1000),
        # "Use max_revoke_grace_ms to ensure cleanup time during rebalancing", its guide says.
        max_revoke_grace_ms=int(given["drain_s"] * 1000),
        async_config=AsyncConfig(task_timeout_ms=TASK_TIMEOUT_MS, shutdown_grace_timeout_ms=int(given["drain_s"] * 1000)),
    )
    ordering = OrderingMode.KEY_HASH if given["ordering"] == "key" else OrderingMode.PARTITION
    return KafkaConfig(
        BOOTSTRAP_SERVERS=given["bootstrap"],
        CONSUMER_GROUP=given["group"],
        SESSION_TIMEOUT_MS=int(given["session_s"] * 1000),
        AUTO_OFFSET_RESET="earliest",
        parallel_consumer=ParallelConsumerConfig(ordering_mode=ordering, execution=execution),
    )


class Replies:
    """An idempotent producer; `send` returns when the brokers have the reply. A thread of its own serves its callbacks."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
        self._is_over = Event()
        self._thread = Thread(target=self._serve, daemon=True)
        self._thread.start()

    async def send(self, item: WorkItem, value: bytes) -> None:
        delivered: asyncio.Future[None] = self._loop.create_future()

        def told(error: KafkaError | None, _: Message) -> None:
            self._loop.call_soon_threadsafe(_settle, delivered, error)

        headers: dict[str, str | bytes | None] = {
            "dispatcher-request-partition": str(item.tp.partition),
            "dispatcher-request-offset": str(item.offset),
        }
        # In the order of partitions the library puts the partition's number in the place of the record's key.
        key = item.key if isinstance(item.key, bytes) else None
        self._producer.produce(self._topic, value, key, partition=item.tp.partition, headers=headers, on_delivery=told)
        await delivered

    def close(self) -> None:
        self._producer.flush(20)
        self._is_over.set()
        self._thread.join()

    def _serve(self) -> None:
        while not self._is_over.is_set():
            self._producer.poll(POLL_S)


def _settle(delivered: asyncio.Future[None], error: KafkaError | None) -> None:
    if delivered.done():
        return  # its task was cancelled
    if error is None:
        delivered.set_result(None)
    else:
        delivered.set_exception(RuntimeError(str(error)))


async def run(given: dict[str, Any]) -> None:
    """Work until SIGTERM; whatever the library cannot go on with is raised."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    replies = Replies(given["bootstrap"], given["replies"])
    # No call waits for a connection, which would count as its time: the library bounds what is in flight.
    pool, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=given["call_timeout_s"])
    async with aiohttp.ClientSession(connector=pool, timeout=timeout) as session:

        async def work(item: WorkItem) -> None:
            request = orjson.loads(item.payload)
            headers = {
                # The same for each attempt, wherever it is made: a callee that keeps answers by it is not asked twice.
                "Idempotency-Key": f"{item.tp.topic}/{item.tp.partition}/{item.offset}",
                "Dispatcher-Partition": str(item.tp.partition),
                "Dispatcher-Offset": str(item.offset),
                "Dispatcher-Epoch": str(given["process"]),
            }
            async with session.post(given["upstream"] + request["path"], json=request["body"], headers=headers) as answer:
                body = await answer.read()
            if answer.status >= 500 or answer.status in RETRYABLE:
                raise RuntimeError(f"status {answer.status}")
            await replies.send(item, orjson.dumps({"status": answer.status, "body": body.decode(errors="replace")}))

        consumer = PyrallelConsumer(configured(given), work, topic=given["requests"])
        await consumer.start()
        ends = [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(consumer.wait_closed())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        try:
            await consumer.stop()
        finally:
            await asyncio.to_thread(replies.close)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(created)f %(levelname)s %(name)s: %(message)s")
    asyncio.run(run(json.loads(sys.argv[1])))
