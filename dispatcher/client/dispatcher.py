"""The client for programs: `Dispatcher` (asyncio). `SyncDispatcher` in `sync.py` has the same names without `await`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dispatcher.adapters import config as configuration
from dispatcher.client.call import Call, Request
from dispatcher.client.reply import DeadLetter, Reply
from dispatcher.core.submission import Receipt
from dispatcher.errors import ConfigError, DispatcherError
from dispatcher.settings import Settings

# Asks and waits that are open at once; more wait for their turn, within their own time.
ASKS_MAX = 1000
# A request without an acknowledgement for so long has an unknown end: an election of a leader takes seconds.
ACK_TIMEOUT_S = 30.0
# A lane may be busy with one call for a minute, and an ask is mostly made by somebody who waits for it.
ASK_TIMEOUT_S = 120.0


class Dispatcher:
    """Sends requests and waits for their replies. Belongs to the event loop that entered it; an async context manager.

    Settings are those given, else they are loaded as the command line loads them: environment > `config` (TOML) > default;
    `bootstrap_servers` goes before all. `reply_topic` (one of the workers' `topics.reply_topics`) and `reply_partition` send the replies
    of `ask` and `submit` where only this tenant may read.

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
        self._reply_to = (reply_topic, reply_partition)
        self._asks_max = asks_max
        self._ack_timeout_s = ack_timeout_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of everything; what is still open ends with an error. May be repeated."""

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
        """Put a request into the lane of `key` and return its receipt once Kafka has it; arguments as in `Request`."""
        request = Request(call, key, request_id, deadline, credential, timeout_s, attempts_max, metadata)
        raise DispatcherError(f"submit is not built yet: {request.key}")

    def submit_many(self, requests: Iterable[Request] | AsyncIterable[Request]) -> AsyncIterator[Receipt | DispatcherError]:
        """Submit requests in their order and yield, in that order, a receipt or the error for each."""
        raise DispatcherError(f"submit_many is not built yet: {requests}")

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
        """Submit a request and return its reply, whatever its status, within `timeout` seconds."""
        request = Request(call, key, request_id, deadline, credential, timeout_s, attempts_max, metadata)
        raise DispatcherError(f"ask is not built yet: {request.key} {timeout}")

    async def wait(self, receipt: Receipt | str, *, timeout: float | None = None) -> Reply:  # noqa: ASYNC109 - as in `ask`
        """Return the reply to a request that somebody submitted: by its receipt, its id, or its position `topic/partition/offset[@id]`."""
        raise DispatcherError(f"wait is not built yet: {receipt} {timeout}")

    def replies(
        self,
        start: str = "end",
        *,
        end: str | None = None,
        follow: bool = True,
        key: str | None = None,
        request_id: str | None = None,
        partitions: Sequence[int] | None = None,
    ) -> AsyncIterator[Reply]:
        """Read replies from a position (`start`, `end`, `@-1h`, an offset, …) on; without `follow` only up to the end that is there now."""
        raise DispatcherError(f"replies is not built yet: {start} {end} {follow} {key} {request_id} {partitions}")

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
    ) -> AsyncIterator[DeadLetter]:
        """Read dead letters; arguments as in `replies`, and the `reason` of the closed list."""
        raise DispatcherError(f"dead_letters is not built yet: {start} {end} {follow} {key} {request_id} {reason} {partitions}")


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
